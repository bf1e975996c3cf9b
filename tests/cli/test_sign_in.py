"""Sign-in with keypair, password and browser, change of the password, and sign-out."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import stat
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from bai_services.cli import profile
from bai_services.cli.accounts import browser
from bai_services.client import Token
from tests.testbed.manager import PASSWORD, Api
from tests.testbed.wait import wait_until_async

from .conftest import Bai


async def test_login_saves_a_keypair_and_logout_deletes_it(
    bai: Bai, api: Api, hub_url: str, tmp_path: Path
) -> None:
    keys = api.world.keys["user"]
    arguments = ("login", hub_url + "/hub/home", "--access-key", keys.access_key)
    done = await bai(
        *arguments, "--secret-key-stdin", "--json", by=None, stdin=keys.secret_key + "\n"
    )
    assert done.document == {"url": hub_url, "username": "user", "role": "user"}
    file = tmp_path / "config/config.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await bai("whoami", "--json", by=None)).document["username"] == "user"
    done = await bai("logout", "--json", by=None)
    assert done.document == {"signed_out": True, "token_withdrawn": None}
    assert not file.exists()
    assert (await bai("whoami", by=None)).code == 5


@pytest.mark.parametrize("damaged", [False, True], ids=["hub unreachable", "invalid file"])
async def test_logout_deletes_the_credential_without_the_hub(
    bai: Bai, tmp_path: Path, damaged: bool
) -> None:
    file = tmp_path / "config/config.json"
    away = profile.Profile("http://127.0.0.1:9", Token("x"), "user")
    profile.save(away, {"BAI_CONFIG_DIR": str(file.parent)})
    if damaged:
        file.write_text("{")
    done = await bai("logout", by=None)
    assert (done.code, done.stdout, file.exists()) == (0, "signed out\n", False)
    assert ("could not be revoked" in done.stderr) is not damaged
    assert ("http://127.0.0.1:9/hub/token" in done.stderr) is not damaged
    again = await bai("logout", "--json", by=None)
    assert again.document == {"signed_out": False, "token_withdrawn": None}


@pytest.mark.parametrize("stdin", ["wrong\n", "wrong"])
async def test_wrong_password_saves_no_profile(
    bai: Bai, hub_url: str, tmp_path: Path, stdin: str
) -> None:
    arguments = ("login", hub_url, "--user", "user", "--password-stdin", "--json")
    done = await bai(*arguments, by=None, stdin=stdin)
    assert (done.code, done.error["error"]) == (5, "sign-in-refused")
    assert not (tmp_path / "config").exists()


async def test_login_is_blocked_after_ten_failures(bai: Bai, hub_url: str) -> None:
    arguments = ("login", hub_url, "--user", "user", "--password-stdin", "--json")
    for _ in range(10):
        done = await bai(*arguments, by=None, stdin="wrong\n")
    done = await bai(*arguments, by=None, stdin="wrong\n")
    assert (done.code, done.error["error"]) == (5, "sign-in-blocked")


async def test_empty_password_is_a_usage_error(bai: Bai, hub_url: str) -> None:
    done = await bai("login", hub_url, "--user", "user", "--password-stdin", by=None)
    assert (done.code, "the password is empty" in done.stderr) == (2, True)


async def test_password_is_changed_only_if_the_new_one_satisfies_the_rules(
    bai: Bai, api: Api, hub_url: str
) -> None:
    await api.world.set_password("user")
    change = ("password", "--user", "user", "--url", hub_url, "--password-stdin", "--json")
    refused = await bai(*change, by=None, stdin=f"{PASSWORD}\nshort\n")
    assert (refused.code, refused.error["error"]) == (2, "invalid-request")
    done = await bai(*change, by=None, stdin=f"{PASSWORD}\nAn0ther one!\n")
    assert done.document == {"username": "user"}
    again = await bai(*change, by=None, stdin=f"{PASSWORD}\nAn0ther one!\n")
    assert again.code == 5


async def test_change_password_needs_user_and_url(bai: Bai) -> None:
    done = await bai("password", "--password-stdin", by=None)
    assert (done.code, "--url URL and --user NAME" in done.stderr) == (2, True)


class FakeBrowser:
    """A fake browser that records the URLs to open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        monkeypatch.setattr(browser.webbrowser, "open", self.addresses.append)

    async def query(self) -> dict[str, str]:
        """Return the query of the sign-in page, once it is opened."""
        await wait_until_async(lambda: self.addresses, 10, "a URL to open")
        parts = urlsplit(self.addresses[0])
        assert parts.path == "/services/bai/cli-login"
        return {name: values[0] for name, values in parse_qs(parts.query).items()}


def request_code() -> asyncio.Task[tuple[str, str]]:
    url = "http://hub.example/services/bai"
    return asyncio.create_task(browser.request_code(url, opens_browser=True))


async def test_code_is_accepted_only_from_a_redirect_with_the_expected_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeBrowser(monkeypatch)
    request = request_code()
    page = await fake.query()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{page['port']}") as http:
        for query in ({}, {"code": "c"}, {"code": "evil", "state": "guessed"}):
            assert (await http.get("/", params=query)).status_code == 404
        posted = await http.post("/", params={"code": "evil", "state": page["state"]})
        assert posted.status_code == 404
        redirect = await http.get("/", params={"code": "the-code", "state": page["state"]})
    assert (redirect.status_code, "Signed in" in redirect.text) == (200, True)
    code, verifier = await request
    digest = hashlib.sha256(verifier.encode()).digest()
    assert code == "the-code"
    assert page["challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def test_idle_connection_does_not_block_the_redirect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeBrowser(monkeypatch)
    request = request_code()
    page = await fake.query()
    _, idle = await asyncio.open_connection("127.0.0.1", int(page["port"]))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{page['port']}") as http:
        await http.get("/", params={"code": "the-code", "state": page["state"]})
    assert (await request)[0] == "the-code"
    idle.close()
    await idle.wait_closed()
