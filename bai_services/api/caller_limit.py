"""Limit of concurrent expensive calls per caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

# A page of 500 sessions occupies the event loop for 0.3 s. Without a limit, a caller with 40
# concurrent requests would delay the requests of all other callers.
MAX_EXPENSIVE_CALLS = 2


@dataclass(slots=True)
class _Slots:
    semaphore: asyncio.Semaphore
    # Number of running and waiting calls.
    calls: int = 0


class CallerLimit:
    """Runs at most ``limit`` calls of each caller at a time; further calls wait."""

    def __init__(self, limit: int = MAX_EXPENSIVE_CALLS) -> None:
        self._limit = limit
        self._callers: dict[str, _Slots] = {}

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        """Wait for a slot of the caller, and release it at the end of the context."""
        slots = self._callers.setdefault(caller, _Slots(asyncio.Semaphore(self._limit)))
        slots.calls += 1
        try:
            async with slots.semaphore:
                yield
        finally:
            slots.calls -= 1
            if slots.calls == 0:
                del self._callers[caller]
