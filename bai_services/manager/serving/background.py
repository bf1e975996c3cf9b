"""Calls that run concurrently with the loop of endpoints, so that slow calls do not delay it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any


class BackgroundCalls:
    """Runs at most one call per key, ``per_owner`` calls per owner and ``limit`` calls in total."""

    def __init__(self, limit: int, per_owner: int) -> None:
        self._limit = limit
        self._per_owner = per_owner
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running: Counter[str] = Counter()  # by owner

    def may_begin(self, key: str, owner_id: str) -> bool:
        """Return whether the key has no running call, and the limits permit another call."""
        is_full = len(self._tasks) >= self._limit or self._running[owner_id] >= self._per_owner
        return key not in self._tasks and not is_full

    def begin(self, key: str, owner_id: str, call: Coroutine[Any, Any, None]) -> None:
        """Start a call that ``may_begin`` has permitted."""
        task = asyncio.create_task(call)
        self._tasks[key] = task
        self._running[owner_id] += 1
        task.add_done_callback(lambda _: self._ended(key, owner_id))

    def _ended(self, key: str, owner_id: str) -> None:
        del self._tasks[key]
        self._running[owner_id] -= 1
        if not self._running[owner_id]:
            del self._running[owner_id]

    async def finish(self) -> None:
        """Wait for the calls that are running."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await self.finish()
