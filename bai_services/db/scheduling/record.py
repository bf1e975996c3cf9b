"""Read the recorded sessions and agents of a resource group, for replays."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.devices import DeviceAmount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.placement import ALIVE, Placement
from bai_services.core.scheduling.queue import DailyUsage
from bai_services.core.scheduling.replay.recorded import Record, RecordedAgent, RecordedSession
from bai_services.core.sessions.lifecycle import Result, Status

from ..database import Database
from ..tables.cluster import agents
from ..tables.scheduling import usage_buckets
from ..tables.sessions import allocations, kernels, session_dependencies, sessions
from .agent_states import read_agents
from .caps import read_caps
from .ledger import scopes_of
from .queue_rows import (
    REQUESTED,
    kind_of,
    max_run_seconds_of,
    read_durations,
    request_of_row,
)
from .usage_buckets import day_of

# Number of sessions to read and convert before yielding to the event loop.
_PAGE = 100

_SESSIONS: sa.Select[Any] = REQUESTED.add_columns(
    sessions.c.status, sessions.c.terminated_at
).where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True)
class _Placed:
    """The last placement of a session; by default, the session was never placed.

    ``freed_at`` is None while resources of the placement are allocated. ``count`` is the total
    number of placements of the session.
    """

    at: datetime | None = None
    freed_at: datetime | None = None
    placements: tuple[Placement, ...] = ()
    count: int = 0


class RecordStore:
    """Reads records. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def count(self, group: str, since: datetime, until: datetime) -> int:
        """Return the number of sessions that were live during a period."""
        select = sa.select(sa.func.count()).select_from(sessions)
        async with self._db.read() as tx:
            found = await tx.scalar(select.where(_is_in_period(group, since, until)))
            return int(found or 0)

    async def read(
        self, group: str, since: datetime, until: datetime, *, lookback_days: int = 0
    ) -> Record:
        """Return the record of a resource group in a period.

        The record also contains the daily usage of the ``lookback_days`` days before the period.
        """
        ids_select = (
            sa.select(sessions.c.id)
            .where(_is_in_period(group, since, until))
            .order_by(sessions.c.sequence)
        )
        found: list[RecordedSession] = []
        names: dict[str, str] = {}
        async with self._db.read() as tx:
            ids = (await tx.scalars(ids_select)).all()
            for start in range(0, len(ids), _PAGE):
                page = ids[start : start + _PAGE]
                rows = (await tx.execute(_SESSIONS, {"ids": page})).all()
                placed = await _read_placed(tx, page)
                ready = await _read_dependencies(tx, page)
                for row in rows:
                    found.append(
                        _session(row, placed.get(row.id, _Placed()), ready.get(row.id, ()))
                    )
                    names |= {row.owner_id: row.username, row.project_id: row.project}
                await asyncio.sleep(0)
            scopes = {
                scope
                for s in found
                for scope in scopes_of(s.domain, s.project, s.user, s.keypair, group)
            }
            return Record(
                group,
                found,
                await _read_recorded_agents(tx, group),
                caps=await read_caps(tx, scopes),
                durations=await read_durations(tx, before=since),
                usage=await _read_usage(tx, group, day_of(since), lookback_days),
                names=names,
            )


