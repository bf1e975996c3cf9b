"""Long work pauses while the event loop is busy, but not for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bai_services.core.scheduling.queue import no_op
from bai_services.manager.scheduling import idle_scheduling

LONG, NONE = 3600.0, 0.0


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in an event loop like the manager's."""
    with asyncio.Runner(loop_factory=idle_scheduling.new_loop) as runner:
        runner.run(work())


def test_what_is_due_comes_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", LONG)
    done: list[str] = []

    async def answer() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append("answer")

    async def long_work() -> None:
        await idle_scheduling.wait_until_idle()
        done.append("long work")

    async def both() -> None:
        await asyncio.gather(long_work(), answer(), long_work())

    run(both)
    assert done == ["answer", "long work", "long work"]


def test_a_loop_that_is_never_idle_does_not_stop_long_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", NONE)

    async def busy() -> None:
        while True:  # noqa: ASYNC110  # to be busy is all that it is for
            await asyncio.sleep(0)

    async def both() -> None:
        task = asyncio.create_task(busy())
        await idle_scheduling.wait_until_idle()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(both)


def test_long_work_that_is_given_up_leaves_the_loop_as_it_was() -> None:
    told: list[str] = []

    async def give_up() -> None:
        task = asyncio.create_task(idle_scheduling.wait_until_idle())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await idle_scheduling.wait_until_idle()
        told.append("next")

    run(give_up)
    assert told == ["next"]


def test_a_thread_goes_on_when_the_loop_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", LONG)
    done: list[str] = []

    async def both() -> None:
        give_way, has_begun = idle_scheduling.give_way(), threading.Event()

        def work() -> None:
            has_begun.set()
            give_way()
            done.append("thread")

        thread = asyncio.create_task(asyncio.to_thread(work))
        while not has_begun.is_set():  # noqa: ASYNC110  # busy until then
            await asyncio.sleep(0)
        done.append("loop")  # busy until here: it has never waited for anything
        await thread

    run(both)
    assert done == ["loop", "thread"]


class NeverIdle(threading.Event):
    """Never idle; counts how often somebody waits."""

    waited = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waited += 1
        return False


@pytest.mark.parametrize(
    ("slice_seconds", "waited"),
    [
        pytest.param(LONG, 1, id="who has waited long enough goes on for a while"),
        pytest.param(NONE, 3, id="then it waits again"),
    ],
)
def test_a_busy_loop_makes_a_thread_slower(
    monkeypatch: pytest.MonkeyPatch, slice_seconds: float, waited: int
) -> None:
    monkeypatch.setattr(idle_scheduling, "SLICE_SECONDS", slice_seconds)
    never = NeverIdle()
    rest = idle_scheduling._Pause(never)
    for _ in range(3):
        rest()
    assert never.waited == waited


async def test_in_any_other_loop_work_just_runs() -> None:
    assert idle_scheduling.give_way() is no_op
    await idle_scheduling.wait_until_idle()
    frozen = gc.get_freeze_count()
    idle_scheduling.freeze_objects()
    assert gc.get_freeze_count() == frozen
