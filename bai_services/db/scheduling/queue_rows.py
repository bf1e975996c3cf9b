"""Read sessions as input values of a scheduling pass."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.devices import DeviceAmount
from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.cluster.image_labels import MIN_CUDA
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Placement, Request
from bai_services.core.scheduling.placement_options import Designation
from bai_services.core.scheduling.queue import PendingSession, RunningSession
from bai_services.core.sessions.dependencies import Dependency, unmet_dependencies_text
from bai_services.core.sessions.group_request import request_of
from bai_services.core.sessions.idle_checks.checkers import CheckerType
from bai_services.core.sessions.lifecycle import OCCUPYING, Status

from ..sessions.dependencies import read_dependencies, read_unmet
from ..tables.accounts import domains, keypair_policies, keypairs, memberships, projects, users
from ..tables.budgets import project_budgets
from ..tables.cluster import images, resource_groups
from ..tables.idle_checks import idle_checkers, session_idle_checks
from ..tables.sessions import allocations, kernels, session_dependencies, sessions
from ..tables.usage import usage_prices
from .caps import CHUNK
from .ledger import scopes_of
from .plan_rows import read_plans

# Name of the session option that contains the id of the requested advance reservation.
RESERVATION_OPTION = "reservation"
# Size of the caches of requests and scopes. Equal requests are the same object, because thousands
# of sessions have only dozens of different requests.
_CACHE_SIZE = 4096
# Number of rows to read and convert before other tasks may run; this takes 1 to 2 ms.
_PAGE = 100
# Maximum number of ended sessions for the estimates of run times.
_MAX_ENDED = 2000

# Columns of both pending and running sessions.
_COMMON = (
    sessions.c.id,
    sessions.c.sequence,
    sessions.c.resource_group,
    sessions.c.domain,
    sessions.c.project_id,
    sessions.c.owner_id,
    sessions.c.access_key,
    sessions.c.type,
    sessions.c.image,
    sessions.c.batch_timeout_seconds,
    sessions.c.priority,
    sessions.c.job_priority,
    sessions.c.is_preemptible,
    keypair_policies.c.max_session_lifetime_seconds.label("lifetime"),
    sessions.c.lifetime_extension_seconds.label("added"),
)

# Sessions with all data that their requests depend on, in the order of creation.
REQUESTED: sa.Select[Any] = (
    sa.select(
        *_COMMON,
        sessions.c.architecture,
        sessions.c.created_at,
        sessions.c.starts_at,
        sa.cast(sessions.c.requested_slots, sa.Text).label("slots"),
        sessions.c.cluster_size,
        sessions.c.cluster_mode,
        sa.cast(sessions.c.options, sa.Text).label("options"),
        sa.cast(resource_groups.c.scheduler_opts, sa.Text).label("group_options"),
        resource_groups.c.engine,
        images.c.labels[MIN_CUDA].as_string().label("min_cuda"),
        users.c.username,
        projects.c.name.label("project"),
    )
    .join_from(sessions, resource_groups, sessions.c.resource_group == resource_groups.c.name)
    .join(users, sessions.c.owner_id == users.c.id)
    .join(projects, sessions.c.project_id == projects.c.id)
    .outerjoin(
        images,
        sa.and_(
            images.c.name == sessions.c.image, images.c.architecture == sessions.c.architecture
        ),
    )
    # Outer joins, because the keypair may have been deleted.
    .outerjoin(keypairs, sessions.c.access_key == keypairs.c.access_key)
    .outerjoin(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .order_by(sessions.c.sequence)
)

_PENDING: sa.Select[Any] = (
    REQUESTED.add_columns(
        (users.c.status == "active").label("is_user_active"),
        keypairs.c.is_active.label("is_keypair_active"),
        projects.c.is_active.label("is_project_active"),
        domains.c.is_active.label("is_domain_active"),
        memberships.c.user_id.is_not(None).label("is_member"),
        project_budgets.c.blocked_at.is_(None).label("has_budget"),
        project_budgets.c.amount.label("budget_amount"),
        # The currency of any price, because all prices have the same currency.
        sa.select(sa.func.max(usage_prices.c.currency)).scalar_subquery().label("currency"),
        sessions.c.home_agent_id,
        sa.cast(sessions.c.mounts, sa.Text).label("mounts"),
    )
    .join(domains, sessions.c.domain == domains.c.name)
    .outerjoin(
        memberships,
        sa.and_(
            memberships.c.user_id == sessions.c.owner_id,
            memberships.c.project_id == sessions.c.project_id,
        ),
    )
    .outerjoin(project_budgets, sessions.c.project_id == project_budgets.c.project_id)
    .where(sessions.c.status == Status.PENDING)
)

_RECENT: sa.Select[Any] = (
    sa.select(
        sessions.c.resource_group,
        sessions.c.architecture,
        sa.cast(sessions.c.requested_slots, sa.Text).label("slots"),
        sessions.c.cluster_size,
        sessions.c.cluster_mode,
        sa.cast(sessions.c.options, sa.Text).label("options"),
        sa.cast(resource_groups.c.scheduler_opts, sa.Text).label("group_options"),
        resource_groups.c.engine,
        sessions.c.started_at,
        sessions.c.terminated_at,
    )
    .join_from(sessions, resource_groups, sessions.c.resource_group == resource_groups.c.name)
    .order_by(sessions.c.sequence.desc())
)

# The earliest end of a session that a lifetime checker enforces. Other ends are not certain: users
# can change the ends of other idle checkers, and of checkers that allow exclusion.
_LIFETIME_END = (
    sa.select(sa.func.min(session_idle_checks.c.ends_at))
    .join_from(
        session_idle_checks,
        idle_checkers,
        session_idle_checks.c.checker_id == idle_checkers.c.id,
    )
    .where(
        session_idle_checks.c.session_id == sessions.c.id,
        idle_checkers.c.type == CheckerType.LIFETIME,
        sa.not_(session_idle_checks.c.is_dry_run),
        sa.not_(sa.func.coalesce(idle_checkers.c.settings["allows_exclusion"].as_boolean(), False)),
    )
    .correlate(sessions)
    .scalar_subquery()
    .label("lifetime_end")
)

_RUNNING: sa.Select[Any] = (
    sa.select(
        *_COMMON,
        _LIFETIME_END,
        sessions.c.started_at,
        sessions.c.scheduled_at,
        sessions.c.created_at,
        sessions.c.status,
    )
    .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key, isouter=True)
    .outerjoin(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .where(sessions.c.status.in_(sorted(OCCUPYING)))
    .order_by(sessions.c.sequence)
)


async def read_pending(
    tx: AsyncConnection, ids: Collection[str] | None = None
) -> list[PendingSession]:
    """Return all pending sessions, or only those in ``ids``, in the order of creation."""
    pending: list[PendingSession] = []
    unmet = await read_unmet(tx) if ids is None else {}
    previous_agents = await _previous_agents(tx) if ids is None else {}
    plans = await read_plans(tx)
    async for rows in _pages(tx, _PENDING, ids, Status.PENDING):
        if ids is not None:
            part = [row.id for row in rows]
            unmet = await read_dependencies(tx, part)
            previous_agents = await _previous_agents(tx, part)
        pending += [
            replace(
                _pending_session(row, unmet.get(row.id, ()), previous_agents.get(row.id, ())),
                plan=plans.get(row.id),
            )
            for row in rows
        ]
    return sorted(pending, key=lambda session: session.sequence)


async def _previous_agents(
    tx: AsyncConnection, ids: Sequence[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the agents on which pending sessions have failed before, by session.

    The session failed to start there, or the agent was lost. Agents from which the session was
    preempted are not included.
    """
    select = (
        sa.select(allocations.c.session_id, allocations.c.agent_id)
        .distinct()
        .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
        .where(
            sessions.c.status == Status.PENDING,
            sa.or_(
                sessions.c.requeued_at.is_(None),
                allocations.c.allocated_at > sessions.c.requeued_at,
            ),
        )
        .order_by(allocations.c.session_id, allocations.c.agent_id)
    )
    previous: dict[str, tuple[str, ...]] = defaultdict(tuple)
    parts = [None] if ids is None else [ids[n : n + CHUNK] for n in range(0, len(ids), CHUNK)]
    for part in parts:
        only = sa.true() if part is None else allocations.c.session_id.in_(part)
        for session_id, agent_id in await tx.execute(select.where(only)):
            previous[session_id] += (agent_id,)
    return previous


