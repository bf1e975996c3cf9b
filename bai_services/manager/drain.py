"""Drain: stop placing and starting sessions before an installation is stopped."""

from __future__ import annotations

from bai_services.core.accounts.roles import Caller

from .accounts import authorizer
from .hub.starter import Starter
from .scheduling.scheduler import Scheduler


class Drain:
    """Stops placements and starts until the manager restarts."""

    def __init__(self, scheduler: Scheduler, starter: Starter) -> None:
        self._scheduler = scheduler
        self._starter = starter

    async def begin(self, caller: Caller) -> None:
        """Stop placing and starting sessions; pending sessions stay in the queue.

        Waits for a running scheduling pass. Starts that the Hub has already accepted continue.

        Raises
        ------
        Forbidden
            If the caller is not the Hub.
        """
        authorizer.require(caller, "scheduler.drain")
        await self._scheduler.drain()
        self._starter.drain()
