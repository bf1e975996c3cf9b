"""Single-flight calls: callers share a call; keys and errors are independent."""

from __future__ import annotations

import asyncio

import pytest

from bai_services.single_flight import FreshSingleFlight, SingleFlight


class Source:
    """Numbers its calls.

    A call waits for ``may_return``. Then it returns its number, or fails if the key is "bad".
    """

    def __init__(self, flight: SingleFlight[str, int] | FreshSingleFlight[str, int]) -> None:
        self._flight = flight
        self.calls = 0
        self.may_return = asyncio.Event()

    def request(self, key: str) -> asyncio.Task[int]:
        return asyncio.create_task(self._flight(key, lambda: self._call(key)))

    async def _call(self, key: str) -> int:
        self.calls += 1
        number = self.calls
        await self.may_return.wait()
        if key == "bad":
            raise ValueError(number)
        return number


@pytest.fixture(params=[SingleFlight, FreshSingleFlight])
def source(request: pytest.FixtureRequest) -> Source:
    return Source(request.param())


async def settle() -> None:
    """Let all tasks run until each of them waits for an event."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_concurrent_callers_share_the_call_in_progress() -> None:
    source = Source(SingleFlight())
    first = source.request("ada")
    await settle()
    burst = [source.request("ada") for _ in range(20)]
    await settle()
    source.may_return.set()
    assert set(await asyncio.gather(first, *burst)) == {1}
    assert await source.request("ada") == 2


async def test_fresh_callers_share_the_next_call_and_never_an_earlier_result() -> None:
    source = Source(FreshSingleFlight())
    first = source.request("ada")
    await settle()
    burst = [source.request("ada") for _ in range(20)]
    await settle()
    assert source.calls == 1
    source.may_return.set()
    assert await first == 1
    assert set(await asyncio.gather(*burst)) == {2}
    assert await source.request("ada") == 3


async def test_calls_for_different_keys_are_independent(source: Source) -> None:
    tasks = [source.request(name) for name in ("ada", "bob")]
    await settle()
    assert source.calls == 2
    source.may_return.set()
    assert sorted(await asyncio.gather(*tasks)) == [1, 2]


async def test_cancelled_caller_does_not_cancel_the_call_of_others(source: Source) -> None:
    source.request("ada")
    await settle()
    cancelled, other = source.request("ada"), source.request("ada")
    await settle()
    cancelled.cancel()
    await settle()
    assert cancelled.cancelled()
    source.may_return.set()
    assert await other in (1, 2)


async def test_error_reaches_the_caller_and_not_the_next_call(source: Source) -> None:
    failing = source.request("bad")
    await settle()
    source.may_return.set()
    with pytest.raises(ValueError, match="1"):
        await failing
    with pytest.raises(ValueError, match="2"):
        await source.request("bad")
    assert await source.request("ada") == 3
