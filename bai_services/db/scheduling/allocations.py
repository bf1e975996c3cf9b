"""Lists of allocations, kernels and dependencies, and an audit of the usage counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.cluster.devices import thousandths
from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.caps import SESSIONS
from bai_services.core.sessions.lifecycle import OCCUPYING, Status
from bai_services.core.sessions.records import AllocationFields, ListedDependency, ListedKernel

from ..database import Database
from ..listing import Listing
from ..sessions.store import visible_to
from ..tables.accounts import users
from ..tables.cluster import agent_slots, devices
from ..tables.sessions import allocations, kernels, scope_usage, session_dependencies, sessions
from .ledger import scopes_of

_LIVE_ROWS = allocations.c.freed_at.is_(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(AllocationFields):
    """An allocated amount of one slot; ``freed_at`` is None until the release."""

    amount: int
    allocated_at: datetime
    freed_at: datetime | None


_LEDGER = (
    sa.select(
        allocations.c.id,
        allocations.c.session_id,
        sessions.c.name.label("session"),
        users.c.username.label("owner"),
        allocations.c.kernel_id,
        allocations.c.agent_id,
        allocations.c.device_id,
        allocations.c.slot,
        allocations.c.amount,
        allocations.c.allocated_at,
        allocations.c.freed_at,
    )
    .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
    .join(users, sessions.c.owner_id == users.c.id)
)
_LEDGER_LISTING = Listing(
    {
        "id": allocations.c.id,
        "session_id": allocations.c.session_id,
        "session": sessions.c.name,
        "owner": users.c.username,
        "agent_id": allocations.c.agent_id,
        "device_id": allocations.c.device_id,
        "slot": allocations.c.slot,
        "amount": allocations.c.amount,
        "allocated_at": allocations.c.allocated_at,
        "freed_at": allocations.c.freed_at,
    },
    default_sort=("-id",),
)

_KERNELS = (
    sa.select(
        kernels.c.id,
        kernels.c.created_at,
        kernels.c.session_id,
        sessions.c.name.label("session"),
        sessions.c.status,
        users.c.username.label("owner"),
        kernels.c.role,
        kernels.c.index,
        kernels.c.hostname,
        kernels.c.agent_id,
        kernels.c.container_id,
        kernels.c.usage,
        kernels.c.progress,
        kernels.c.last_seen_at,
    )
    .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
    .join(users, sessions.c.owner_id == users.c.id)
)
_KERNEL_LISTING = Listing(
    {
        "id": kernels.c.id,
        "created_at": kernels.c.created_at,
        "session_id": kernels.c.session_id,
        "session": sessions.c.name,
        "status": sessions.c.status,
        "owner": users.c.username,
        "role": kernels.c.role,
        "agent_id": kernels.c.agent_id,
    },
    default_sort=("-created_at", "-id"),
)


_DEPENDENCIES = sa.select(
    session_dependencies.c.session_id,
    sessions.c.name.label("session"),
    sessions.c.status,
    session_dependencies.c.depends_on,
).join_from(session_dependencies, sessions, session_dependencies.c.session_id == sessions.c.id)
_DEPENDENCY_LISTING = Listing(
    {
        "session_id": session_dependencies.c.session_id,
        "session": sessions.c.name,
        "status": sessions.c.status,
        "depends_on": session_dependencies.c.depends_on,
    },
    default_sort=("session_id", "depends_on"),
)


class AllocationStore:
    """Reads the ledger, kernels and dependencies. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility, is_held: bool) -> Page[LedgerRow]:
        """Return a page of the ledger; with ``is_held``, only allocations that are not released."""
        select = _LEDGER.where(*visible_to(visible))
        if is_held:
            select = select.where(_LIVE_ROWS)
        async with self._db.read() as tx:
            return await _LEDGER_LISTING.page(tx, select, query, LedgerRow)

    async def kernels(self, query: ListQuery, visible: Visibility) -> Page[ListedKernel]:
        async with self._db.read() as tx:
            select = _KERNELS.where(*visible_to(visible))
            return await _KERNEL_LISTING.page(tx, select, query, ListedKernel)

    async def dependencies(self, query: ListQuery, visible: Visibility) -> Page[ListedDependency]:
        """Return a page of the dependencies between sessions."""
        async with self._db.read() as tx:
            select = _DEPENDENCIES.where(*visible_to(visible))
            return await _DEPENDENCY_LISTING.page(tx, select, query, ListedDependency)

    async def audit(self) -> list[str]:
        """Return a message for each inconsistency between ledger, counters and statuses.

        An empty result means that no allocation is duplicated, leaked or missing.
        """
        async with self._db.read_one_state() as tx:
            return [
                *await _audit_scopes(tx),
                *await _audit_agents(tx),
                *await _audit_devices(tx),
                *await _audit_statuses(tx),
            ]


