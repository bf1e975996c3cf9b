"""Signing in: keypair, password, browser."""

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


async def test_a_keypair_is_remembered_and_forgotten(
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


@pytest.mark.parametrize("damaged", [False, True])
async def test_signing_out_forgets_also_when_the_hub_is_away(
    bai: Bai, tmp_path: Path, damaged: bool
) -> None:
    """Nobody answers there; or nobody can say which hub it was."""
    file = tmp_path / "config/config.json"
    away = profile.Profile("http://127.0.0.1:9", Token("x"), "user")
    profile.save(away, {"BAI_CONFIG_DIR": str(file.parent)})
    if damaged:
        file.write_text("{")
    done = await bai("logout", by=None)
    assert (done.code, done.stdout, file.exists()) == (0, "signed out\n", False)
    assert ("could not be withdrawn" in done.stderr) is not damaged
    assert ("http://127.0.0.1:9/hub/token" in done.stderr) is not damaged
    again = await bai("logout", "--json", by=None)
    assert again.document == {"signed_out": False, "token_withdrawn": None}


@pytest.mark.parametrize("stdin", ["wrong\n", "wrong"])
async def test_a_wrong_password_saves_nothing(
    bai: Bai, hub_url: str, tmp_path: Path, stdin: str
) -> None:
    arguments = ("login", hub_url, "--user", "user", "--password-stdin", "--json")
    done = await bai(*arguments, by=None, stdin=stdin)
    assert (done.code, done.error["error"]) == (5, "sign-in-refused")
    assert not (tmp_path / "config").exists()


async def test_too_many_failures_are_not_allowed_either(bai: Bai, hub_url: str) -> None:
    arguments = ("login", hub_url, "--user", "user", "--password-stdin", "--json")
    for _ in range(10):
        done = await bai(*arguments, by=None, stdin="wrong\n")
    done = await bai(*arguments, by=None, stdin="wrong\n")
    assert (done.code, done.error["error"]) == (5, "sign-in-blocked")


async def test_nothing_on_standard_input_is_wrong_use(bai: Bai, hub_url: str) -> None:
    done = await bai("login", hub_url, "--user", "user", "--password-stdin", by=None)
    assert (done.code, "the password is empty" in done.stderr) == (2, True)


async def test_a_password_is_changed(bai: Bai, api: Api, hub_url: str) -> None:
    await api.world.set_password("user")
    change = ("password", "--user", "user", "--url", hub_url, "--password-stdin", "--json")
    refused = await bai(*change, by=None, stdin=f"{PASSWORD}\nshort\n")
    assert (refused.code, refused.error["error"]) == (2, "invalid-request")
    done = await bai(*change, by=None, stdin=f"{PASSWORD}\nAn0ther one!\n")
    assert done.document == {"username": "user"}
    again = await bai(*change, by=None, stdin=f"{PASSWORD}\nAn0ther one!\n")
    assert again.code == 5


async def test_whose_password_where_must_be_known(bai: Bai) -> None:
    done = await bai("password", "--password-stdin", by=None)
    assert (done.code, "--url URL and --user NAME" in done.stderr) == (2, True)


class Page:
    """Stands in for the person's browser: is told an address, answers where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        monkeypatch.setattr(browser.webbrowser, "open", self.addresses.append)

    async def asked(self) -> dict[str, str]:
        await wait_until_async(lambda: self.addresses, 10, "an address to open")
        parts = urlsplit(self.addresses[0])
        assert parts.path == "/services/bai/cli-login"
        return {name: values[0] for name, values in parse_qs(parts.query).items()}


async def test_the_browser_brings_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(monkeypatch)
    asking = asyncio.create_task(browser.ask("http://hub.example/services/bai", opens=True))
    asked = await page.asked()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{asked['port']}") as http:
        for query in ({}, {"code": "c"}, {"code": "evil", "state": "guessed"}):
            assert (await http.get("/", params=query)).status_code == 404
        posted = await http.post("/", params={"code": "evil", "state": asked["state"]})
        assert posted.status_code == 404
        right = await http.get("/", params={"code": "the-code", "state": asked["state"]})
    assert (right.status_code, "Signed in" in right.text) == (200, True)
    code, verifier = await asking
    digest = hashlib.sha256(verifier.encode()).digest()
    assert code == "the-code"
    assert asked["challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def test_a_browser_that_says_nothing_does_not_block_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Page(monkeypatch)
    asking = asyncio.create_task(browser.ask("http://hub.example/services/bai", opens=True))
    asked = await page.asked()
    _, silent = await asyncio.open_connection("127.0.0.1", int(asked["port"]))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{asked['port']}") as http:
        await http.get("/", params={"code": "the-code", "state": asked["state"]})
    assert (await asking)[0] == "the-code"
    silent.close()
    await silent.wait_closed()
