"""One question for everybody who wants to ask it now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs a call once for each key at a time; whoever comes meanwhile shares the next one.

    So every answer is to a question that was sent after it was asked for: a burst of starts of
    one person reads their account twice, not once for each start, and none of them sees an old
    one.
    """

    def __init__(self, call: Callable[[str], Awaitable[T]]) -> None:
        self._call = call
        self._running: dict[str, asyncio.Task[T]] = {}
        self._next: dict[str, asyncio.Task[T]] = {}

    async def __call__(self, key: str) -> T:
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._in_turn(key))
        # One that gives up must not take the answer from the others.
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