async def read_running(
    tx: AsyncConnection, ids: Collection[str] | None = None
) -> list[RunningSession]:
    """Return all sessions with allocated resources, or only those in ``ids``."""
    numbered: list[tuple[int, RunningSession]] = []
    async for rows in _pages(tx, _RUNNING, ids, *OCCUPYING):
        placements = await _placements(tx, [row.id for row in rows])
        numbered += [
            (row.sequence, _running(row, placements[row.id]))
            for row in rows
            if row.id in placements
        ]
    return [running for _, running in sorted(numbered, key=itemgetter(0))]


async def read_durations(
    tx: AsyncConnection, before: datetime | None = None
) -> dict[str, list[int]]:
    """Return the run times in seconds of recently started sessions that have ended, by kind.

    For kinds, see ``kind_of``. With ``before``, only sessions that ended before that time are
    considered.
    """
    is_wanted = sa.true() if before is None else sessions.c.terminated_at <= before
    rows = await tx.execute(
        sa.select(
            sessions.c.type, sessions.c.image, sessions.c.started_at, sessions.c.terminated_at
        )
        .where(sessions.c.started_at.is_not(None), sessions.c.terminated_at.is_not(None), is_wanted)
        .order_by(sessions.c.started_at.desc())
        .limit(_MAX_ENDED)
    )
    durations: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        seconds = (row.terminated_at - row.started_at).total_seconds()
        durations[kind_of(row)].append(max(0, int(seconds)))
    return dict(durations)


