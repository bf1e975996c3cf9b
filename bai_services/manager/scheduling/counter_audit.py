"""Compares the counters with the ledger of allocations, at the start and every hour."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from bai_services.core.accounts.roles import Caller
from bai_services.db.scheduling.allocations import AllocationStore

from ..accounts import authorizer
from ..clock import Clock
from ..loop import Loop
from ..metrics import Metrics

log = logging.getLogger(__name__)

TICK_SECONDS = 3600.0
# Differences that are logged one by one; the API has them all.
_MOST_LOGGED = 20


@dataclass(frozen=True, slots=True)
class CounterAuditResult:
    """What one audit found; no differences is as it should be."""

    audited_at: datetime
    differences: list[str]


class CounterAudit:
    """Reports; nothing is set right by itself, because either side could be the wrong one."""

    def __init__(self, store: AllocationStore, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._loop = Loop("audit of counters", self._step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def get(self, caller: Caller) -> CounterAuditResult:
        """Audit now, and return every difference as a sentence."""
        authorizer.require(caller, "counter-audit.read")
        return await self.run()

    async def run(self) -> CounterAuditResult:
        """Audit now; count what differs, and log it."""
        differences = await self._store.audit()
        self._metrics.counter_differences.set(len(differences))
        for text in differences[:_MOST_LOGGED]:
            log.error("audit of counters: %s", text)
        if len(differences) > _MOST_LOGGED:
            log.error("audit of counters: %d differences in all", len(differences))
        return CounterAuditResult(self._clock(), differences)

    async def _step(self) -> None:
        await self.run()
