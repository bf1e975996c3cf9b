"""Read the resource groups and their options for a scheduling pass."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.scheduling.queue import GroupState

from ..cluster.provisioning import read_machines_since
from ..operations.maintenances import read_windows
from ..tables.cluster import resource_groups
from .advance_reservation_rows import read_held


async def read_groups(tx: AsyncConnection) -> dict[str, GroupState]:
    """Return every resource group by its name."""
    found = await tx.execute(
        sa.select(
            resource_groups.c.name,
            resource_groups.c.is_active,
            resource_groups.c.scheduler,
            resource_groups.c.scheduler_opts,
        )
    )
    rows = found.all()
    windows = await read_windows(tx, [row.name for row in rows])
    held = await read_held(tx, [row.name for row in rows])
    machines_since = await read_machines_since(tx)
    return {
        row.name: GroupOptions.of(row.scheduler_opts or {}).state(
            row.name,
            row.scheduler,
            row.is_active,
            windows.get(row.name, ()),
            held.get(row.name, ()),
            machines_since.get(row.name),
        )
        for row in rows
    }
