"""Read the approved advance reservations for scheduling passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import HeldAgents
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.reservation_states import ReservationState

from ..tables.accounts import projects
from ..tables.advance_reservations import advance_reservations

_r = advance_reservations.c


async def read_held(
    tx: AsyncConnection, groups: Collection[str]
) -> dict[str, tuple[HeldAgents, ...]]:
    """Return the approved reservations of each resource group, for a scheduling pass.

    The result can contain ended reservations, which withhold no agents.
    """
    rows = await tx.execute(
        sa.select(advance_reservations, projects.c.name.label("project"))
        .join_from(advance_reservations, projects, _r.project_id == projects.c.id)
        .where(_r.state == ReservationState.APPROVED, _r.resource_group.in_(groups))
        .order_by(_r.starts_at, _r.id)
    )
    held: dict[str, list[HeldAgents]] = defaultdict(list)
    for row in rows:
        held[row.resource_group].append(
            HeldAgents(
                row.id,
                row.project,
                row.starts_at,
                row.ends_at,
                frozenset(row.agents),
                Scope(ScopeKind.PROJECT, row.project_id),
                frozenset(Scope(ScopeKind.USER, user_id) for user_id in row.user_ids),
                booked=ResourceSlots() if row.whole_machines else row.resources,
            )
        )
    return {group: tuple(of) for group, of in held.items()}
