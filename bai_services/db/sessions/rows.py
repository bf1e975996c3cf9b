"""Read sessions with their kernels, allocations, dependencies and time limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.cluster.group_options import PROXY_ADDRESS
from bai_services.core.errors import NotFound
from bai_services.core.sessions.dependencies import Dependency
from bai_services.core.sessions.lifecycle import ENDED, LIVE, OCCUPYING, Status
from bai_services.core.sessions.resizing import Elasticity, SessionResize
from bai_services.core.sessions.resolved_spec import ResolvedSpec

from ..listing import JoinColumns, Listing, ValueGroup
from ..scheduling.caps import CHUNK
from ..scheduling.preemption import PreemptionWarning, read_warnings
from ..tables.accounts import projects, users
from ..tables.callbacks import session_callbacks
from ..tables.cluster import devices, resource_groups
from ..tables.sessions import allocations, kernels, sessions
from ..usage.budgets import BudgetStop, read_budget_stops
from .dependencies import read_dependencies
from .idle_checks.results import ViewedCheck, read_checks
from .resize_rows import read_resizes
from .schedules.runs import ScheduledStop, read_scheduled_stops
from .time_limits import (
    IdleTimeout,
    TimeLimit,
    read_draining,
    read_idle_timeouts,
    read_time_limits,
)

# Maximum number of characters that are stored of the output of an ended kernel.
LOG_LIMIT = 256 * 1024


@dataclass(frozen=True, slots=True)
class SessionRow(ResolvedSpec):
    """A session: its request, its state, and the names of its owner and project."""

    sequence: int
    owner: str
    # The owner's current role and domain; ``domain`` is the domain to which the session is charged.
    owner_role: Role
    owner_domain: str
    project: str
    cluster_size: int
    status: Status
    status_info: str
    status_coded: dict[str, Any] | None
    reasons: list[dict[str, Any]]
    position: int | None
    estimate: dict[str, Any] | None
    result: str
    exit_code: int | None
    created_at: datetime
    status_changed_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    terminated_at: datetime | None
    used_at: datetime | None
    use_heard_at: datetime | None
    use_known_since: datetime | None
    restart_count: int
    requeued_at: datetime | None
    is_requeued_at_end: bool
    trace: str | None


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """An allocated amount on one agent; ``device_id`` is None for cpu and mem."""

    session_id: str
    agent_id: str
    device_id: str | None
    slot: str
    amount: int
    is_simulated: bool
    kernel_id: str = ""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel of a session: a container, or a group of processes."""

    id: str
    session_id: str
    role: str
    index: int
    hostname: str
    agent_id: str | None
    progress: dict[str, Any]
    injection: dict[str, Any] | None
    launched_at: datetime | None
    container_id: str | None
    usage: dict[str, Any] | None
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class CallbackState:
    """Delivery state of a session's callbacks."""

    is_open: bool = True
    tries: int = 0
    next_at: datetime | None = None
    delivered: int = 0
    given_up: int = 0
    last_at: datetime | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class SessionKernels:
    """A session with its kernels, the main kernel first."""

    row: SessionRow
    kernels: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class SessionView(SessionKernels):
    """A session with its related rows; ``queue_position`` counts from 1."""

    allocations: tuple[AllocationRow, ...] = ()
    queue_position: int | None = None
    dependencies: tuple[Dependency, ...] = ()
    callback: CallbackState | None = None
    time_limit: TimeLimit | None = None
    is_draining: bool = False
    idle_timeout: IdleTimeout | None = None
    idle_checks: tuple[ViewedCheck, ...] = ()
    resize: SessionResize | None = None
    elasticity: Elasticity | None = None
    preemption: PreemptionWarning | None = None
    scheduled_stop: ScheduledStop | None = None
    budget_stop: BudgetStop | None = None
    # The proxy address of the resource group of a running session; "": use the Hub's address.
    proxy_address: str = ""


_NAMES = {
    "owner": users.c.username.label("owner"),
    "owner_role": users.c.role.label("owner_role"),
    "owner_domain": users.c.domain.label("owner_domain"),
    "project": projects.c.name.label("project"),
}
_COLUMNS = [_NAMES[f.name] if f.name in _NAMES else sessions.c[f.name] for f in fields(SessionRow)]
_PROXY_ADDRESSES = sa.select(
    resource_groups.c.name, resource_groups.c.scheduler_opts[PROXY_ADDRESS].as_string()
).where(resource_groups.c.name.in_(sa.bindparam("groups", expanding=True)))
_KERNEL_COLUMNS = [kernels.c[f.name] for f in fields(KernelRow)]


