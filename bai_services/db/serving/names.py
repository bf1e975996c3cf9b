"""Names of endpoints, which stay reserved after the deletion of their endpoints."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import AlreadyExists
from bai_services.core.serving.records import MAX_RESERVED_NAMES, NAME_RESERVED_FOR

from ..tables.serving import endpoint_names, endpoints

_IS_USED = sa.select(endpoints.c.id).where(endpoints.c.name == endpoint_names.c.name).exists()


async def take_name(
    tx: AsyncConnection, name: str, *, owner_id: str, project_id: str, now: datetime
) -> None:
    """Record the name of a new endpoint, after the endpoint was inserted.

    The name of a deleted endpoint may be reused by its former owner and in its former project;
    after ``NAME_RESERVED_FOR``, by every user.

    Raises
    ------
    AlreadyExists
        If the name is reserved for another owner.
    """
    found = (
        await tx.execute(sa.select(endpoint_names).where(endpoint_names.c.name == name))
    ).one_or_none()
    if found is not None and owner_id != found.owner_id and project_id != found.project_id:
        until = (found.released_at or now) + NAME_RESERVED_FOR
        if now < until:
            raise AlreadyExists(
                f"the name {name} is reserved until {until:%Y-%m-%d}: it belonged to an endpoint "
                "of another owner, and clients may still send tokens to its URL",
                name=name,
                until=until.isoformat(),
            )
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(endpoint_names)
    values = {"owner_id": owner_id, "project_id": project_id, "released_at": None}
    await tx.execute(
        insert.values(name=name, **values).on_conflict_do_update(
            index_elements=["name"], set_=values
        )
    )
    await _limit_names(tx, owner_id)


async def _limit_names(tx: AsyncConnection, owner_id: str) -> None:
    """Release an owner's oldest reserved names beyond ``MAX_RESERVED_NAMES``."""
    reserved = sa.select(endpoint_names.c.name).where(
        endpoint_names.c.owner_id == owner_id, ~_IS_USED
    )
    # Names without a time were released last.
    newest_first = (
        sa.case((endpoint_names.c.released_at.is_(None), 0), else_=1),
        endpoint_names.c.released_at.desc(),
        endpoint_names.c.name,
    )
    kept = reserved.order_by(*newest_first).limit(MAX_RESERVED_NAMES)
    await tx.execute(
        sa.delete(endpoint_names).where(
            endpoint_names.c.name.in_(reserved), endpoint_names.c.name.not_in(kept)
        )
    )


async def release_names(tx: AsyncConnection, now: datetime) -> None:
    """Begin the reservation of names of deleted endpoints, and end old reservations.

    Compares the names with those of existing endpoints, because an endpoint may also be deleted
    together with its owner or project.
    """
    await tx.execute(
        sa.update(endpoint_names)
        .where(endpoint_names.c.released_at.is_(None), ~_IS_USED)
        .values(released_at=now)
    )
    await tx.execute(
        sa.delete(endpoint_names).where(endpoint_names.c.released_at < now - NAME_RESERVED_FOR)
    )