def _is_in_period(group: str, since: datetime, until: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(
        sessions.c.resource_group == group,
        sessions.c.created_at < until,
        sa.or_(sessions.c.terminated_at.is_(None), sessions.c.terminated_at > since),
    )


async def _read_placed(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, _Placed]:
    """Return the last placement of each session, with one entry per kernel, main kernel first."""
    select = (
        sa.select(allocations)
        .join_from(allocations, kernels, allocations.c.kernel_id == kernels.c.id)
        .where(allocations.c.session_id.in_(ids))
        .order_by(allocations.c.session_id, kernels.c.index, allocations.c.id)
    )
    of_session: dict[str, list[Any]] = defaultdict(list)
    for row in await tx.execute(select):
        of_session[row.session_id].append(row)
    return {session_id: _last_placement(rows) for session_id, rows in of_session.items()}


def _last_placement(rows: Sequence[Any]) -> _Placed:
    times = {row.allocated_at for row in rows}
    last = max(times)
    # Ignore the allocations of resizes: a resize allocates new rows at the time at which it
    # releases the old ones.
    starts = times - {row.freed_at for row in rows} or {min(times)}
    of_kernel: dict[str, tuple[str, dict[str, int], list[DeviceAmount]]] = {}
    freed: list[datetime | None] = []
    for row in rows:
        if row.allocated_at != last:
            continue
        freed.append(row.freed_at)
        _, slots, picked = of_kernel.setdefault(row.kernel_id, (row.agent_id, {}, []))
        if row.device_id is None:
            slots[row.slot] = slots.get(row.slot, 0) + row.amount
        else:
            picked.append(DeviceAmount(row.device_id, row.slot, row.amount))
    known = [at for at in freed if at is not None]
    return _Placed(
        at=max(starts),
        freed_at=max(known) if len(known) == len(freed) else None,
        placements=tuple(
            Placement(agent_id, ResourceSlots(slots), tuple(picked))
            for agent_id, slots, picked in of_kernel.values()
        ),
        count=len(starts),
    )


async def _read_dependencies(
    tx: AsyncConnection, ids: Sequence[str]
) -> Mapping[str, Sequence[datetime | None]]:
    """Return, by session, when each dependency succeeded; None if it did not succeed."""
    rows = await tx.execute(
        sa.select(
            session_dependencies.c.session_id,
            sessions.c.status,
            sessions.c.result,
            sessions.c.terminated_at,
        )
        .join_from(
            session_dependencies, sessions, session_dependencies.c.depends_on == sessions.c.id
        )
        .where(session_dependencies.c.session_id.in_(ids))
    )
    found: dict[str, list[datetime | None]] = defaultdict(list)
    for row in rows:
        is_met = row.status == Status.TERMINATED and row.result == Result.SUCCESS
        found[row.session_id].append(row.terminated_at if is_met else None)
    return found


def _session(row: Any, placed: _Placed, dependencies: Sequence[datetime | None]) -> RecordedSession:
    if row.status == Status.PENDING:
        placed = _Placed()  # ignore the placement, because it has failed
    ready = [at for at in (row.starts_at, *dependencies) if at is not None]
    request = request_of_row(row)
    if row.min_cuda:
        request = replace(request, min_cuda_driver=row.min_cuda)
    return RecordedSession(
        id=row.id,
        created_at=row.created_at,
        placed_at=placed.at,
        freed_at=placed.freed_at,
        ended_at=row.terminated_at,
        request=request,
        priority=row.priority,
        domain=row.domain,
        project=row.project_id,
        user=row.owner_id,
        keypair=row.access_key,
        kind=kind_of(row),
        placements=placed.placements,
        placement_count=placed.count,
        ready_at=max(ready, default=None),
        limit_seconds=max_run_seconds_of(row),
        has_dependencies=bool(dependencies),
        is_blocked=None in dependencies,
        job_priority=row.job_priority,
        is_preemptible=row.is_preemptible,
    )


async def _read_recorded_agents(tx: AsyncConnection, group: str) -> list[RecordedAgent]:
    rows = await tx.execute(
        sa.select(
            agents.c.id, agents.c.created_at, agents.c.status, agents.c.status_changed_at
        ).where(agents.c.resource_group == group)
    )
    known = {row.id: row for row in rows}
    found = []
    for state in await read_agents(tx, [group]):
        row = known.get(state.id)
        if row is None:
            continue  # skip an agent that has joined the group since the first query
        left_at = None if row.status == ALIVE else row.status_changed_at
        found.append(RecordedAgent(state, row.created_at, left_at))
    return found


async def _read_usage(
    tx: AsyncConnection, group: str, day: int, lookback_days: int
) -> dict[Scope, tuple[DailyUsage, ...]]:
    """Return the daily usage before a day, by scope."""
    if not lookback_days:
        return {}
    buckets = usage_buckets.c
    rows = await tx.execute(
        sa.select(usage_buckets).where(
            buckets.resource_group == group,
            buckets.day < day,
            buckets.day >= day - lookback_days,
        )
    )
    found: dict[Scope, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[Scope(row.scope, row.scope_id)][row.day][row.slot] = int(row.amount_seconds)
    return {
        scope: tuple(DailyUsage(day, slots) for day, slots in sorted(days.items()))
        for scope, days in found.items()
    }
