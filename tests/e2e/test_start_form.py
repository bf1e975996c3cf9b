"""The start form on the Hub, and the addresses that lead to a session."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bai_services.i18n.catalogue import LANGUAGES, translator
from tests.e2e.lab import sign_in
from tests.e2e.sessions import checked, wait_for
from tests.e2e.test_login_page import CONTRASTS
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Route

pytestmark = pytest.mark.e2e


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user``.

    The fixture waits until the agent has free cores; after the test, it ends the sessions of
    ``user``.
    """
    with hub.rest("user") as client:
        wait_until(lambda: has_free_cores(client), 60, "the agent to have free cores")
        yield client
        live = [s for s in client.get("/sessions").json()["items"] if not is_ended(s)]
        for session in live:
            client.delete(f"/sessions/{session['id']}", params={"force": "true"})
        for session in live:
            wait_until(
                lambda s=session: is_ended(read_session(client, s["id"])),
                60,
                "the end of the session",
            )


@pytest.fixture
def client(hub: RunningHub) -> Iterator[httpx.Client]:
    """A browser in which ``user`` is signed in."""
    with hub.sign_in("user") as signed_in:
        yield signed_in


@pytest.fixture
def other_rest(hub: RunningHub) -> httpx.Client:
    """The REST API as ``user2``."""
    return hub.rest("user2")


@pytest.fixture
def other(hub: RunningHub) -> Iterator[httpx.Client]:
    """A browser in which ``user2`` is signed in."""
    with hub.sign_in("user2") as signed_in:
        yield signed_in


def has_free_cores(client: httpx.Client) -> bool:
    return client.get("/sessions/options").json()["limits"].get("cpu", {}).get("now", "0") != "0"


def is_ended(session: dict[str, Any]) -> bool:
    return session["status"] in ("TERMINATED", "CANCELLED", "ERROR")


def live_session_ids(client: httpx.Client) -> set[str]:
    page = client.get("/sessions", params={"sort": "-created_at"}).json()
    return {session["id"] for session in page["items"] if not is_ended(session)}


def read_session(client: httpx.Client, key: str) -> dict[str, Any]:
    return dict(checked(client.get(f"/sessions/{key}"), 200))


def wait_until_served(client: httpx.Client, session: dict[str, Any]) -> None:
    """Wait for the route of a server, which the Hub adds after the session is RUNNING."""
    wait_until(
        lambda: client.get(f"{session['url']}api").status_code == HTTPStatus.OK,
        60,
        "the route of the server",
    )


