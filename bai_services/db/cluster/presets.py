"""Store of resource presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.resources import ResourceSlots

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..records import first_record, records
from ..tables.cluster import presets, resource_groups
from .resource_groups import GroupFilter, usable_by

_LISTING = Listing(
    columns={c.name: c for c in presets.columns if c.name != "resource_slots"},
    default_sort=("name", "resource_group"),
)


@dataclass(frozen=True, slots=True)
class PresetRow:
    """A preset; with an empty ``resource_group``, it is valid in every group."""

    id: str
    created_at: datetime
    name: str
    resource_group: str
    resource_slots: ResourceSlots
    shared_memory_bytes: int | None


class PresetStore:
    """Reads and writes presets. A preset with an empty ``resource_group`` is valid in every group.

    ``user`` selects the presets that are valid in a group that the user may use, or in every group;
    None selects all presets. Each public method is one transaction.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, user: GroupFilter | None = None, group: str | None = None
    ) -> Page[PresetRow]:
        """Return a page of the presets; with ``group``, only of presets valid in that group."""
        rows = _visible(user)
        if group is not None:
            rows = rows.where(presets.c.resource_group.in_(["", group]))
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, PresetRow)

    async def named(self, key: str, user: GroupFilter | None = None) -> list[PresetRow]:
        """Return the preset with the id ``key``, else all presets named ``key``."""
        async with self._db.read() as tx:
            found = await tx.execute(
                _visible(user)
                .where(sa.or_(presets.c.id == key, presets.c.name == key))
                .order_by(presets.c.resource_group)
            )
            rows = records(PresetRow, found)
        return [row for row in rows if row.id == key] or rows

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> PresetRow:
        """Insert a preset and return it.

        Raises
        ------
        AlreadyExists
            If a preset with that name and the same ``resource_group`` exists.
        NotFound
            If the group does not exist.
        """
        async with self._db.write() as tx:
            await _check_group(tx, values["resource_group"])
            with raise_on_violation(_taken(values["name"])):
                await tx.execute(presets.insert().values(values))
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self, preset_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> PresetRow:
        async with self._db.write() as tx:
            if changes:
                with raise_on_violation(_taken(changes.get("name", ""))):
                    await tx.execute(
                        presets.update().where(presets.c.id == preset_id).values(changes)
                    )
            row = await _one(tx, preset_id)
            await record(tx, audit)
            return row

    async def delete(self, preset_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await _one(tx, preset_id)
            await tx.execute(presets.delete().where(presets.c.id == preset_id))
            await record(tx, audit)


def _visible(user: GroupFilter | None) -> sa.Select[Any]:
    rows = sa.select(presets)
    if user is None:
        return rows
    usable_groups = sa.select(resource_groups.c.name).where(usable_by(user))
    return rows.where(
        sa.or_(presets.c.resource_group == "", presets.c.resource_group.in_(usable_groups))
    )


async def _one(tx: AsyncConnection, preset_id: str) -> PresetRow:
    found = await tx.execute(sa.select(presets).where(presets.c.id == preset_id))
    row = first_record(PresetRow, found)
    if row is None:
        raise NotFound("the preset no longer exists")
    return row


async def _check_group(tx: AsyncConnection, name: str) -> None:
    if not name:
        return
    # The update locks the group until the commit, to prevent its deletion.
    locked = await tx.execute(
        resource_groups.update()
        .where(resource_groups.c.name == name)
        .values(created_at=resource_groups.c.created_at)
    )
    if not locked.rowcount:
        raise NotFound(f"there is no resource group {name!r}", name=name)


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"a preset {name} with the same resource group already exists", name=name)
