"""Requests and tokens of endpoints, by day and token of the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.gateway_records import ANONYMOUS
from bai_services.core.serving.records import EndpointUsage
from bai_services.core.usage.model import OF_ONE_OWNER, EndpointDimension
from bai_services.core.usage.periods import KEPT_FOR

from ..database import Database
from ..listing import Listing
from ..tables.accounts import projects
from ..tables.serving import endpoint_tokens, endpoint_usage_days, endpoints

_COUNTS = ("requests", "input_tokens", "output_tokens")
_SHOWN = [endpoint_usage_days.c[name] for name in ("id", "day", "token", *_COUNTS)]
_LISTING = Listing(
    columns={column.name: column for column in _SHOWN}, default_sort=("-day", "token")
)


_FACTS = ("endpoint", "owner_id", "project_id", "domain")
_CHAT_PAGE, _NO_TOKEN = "", "*"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Requests with a token since the last report of a gateway; ``id`` is the id of the token. For
    requests without a token, it is ``ANONYMOUS`` followed by the id of the endpoint.
    """

    id: str
    requests: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class EndpointUsageScope:
    """The endpoints that a report contains, and their grouping.

    ``domain``, ``owner_id`` and ``endpoint`` (id or name) limit the endpoints, unless they are
    None; ``keys`` limits the groups, unless it is None.
    """

    by: EndpointDimension
    domain: str | None = None
    owner_id: str | None = None
    endpoint: str | None = None
    keys: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class EndpointSum:
    """Requests of a group in a period. ``name`` is "" if the key has no name in the records.

    ``owner_id`` is the owner of the endpoint, if the group is an endpoint or a token.
    """

    day: datetime | None  # None: the whole period
    key: str
    name: str
    owner_id: str
    requests: int
    input_tokens: int
    output_tokens: int


class UsageStore:
    """Reads and deletes daily usage. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, endpoint_id: str, query: ListQuery) -> Page[EndpointUsage]:
        rows = sa.select(*_SHOWN).where(endpoint_usage_days.c.endpoint_id == endpoint_id)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, EndpointUsage)

    async def sums(
        self, scope: EndpointUsageScope, since: datetime, until: datetime, *, by_day: bool
    ) -> list[EndpointSum]:
        """Return the sums of each group from the day ``since`` to before ``until``."""
        t = endpoint_usage_days.c
        key, name = _grouping(scope.by)
        day: sa.ColumnElement[Any] = t.day if by_day else sa.null()
        sums = [sa.func.sum(t[count]) for count in _COUNTS]
        owner: sa.ColumnElement[str] = sa.literal("", sa.String())
        if scope.by in OF_ONE_OWNER:
            owner = sa.func.max(t.owner_id)
        query = sa.select(day, key, name, owner, *sums).where(t.day >= since, t.day < until)
        if scope.domain is not None:
            query = query.where(t.domain == scope.domain)
        if scope.owner_id is not None:
            query = query.where(t.owner_id == scope.owner_id)
        if scope.endpoint is not None:
            query = query.where((t.endpoint_id == scope.endpoint) | (t.endpoint == scope.endpoint))
        if scope.keys is not None:
            query = query.where(key.in_(scope.keys))
        grouped = [*([t.day] if by_day else []), *_KEY_COLUMNS[scope.by]]
        async with self._db.read() as tx:
            rows = (await tx.execute(query.group_by(*grouped))).all()
        return [EndpointSum(*row[:4], *map(int, row[4:])) for row in rows if row[4]]

    async def clean_up(self, now: datetime) -> None:
        """Delete the usage of days before ``KEPT_FOR``."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(endpoint_usage_days).where(endpoint_usage_days.c.day < now - KEPT_FOR)
            )


_KEY_COLUMNS: dict[EndpointDimension, list[sa.ColumnElement[str]]] = {
    EndpointDimension.TOTAL: [],
    EndpointDimension.ENDPOINT: [endpoint_usage_days.c.endpoint_id],
    EndpointDimension.TOKEN: [endpoint_usage_days.c.endpoint_id, endpoint_usage_days.c.token],
    EndpointDimension.USER: [endpoint_usage_days.c.owner_id],
    EndpointDimension.PROJECT: [endpoint_usage_days.c.project_id],
    EndpointDimension.DOMAIN: [endpoint_usage_days.c.domain],
}


def _grouping(by: EndpointDimension) -> tuple[sa.ColumnElement[str], sa.ColumnElement[str]]:
    """Return the key and the name of the groups."""
    t = endpoint_usage_days.c
    if by is EndpointDimension.TOKEN:
        return t.endpoint_id + "/" + t.token, sa.func.max(t.endpoint) + "/" + t.token
    if by is EndpointDimension.TOTAL:
        return sa.literal("", sa.String()), sa.literal("", sa.String())
    name = sa.func.max(t.endpoint) if by is EndpointDimension.ENDPOINT else sa.literal("")
    return _KEY_COLUMNS[by][0], name


async def count_usage(tx: AsyncConnection, counts: Sequence[TokenCounts], now: datetime) -> None:
    """Add requests to the counts of the current day; requests with unknown tokens are omitted."""
    owners = await _owners(tx, [each.id for each in counts])
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for each in counts:
        if (owner := owners.get(each.id)) is None:
            continue
        total = totals.setdefault(owner, dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            total[name] += getattr(each, name)
    if not totals:
        return
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    facts = await _facts(tx, {endpoint_id for endpoint_id, _ in totals})
    new: list[dict[str, Any]] = [
        {"endpoint_id": endpoint_id, "day": day, "token": token, **facts[endpoint_id], **total}
        # Sorted, so that two gateways do not wait for each other's rows.
        for (endpoint_id, token), total in sorted(totals.items(), key=lambda item: item[0])
        if endpoint_id in facts
    ]
    if not new:
        return
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(endpoint_usage_days)
    await tx.execute(
        insert.on_conflict_do_update(
            index_elements=["endpoint_id", "day", "token"],
            set_={name: endpoint_usage_days.c[name] + insert.excluded[name] for name in _COUNTS},
        ),
        new,
    )


async def _owners(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return (endpoint id, token name) for each known ``TokenCounts.id``."""
    rows = sa.select(
        endpoint_tokens.c.id,
        endpoint_tokens.c.endpoint_id,
        endpoint_tokens.c.name,
        endpoint_tokens.c.user_id,
    ).where(endpoint_tokens.c.id.in_(sorted(set(ids))))
    found = {
        row.id: (row.endpoint_id, row.name if row.user_id is None else _CHAT_PAGE)
        for row in await tx.execute(rows)
    }
    for key in ids:
        if key.startswith(ANONYMOUS):
            found[key] = (key.removeprefix(ANONYMOUS), _NO_TOKEN)
    return found


async def _facts(tx: AsyncConnection, ids: set[str]) -> dict[str, dict[str, str]]:
    """Return the columns of each endpoint that reports need after its deletion."""
    rows = (
        sa.select(
            endpoints.c.id,
            endpoints.c.name.label("endpoint"),
            endpoints.c.owner_id,
            endpoints.c.project_id,
            projects.c.domain,
        )
        .join_from(endpoints, projects)
        .where(endpoints.c.id.in_(sorted(ids)))
    )
    return {row.id: {name: getattr(row, name) for name in _FACTS} for row in await tx.execute(rows)}
