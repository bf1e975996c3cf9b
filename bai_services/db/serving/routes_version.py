"""Version number of the routing data; gateways use it to detect changes."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from ..tables.sessions import counters

_NAME = "gateway-routes"


async def bump_routes(tx: AsyncConnection) -> None:
    """Increment the version; call this in the transaction of the change."""
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(counters)
    await tx.execute(
        insert.values(name=_NAME, value=1).on_conflict_do_update(
            index_elements=[counters.c.name], set_={"value": counters.c.value + 1}
        )
    )


async def read_routes_version(tx: AsyncConnection) -> int:
    found = await tx.scalar(sa.select(counters.c.value).where(counters.c.name == _NAME))
    return int(found or 0)
