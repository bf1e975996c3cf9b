"""The web UI's page and files through a real Hub: headers, redirects, cookies, XSRF tokens."""

from __future__ import annotations

import re

import httpx
import pytest

from bai_services.webui.assets import WebUI
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e

# Maximum compressed size, in bytes, of the scripts and texts that load before the first page is
# shown; 245,000 bytes when this was written.
MAX_FIRST_SCRIPTS = 285_000


def test_page_has_a_strict_content_policy_and_its_script_is_immutable(hub: RunningHub) -> None:
    with hub.sign_in("user") as client:
        page = client.get("/services/bai/start", follow_redirects=True)
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["Cache-Control"] == "no-store"
    assert re.search(r"<script(?![^>]* src=)", page.text) is None

    script = re.search(r'src="\./(assets/[^"]+\.js)"', page.text)
    assert script is not None
    url = f"{hub.url}/services/bai/{script.group(1)}"
    # Files need no sign-in.
    file = httpx.get(url, headers={"Accept-Encoding": "br"})
    assert file.status_code == 200
    assert file.headers["Content-Encoding"] == "br"
    assert "immutable" in file.headers["Cache-Control"]
    assert httpx.get(f"{hub.url}/services/bai/assets/other.js").status_code == 404


def test_first_page_waits_for_few_scripts() -> None:
    ui = WebUI.load()
    assert ui is not None
    # The page lists the static imports of its script, too.
    scripts = re.findall(r'"\./(assets/[^"]+\.js)"', ui.index)
    texts = [path for path in ui.assets if re.match(r"assets/(en|ko|ja|th)-", path)]
    assert scripts
    sizes = {path: len(ui.assets[path].variants["br"]) for path in [*scripts, *texts]}
    # The texts of one language are loaded before the page is shown.
    first = sum(sizes[path] for path in scripts) + max(sizes[path] for path in texts)
    assert first < MAX_FIRST_SCRIPTS


def test_page_without_sign_in_leads_to_the_login_page(hub: RunningHub) -> None:
    page = httpx.get(f"{hub.url}/services/bai/data", follow_redirects=True)
    assert "/hub/login" in str(page.url)
    assert "bai-config" not in page.text


def test_addresses_without_a_page_lead_to_the_start_page(hub: RunningHub) -> None:
    with hub.sign_in("user") as client:
        for address in ("/services/bai", "/services/bai/"):
            page = client.get(address, follow_redirects=True)
            assert page.status_code == 200
            assert "bai-config" in page.text


def test_scripts_cannot_read_pages(hub: RunningHub) -> None:
    with hub.sign_in("user") as client:
        for path in ("start", "cli-login", "sessions/none"):
            answer = client.get(f"/services/bai/{path}", headers={"Sec-Fetch-Mode": "cors"})
            assert answer.status_code == 403
            assert "xsrf" not in answer.text.lower()


def test_scripts_cannot_read_xsrf_cookies(hub: RunningHub) -> None:
    """Apps have the origin of the Hub: without HttpOnly, their scripts could read XSRF cookies."""
    with hub.sign_in("user") as client:
        client.get("/services/bai/start", follow_redirects=True)
        cookies = [cookie for cookie in client.cookies.jar if cookie.name == "_xsrf"]
    assert {cookie.path for cookie in cookies} == {"/hub/", "/services/bai/"}
    assert all(cookie.has_nonstandard_attr("HttpOnly") for cookie in cookies)


def test_scripts_get_pages_of_the_hub_without_xsrf_token(hub: RunningHub) -> None:
    with hub.sign_in("user") as client:
        token = client.cookies.get("_xsrf", path="/hub/") or ""
        for path in ("home", "token", "spawn/user/new", "change-password", "nothing"):
            assert token in client.get(f"/hub/{path}", follow_redirects=True).text, path
            for mode in ("cors", "same-origin", "no-cors"):
                headers = {"Sec-Fetch-Mode": mode, "X-XSRFToken": token}
                answer = client.get(f"/hub/{path}", headers=headers, follow_redirects=True)
                assert token not in answer.text, f"{path} {mode}"


def test_unknown_page_has_the_status_404(hub: RunningHub) -> None:
    with hub.sign_in("user") as client:
        assert client.get("/services/bai/start", follow_redirects=True).status_code == 200
        assert client.get("/services/bai/nothing", follow_redirects=True).status_code == 404


def test_addresses_that_users_type_lead_to_pages(hub: RunningHub) -> None:
    """A final slash, capital letters and further segments lead to a page, not to a JSON error."""
    for path in ("sessions/", "Sessions", "data/my/folder", "/example.org"):
        answer = httpx.get(f"{hub.url}/services/bai/{path}")
        assert answer.status_code == 302, path
        assert answer.headers["Location"].startswith("/hub/api/oauth2/authorize?"), path
    with hub.sign_in("user") as client:
        for path, status in (("sessions/", 200), ("Sessions", 404), ("data/my/folder", 404)):
            page = client.get(f"/services/bai/{path}", follow_redirects=True)
            assert page.status_code == status, path
            assert "bai-config" in page.text, path
        # Programs that use a wrong path of the API get an error that they can read.
        for path in ("api", "api/v1/no-such-list", "api/v2/me"):
            answer = client.get(f"/services/bai/{path}")
            assert (answer.status_code, answer.json()["error"]) == (404, "not-found"), path


@pytest.mark.checklist("SHELL-05")
def test_the_manual_is_served_without_sign_in_and_without_other_hosts(hub: RunningHub) -> None:
    page = httpx.get(f"{hub.url}/services/bai/manual/user-guide/sessions.html")
    if page.status_code == 404:
        # The manual has not been built; the page says to run `make docs`, and does not require a
        # sign-in.
        assert "make docs" in page.text
        return
    assert 'id="the-queue"' in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=.https?:", page.text) == []
    for path in ("_static/pygments.css", "searchindex.js"):
        assert httpx.get(f"{hub.url}/services/bai/manual/{path}").status_code == 200
    for path in (
        "nothing.html",
        ".built",
        "_static/../.built",
        "_static/%2e%2e/.built",
        "_static/..%2f.built",
    ):
        answer = httpx.get(f"{hub.url}/services/bai/manual/{path}")
        # An address outside of the manual leads to the sign-in.
        assert answer.status_code in {302, 403, 404}, path
