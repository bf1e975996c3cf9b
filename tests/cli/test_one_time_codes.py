"""One-time codes on the command line."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from bai_services.core.accounts.one_time_codes import CodeRules
from bai_services.manager.manager import Manager
from tests.testbed.manager import PASSWORD, Api, MovableClock, manager_on

from .conftest import Bai


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    """A manager whose users may register an authenticator."""
    rules = CodeRules.parse("optional")
    async with manager_on(
        database_url, tmp_path, clock, is_migrated=True, one_time_codes=rules
    ) as made:
        yield made


async def test_the_code_is_asked_for_and_an_administrator_resets_the_authenticator(
    bai: Bai, api: Api, hub_url: str
) -> None:
    world, codes = api.world, api.world.manager.accounts.one_time_codes
    await world.set_password("user")
    caller = await world.caller("user")
    begun = await codes.begin(caller)
    totp = TOTP(base64.b32decode(begun.secret), 6, SHA1(), 30)

    def code() -> str:
        return totp.generate(int(world.clock().timestamp())).decode()

    await codes.confirm(caller, begun.registration, code())
    change = ("password", "--user", "user", "--url", hub_url, "--password-stdin", "--json")
    passwords = f"{PASSWORD}\nAn0ther one!\n"
    refused = await bai(*change, by=None, stdin=passwords)
    assert (refused.code, "code of your authenticator is empty" in refused.stderr) == (2, True)
    refused = await bai(*change, by=None, stdin=f"{passwords}000000\n")
    assert (refused.code, refused.error["error"]) == (5, "sign-in-refused")
    world.clock.advance(seconds=30)
    done = await bai(*change, by=None, stdin=f"{passwords}{code()}\n")
    assert done.document == {"username": "user"}

    shown = await bai("admin", "user", "show", "user", "--json")
    assert shown.document["has_authenticator"] is True
    done = await bai("admin", "user", "reset-authenticator", "user", "--json", by="domain-admin")
    assert done.document == {"username": "user"}
    again = await bai("admin", "user", "reset-authenticator", "user", "--json")
    assert again.error["error"] == "not-found"
