"""Store of the prices of slots."""

from __future__ import annotations

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.usage.model import Price, Prices

from ..audit import record
from ..database import Database
from ..tables.usage import usage_prices


class UsagePriceStore:
    """Reads and writes prices. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def read(self) -> Prices:
        """Return all prices, sorted by resource group and slot."""
        c = usage_prices.c
        query = sa.select(c.resource_group, c.slot, c.per_hour, c.currency)
        async with self._db.read() as tx:
            rows = (await tx.execute(query.order_by(c.resource_group, c.slot))).all()
        return Prices(rows[0].currency if rows else "", tuple(Price(*row[:3]) for row in rows))

    async def replace(self, prices: Prices, audit: AuditEntry) -> None:
        """Replace all stored prices."""
        async with self._db.write() as tx:
            await tx.execute(sa.delete(usage_prices))
            await record(tx, audit)
            if prices.prices:
                await tx.execute(
                    sa.insert(usage_prices),
                    [
                        {
                            "resource_group": price.resource_group,
                            "slot": price.slot,
                            "per_hour": price.per_hour,
                            "currency": prices.currency,
                        }
                        for price in prices.prices
                    ],
                )
