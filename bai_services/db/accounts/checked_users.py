"""Guard against changes of a user between a permission check and the write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import Conflict, NotFound

from ..tables.accounts import users


@dataclass(frozen=True, slots=True)
class CheckedUser:
    """A user, and the column values on which the permission check was based."""

    id: str
    columns: Mapping[str, Any]


async def lock_unchanged(tx: AsyncConnection, checked: CheckedUser) -> None:
    """Lock a user's row until the end of the transaction.

    Raises
    ------
    Conflict
        If a column no longer has the checked value.
    NotFound
        If the user no longer exists.
    """
    columns = [users.c[name] for name in ("id", *checked.columns)]
    rows = await tx.execute(
        sa.select(*columns).where(users.c.id == checked.id).with_for_update(key_share=True)
    )
    row = rows.mappings().one_or_none()
    if row is None:
        raise NotFound("the user no longer exists")
    if any(row[name] != value for name, value in checked.columns.items()):
        raise Conflict("the account has changed; try again", user_id=checked.id)
