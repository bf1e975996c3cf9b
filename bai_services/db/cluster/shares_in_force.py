"""Shares in force: the common share of all sessions on a device with uniform shares.

Some devices require that all sessions on the device have equal shares.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.device_sharing import Sharing
from bai_services.core.cluster.devices import SHARES

from .. import bulk
from ..tables.cluster import devices
from ..tables.sessions import allocations
from .device_rows import DeviceRow

AnyDeviceRow = TypeVar("AnyDeviceRow", bound=DeviceRow)

_IS_UNIFORM = devices.c.facts["shares"]["is_uniform"].as_boolean()
_SELECT = (
    sa.select(allocations.c.device_id, sa.func.min(allocations.c.amount).label("least"))
    .add_columns(sa.func.max(allocations.c.amount).label("most"))
    .join_from(allocations, devices, allocations.c.device_id == devices.c.id)
    .where(
        allocations.c.freed_at.is_(None),
        allocations.c.slot.endswith(f".{SHARES}"),
        allocations.c.device_id.in_(sa.bindparam("ids", expanding=True)),
        allocations.c.agent_id.in_(sa.bindparam("agent_ids", expanding=True)),
        _IS_UNIFORM,
    )
    .group_by(allocations.c.device_id)
)
_UNIFORM = sa.select(devices.c.id).where(bulk.Among(devices.c.id, "ids"), _IS_UNIFORM)
_MIXED = _SELECT.having(sa.func.min(allocations.c.amount) != sa.func.max(allocations.c.amount))


async def read_shares_in_force(
    tx: AsyncConnection, agent_ids: Collection[str], device_ids: Collection[str]
) -> dict[str, int]:
    """Return the share in force of each used device that needs uniform shares.

    Shares are in thousandths of the device. ``agent_ids`` are the agents of the devices.
    """
    if not device_ids:
        return {}
    keys = {"ids": sorted(device_ids), "agent_ids": sorted(agent_ids)}
    return {row.device_id: row.most for row in await tx.execute(_SELECT, keys)}


def needs_uniform_shares(device: sa.Row[Any]) -> bool:
    """Return whether a device is in use and needs uniform shares."""
    return bool(device.used) and Sharing.from_facts(device.facts).is_uniform


async def with_shares_in_force(
    tx: AsyncConnection, rows: Sequence[AnyDeviceRow]
) -> list[AnyDeviceRow]:
    """Return the devices with ``share_in_force`` set; it is None if no share is in force."""
    used = [row for row in rows if row.used]
    agent_ids = {row.agent_id for row in used}
    shares = await read_shares_in_force(tx, agent_ids, [row.id for row in used])
    return [replace(row, share_in_force=shares.get(row.id)) for row in rows]


async def read_mixed_shares(
    tx: AsyncConnection, agent_ids: Collection[str], device_ids: Collection[str]
) -> list[str]:
    """Return the devices that need uniform shares, but have sessions with different shares."""
    if not device_ids:
        return []
    # Select the devices first: few devices need uniform shares, and there are many allocations.
    uniform = sorted((await tx.execute(_UNIFORM, {"ids": sorted(device_ids)})).scalars())
    if not uniform:
        return []
    keys = {"ids": uniform, "agent_ids": sorted(agent_ids)}
    return sorted(row.device_id for row in await tx.execute(_MIXED, keys))
