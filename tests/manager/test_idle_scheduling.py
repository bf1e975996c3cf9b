"""Long tasks pause while the event loop is busy; each pause has a maximum duration."""

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


def run_in_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` in an event loop like the manager's."""
    with asyncio.Runner(loop_factory=idle_scheduling.new_loop) as runner:
        runner.run(work())


def test_ready_tasks_run_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", LONG)
    done: list[str] = []

    async def answer() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append("answer")

    async def long_work() -> None:
        await idle_scheduling.wait_until_idle()
        done.append("long work")

    async def run_all() -> None:
        await asyncio.gather(long_work(), answer(), long_work())

    run_in_loop(run_all)
    assert done == ["answer", "long work", "long work"]


def test_long_work_waits_no_longer_than_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", NONE)

    async def busy() -> None:
        while True:  # noqa: ASYNC110  # keeps the loop busy
            await asyncio.sleep(0)

    async def run_all() -> None:
        task = asyncio.create_task(busy())
        await idle_scheduling.wait_until_idle()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_loop(run_all)


def test_cancelled_wait_does_not_block_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second wait must end because the loop is idle, not because of its timeout.
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", LONG)
    done: list[str] = []

    async def cancel_and_wait() -> None:
        task = asyncio.create_task(idle_scheduling.wait_until_idle())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await idle_scheduling.wait_until_idle()
        done.append("second wait")

    run_in_loop(cancel_and_wait)
    assert done == ["second wait"]


def test_thread_continues_when_the_loop_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_scheduling, "MAX_PAUSE_SECONDS", LONG)
    done: list[str] = []

    async def run_all() -> None:
        pause_if_busy, has_begun = idle_scheduling.loop_pauser(), threading.Event()

        def work() -> None:
            has_begun.set()
            pause_if_busy()
            done.append("thread")

        thread = asyncio.create_task(asyncio.to_thread(work))
        while not has_begun.is_set():  # noqa: ASYNC110  # keeps the loop busy
            await asyncio.sleep(0)
        done.append("loop")  # the loop has not been idle so far
        await thread

    run_in_loop(run_all)
    assert done == ["loop", "thread"]


class NeverIdle(threading.Event):
    """An ``is_idle`` event that is never set, as if the loop were always busy; it counts the calls
    of ``wait``.
    """

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return False


@pytest.mark.parametrize(
    ("slice_seconds", "waits"),
    [
        pytest.param(LONG, 1, id="one pause in a long slice"),
        pytest.param(NONE, 3, id="a pause in each short slice"),
    ],
)
def test_busy_loop_slows_a_thread_down(
    monkeypatch: pytest.MonkeyPatch, slice_seconds: float, waits: int
) -> None:
    monkeypatch.setattr(idle_scheduling, "SLICE_SECONDS", slice_seconds)
    event = NeverIdle()
    pause = idle_scheduling.Pause(event)
    for _ in range(3):
        pause()
    assert event.waits == waits


async def test_other_event_loops_neither_pause_work_nor_freeze_objects() -> None:
    assert idle_scheduling.loop_pauser() is no_op
    await idle_scheduling.wait_until_idle()
    frozen = gc.get_freeze_count()
    idle_scheduling.freeze_objects()
    assert gc.get_freeze_count() == frozen