async def read_recent(
    tx: AsyncConnection, group: str, limit: int
) -> tuple[list[Request], list[float | None]]:
    """Return the latest requests of a resource group, newest first, and their run times.

    A run time is in seconds, None for a session that has not ended or never ran.
    """
    rows = (await tx.execute(_RECENT.where(sessions.c.resource_group == group).limit(limit))).all()
    seconds = [
        (row.terminated_at - row.started_at).total_seconds()
        if row.started_at and row.terminated_at
        else None
        for row in rows
    ]
    return [request_of_row(row) for row in rows], seconds


async def read_dependents(tx: AsyncConnection, ids: Iterable[str]) -> set[str]:
    """Return the ids of the sessions that depend on one of these sessions."""
    wanted = sorted(ids)
    dependents: set[str] = set()
    for start in range(0, len(wanted), CHUNK):
        rows = await tx.execute(
            sa.select(session_dependencies.c.session_id).where(
                session_dependencies.c.depends_on.in_(wanted[start : start + CHUNK])
            )
        )
        dependents |= set(rows.scalars())
    return dependents


async def _pages(
    tx: AsyncConnection, select: sa.Select[Any], ids: Collection[str] | None, *statuses: Status
) -> AsyncIterator[Sequence[Any]]:
    """Yield pages of the sessions in ``statuses``, or of the sessions in ``ids``.

    Other tasks may run between two pages. Pages are always selected by id: a selection by status
    would scan all rows with that status for each page.
    """
    if ids is None:
        is_wanted = sessions.c.status.in_(statuses)
        all_ids = sa.select(sessions.c.id).where(is_wanted).order_by(sessions.c.sequence)
        ids = (await tx.scalars(all_ids)).all()
    else:
        ids = sorted(ids)
    of_ids = select.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
    for start in range(0, len(ids), _PAGE):
        yield (await tx.execute(of_ids, {"ids": ids[start : start + _PAGE]})).all()
        await asyncio.sleep(0)


async def _placements(
    tx: AsyncConnection, ids: Sequence[str]
) -> Mapping[str, tuple[Placement, ...]]:
    """Return the placements of the kernels of each session, main kernel first."""
    select = (
        sa.select(
            allocations.c.session_id,
            allocations.c.kernel_id,
            allocations.c.agent_id,
            allocations.c.device_id,
            allocations.c.slot,
            allocations.c.amount,
        )
        .join_from(allocations, kernels, allocations.c.kernel_id == kernels.c.id)
        .where(allocations.c.freed_at.is_(None))
        .order_by(allocations.c.session_id, kernels.c.index, allocations.c.id)
    )
    rows = await tx.execute(select.where(allocations.c.session_id.in_(ids)))
    of_kernel: dict[tuple[str, str], tuple[str, dict[str, int], list[DeviceAmount]]] = {}
    for row in rows:
        key = (row.session_id, row.kernel_id)
        _, slots, picked = of_kernel.setdefault(key, (row.agent_id, {}, []))
        if row.device_id is None:
            slots[row.slot] = slots.get(row.slot, 0) + row.amount
        else:
            picked.append(DeviceAmount(row.device_id, row.slot, row.amount))
    placements: dict[str, tuple[Placement, ...]] = defaultdict(tuple)
    for (session_id, _), (agent_id, slots, picked) in of_kernel.items():
        placements[session_id] += (Placement(agent_id, ResourceSlots(slots), tuple(picked)),)
    return placements


def _pending_session(
    row: Any, awaited: Sequence[Dependency], previous_agents: tuple[str, ...]
) -> PendingSession:
    request = request_of_row(row)
    hosts = _hosts_of(row.mounts)
    if previous_agents or row.min_cuda or hosts:
        request = replace(
            request,
            avoid=previous_agents,
            min_cuda_driver=row.min_cuda or "",
            storage_hosts=hosts,
        )
    if row.home_agent_id is not None:
        # The session can run only on this agent, which has its home directory.
        request = replace(
            request,
            designated_agents=(row.home_agent_id,),
            designation=Designation.STRICT,
            avoid=(),
        )
    return PendingSession(
        id=row.id,
        sequence=row.sequence,
        request=request,
        scopes=_scopes(
            row.domain, row.project_id, row.owner_id, row.access_key, row.resource_group
        ),
        priority=row.priority,
        blocked_reason=_blocked_reason(row),
        unmet_dependencies=unmet_dependencies_text(awaited),
        dependency_ids=tuple(d.id for d in awaited if not d.is_met),
        not_before=row.starts_at,
        created_at=row.created_at,
        max_run_seconds=max_run_seconds_of(row),
        kind=kind_of(row),
        reservation_id=_reservation_of(row.options),
        job_priority=row.job_priority,
        is_preemptible=row.is_preemptible,
    )


