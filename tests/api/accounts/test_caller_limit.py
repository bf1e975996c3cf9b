"""At most two expensive calls of a caller run at a time; other callers are not delayed."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc

import pytest

from bai_services.api.caller_limit import CallerLimit
from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.listing import Page
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async


async def test_list_requests_beyond_the_limit_wait_for_earlier_requests_of_the_user(
    api: Api, user: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await api.client("user2")
    running: list[str] = []
    may_end = asyncio.Event()

    async def slow_page(caller: object, query: object) -> Page[object]:
        running.append(getattr(caller, "username", ""))
        await may_end.wait()
        return Page([], 0, 50, 0)

    monkeypatch.setattr(api.world.manager.sessions.sessions, "page", slow_page)
    lists = [asyncio.create_task(user.get("/sessions")) for _ in range(5)]
    await wait_until_async(lambda: running == ["user"] * 2, 10, "two lists of user")
    lists.append(asyncio.create_task(other.get("/sessions")))
    await wait_until_async(lambda: running == ["user", "user", "user2"], 10, "a list of user2")
    may_end.set()
    await asyncio.gather(*lists)
    assert running.count("user") == 5


async def test_caller_without_running_calls_uses_no_memory() -> None:
    limit = CallerLimit(1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1000):
            with contextlib.suppress(RuntimeError):
                async with limit.slot(f"user{number}"):
                    raise RuntimeError
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # If the 1000 slots stayed in memory, they would take more than 300 bytes each.
    assert after - before < 100_000


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sort": ",".join(["name"] * 11)}, "at most 10"),
        ({f"name__{number}": "x" for number in range(51)}, "at most 50"),
    ],
)
async def test_number_of_sort_fields_and_filters_is_limited(
    user: Client, query: dict[str, str], message: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match=message):
        await user.get("/sessions", **query)
