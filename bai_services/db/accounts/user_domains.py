"""The domain and status of a user, locked until the end of a transaction."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import Conflict, NotFound

from ..tables.accounts import domains, users


async def lock_domain_of(tx: AsyncConnection, user_id: str) -> str:
    """Lock a user against a move to another domain, and return the user's domain.

    To avoid deadlocks, lock users before folders, in the same order as moves.

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


async def lock_active_in(tx: AsyncConnection, user_id: str, domain: str) -> None:
    """Lock a user; require that the user is active in ``domain`` and the domain is active.

    A concurrent move or deactivation waits for the transaction's end, so that the following
    sign-out finds the objects that the transaction has created. Lock order as in
    ``lock_domain_of``.

    Raises
    ------
    Conflict
        If the user or the domain is no longer active, or the user is in another domain.
    """
    is_same = sa.and_(users.c.id == user_id, users.c.domain == domain, users.c.status == "active")
    found = await tx.scalar(sa.select(users.c.id).where(is_same).with_for_update(read=True))
    # Use a separate statement: the first may have waited for a change of the domain.
    is_active = await tx.scalar(sa.select(domains.c.is_active).where(domains.c.name == domain))
    if found is None or not is_active:
        raise Conflict("the account has changed; try again", user_id=user_id)


async def lock_active(tx: AsyncConnection, user_id: str) -> None:
    """Lock a user who must be active, to serialize transactions that create rows of the user: the
    second counts the rows of the first, and a purge finds all rows.

    Raises
    ------
    Conflict
        If the user is no longer active.
    """
    is_active = sa.and_(users.c.id == user_id, users.c.status == "active")
    found = await tx.scalar(sa.select(users.c.id).where(is_active).with_for_update(key_share=True))
    if found is None:
        raise Conflict("the account has changed; try again", user_id=user_id)
