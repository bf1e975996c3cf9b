"""Usage of endpoints by day and token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.records import USAGE_KEPT_FOR, EndpointUsage

from ..database import Database
from ..listing import Listing
from ..tables.serving import endpoint_tokens, endpoint_usage

_COUNTS = ("requests", "input_tokens", "output_tokens")
_SHOWN = [column for column in endpoint_usage.columns if column.name != "endpoint_id"]
_LISTING = Listing(
    columns={column.name: column for column in _SHOWN}, default_sort=("-day", "token")
)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Requests with a token since the last report of a gateway."""

    id: str
    requests: int
    input_tokens: int
    output_tokens: int


class UsageStore:
    """Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, endpoint_id: str, query: ListQuery) -> Page[EndpointUsage]:
        rows = sa.select(*_SHOWN).where(endpoint_usage.c.endpoint_id == endpoint_id)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, EndpointUsage)

    async def clean_up(self, now: datetime) -> None:
        """Delete the usage of days long ago."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(endpoint_usage).where(endpoint_usage.c.day < now - USAGE_KEPT_FOR)
            )


async def count_usage(tx: AsyncConnection, counts: Sequence[TokenCounts], now: datetime) -> None:
    """Add requests to those of the current day; those of unknown tokens are omitted."""
    rows = sa.select(
        endpoint_tokens.c.id,
        endpoint_tokens.c.endpoint_id,
        endpoint_tokens.c.name,
        endpoint_tokens.c.user_id,
    ).where(endpoint_tokens.c.id.in_(sorted({each.id for each in counts})))
    known = {row.id: row for row in await tx.execute(rows)}
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for each in counts:
        if (row := known.get(each.id)) is None:
            continue
        key = (row.endpoint_id, row.name if row.user_id is None else "")
        total = totals.setdefault(key, dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            total[name] += getattr(each, name)
    if not totals:
        return
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    new: list[dict[str, Any]] = [
        {"endpoint_id": endpoint_id, "day": day, "token": token, **total}
        # Sorted, so that two gateways do not wait for each other's rows.
        for (endpoint_id, token), total in sorted(totals.items(), key=lambda item: item[0])
    ]
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(endpoint_usage)
    await tx.execute(
        insert.on_conflict_do_update(
            index_elements=["endpoint_id", "day", "token"],
            set_={name: endpoint_usage.c[name] + insert.excluded[name] for name in _COUNTS},
        ),
        new,
    )
