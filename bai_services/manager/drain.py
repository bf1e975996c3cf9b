"""Letting sessions end without starting others, before an installation stops."""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller

from .accounts import authorizer
from .hub.starter import Starter
from .scheduling.scheduler import Scheduler


class Drain:
    """Stops placement and starts until this manager is started again."""

    def __init__(self, scheduler: Scheduler, starter: Starter) -> None:
        self._scheduler = scheduler
        self._starter = starter

    async def begin(self, caller: Caller) -> None:
        """Place and start no session from now on; sessions that wait stay in the queue.

        A pass that is under way ends first. Starts that the Hub has already accepted continue.

        Raises
        ------
        Forbidden
            If the caller is not the Hub's own side.
        """
        authorizer.require(caller, "scheduler.drain")
        await self._scheduler.drain()
        self._starter.drain()
