"""Single-flight: concurrent callers with the same key share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Call = Callable[[], Coroutine[Any, Any, T]]


class SingleFlight(Generic[K, T]):
    """Callers share the call in progress, which may have begun before their request."""

    def __init__(self) -> None:
        self.running: dict[K, asyncio.Task[T]] = {}

    async def __call__(self, key: K, call: Call[T]) -> T:
        """Return the result of the call in progress for ``key``, or start ``call``."""
        task = self.running.get(key)
        if task is None:
            task = self.running[key] = asyncio.create_task(call())
            task.add_done_callback(lambda _: self.running.pop(key))
        # Shield the call: the cancellation of one caller must not affect the others.
        return await asyncio.shield(task)


class FreshSingleFlight(Generic[K, T]):
    """Callers share the next call: every result comes from a call that began after the request.

    One call per key runs at a time. Callers that arrive during a call share one further call, so a
    burst of callers causes at most two calls, and no caller gets an outdated result.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}
        self._next: dict[K, asyncio.Task[T]] = {}

    async def __call__(self, key: K, call: Call[T]) -> T:
        """Return the result of the next call for ``key``; schedule ``call`` if none is waiting."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._run_after_current(key, call))
        # Shield the call: the cancellation of one caller must not affect the others.
        return await asyncio.shield(task)

    async def _run_after_current(self, key: K, call: Call[T]) -> T:
        if (current := self._running.get(key)) is not None:
            await asyncio.wait([current])
        own = self._running[key] = self._next.pop(key)
        try:
            return await call()
        finally:
            if self._running.get(key) is own:
                del self._running[key]
