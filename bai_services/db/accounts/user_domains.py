"""The domain of a user, locked until the end of a transaction."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import NotFound

from ..tables.accounts import users


async def lock_domain_of(tx: AsyncConnection, user_id: str) -> str:
    """Return the domain of a user; a move to another domain waits for the transaction's end.

    Lock users before folders, as moves do; otherwise deadlocks are possible.

    Raises
    ------
    NotFound
        If the user does not exist.
    """
    domain = await tx.scalar(
        sa.select(users.c.domain).where(users.c.id == user_id).with_for_update(read=True)
    )
    if domain is None:
        raise NotFound("the user no longer exists")
    return str(domain)
