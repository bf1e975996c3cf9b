"""Run long work while the event loop is idle.

A computing thread and the event loop share the GIL. The loop releases it at every query and every
socket operation, and would then wait for the thread's whole switch interval, so an answer of a few
milliseconds would take a hundred. Threads therefore call ``give_way`` every few microseconds and
pause while the loop is busy, and long work in the loop itself awaits ``spare_time`` between its
steps. Both continue after a short time in any case: a loop that is never idle slows them down, but
does not stop them.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import time
from collections import deque
from weakref import WeakKeyDictionary

from bai_services.core.scheduling.queue import GiveWay, no_op

# A thread waits this long for a busy loop, and then runs this long.
PATIENCE_SECONDS = 0.004
SLICE_SECONDS = 0.001
# A thread rests this long for prioritized work, such as a pass, before it runs for SLICE_SECONDS.
WORK_PATIENCE_SECONDS = 0.05
# Collect young objects often and old ones rarely: a full collection stalls the event loop.
GC_THRESHOLDS = (5_000, 20, 10)


class _Watch(selectors.DefaultSelector):
    """The selector of a loop; it knows when the loop is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.is_idle = threading.Event()
        self.guests: deque[asyncio.Future[None]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self.guests:
            # Idle: waiting threads and tasks may run, unless an event has arrived meanwhile.
            found = super().select(0)
            if not found:
                _wake_waiting(self.guests.popleft())
            return found
        self.is_idle.set()
        try:
            return super().select(timeout)
        finally:
            self.is_idle.clear()


_WATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that long work gives way to; under any other loop it just runs."""
    watch = _Watch()
    loop = asyncio.SelectorEventLoop(watch)
    _WATCHES[loop] = watch
    return loop


def settle() -> None:
    """Exclude all current objects, above all code, from garbage collection.

    Only for a process whose loop is from ``new_loop``, because it applies to the whole process.
    """
    if asyncio.get_running_loop() not in _WATCHES:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def spare_time() -> None:
    """Return when the loop is idle, or after a moment if it never is."""
    loop = asyncio.get_running_loop()
    watch = _WATCHES.get(loop)
    if watch is None:
        await asyncio.sleep(0)
        return
    turn: asyncio.Future[None] = loop.create_future()
    watch.guests.append(turn)
    late = loop.call_later(PATIENCE_SECONDS, _wake_waiting, turn)
    try:
        await turn
    finally:
        late.cancel()


def give_way() -> GiveWay:
    """Return a callable that a thread calls repeatedly, to rest while this loop is busy."""
    watch = _WATCHES.get(asyncio.get_running_loop())
    return no_op if watch is None else _Rest(watch.is_idle)


class WorkGate:
    """Marks prioritized work: while it runs, threads that call ``give_way`` rest.

    At most one thread may be inside at a time::

        with gate: ...  # the work
        gate.give_way()  # in another thread, repeatedly
    """

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._is_over.set()
        self.give_way: GiveWay = _Rest(self._is_over, WORK_PATIENCE_SECONDS)

    def __enter__(self) -> None:
        self._is_over.clear()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def or_loop(self) -> GiveWay:
        """Return a callable that rests for both this work and the running event loop."""
        for_loop = give_way()

        def rest() -> None:
            self.give_way()
            for_loop()

        return rest


class _Rest:
    """Returns when the loop is idle, or when ``patience`` is over."""

    def __init__(self, is_idle: threading.Event, patience: float = PATIENCE_SECONDS) -> None:
        self._is_idle = is_idle
        self._patience = patience
        self._until = 0.0

    def __call__(self) -> None:
        if self._is_idle.is_set() or time.monotonic() < self._until:
            return
        if not self._is_idle.wait(self._patience):
            self._until = time.monotonic() + SLICE_SECONDS


def _wake_waiting(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
