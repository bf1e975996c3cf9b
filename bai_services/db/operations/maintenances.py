"""Store of maintenance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.maintenances import (
    MAX_MAINTENANCES,
    Maintenance,
    Scope,
    window_of,
)
from bai_services.core.scheduling.maintenance import MaintenanceWindow

from ..audit import record
from ..database import Database
from ..integrity import update_version
from ..listing import Listing
from ..records import first_record, records
from ..tables.cluster import agents, resource_groups
from ..tables.operations import maintenances
from .periods import make_room, not_ended

_ROWS = sa.select(maintenances)
_LISTING = Listing(
    columns={column.name: column for column in maintenances.columns},
    default_sort=("-starts_at", "id"),
)
_KNOWN = {
    Scope.GROUP: (resource_groups.c.name, "resource group"),
    Scope.AGENT: (agents.c.id, "agent"),
}


class MaintenanceStore:
    """Reads and writes maintenances. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[Maintenance]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _ROWS, query, Maintenance)

    async def one(self, key: str) -> Maintenance:
        async with self._db.read() as tx:
            return await _one(tx, key)

    async def current(self, now: datetime) -> list[Maintenance]:
        """Return the maintenances that have not ended, by their start."""
        chosen = _ROWS.where(not_ended(maintenances, now)).order_by(
            maintenances.c.starts_at, maintenances.c.id
        )
        async with self._db.read() as tx:
            return records(Maintenance, await tx.execute(chosen.limit(MAX_MAINTENANCES)))

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> Maintenance:
        """Insert a maintenance, and remove maintenances that ended long ago.

        Raises
        ------
        NotFound
            If the resource group or agent does not exist.
        Conflict
            If there are too many maintenances.
        """
        async with self._db.write() as tx:
            if known := _KNOWN.get(values["scope"]):
                column, noun = known
                if await tx.scalar(sa.select(column).where(column == values["target"])) is None:
                    raise NotFound(f"there is no {noun} {values['target']!r}")
            await make_room(tx, maintenances, values["created_at"], MAX_MAINTENANCES)
            await tx.execute(maintenances.insert().values(values))
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self, key: str, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> Maintenance:
        """Change a maintenance that has ``version``; raise ``Conflict`` for another version."""
        async with self._db.write() as tx:
            await update_version(tx, maintenances, key, version, changes)
            found = await _one(tx, key)
            await record(tx, audit)
            return found

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await _one(tx, key)
            await tx.execute(sa.delete(maintenances).where(maintenances.c.id == key))
            await record(tx, audit)


async def read_windows(
    tx: AsyncConnection, groups: Collection[str]
) -> dict[str, tuple[MaintenanceWindow, ...]]:
    """Return the maintenances of each resource group, for a scheduling pass.

    A maintenance of the whole installation is in each of ``groups``.
    """
    rows = _ROWS.order_by(maintenances.c.starts_at, maintenances.c.id)
    found = records(Maintenance, await tx.execute(rows))
    if not found:
        return {}
    targets = [each.target for each in found if each.scope == Scope.AGENT]
    chosen = sa.select(agents.c.id, agents.c.resource_group).where(agents.c.id.in_(targets))
    group_of = {row.id: row.resource_group for row in await tx.execute(chosen)}
    windows: dict[str, list[MaintenanceWindow]] = defaultdict(list)
    for each in found:
        affected: Collection[str] = groups
        if each.scope == Scope.GROUP:
            affected = (each.target or "",)
        elif each.scope == Scope.AGENT:
            affected = (group_of.get(each.target or "", ""),)
        for group in affected:
            windows[group].append(window_of(each))
    return {group: tuple(of_group) for group, of_group in windows.items()}


async def _one(tx: AsyncConnection, key: str) -> Maintenance:
    found = first_record(Maintenance, await tx.execute(_ROWS.where(maintenances.c.id == key)))
    if found is None:
        raise no_maintenance(key)
    return found


def no_maintenance(key: str) -> NotFound:
    return NotFound(f"there is no maintenance {key!r}", maintenance=key)
