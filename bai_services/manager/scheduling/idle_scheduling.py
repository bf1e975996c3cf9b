"""Long work in the moments in which the event loop has nothing to do.

A thread that computes and the loop share Python's one lock. The loop gives it up at every look at
the database or a socket, and each time it would wait for the thread's turn to end: an answer that
takes a few milliseconds alone would take a hundred. So a thread of ours asks ``give_way`` every few
microseconds and stops while the loop is busy, and long work in the loop itself waits for
``spare_time`` between its steps. Either goes on after a short while in any case: a loop that is
never idle makes it slower, and does not stop it.
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

# So long a thread waits for a busy loop, and so long it then goes on.
PATIENCE_SECONDS = 0.004
SLICE_SECONDS = 0.001
# How long a thread rests for prioritized work, such as a pass, before it runs for SLICE_SECONDS.
WORK_PATIENCE_SECONDS = 0.05
# The rubbish of so many objects more is looked for at once, and old objects seldom: a look at all
# of them holds everybody up.
GC_THRESHOLDS = (5_000, 20, 10)


class _Watch(selectors.DefaultSelector):
    """The selector of a loop, which knows when the loop has nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.is_idle = threading.Event()
        self.guests: deque[asyncio.Future[None]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self.guests:
            # Nothing to do; unless something has come meanwhile, it is the turn of who waits.
            found = super().select(0)
            if not found:
                _let_go_on(self.guests.popleft())
            return found
        self.is_idle.set()
        try:
            return super().select(timeout)
        finally:
            self.is_idle.clear()


_WATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that long work gives way to; in any other it just runs."""
    watch = _Watch()
    loop = asyncio.SelectorEventLoop(watch)
    _WATCHES[loop] = watch
    return loop


def settle() -> None:
    """Take what is there now, the code above all, out of every search for rubbish.

    Only in a process whose loop is one of ours: it is for all of the process.
    """
    if asyncio.get_running_loop() not in _WATCHES:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def spare_time() -> None:
    """Return when the loop has nothing else to do, or a moment later if it always has."""
    loop = asyncio.get_running_loop()
    watch = _WATCHES.get(loop)
    if watch is None:
        await asyncio.sleep(0)
        return
    turn: asyncio.Future[None] = loop.create_future()
    watch.guests.append(turn)
    late = loop.call_later(PATIENCE_SECONDS, _let_go_on, turn)
    try:
        await turn
    finally:
        late.cancel()


def give_way() -> GiveWay:
    """Return what a thread calls again and again, so that it rests while this loop is busy."""
    watch = _WATCHES.get(asyncio.get_running_loop())
    return no_op if watch is None else _Rest(watch.is_idle)


class WorkGate:
    """Marks prioritized work: while it runs, threads that call ``give_way`` rest.

    At most one thread may be inside at a time::

        with gate:
            ...                 # the work
        gate.give_way()         # in another thread, again and again
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
    """Returns when the loop is idle, or when it has waited for that long enough."""

    def __init__(self, is_idle: threading.Event, patience: float = PATIENCE_SECONDS) -> None:
        self._is_idle = is_idle
        self._patience = patience
        self._until = 0.0

    def __call__(self) -> None:
        if self._is_idle.is_set() or time.monotonic() < self._until:
            return
        if not self._is_idle.wait(self._patience):
            self._until = time.monotonic() + SLICE_SECONDS


def _let_go_on(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