def send_form(hub: RunningHub, client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    page = client.get(path)
    assert page.status_code == HTTPStatus.OK, page.text
    xsrf = client.cookies.get("_xsrf", path="/hub/")
    files = {name: (None, value) for name, value in fields.items()}
    return client.post(path, params={"_xsrf": xsrf}, files=files)


def script_json(page: str, element: str) -> Any:
    """Return the JSON of a script element of a page."""
    match = re.search(rf'<script type="application/json" id="{element}">(.*?)</script>', page, re.S)
    assert match is not None, page[-3000:]
    return json.loads(match[1])


def create_folder(client: httpx.Client, name: str) -> str:
    return str(checked(client.post("/vfolders", json={"name": name}), 201)["id"])


def create_session(client: httpx.Client, name: str) -> dict[str, Any]:
    created: dict[str, Any] = checked(client.post("/sessions", json={"name": name}), 201)
    return created


def delete_folder(client: httpx.Client, folder_id: str) -> None:
    checked(client.delete(f"/vfolders/{folder_id}"), 204)


def test_the_form_offers_the_start_options_of_the_manager(
    hub: RunningHub, rest: httpx.Client, client: httpx.Client
) -> None:
    page = client.get("/hub/spawn", headers={"Accept-Language": "ja"}).text

    offered = script_json(page, "bai-offers")
    options = rest.get("/sessions/options").json()
    assert [p["name"] for p in offered["projects"]] == [p["name"] for p in options["projects"]]
    shown = offered["by_choice"][f"{offered['project']}/"]
    assert shown["limits"].keys() == options["limits"].keys()
    assert "セッションを開始" in page


async def description_of_the_share(page: Page) -> str:
    """Return the screen-reader description of the GPU share field; assert that it is visible."""
    field = page.locator('input[name="resource:cuda.shares"]')
    names = (await field.get_attribute("aria-describedby") or "").split()
    lines = [page.locator(f"#{name}") for name in names]
    assert all([await line.is_visible() for line in lines])
    return " ".join([await line.inner_text() for line in lines])


async def respond_with_mps_enforcement(route: Route) -> None:
    """Change the response as if MPS enforced shares, with shares of a quarter of a GPU in force."""
    answer = await route.fetch()
    enforced = '"enforcement": "process", "in_force": ["0.25"]'
    text = (await answer.text()).replace('"enforcement": "none"', enforced)
    await route.fulfill(response=answer, body=text)


@pytest.mark.browser
async def test_the_form_shows_the_enforcement_level_of_shares(
    hub: RunningHub, rest: httpx.Client, browser: Browser
) -> None:
    page = await browser.new_page(color_scheme="light")
    await sign_in(page, hub, "user")
    for language in LANGUAGES:
        await page.set_extra_http_headers({"Accept-Language": language})
        await page.goto(f"{hub.url}/hub/spawn/user")
        # Shares of the demo's simulated GPUs are not enforced.
        texts = await description_of_the_share(page)
        assert translator(language)("spawn.enforcement-none") in texts
    await page.route("**/hub/spawn/user", respond_with_mps_enforcement)
    for language in LANGUAGES:
        await page.set_extra_http_headers({"Accept-Language": language})
        await page.goto(f"{hub.url}/hub/spawn/user")
        translate = translator(language)
        texts = await description_of_the_share(page)
        level = translate("spawn.enforcement-process")
        sizes = translate("spawn.uniform-shares", amounts="0.25")
        assert f"{level} {sizes}" in texts
    for theme in ("light", "dark"):
        assert await page.locator("html").get_attribute("data-bs-theme") == theme
        contrasts = await page.evaluate(CONTRASTS.replace("main *", ".bai-held *"))
        assert contrasts and min(contrasts.values()) >= 4.5, theme
        await page.click("#dark-theme-toggle")


@pytest.mark.browser
async def test_old_addresses_lead_to_the_launcher_and_to_the_session(
    hub: RunningHub, rest: httpx.Client, browser: Browser
) -> None:
    session = create_session(rest, "by-old-address")
    page = await browser.new_page()
    await sign_in(page, hub, "user")
    await page.goto(f"{hub.url}/hub/spawn")
    await page.wait_for_url(f"{hub.url}/services/bai/launch**")
    await page.get_by_role("button", name="Start the session").wait_for()
    await page.goto(hub.url + session["page"])
    await page.wait_for_url(f"**/sessions?**session={session['id']}")
    await page.get_by_role("dialog").get_by_text("by-old-address", exact=True).first.wait_for()
    await page.close()

    without_scripts = await browser.new_context(java_script_enabled=False)
    page = await without_scripts.new_page()
    await sign_in(page, hub, "user")
    await page.goto(f"{hub.url}/hub/spawn")
    await page.locator("#spawn_form button[type=submit]").wait_for()
    await without_scripts.close()


def test_a_rejected_form_shows_the_error_and_the_submitted_values(
    hub: RunningHub, other: httpx.Client, other_rest: httpx.Client
) -> None:
    live_before = live_session_ids(other_rest)
    # The test uses user2, because the Hub stores the values and they would appear in the forms of
    # other tests.
    answer = send_form(
        hub,
        other,
        "/hub/spawn",
        language="ko",
        project="<b>nowhere</b>",
        environ_name="COLOUR",
        environ_value="blue & green",
    )

    assert answer.status_code == HTTPStatus.NOT_FOUND
    assert "spawn-error-msg" in answer.text
    assert "<b>nowhere</b>" not in answer.text
    assert "you are not in a project '<b>nowhere</b>'" in html.unescape(answer.text)
    values = script_json(answer.text, "bai-values")
    assert values["environ"] == {"COLOUR": "blue & green"}
    assert "세션 시작" in answer.text
    assert live_session_ids(other_rest) <= live_before


def test_invalid_ports_are_rejected_and_shown_again(
    hub: RunningHub, other: httpx.Client, other_rest: httpx.Client
) -> None:
    live_before = live_session_ids(other_rest)
    for sent, why in (
        ("8501 2200", "port 2200 is used by the session itself"),
        ("9000,9000", "duplicate port 9000"),
        ("70000", "port 70000: ports must be 1025 to 65534"),
        ("http", "preopen_ports.0"),
    ):
        answer = send_form(hub, other, "/hub/spawn", preopen_ports=sent)
        assert answer.status_code == HTTPStatus.BAD_REQUEST, answer.text
        assert why in html.unescape(answer.text), sent
        # The field is marked and linked even before a script runs.
        assert re.search(r'id="bai-ports"[^>]*aria-invalid="true" autofocus', answer.text)
        assert 'id="bai-ports-refused"' in answer.text and 'href="#bai-ports"' in answer.text
        assert answer.text.count("spawn-error-msg") == 1
        kept = script_json(answer.text, "bai-values")["preopen_ports"]
        assert kept.replace(",", "").split() == sent.replace(",", " ").split()
    assert live_session_ids(other_rest) <= live_before


def test_user_options_of_the_hub_api_are_validated(
    hub: RunningHub, rest: httpx.Client, client: httpx.Client
) -> None:
    client.get("/hub/home")
    xsrf = client.cookies.get("_xsrf", path="/hub/") or ""
    for options, status in (
        ({"owner": "user2"}, HTTPStatus.BAD_REQUEST),
        ({"bai_session_id": "00000000-0000-0000-0000-000000000000"}, HTTPStatus.NOT_FOUND),
        ({"resources": {"cpu": "9000"}}, HTTPStatus.CONFLICT),
    ):
        answer = client.post(
            "/hub/api/users/user/servers/checked",
            json={"user_options": options},
            headers={"X-XSRFToken": xsrf, "Referer": f"{hub.url}/hub/home"},
        )
        assert answer.status_code == status, answer.text
        assert "Internal" not in answer.text


def test_a_server_cannot_use_the_session_of_another_user(
    hub: RunningHub, rest: httpx.Client, other: httpx.Client
) -> None:
    session = checked(rest.post("/sessions", json={"name": "mine-alone"}), 201)
    other.get("/hub/home")
    xsrf = other.cookies.get("_xsrf", path="/hub/") or ""

    answer = other.post(
        "/hub/api/users/user2/servers/stolen",
        json={"user_options": {"bai_session_id": session["id"]}},
        headers={"X-XSRFToken": xsrf, "Referer": f"{hub.url}/hub/home"},
    )

    assert answer.status_code == HTTPStatus.NOT_FOUND, answer.text
    page = other.get(session["page"], follow_redirects=True)
    assert page.status_code == HTTPStatus.NOT_FOUND
    assert "mine-alone" not in page.text


def test_the_form_starts_a_session_that_the_session_page_can_stop(
    hub: RunningHub, rest: httpx.Client, client: httpx.Client
) -> None:
    fields = {"resource:cpu": "1", "resource:mem": "0.5", "resource:mem:unit": "g"}
    fields |= {"preopen_ports": "8501, 9000"}

    answer = send_form(hub, client, "/hub/spawn/user/formed", **fields)

    assert answer.status_code == HTTPStatus.FOUND, answer.text
    session = wait_until(lambda: live_session_of(rest, "formed"), 30, "the session")
    session = wait_for(rest, session["id"], "RUNNING")
    assert session["requested"] == {"cpu": "1", "mem": "512m"}
    assert (session["name"], session["preopen_ports"]) == ("formed", [8501, 9000])
    wait_until_served(client, session)

    # The session panel in JupyterLab needs the session's token, so the Hub's token page has no
    # button to revoke it.
    tokens = client.get("/hub/token").text
    row = tokens[tokens.index("Server at /user/user/formed") :].partition("</tr>")[0]
    assert "Used by this session itself" in row and "revoke" not in row

    page = client.get(session["page"], follow_redirects=True)
    assert page.url.path == "/services/bai/sessions"
    assert page.url.params["session"] == session["id"]
    xsrf = re.search(r'"xsrfToken": "([^"]+)"', html.unescape(page.text))
    assert xsrf is not None
    path = f"{hub.api}/sessions/{session['id']}"
    assert client.delete(path).status_code == HTTPStatus.FORBIDDEN
    stopped = client.delete(path, headers={"X-XSRFToken": xsrf[1]})
    assert stopped.status_code == HTTPStatus.ACCEPTED, stopped.text
    ended = wait_for(rest, session["id"], "TERMINATED")
    assert ended["result"] == "undefined"
    log = f"/sessions/{session['id']}/logs"
    assert "Shutting down" in rest.get(log).json()["log"]
    timed = rest.get(log, params={"times": "true", "search": "shutting down"}).json()
    assert timed["has_times"] and timed["matches"][0]["text"].startswith(ended["started_at"][:4])


def live_session_of(rest: httpx.Client, server: str) -> dict[str, Any] | None:
    live = [s for s in rest.get("/sessions").json()["items"] if not is_ended(s)]
    return next((s for s in live if s["hub_server"] == server), None)


def test_browser_that_is_not_signed_in_is_redirected_to_the_hub(hub: RunningHub) -> None:
    with hub.client() as client:
        answer = client.get("/services/bai/sessions/00000000-0000-0000-0000-000000000000")
        assert answer.status_code == HTTPStatus.FOUND
        assert answer.headers["Location"].startswith("/hub/api/oauth2/authorize?")
        assert "code_challenge" in answer.headers["Location"]


def test_start_that_exceeds_the_grace_period_continues_as_a_pending_session(
    hub: RunningHub, rest: httpx.Client, client: httpx.Client
) -> None:
    """The spawn-pending page links to the session, which starts when resources become free."""
    now = rest.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
    filler = checked(
        rest.post("/sessions", json={"name": "filler", "resources": {"cuda.shares": now}}), 201
    )
    wait_for(rest, filler["id"], "RUNNING")
    # With a smaller amount, the session could start when a session of another test ends.
    answer = send_form(hub, client, "/hub/spawn/user/queued", **{"resource:cuda.shares": now})

    assert answer.status_code == HTTPStatus.FOUND
    session = wait_until(lambda: live_session_of(rest, "queued"), 30, "the session")
    wait_until(
        lambda: read_session(rest, session["id"])["started_by"] == "manager",
        60,
        "the end of the grace period",
    )
    wait_until(
        lambda: "data-bai-queued" in client.get("/hub/spawn-pending/user/queued").text,
        60,
        "the page of a pending session",
    )
    page = client.get("/hub/spawn-pending/user/queued")
    assert session["page"] in page.text
    assert "Spawn failed" not in page.text
    waiting = read_session(rest, session["id"])
    assert waiting["status"] == "PENDING"
    assert any(not reason["passed"] for reason in waiting["reasons"])

    checked(rest.delete(f"/sessions/{filler['id']}"), 202)
    started = wait_for(rest, session["id"], "RUNNING")
    wait_until_served(client, started)


@pytest.mark.browser
async def test_rejected_form_marks_a_deleted_folder_and_discards_secrets(
    hub: RunningHub, rest: httpx.Client, browser: Browser, tmp_path: Path
) -> None:
    folder_id = create_folder(rest, "soon-gone")
    kept_id = create_folder(rest, "kept-on")
    page = await browser.new_page(color_scheme="light", viewport={"width": 1100, "height": 1600})
    await sign_in(page, hub, "user")
    await page.goto(f"{hub.url}/hub/spawn/user")
    await page.click("#bai-add-mount")
    await page.select_option("select[name=mount_vfolder]", label="soon-gone")
    await open_advanced_section(page)
    await page.fill("#bai-ports", "")
    await page.click("#bai-add-variable")
    await page.fill("input[name=environ_name]", "TOKEN")
    await page.fill("input[name=environ_value]", "s3cret-value")
    await page.check(".bai-secret input[type=checkbox]")
    # Delete the folder before the form is submitted, so that the manager rejects the form and the
    # Hub shows it again.
    delete_folder(rest, folder_id)
    await page.click("#spawn_form button[type=submit]")
    await page.locator(".spawn-error-msg").wait_for()
    assert "s3cret-value" not in await page.content()
    model = await page.evaluate(
        "fetch('/hub/api/users/user', {headers: {'X-XSRFToken': window.jhdata.xsrf_token}})"
        ".then(answer => answer.text())"
    )
    assert '"name": "user"' in model and "s3cret-value" not in model
    select = page.locator("select[name=mount_vfolder]")
    for language in ("en", "ko"):
        await page.set_extra_http_headers({"Accept-Language": language})
        await page.goto(f"{hub.url}/hub/spawn/user")
        translate = translator(language)
        await page.get_by_text(translate("spawn.folder-gone", name="soon-gone")).wait_for()
        described = await select.get_attribute("aria-describedby")
        assert await page.locator(f"#{described}").is_visible()
        assert await page.input_value("input[name=environ_name]") == "TOKEN"
        assert await page.input_value("input[name=environ_value]") == ""
        await page.screenshot(path=tmp_path / f"form-{language}.png")
    # The form cannot be submitted; the invalid field gets the focus.
    await page.fill("input[name=environ_value]", "again")
    await page.click("#spawn_form button[type=submit]")
    await page.locator("select[name=mount_vfolder]:focus").wait_for()
    await page.click("#bai-reset")
    await page.locator("#bai-reset").wait_for(state="hidden")
    assert await select.count() == 0
    assert await page.locator("input[name=environ_name]").count() == 0
    # The Hub has also deleted its copy of the values: the next form does not contain them.
    await page.goto(f"{hub.url}/hub/spawn/user")
    assert await page.locator("select[name=mount_vfolder], input[name=environ_name]").count() == 0
    assert await page.locator("#bai-reset").is_hidden()
    await check_the_error_of_each_field(page, tmp_path)
    # The next form does not show the errors again.
    await page.goto(f"{hub.url}/hub/spawn/user")
    assert await page.locator("#bai-refused, .bai-start [id$=-refused]").count() == 0
    await page.close()
    delete_folder(rest, kept_id)


async def open_advanced_section(page: Page) -> None:
    """Open the section; it is already open if the user's last start used one of its fields."""
    if await page.locator("#bai-more[open]").count() == 0:
        await page.click("#bai-more summary")
    await page.locator("#bai-ports").wait_for()


async def check_the_error_of_each_field(page: Page, tmp_path: Path) -> None:
    await open_advanced_section(page)
    await page.click("#bai-add-mount")
    await page.select_option("select[name=mount_vfolder]", label="kept-on")
    await page.fill("input[name=mount_path]", "../out")
    await page.fill("#bai-amount-cpu", "-1")
    await page.fill("#bai-shm", "-1")
    await page.fill("#bai-name", "a b")
    await page.fill("#bai-ports", "2200")
    await page.click("#bai-add-variable")
    await page.fill("input[name=environ_name]", "BAI_X")
    await page.fill("input[name=environ_value]", "1")
    # Disable the validation in the browser, so that the manager validates the fields.
    await page.evaluate("document.getElementById('spawn_form').noValidate = true")
    await page.click("#spawn_form button[type=submit]")
    await page.locator("#bai-refused").wait_for()
    assert "_xsrf" not in page.url
    wrong = {
        "#bai-name": "'a b' cannot be the name of a session",
        "#bai-amount-cpu": "cpu=-1",
        "#bai-mount-0-path": "it must not contain '..'",
        "#bai-shm": "mem=-1m",
        "#bai-ports": "port 2200 is used by the session itself",
        "#bai-variable-BAI_X": "BAI_X is reserved",
    }
    assert await page.locator(".spawn-error-msg").count() == 1
    assert await page.locator("#bai-refused a").count() == len(wrong)
    for selector, why in wrong.items():
        field = page.locator(selector)
        assert await field.get_attribute("aria-invalid") == "true"
        names = (await field.get_attribute("aria-describedby") or "").split()
        texts = [await page.locator(f"#{name}").inner_text() for name in names]
        assert any(why in text for text in texts), (selector, texts)
        assert await field.is_visible()
    assert await page.locator("#bai-amount-cpu:focus").count() == 1
    assert await page.input_value("#bai-amount-cpu") == "-1"
    for theme in ("light", "dark"):
        assert await page.locator("html").get_attribute("data-bs-theme") == theme
        await page.screenshot(path=tmp_path / f"refused-{theme}.png")
        for part in (".invalid-feedback", "#bai-refused *"):
            contrasts = await page.evaluate(CONTRASTS.replace("main *", part))
            assert contrasts and min(contrasts.values()) >= 4.5, (theme, contrasts)
        await page.click("#dark-theme-toggle")
    await page.click("#bai-refused a[href='#bai-variable-BAI_X']")
    await page.locator("#bai-variable-BAI_X:focus").wait_for()
    await page.fill("#bai-variable-BAI_X", "MINE")
    assert await page.locator("#bai-variable-BAI_X[aria-invalid]").count() == 0
