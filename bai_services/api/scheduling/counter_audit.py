"""`/counter-audit`"""

from __future__ import annotations

from ..base import APIHandler, operation
from ..fields import Shown


class CounterAuditShown(Shown):
    audited_at: str
    differences: list[str]


class CounterAuditHandler(APIHandler):
    @operation(
        "Compare all counters with the allocations now",
        tag="health",
        returns=CounterAuditShown,
    )
    async def get(self) -> None:
        self.write_json(await self.manager.scheduling.counter_audit.get(self.caller))
        await self.finish()


ROUTES = [("/counter-audit", CounterAuditHandler)]
