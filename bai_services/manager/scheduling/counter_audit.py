"""Compare the usage counters with the allocation ledger, at start and every hour."""

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
# Maximum number of differences that are logged; the API returns all.
_MAX_LOGGED = 20


@dataclass(frozen=True, slots=True)
class CounterAuditResult:
    """Differences found by an audit; normally empty."""

    audited_at: datetime
    differences: list[str]


class CounterAudit:
    """Reports differences. It does not correct them, because either side could be wrong."""

    def __init__(self, store: AllocationStore, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._loop = Loop("counter audit", self._step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def get(self, caller: Caller) -> CounterAuditResult:
        """Run an audit for a caller; return every difference as a sentence."""
        authorizer.require(caller, "counter-audit.read")
        return await self.run()

    async def run(self) -> CounterAuditResult:
        """Run an audit; set the metric and log the differences."""
        differences = await self._store.audit()
        self._metrics.counter_differences.set(len(differences))
        for text in differences[:_MAX_LOGGED]:
            log.error("counter audit: %s", text)
        if len(differences) > _MAX_LOGGED:
            log.error("counter audit: %d differences in total", len(differences))
        return CounterAuditResult(self._clock(), differences)

    async def _step(self) -> None:
        await self.run()
