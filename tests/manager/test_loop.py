"""Loops of the manager: rest without work, end of the rest, errors."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Unavailable
from bai_services.db.database import Database
from bai_services.db.open_work import OpenWorkStore, Work
from bai_services.db.tables.overflow import overflow_rules
from bai_services.manager.loop import REST_SECONDS, Loop
from bai_services.manager.manager import Manager
from bai_services.manager.open_work import OpenWork
from tests.testbed.manager import World
from tests.testbed.wait import wait_until_async

HOUR_SECONDS = 3600.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__(_NoWaiting(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _NoWaiting(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.now += timeout or 0.0
        return super().select(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test)


class Source:
    """A source of work that the test switches; it notifies listeners only when the test does."""

    def __init__(self, exists: bool = False) -> None:
        self.exists = exists
        self._listeners: set[Callable[[], None]] = set()

    def listen(self, on_work: Callable[[], None]) -> None:
        self._listeners.add(on_work)

    async def remove(self, on_work: Callable[[], None]) -> None:
        self._listeners.discard(on_work)

    def notify(self) -> None:
        for on_work in self._listeners:
            on_work()


class Steps:
    """Records the times of the steps of a loop with a tick of 1 s."""

    def __init__(self, source: Source) -> None:
        self.times: list[float] = []
        self.loop = Loop("test", self._step, 1.0, source)

    async def _step(self) -> None:
        self.times.append(round(asyncio.get_running_loop().time(), 3))

    async def between(self, seconds: float) -> list[float]:
        """Let virtual time pass; return the times of the steps in it."""
        self.times.clear()
        await asyncio.sleep(seconds)
        return list(self.times)


def test_loop_with_work_runs_at_each_tick() -> None:
    async def test() -> None:
        steps = Steps(Source(exists=True))
        steps.loop.start()
        assert await steps.between(3.5) == [0, 1, 2, 3]
        await steps.loop.stop()

    run(test())


def test_loop_without_work_rests_but_runs_a_step_after_a_lost_notification() -> None:
    async def test() -> None:
        steps = Steps(Source())
        steps.loop.start()
        found = await steps.between(2 * REST_SECONDS + 1)
        assert found == [0, REST_SECONDS, 2 * REST_SECONDS]
        await steps.loop.stop()

    run(test())


def test_work_ends_the_rest_at_once() -> None:
    async def test() -> None:
        source = Source()
        steps = Steps(source)
        steps.loop.start()
        await steps.between(10.5)
        source.exists = True
        source.notify()
        assert await steps.between(2.0) == [10.5, 11.5]
        await steps.loop.stop()

    run(test())


def test_wake_ends_the_rest_at_once_and_another_step_follows() -> None:
    async def test() -> None:
        steps = Steps(Source())
        steps.loop.start()
        await steps.between(10.5)
        steps.loop.wake()
        # A wake-up causes two steps: the second one, after a tick, cleans up what the first one has
        # begun.
        assert await steps.between(20) == [10.5, 11.5]
        await steps.loop.stop()

    run(test())


def test_one_step_follows_the_end_of_the_work() -> None:
    async def test() -> None:
        source = Source(exists=True)
        steps = Steps(source)
        steps.loop.start()
        await steps.between(2.5)
        source.exists = False
        assert await steps.between(20) == [3]
        await steps.loop.stop()

    run(test())


def test_loop_does_not_rest_after_a_step_that_shortens_the_wait() -> None:
    async def test() -> None:
        times = []

        async def step() -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 3:
                loop.run_within(0.25)

        loop = Loop("test", step, 1.0, Source())
        loop.start()
        await asyncio.sleep(10)
        assert times == [0, 0.25, 0.5]
        await loop.stop()

    run(test())


def test_notification_between_ticks_causes_no_additional_step() -> None:
    async def test() -> None:
        source = Source(exists=True)
        steps = Steps(source)
        steps.loop.start()
        await steps.between(1.5)
        source.notify()
        assert await steps.between(1.0) == [2]
        await steps.loop.stop()

    run(test())


@pytest.mark.both_databases
async def test_row_of_another_manager_ends_the_rest(world: World, database_url: str) -> None:
    other = Database(database_url)
    work = OpenWork(OpenWorkStore(world.manager.database)).of(Work.OVERFLOW)
    steps: list[bool] = []

    async def step() -> None:
        steps.append(work.exists)

    loop = Loop("test", step, 0.01, work, rest_seconds=10**6)
    loop.start()
    try:
        # After a step without work, the loop rests.
        await wait_until_async(lambda: steps[-1:] == [False], 20, "a step without work")
        rule = {"project_id": await world.project_id(), "position": 1, "after_seconds": 60}
        async with other.write() as tx:
            await tx.execute(
                sa.insert(overflow_rules),
                {"id": "r", "created_at": world.clock(), "from_group": "default"}
                | {"to_group": "default", **rule},
            )
        await wait_until_async(lambda: steps[-1], 20, "a step with work")
    finally:
        await loop.stop()
        await other.close()


class FailingStore(OpenWorkStore):
    """A store whose database does not respond."""

    async def read(self) -> frozenset[Work]:
        raise Unavailable("the database cannot be reached")


async def test_loop_does_not_rest_while_the_work_is_unknown(manager: Manager) -> None:
    work = OpenWork(FailingStore(manager.database)).of(Work.OVERFLOW)
    steps: list[None] = []

    async def step() -> None:
        steps.append(None)

    loop = Loop("test", step, 0.001, work, rest_seconds=10**6)
    loop.start()
    try:
        await wait_until_async(lambda: len(steps) > 20, 20, "many steps")
    finally:
        await loop.stop()


async def test_step_can_shorten_the_time_until_the_next_one() -> None:
    has_run_twice = asyncio.Event()
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == 2:
            has_run_twice.set()
        else:
            # The earlier of two times counts.
            loop.run_within(0.01)
            loop.run_within(10 * HOUR_SECONDS)

    loop = Loop("test", step, HOUR_SECONDS)
    loop.start()
    async with asyncio.timeout(30):
        await has_run_twice.wait()
    await loop.stop()
    assert steps == 2
