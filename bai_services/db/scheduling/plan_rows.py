"""Read the active preemption plans for scheduling passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.devices import DeviceAmount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Placement
from bai_services.core.scheduling.preemption.plan import Plan
from bai_services.core.scheduling.preemption.rules import Rule

from ..tables.preemption import preemption_plans, preemption_victims

_plans, _victims = preemption_plans.c, preemption_victims.c


async def read_plans(tx: AsyncConnection) -> dict[str, Plan]:
    """Return the active plans by the session id of their beneficiary."""
    rows = await tx.execute(
        sa.select(_plans.session_id, _plans.placements, _plans.stops_at, _plans.id).where(
            _plans.ended_at.is_(None)
        )
    )
    found = rows.all()
    victims: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
    if found:
        select = sa.select(_victims.plan_id, _victims.session_id, _victims.rule)
        of_plans = select.where(_victims.plan_id.in_([row.id for row in found]))
        for row in await tx.execute(of_plans.order_by(_victims.session_id)):
            victims[row.plan_id].append((row.session_id, Rule(row.rule)))
    return {
        row.session_id: Plan(
            tuple(victims[row.id]), tuple(map(_placement, row.placements)), row.stops_at
        )
        for row in found
    }


def _placement(value: Mapping[str, Any]) -> Placement:
    devices = tuple(DeviceAmount(*device) for device in value["devices"])
    return Placement(value["agent_id"], ResourceSlots(value["slots"]), devices)
