"""Run long work while the event loop is idle.

A computing thread and the event loop share the GIL. The loop releases the GIL at every query and
socket operation, and then waits until the switch interval of the thread is over: a response that
needs a few milliseconds would take 100 ms. Therefore threads call ``pause_if_busy`` at short
intervals, which pauses them while the loop is busy, and long work in the loop awaits
``wait_until_idle`` between its steps. Both pauses are bounded: if the loop is never idle, the work
is slower but does not stop.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import time
from collections import deque
from weakref import WeakKeyDictionary

from bai_services.core.scheduling.queue import PauseIfBusy, no_op

# Maximum pause of a thread while the loop is busy, and its run time between two pauses.
MAX_PAUSE_SECONDS = 0.004
SLICE_SECONDS = 0.001
# Maximum pause of a thread for prioritized work, such as a scheduling pass.
MAX_WORK_PAUSE_SECONDS = 0.05
# Collect young objects often and old ones rarely: a full collection stalls the event loop.
GC_THRESHOLDS = (5_000, 20, 10)


class _IdleSelector(selectors.DefaultSelector):
    """The selector of an event loop; detects when the loop is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.is_idle = threading.Event()
        self.waiters: deque[asyncio.Future[None]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self.waiters:
            # If no event is ready, the loop is idle: let a waiting task run.
            events = super().select(0)
            if not events:
                _wake(self.waiters.popleft())
            return events
        self.is_idle.set()
        try:
            return super().select(timeout)
        finally:
            self.is_idle.clear()


_SELECTORS: WeakKeyDictionary[asyncio.AbstractEventLoop, _IdleSelector] = WeakKeyDictionary()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that detects when it is idle.

    Long work does not pause for other kinds of loops.
    """
    selector = _IdleSelector()
    loop = asyncio.SelectorEventLoop(selector)
    _SELECTORS[loop] = selector
    return loop


def freeze_objects() -> None:
    """Exclude all current objects (mostly code) from garbage collection, and set its thresholds.

    Does nothing if the running loop is not from ``new_loop``: both changes affect the whole
    process, which may then be a test runner.
    """
    if asyncio.get_running_loop() not in _SELECTORS:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def wait_until_idle() -> None:
    """Wait until the loop is idle, for at most ``MAX_PAUSE_SECONDS``.

    If the loop is not from ``new_loop``, only let its other tasks run once.
    """
    loop = asyncio.get_running_loop()
    selector = _SELECTORS.get(loop)
    if selector is None:
        await asyncio.sleep(0)
        return
    waiter: asyncio.Future[None] = loop.create_future()
    selector.waiters.append(waiter)
    timeout = loop.call_later(MAX_PAUSE_SECONDS, _wake, waiter)
    try:
        await waiter
    finally:
        timeout.cancel()


def loop_pauser() -> PauseIfBusy:
    """Return a callable that a thread calls repeatedly to pause while this loop is busy."""
    selector = _SELECTORS.get(asyncio.get_running_loop())
    return no_op if selector is None else Pause(selector.is_idle)


class WorkGate:
    """Marks prioritized work, during which threads that call ``pause_if_busy`` pause.

    The work is not nested and runs in one thread at a time::

        with gate: ...  # the prioritized work
        gate.pause_if_busy()  # repeatedly in another thread
    """

    def __init__(self) -> None:
        self._is_idle = threading.Event()
        self._is_idle.set()
        self.pause_if_busy: PauseIfBusy = Pause(self._is_idle, MAX_WORK_PAUSE_SECONDS)

    def __enter__(self) -> None:
        self._is_idle.clear()

    def __exit__(self, *_: object) -> None:
        self._is_idle.set()

    def or_loop(self) -> PauseIfBusy:
        """Return a callable that pauses for this work and for the running event loop."""
        for_loop = loop_pauser()

        def pause() -> None:
            self.pause_if_busy()
            for_loop()

        return pause


class Pause:
    """Waits for ``is_idle``, at most ``max_pause`` seconds per ``SLICE_SECONDS`` of work."""

    def __init__(self, is_idle: threading.Event, max_pause: float = MAX_PAUSE_SECONDS) -> None:
        self._is_idle = is_idle
        self._max_pause = max_pause
        self._until = 0.0

    def __call__(self) -> None:
        if self._is_idle.is_set() or time.monotonic() < self._until:
            return
        if not self._is_idle.wait(self._max_pause):
            self._until = time.monotonic() + SLICE_SECONDS


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
