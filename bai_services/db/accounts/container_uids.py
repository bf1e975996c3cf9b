"""Allocate the uid of a user's containers."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from ..tables.accounts import users
from ..tables.sessions import counters

# Higher than the ids that Linux distributions assign to local users (by default up to 60000).
FIRST_UID = 100_001
_NAME = "container-uid"


async def next_container_uid(tx: AsyncConnection) -> int:
    """Return an unused uid; concurrent transactions get different uids."""
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(counters)
    while True:
        number = await tx.scalar(
            insert.values(name=_NAME, value=FIRST_UID)
            .on_conflict_do_update(
                index_elements=[counters.c.name], set_={"value": counters.c.value + 1}
            )
            .returning(counters.c.value)
        )
        uid = int(number or FIRST_UID)
        owner_id = await tx.scalar(
            sa.select(users.c.id).where(users.c.container_uid == uid).limit(1)
        )
        if owner_id is None:
            return uid
