"""`/counter-audit`: compares the usage counters with the allocation ledger."""

from __future__ import annotations

from ..base import APIHandler, operation
from ..fields import ResponseModel


class CounterAudit(ResponseModel):
    audited_at: str
    differences: list[str]


class CounterAuditHandler(APIHandler):
    @operation(
        "Run a counter audit: compare every usage counter with the allocation ledger",
        tag="health",
        returns=CounterAudit,
    )
    async def get(self) -> None:
        self.write_json(await self.manager.scheduling.counter_audit.get(self.caller))
        await self.finish()


ROUTES = [("/counter-audit", CounterAuditHandler)]
