"""Limit of the costly calls of one caller that run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

# A page of 500 sessions takes 0.3 s of the event loop. Requests that run at the same time take
# turns there, so a caller with 40 of them would delay the requests of all others.
MAX_COSTLY_CALLS = 2


@dataclass(slots=True)
class _Slots:
    semaphore: asyncio.Semaphore
    # Calls that run or wait.
    calls: int = 0


class CallerLimit:
    """Makes the calls of a caller beyond ``limit`` wait for the end of its earlier ones."""

    def __init__(self, limit: int = MAX_COSTLY_CALLS) -> None:
        self._limit = limit
        self._callers: dict[str, _Slots] = {}

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        """Wait for a slot of the caller, and hold it during the context."""
        slots = self._callers.setdefault(caller, _Slots(asyncio.Semaphore(self._limit)))
        slots.calls += 1
        try:
            async with slots.semaphore:
                yield
        finally:
            slots.calls -= 1
            if slots.calls == 0:
                del self._callers[caller]