def _select(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return a select of sessions, joined with their owners and projects.

    Every session has an owner and a project, but databases can skip only outer joins if a query
    does not use the joined columns.
    """
    with_owner = sessions.outerjoin(users, sessions.c.owner_id == users.c.id)
    with_project = with_owner.outerjoin(projects, sessions.c.project_id == projects.c.id)
    return sa.select(*columns).select_from(with_project)


SELECT = _select(*_COLUMNS)
# For a page of a list, select the ids first, because indexes contain the ids.
SELECT_ID = _select(sessions.c.id)

# Built at import, because building these statements takes several times as long as running them.
_STATUS = [f.name for f in fields(SessionRow)].index("status")
_OWNER_ROLE = [f.name for f in fields(SessionRow)].index("owner_role")
_BY_ID = SELECT.where(sessions.c.id == sa.bindparam("session_id"))
_KERNELS_OF = (
    sa.select(*_KERNEL_COLUMNS)
    .where(kernels.c.session_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(kernels.c.session_id, kernels.c.index)
)
_CALLBACKS_OF = sa.select(
    session_callbacks.c.session_id, *(session_callbacks.c[f.name] for f in fields(CallbackState))
).where(session_callbacks.c.session_id.in_(sa.bindparam("ids", expanding=True)))
_ALLOCATIONS_OF = (
    sa.select(
        allocations.c.session_id,
        allocations.c.kernel_id,
        allocations.c.agent_id,
        allocations.c.device_id,
        allocations.c.slot,
        allocations.c.amount,
        sa.func.coalesce(devices.c.is_simulated, sa.false()).label("is_simulated"),
    )
    .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
    .outerjoin(devices, allocations.c.device_id == devices.c.id)
    .where(
        allocations.c.session_id.in_(sa.bindparam("ids", expanding=True)),
        allocations.c.freed_at.is_(None),
        sessions.c.status.in_(OCCUPYING),
    )
    .order_by(allocations.c.id)
)

LISTING = Listing(
    {
        "id": sessions.c.id,
        "name": sessions.c.name,
        "status": sessions.c.status,
        "type": sessions.c.type,
        "owner": users.c.username,
        "owner_id": sessions.c.owner_id,
        "domain": sessions.c.domain,
        "project": projects.c.name,
        "project_id": sessions.c.project_id,
        "resource_group": sessions.c.resource_group,
        "image": sessions.c.image,
        "priority": sessions.c.priority,
        "cluster_size": sessions.c.cluster_size,
        "cluster_mode": sessions.c.cluster_mode,
        "agent": kernels.c.agent_id,
        "result": sessions.c.result,
        "hub_user": sessions.c.hub_user,
        "hub_server": sessions.c.hub_server,
        "created_at": sessions.c.created_at,
        "scheduled_at": sessions.c.scheduled_at,
        "started_at": sessions.c.started_at,
        "terminated_at": sessions.c.terminated_at,
    },
    default_sort=("-created_at", "-id"),
    reverses_default=True,
    groups={
        "status": (
            ValueGroup(frozenset(ENDED)),
            ValueGroup(frozenset(LIVE), sessions.c.live_name.is_not(None)),
        )
    },
    named={
        "owner": JoinColumns(users.c.id, sessions.c.owner_id),
        "project": JoinColumns(projects.c.id, sessions.c.project_id),
    },
    related={"agent": JoinColumns(kernels.c.session_id, sessions.c.id)},
)


def stored_log(log: str) -> str:
    """Return the last LOG_LIMIT characters of an output; replace NULs, which PostgreSQL rejects."""
    return log.replace("\0", "\ufffd")[-LOG_LIMIT:]


def row_of(values: Sequence[Any]) -> SessionRow:
    """Return the session in a row of ``SELECT``."""
    converted = list(values)
    converted[_STATUS] = Status(converted[_STATUS])
    converted[_OWNER_ROLE] = Role(converted[_OWNER_ROLE])
    return SessionRow(*converted)


async def read_by_id(tx: AsyncConnection, session_id: str) -> list[SessionRow]:
    """Return the session with this id in a list, or an empty list."""
    return [row_of(row) for row in await tx.execute(_BY_ID, {"session_id": session_id})]


async def require_by_id(tx: AsyncConnection, session_id: str) -> SessionRow:
    """Return the session with an id; raise ``NotFound`` if it does not exist."""
    rows = await read_by_id(tx, session_id)
    if not rows:
        raise NotFound(f"there is no session {session_id}", session=session_id)
    return rows[0]


async def read_rows(tx: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> list[SessionRow]:
    """Return the sessions that meet every condition, oldest first."""
    select = SELECT.where(*conditions).order_by(sessions.c.sequence)
    return [row_of(row) for row in await tx.execute(select)]


async def read_kernels_of(tx: AsyncConnection, ids: Sequence[str]) -> Mapping[str, list[KernelRow]]:
    """Return the kernels of each session, main kernel first."""
    of_session: dict[str, list[KernelRow]] = defaultdict(list)
    for start in range(0, len(ids), CHUNK):
        rows = await tx.execute(_KERNELS_OF, {"ids": ids[start : start + CHUNK]})
        for row in rows:
            kernel = KernelRow(*row)
            of_session[kernel.session_id].append(kernel)
    return of_session


async def read_views(tx: AsyncConnection, rows: Sequence[SessionRow]) -> list[SessionView]:
    """Return a view for each row, in the same order."""
    if not rows:
        return []
    ids = [row.id for row in rows]
    allocations_of = await _allocations_of(tx, ids)
    of_session = await read_kernels_of(tx, ids)
    awaited = await read_dependencies(tx, ids)
    running = [row.id for row in rows if row.status is Status.RUNNING]
    limits = await read_time_limits(tx, running) if running else {}
    draining = await read_draining(tx, running) if running else frozenset()
    timeouts = await read_idle_timeouts(tx, running) if running else {}
    checks = await read_checks(tx, running) if running else {}
    resizes, elastic = await read_resizes(tx, ids)
    preemptions = await read_warnings(tx, running) if running else {}
    stops = await read_scheduled_stops(tx, running) if running else {}
    charged = {row.project_id for row in rows if row.status is Status.RUNNING}
    budget_stops = await read_budget_stops(tx, charged) if charged else {}
    groups = {row.resource_group for row in rows if row.status is Status.RUNNING}
    addresses = await _proxy_addresses(tx, groups) if groups else {}
    callbacks = await _callbacks_of(tx, [row.id for row in rows if row.callback_url])
    return [
        SessionView(
            row,
            tuple(of_session[row.id]),
            tuple(allocations_of[row.id]),
            row.position if row.status is Status.PENDING else None,
            tuple(awaited.get(row.id, ())),
            callbacks.get(row.id),
            limits.get(row.id),
            row.id in draining,
            timeouts.get(row.id),
            tuple(checks.get(row.id, ())),
            resizes.get(row.id),
            elastic.get(row.id),
            preemptions.get(row.id),
            stops.get(row.id),
            budget_stops.get(row.project_id) if row.status is Status.RUNNING else None,
            addresses.get(row.resource_group, "") if row.status is Status.RUNNING else "",
        )
        for row in rows
    ]


async def _proxy_addresses(tx: AsyncConnection, groups: Collection[str]) -> Mapping[str, str]:
    """Return the proxy address of each of these resource groups that has one."""
    rows = await tx.execute(_PROXY_ADDRESSES, {"groups": sorted(groups)})
    return {name: address for name, address in rows if address}


async def _callbacks_of(tx: AsyncConnection, ids: Sequence[str]) -> Mapping[str, CallbackState]:
    if not ids:
        return {}
    rows = await tx.execute(_CALLBACKS_OF, {"ids": ids})
    return {row[0]: CallbackState(*row[1:]) for row in rows}


async def _allocations_of(
    tx: AsyncConnection, ids: Sequence[str]
) -> Mapping[str, list[AllocationRow]]:
    """Return the current allocations of each session."""
    rows = await tx.execute(_ALLOCATIONS_OF, {"ids": ids})
    of_session: dict[str, list[AllocationRow]] = defaultdict(list)
    for row in rows.mappings():
        of_session[row["session_id"]].append(
            AllocationRow(**{**row, "is_simulated": bool(row["is_simulated"])})
        )
    return of_session