async def _audit_scopes(tx: AsyncConnection) -> list[str]:
    in_ledger: Counter[tuple[str, str, str]] = Counter()
    rows = await tx.execute(
        sa.select(
            sessions.c.id,
            sessions.c.domain,
            sessions.c.project_id,
            sessions.c.owner_id,
            sessions.c.access_key,
            sessions.c.resource_group,
            allocations.c.slot,
            sa.func.sum(allocations.c.amount).label("amount"),
        )
        .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
        .where(_LIVE_ROWS)
        .group_by(
            sessions.c.id,
            sessions.c.domain,
            sessions.c.project_id,
            sessions.c.owner_id,
            sessions.c.access_key,
            sessions.c.resource_group,
            allocations.c.slot,
        )
    )
    seen: set[str] = set()
    for row in rows:
        for scope in scopes_of(*row[1:6]):
            in_ledger[scope.kind, scope.id, row.slot] += int(row.amount)
            if row.id not in seen:
                in_ledger[scope.kind, scope.id, SESSIONS] += 1
        seen.add(row.id)
    counted = {
        (row.scope, row.scope_id, row.slot): row.used
        for row in await tx.execute(sa.select(scope_usage))
    }
    return _differences("scope", in_ledger, counted)


async def _audit_agents(tx: AsyncConnection) -> list[str]:
    rows = await tx.execute(
        sa.select(allocations.c.agent_id, allocations.c.slot, sa.func.sum(allocations.c.amount))
        .where(_LIVE_ROWS, allocations.c.device_id.is_(None))
        .group_by(allocations.c.agent_id, allocations.c.slot)
    )
    in_ledger = {(agent, slot): int(amount) for agent, slot, amount in rows}
    counted = {
        (row.agent_id, row.slot): row.used for row in await tx.execute(sa.select(agent_slots))
    }
    return _differences("agent", in_ledger, counted)


async def _audit_devices(tx: AsyncConnection) -> list[str]:
    in_ledger: Counter[tuple[str, ...]] = Counter()
    rows = await tx.execute(
        sa.select(allocations.c.device_id, allocations.c.slot, allocations.c.amount).where(
            _LIVE_ROWS, allocations.c.device_id.is_not(None)
        )
    )
    for device_id, slot, amount in rows:
        in_ledger[device_id,] += thousandths(slot, amount)
    counted = {(row.id,): row.used for row in await tx.execute(sa.select(devices))}
    return _differences("device", in_ledger, counted)


async def _audit_statuses(tx: AsyncConnection) -> list[str]:
    holders = set(
        (await tx.execute(sa.select(allocations.c.session_id).where(_LIVE_ROWS))).scalars()
    )
    messages = []
    for row in await tx.execute(sa.select(sessions.c.id, sessions.c.status)):
        is_occupying = Status(row.status) in OCCUPYING
        if is_occupying != (row.id in holders):
            verb = "holds no resources" if is_occupying else "still holds resources"
            messages.append(f"session {row.id} is {row.status} and {verb}")
    return messages


def _differences(what: str, in_ledger: Mapping[Any, int], counted: Mapping[Any, int]) -> list[str]:
    return [
        f"{what} {' '.join(key)}: counter {counted.get(key, 0)}, ledger {in_ledger.get(key, 0)}"
        for key in sorted({*in_ledger, *counted})
        if in_ledger.get(key, 0) != counted.get(key, 0)
    ]
