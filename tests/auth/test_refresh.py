"""Refreshing accounts before each start: shared calls for a burst, no needless writes."""

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
    """Return a user as the Hub has them after ``authentication`` was applied."""
    user = orm.User(name="ada", admin=False)
    user.groups = [orm.Group(name=name) for name in ACCOUNT["hub_groups"]]
    user.roles = [orm.Role(name="user", description="", scopes=["self"]), orm.Role(**ROLE)]
    yield SimpleNamespace(name="ada", admin=False, orm_user=user)


def test_what_the_hub_has_already_is_not_written_again(known: Any) -> None:
    default = {"name": "user", "description": "", "scopes": ["self"]}
    told = authentication(ACCOUNT, [default])
    assert {role["name"] for role in told["roles"]} == {"user", ROLE["name"]}
    assert is_up_to_date(known, ACCOUNT)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"hub_groups": ["d-x"]}, id="left a project"),
        pytest.param({"hub_groups": ["d-x", "p-x-y", "p-x-z"]}, id="joined a project"),
        pytest.param({"hub_roles": []}, id="is domain admin no more"),
        pytest.param({"hub_roles": [{**ROLE, "scopes": []}]}, id="the role may less"),
        pytest.param({"hub_roles": [{**ROLE, "description": "z"}]}, id="the role's words"),
        pytest.param({"hub_roles": [ROLE, {**ROLE, "name": "other"}]}, id="another role"),
    ],
)
def test_every_change_is_seen(known: Any, change: dict[str, Any]) -> None:
    assert not is_up_to_date(known, {**ACCOUNT, **change})


def test_hub_admin_flag_is_removed(known: Any) -> None:
    known.admin = True
    assert not is_up_to_date(known, ACCOUNT)


def test_changes_reach_who_is_signed_in_within_five_minutes() -> None:
    """The guide promises it; tests/e2e/test_account_changes.py shows that it holds."""
    assert BaiAuthenticator().auth_refresh_age <= 300


class Source:
    """Answers each call with its number, when released."""

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


async def test_one_person_does_not_wait_for_another() -> None:
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
