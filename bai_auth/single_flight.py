"""Single-flight calls whose result is never older than the request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs one call per key at a time; callers that arrive meanwhile share the next call.

    So every result comes from a call that began after it was requested: a burst of starts of one
    user reads their account twice, not once per start, and no start sees outdated data.
    """

    def __init__(self, call: Callable[[str], Awaitable[T]]) -> None:
        self._call = call
        self._running: dict[str, asyncio.Task[T]] = {}
        self._next: dict[str, asyncio.Task[T]] = {}

    async def __call__(self, key: str) -> T:
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._in_turn(key))
        # Shielded: a cancelled caller must not cancel the call for the others.
        return await asyncio.shield(task)

    async def _in_turn(self, key: str) -> T:
        if (before := self._running.get(key)) is not None:
            await asyncio.wait([before])
        own = self._running[key] = self._next.pop(key)
        try:
            return await self._call(key)
        finally:
            if self._running.get(key) is own:
                del self._running[key]
