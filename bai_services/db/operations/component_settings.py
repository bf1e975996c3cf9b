"""Store of the settings that the Hub and agents have reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.component_settings import (
    ComponentKind,
    ComponentSetting,
    ReportedSetting,
)

from ..database import Database
from ..integrity import insert_ignoring
from ..listing import Listing
from ..tables.operations import component_settings

_c = component_settings.c
_ROWS = sa.select(component_settings, (_c.kind + "/" + _c.component + "/" + _c.name).label("id"))
_LISTING = Listing(
    columns={column.name: column for column in component_settings.columns},
    # Descending by kind, so that the Hub comes before the agents.
    default_sort=("-kind", "component", "name"),
)


class ComponentSettingStore:
    """Reads and writes reported settings. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[ComponentSetting]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _ROWS, query, ComponentSetting)

    async def replace_hub(self, settings: Sequence[ReportedSetting]) -> None:
        async with self._db.write() as tx:
            await replace_settings(tx, ComponentKind.HUB, ComponentKind.HUB, settings)


async def replace_settings(
    tx: AsyncConnection, kind: ComponentKind, component: str, settings: Sequence[ReportedSetting]
) -> None:
    """Replace the stored settings of a component."""
    await remove_settings(tx, kind, component)
    rows = {each.name: each for each in settings}
    if rows:
        # Two Hubs may report concurrently, so skip rows that the other report has just inserted.
        await tx.execute(
            insert_ignoring(tx, component_settings),
            [{"kind": kind, "component": component, **asdict(row)} for row in rows.values()],
        )


async def remove_settings(tx: AsyncConnection, kind: ComponentKind, component: str) -> None:
    await tx.execute(
        component_settings.delete().where(
            component_settings.c.kind == kind, component_settings.c.component == component
        )
    )
