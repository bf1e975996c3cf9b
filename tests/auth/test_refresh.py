"""Refresh of accounts before each start: only necessary writes, shared calls for a burst."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm

from bai_auth.account import authentication, is_up_to_date
from bai_auth.authenticator import BaiAuthenticator
from bai_auth.single_flight import SingleFlight

ROLE = {"name": "bai-domain-admin-x", "description": "of x", "scopes": ["admin-ui"]}
ACCOUNT: dict[str, Any] = {
    "username": "ada",
    "hub_groups": ["d-x", "p-x-y"],
    "hub_roles": [ROLE],
}


@pytest.fixture
def known() -> Iterator[Any]:
    """Return the Hub's user after ``authentication`` was applied."""
    user = orm.User(name="ada", admin=False)
    user.groups = [orm.Group(name=name) for name in ACCOUNT["hub_groups"]]
    user.roles = [orm.Role(name="user", description="", scopes=["self"]), orm.Role(**ROLE)]
    yield SimpleNamespace(name="ada", admin=False, orm_user=user)


def test_unchanged_account_is_up_to_date(known: Any) -> None:
    default = {"name": "user", "description": "", "scopes": ["self"]}
    told = authentication(ACCOUNT, [default])
    assert {role["name"] for role in told["roles"]} == {"user", ROLE["name"]}
    assert is_up_to_date(known, ACCOUNT)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"hub_groups": ["d-x"]}, id="left a project"),
        pytest.param({"hub_groups": ["d-x", "p-x-y", "p-x-z"]}, id="joined a project"),
        pytest.param({"hub_roles": []}, id="lost the role of a domain admin"),
        pytest.param({"hub_roles": [{**ROLE, "scopes": []}]}, id="scopes of a role changed"),
        pytest.param(
            {"hub_roles": [{**ROLE, "description": "z"}]}, id="description of a role changed"
        ),
        pytest.param({"hub_roles": [ROLE, {**ROLE, "name": "other"}]}, id="additional role"),
    ],
)
def test_changed_account_is_not_up_to_date(known: Any, change: dict[str, Any]) -> None:
    assert not is_up_to_date(known, {**ACCOUNT, **change})


def test_hub_admin_flag_is_removed(known: Any) -> None:
    known.admin = True
    assert not is_up_to_date(known, ACCOUNT)


def test_refresh_age_is_five_minutes() -> None:
    """The administration guide documents it; tests/e2e/test_account_changes.py tests the effect."""
    assert BaiAuthenticator().auth_refresh_age <= 300


class Source:
    """Returns the number of each call after ``may_answer`` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def __call__(self, key: str) -> int:
        self.asked += 1
        number = self.asked
        await self.may_answer.wait()
        if key == "bad":
            raise ValueError(number)
        return number


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_concurrent_calls_share_the_next_call_and_never_an_earlier_result() -> None:
    source = Source()
    flight = SingleFlight(source)
    first = asyncio.create_task(flight("ada"))
    await settle()
    burst = [asyncio.create_task(flight("ada")) for _ in range(20)]
    await settle()
    assert source.asked == 1
    source.may_answer.set()
    assert await first == 1
    assert set(await asyncio.gather(*burst)) == {2}
    assert await flight("ada") == 3


async def test_calls_for_different_keys_are_independent() -> None:
    source = Source()
    flight = SingleFlight(source)
    tasks = [asyncio.create_task(flight(name)) for name in ("ada", "bob")]
    await settle()
    assert source.asked == 2
    source.may_answer.set()
    assert sorted(await asyncio.gather(*tasks)) == [1, 2]


async def test_error_or_cancelled_caller_does_not_affect_others() -> None:
    source = Source()
    flight = SingleFlight(source)
    bad, impatient = (asyncio.create_task(flight("bad")) for _ in range(2))
    await settle()
    impatient.cancel()
    await settle()
    source.may_answer.set()
    with pytest.raises(ValueError, match="1"):
        await bad
    with pytest.raises(ValueError, match="2"):
        await flight("bad")
    assert await flight("ada") == 3