def _hosts_of(mounts: str) -> tuple[str, ...]:
    """Return the storage hosts with the folders of a session, from the JSON of its mounts."""
    if mounts == "[]":
        return ()
    return tuple(sorted({str(mount["host"]) for mount in json.loads(mounts)}))


def _reservation_of(options: str) -> str:
    """Return the id of the advance reservation that a session requests, or ""."""
    if RESERVATION_OPTION not in options:
        return ""
    return str(json.loads(options).get(RESERVATION_OPTION) or "")


def _running(row: Any, placements: tuple[Placement, ...]) -> RunningSession:
    began: datetime = row.started_at or row.scheduled_at or row.created_at
    seconds = max_run_seconds_of(row)
    limit = None if seconds is None else began + timedelta(seconds=seconds)
    # Ignore the stored end before the start: it belongs to an earlier run.
    lifetime_end = row.lifetime_end if row.started_at is not None else None
    return RunningSession(
        id=row.id,
        group=row.resource_group,
        scopes=_scopes(
            row.domain, row.project_id, row.owner_id, row.access_key, row.resource_group
        ),
        placements=placements,
        slots=total_of(placements),
        started_at=began,
        ends_at=min((end for end in (limit, lifetime_end) if end is not None), default=None),
        kind=kind_of(row),
        priority=row.priority,
        job_priority=row.job_priority,
        is_preemptible=row.is_preemptible,
        is_running=row.status == Status.RUNNING,
        is_ending=row.status == Status.TERMINATING,
    )


def total_of(placements: Iterable[Placement]) -> ResourceSlots:
    """Return the total resources of all kernels of a session."""
    total: dict[str, int] = {}
    for placement in placements:
        for slot, amount in placement.slots.items():
            total[slot] = total.get(slot, 0) + amount
        for device_amount in placement.devices:
            total[device_amount.slot] = total.get(device_amount.slot, 0) + device_amount.amount
    return ResourceSlots(total)


_scopes = lru_cache(_CACHE_SIZE)(scopes_of)


def request_of_row(row: Any) -> Request:
    return _request(
        row.slots,
        row.resource_group,
        row.architecture,
        row.engine,
        row.cluster_size,
        row.cluster_mode,
        row.options,
        row.group_options,
    )


@lru_cache(_CACHE_SIZE)
def _request(
    slots: str,
    resource_group: str,
    architecture: str,
    engine: str,
    kernels: int,
    mode: str,
    options: str,
    group_options: str,
) -> Request:
    return request_of(
        Request(ResourceSlots(json.loads(slots)), resource_group, architecture, engine),
        GroupOptions.of(json.loads(group_options) or {}),
        kernels,
        mode,
        json.loads(options) or {},
    )


def max_run_seconds_of(row: Any) -> int | None:
    """Return the maximum run time of a session in seconds; None if unlimited."""
    lifetime = row.lifetime and row.lifetime + row.added
    limits = [n for n in (row.batch_timeout_seconds, lifetime) if n]
    return min(limits, default=None)


def kind_of(row: Any) -> str:
    """Return the kind of a session for estimates of run times: type and image without tag."""
    return f"{row.type}:{row.image.rpartition(':')[0] or row.image}"


def _blocked_reason(row: Any) -> CodedText | None:
    """Return a text that names the inactive account, keypair, project or domain of a session, a
    missing membership or a spent budget; None if the session may start.
    """
    states = (
        (row.is_user_active, TextTemplate.USER_INACTIVE, row.username),
        (row.is_keypair_active, TextTemplate.KEYPAIR_INACTIVE, row.access_key),
        (row.is_project_active, TextTemplate.PROJECT_INACTIVE, row.project),
        (row.is_domain_active, TextTemplate.DOMAIN_INACTIVE, row.domain),
    )
    inactive = (template.text(name=name) for is_active, template, name in states if not is_active)
    found = next(inactive, None)
    if found is None and not row.is_member:
        return TextTemplate.NOT_A_MEMBER.text(user=row.username, project=row.project)
    if found is None and not row.has_budget:
        amount = f"{row.budget_amount.normalize():f} {row.currency or ''}".strip()
        return TextTemplate.BUDGET_SPENT.text(name=row.project, amount=amount)
    return found
