"""Store of resizes: the ledger and the requested size are updated in one transaction.

During a resize, a session holds the larger amount of each slot. Additional amounts are allocated
before its agent applies the size, and surplus amounts are released afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.devices import Device, thousandths
from bai_services.core.errors import Conflict, InsufficientResources
from bai_services.core.resources import MEM, ResourceSlots, format_amount
from bai_services.core.scheduling.advance_reservations import HeldAgents
from bai_services.core.scheduling.caps import (
    SESSIONS,
    Scope,
    ScopeCaps,
    Violation,
    raise_if_violated,
    violation,
)
from bai_services.core.scheduling.placement import AgentState
from bai_services.core.scheduling.queue.explain import RESOURCES, waits_for_capacity
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.resizing import (
    Elasticity,
    HeldAmount,
    KernelLimits,
    ResizeState,
    SessionResize,
    amounts_of,
    check_minimum,
    check_resize,
    larger_of,
    resized,
)
from bai_services.core.sessions.rules import check_resources

from ..audit import record
from ..database import Database
from ..scheduling import ledger
from ..scheduling.advance_reservation_rows import read_held
from ..scheduling.agent_states import read_agents_of
from ..scheduling.caps import read_caps, read_usage
from ..scheduling.queue_rows import read_running
from ..tables.budgets import project_budgets
from ..tables.cluster import images
from ..tables.resizes import session_resizes
from ..tables.sessions import allocations, kernels, sessions
from .resize_rows import read_resizes, resize_of
from .rows import KernelRow, SessionRow, read_kernels_of, require_by_id

_r = session_resizes.c
_LOCK = sa.update(sessions).values(sequence=sessions.c.sequence)
_SPENT_BUDGET = sa.select(project_budgets.c.project_id).where(
    project_budgets.c.project_id == sa.bindparam("of_project"),
    project_budgets.c.blocked_at.is_not(None),
)
# Maximum number of pending sessions with reasons to read.
_MAX_WAITING = 200
# A text search avoids parsing the reasons of sessions that wait for something else.
_WAITING = (
    sa.select(sessions.c.reasons)
    .where(
        sessions.c.status == Status.PENDING,
        sessions.c.resource_group == sa.bindparam("of_group"),
        sa.cast(sessions.c.reasons, sa.Text).contains(f'"{RESOURCES}"'),
    )
    .limit(_MAX_WAITING)
)


@dataclass(frozen=True, slots=True)
class RequestedResize:
    """A requested resize; ``session`` has the size during the resize."""

    session: SessionRow
    kernel: KernelRow
    number: int
    resize: SessionResize


AuditOf = Callable[[RequestedResize], AuditEntry]


@dataclass(frozen=True, slots=True)
class PendingResize:
    """A resize for an agent to apply: a kernel, the number of the resize, and the new amounts."""

    session_id: str
    kernel_id: str
    hostname: str
    number: int
    size: ResourceSlots
    amounts: Sequence[HeldAmount]


class ResizeStore:
    """Writes and reads resizes. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def request(
        self,
        session_id: str,
        changes: Mapping[str, int],
        by: str,
        at: datetime,
        audit: AuditOf | None = None,
    ) -> RequestedResize:
        """Start a resize of a running session, and allocate the additional amounts.

        ``audit`` returns the audit entry for the resize.

        Raises
        ------
        Conflict
            If the session is not running, is a cluster session, is being resized, or cannot be
            resized in this way. For growth, also if other sessions wait for the resources, the
            agent is reserved for others, or the budget of the project is spent.
        InvalidRequest
            If the session does not have a slot, or an amount is outside the limits of its image or
            below the minimum of an elastic session.
        QuotaExceeded
            If the new size exceeds a quota.
        InsufficientResources
            If the agent or the device does not have enough free capacity.
        """
        try:
            async with self._db.write() as tx:
                requested = await _request(tx, session_id, changes, by, at)
                if audit is not None:
                    await record(tx, audit(requested))
                return requested
        except ledger.LostRace as error:
            raise Conflict(
                f"the resources have just been allocated to another session ({error}); try again",
                session=session_id,
            ) from error

    async def finish(
        self,
        session_id: str,
        number: int,
        at: datetime,
        *,
        error: str = "",
        devices: Sequence[Mapping[str, Any]] | None = None,
    ) -> SessionRow | None:
        """Finish a resize: release the surplus amounts, or with ``error``, the additional amounts.

        ``devices``: changed values in the device descriptions. Return the session, or None without
        such a pending resize.
        """
        async with self._db.write() as tx:
            await tx.execute(_LOCK.where(sessions.c.id == session_id))
            found = await _read(tx, session_id)
            if found is None or found[0] != number or found[1].state is not ResizeState.PENDING:
                return None
            row = await require_by_id(tx, session_id)
            resize = found[1]
            size = resize.previous if error else resize.requested
            if row.status is Status.RUNNING:
                held = await _held(tx, session_id)
                kernel = (await read_kernels_of(tx, [session_id]))[session_id][0]
                await _hold(tx, row, kernel, held, size, at)
                if devices and not error:
                    injection = _with_devices(kernel.injection or {}, devices)
                    await tx.execute(
                        sa.update(kernels)
                        .where(kernels.c.id == kernel.id)
                        .values(injection=injection)
                    )
            await tx.execute(
                sa.update(session_resizes)
                .where(_r.session_id == session_id)
                .values(
                    state=ResizeState.FAILED if error else ResizeState.APPLIED,
                    finished_at=at,
                    message=error[:1024],
                )
            )
            return await require_by_id(tx, session_id)

    async def get(self, session_id: str) -> tuple[SessionResize | None, Elasticity | None]:
        """Return the last resize of a session, and the sizes of an elastic session."""
        async with self._db.read() as tx:
            resizes, elastic = await read_resizes(tx, [session_id])
            return resizes.get(session_id), elastic.get(session_id)

    async def pending_on(self, agent_id: str) -> list[PendingResize]:
        """Return the resizes without a result from their agent, oldest first."""
        async with self._db.read() as tx:
            rows = (await tx.execute(_PENDING_ON, {"of_agent": agent_id})).all()
            pending = []
            for row in rows:
                held = await _held(tx, row.session_id)
                amounts = amounts_of(held, row.requested)
                pending.append(PendingResize(*row[:4], row.requested, amounts))
            return pending

    async def fail_ended(self, at: datetime) -> int:
        """Mark pending resizes of sessions that no longer run as failed; return their number."""
        running = sa.select(sessions.c.id).where(sessions.c.status == Status.RUNNING)
        async with self._db.write() as tx:
            failed = await tx.execute(
                sa.update(session_resizes)
                .where(_r.state == ResizeState.PENDING, _r.session_id.not_in(running))
                .values(state=ResizeState.FAILED, finished_at=at, message="the session has ended")
            )
            return failed.rowcount


_PENDING_ON = (
    sa.select(_r.session_id, kernels.c.id, kernels.c.hostname, _r.number, _r.requested)
    .join_from(session_resizes, sessions, _r.session_id == sessions.c.id)
    .join(kernels, kernels.c.session_id == sessions.c.id)
    .where(
        _r.state == ResizeState.PENDING,
        sessions.c.status == Status.RUNNING,
        kernels.c.agent_id == sa.bindparam("of_agent"),
    )
    .order_by(_r.requested_at, _r.session_id)
)


async def _request(
    tx: AsyncConnection, session_id: str, changes: Mapping[str, int], by: str, at: datetime
) -> RequestedResize:
    await tx.execute(_LOCK.where(sessions.c.id == session_id))
    row = await require_by_id(tx, session_id)
    if row.status is not Status.RUNNING:
        raise Conflict(
            f"session {row.name} is {row.status}; only a running session can be resized",
            session=session_id,
            status=row.status,
        )
    if row.cluster_size > 1:
        raise Conflict(
            f"session {row.name} is a cluster session; its kernels cannot be resized while it runs",
            session=session_id,
        )
    found = await _read(tx, session_id)
    if found is not None and found[1].state is ResizeState.PENDING:
        raise Conflict(f"session {row.name} is being resized", session=session_id)
    kernel = (await read_kernels_of(tx, [session_id]))[session_id][0]
    held = await _held(tx, session_id)
    wanted = resized(row.requested_slots, changes)
    limits = KernelLimits.of(kernel.injection or {}, kernel.usage or {})
    check_resize(row.requested_slots, wanted, held, limits)
    _, elastic = await read_resizes(tx, [session_id])
    if session_id in elastic:
        check_minimum(elastic[session_id].minimum, wanted)
    await _check_bounds(tx, row, wanted)
    hold = larger_of(row.requested_slots, wanted)
    if hold != row.requested_slots:
        await _require_may_grow(tx, row, kernel.agent_id or "", at)
        await _require_available(tx, row, kernel, held, hold - row.requested_slots)
        await _hold(tx, row, kernel, held, hold, at)
    number = 1 if found is None else found[0] + 1
    resize = SessionResize(ResizeState.PENDING, row.requested_slots, wanted, by, at, None, "")
    values = {
        "number": number,
        "state": resize.state,
        "previous": resize.previous,
        "requested": resize.requested,
        "by": by,
        "requested_at": at,
        "finished_at": None,
        "message": "",
    }
    if found is None:
        await tx.execute(sa.insert(session_resizes).values(session_id=session_id, **values))
    else:
        await tx.execute(
            sa.update(session_resizes).where(_r.session_id == session_id).values(**values)
        )
    return RequestedResize(await require_by_id(tx, session_id), kernel, number, resize)


async def _read(tx: AsyncConnection, session_id: str) -> tuple[int, SessionResize] | None:
    """Return the last resize of a session with its number."""
    row = (
        await tx.execute(sa.select(session_resizes).where(_r.session_id == session_id))
    ).one_or_none()
    return None if row is None else (row.number, resize_of(row))


def _with_devices(
    injection: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return an injection with changed values in the descriptions of its devices."""
    changed = {device.get("id"): device for device in devices if isinstance(device, dict)}
    described = [
        {**device, **{name: new[name] for name in ("share", "memory_bytes") if name in new}}
        for device in injection.get("devices") or ()
        for new in [changed.get(device.get("id"), {})]
    ]
    return {**injection, "devices": described}


async def _held(tx: AsyncConnection, session_id: str) -> list[HeldAmount]:
    rows = await tx.execute(
        sa.select(allocations.c.device_id, allocations.c.slot, allocations.c.amount)
        .where(allocations.c.session_id == session_id, allocations.c.freed_at.is_(None))
        .order_by(allocations.c.id)
    )
    return [HeldAmount(*row) for row in rows]


async def _hold(
    tx: AsyncConnection,
    row: SessionRow,
    kernel: KernelRow,
    held: Sequence[HeldAmount],
    size: ResourceSlots,
    at: datetime,
) -> None:
    """Change the allocations and the size of a session, if they differ."""
    amounts = amounts_of(held, size)
    if amounts == list(held):
        return
    scopes = _scopes_of(row)
    holder = ledger.ResizedKernel(row.id, kernel.id, kernel.agent_id or "", scopes, amounts)
    await ledger.resize(tx, holder, await read_caps(tx, scopes), at)
    await tx.execute(
        sa.update(sessions).where(sessions.c.id == row.id).values(requested_slots=size)
    )


def _scopes_of(row: SessionRow) -> tuple[Scope, ...]:
    return ledger.scopes_of(
        row.domain, row.project_id, row.owner_id, row.access_key, row.resource_group
    )


async def _check_bounds(tx: AsyncConnection, row: SessionRow, wanted: ResourceSlots) -> None:
    """Raise ``InvalidRequest`` if a changed amount is not valid for the image."""
    changed = {slot for slot, n in wanted.items() if n != row.requested_slots.get(slot, 0)}
    image = (
        await tx.execute(
            sa.select(images.c.min_slots, images.c.max_slots).where(
                images.c.name == row.image, images.c.architecture == row.architecture
            )
        )
    ).one_or_none()
    bounds = [{slot: n for slot, n in of.items() if slot in changed} for of in image or ({}, {})]
    of_session = sa.select(sessions.c.shared_memory_bytes).where(sessions.c.id == row.id)
    shared_memory = (await tx.scalar(of_session) or 0) if MEM in changed else -1
    check_resources(wanted, shared_memory, row.image, (bounds[0], bounds[1]))


async def _require_may_grow(
    tx: AsyncConnection, row: SessionRow, agent_id: str, at: datetime
) -> None:
    """Raise an error if the budget of the project is spent, or the agent is reserved for others."""
    if await tx.scalar(_SPENT_BUDGET, {"of_project": row.project_id}) is not None:
        raise Conflict(
            f"the budget of project {row.project} is spent; its sessions cannot grow",
            project=row.project,
        )
    if found := (await read_withheld(tx, [row.id], at)).get(row.id):
        raise Conflict(
            f"agent {agent_id} is reserved for project {found.project_name} from "
            f"{found.starts_at.isoformat()} until {found.ends_at.isoformat()}; sessions of others "
            "cannot grow there",
            agent=agent_id,
        )


async def read_withheld(
    tx: AsyncConnection, ids: Sequence[str], at: datetime
) -> dict[str, HeldAgents]:
    """Return the advance reservation that prevents the growth of each of these running sessions.

    A session that ends before the reservation begins may grow, as it may start.
    """
    running = await read_running(tx, ids)
    held = await read_held(tx, {one.group for one in running})
    found: dict[str, HeldAgents] = {}
    for one in running if held else ():
        agents = {placement.agent_id for placement in one.placements}
        seconds = None if one.ends_at is None else max(0, ceil((one.ends_at - at).total_seconds()))
        for reservation in held.get(one.group, ()):
            if agents & reservation.agents and reservation.withholds(at, seconds, one.scopes):
                found[one.id] = reservation
                break
    return found


async def _require_available(
    tx: AsyncConnection,
    row: SessionRow,
    kernel: KernelRow,
    held: Sequence[HeldAmount],
    more: ResourceSlots,
) -> None:
    """Raise an error if quotas, waiting sessions or the agent do not allow more resources."""
    scopes = _scopes_of(row)
    caps, usage = await read_caps(tx, scopes), await read_usage(tx, scopes)
    raise_if_violated(_violations(caps, more, usage))
    found = await tx.scalars(_WAITING, {"of_group": row.resource_group})
    # Refuse to grow while sessions wait for the same resources: they take precedence.
    waiting = sum(1 for reasons in found if waits_for_capacity(reasons))
    if waiting:
        raise Conflict(
            f"{waiting} session{'s wait' if waiting > 1 else ' waits'} for resources of resource "
            f"group {row.resource_group}; a session can grow only while none waits",
            waiting=waiting,
        )
    agents = await read_agents_of(tx, [kernel.agent_id or ""])
    if not agents or not agents[0].is_alive:
        raise Conflict(f"agent {kernel.agent_id} is not alive", agent=kernel.agent_id)
    device_of = {amount.slot: amount.device_id for amount in held if amount.device_id}
    for slot, amount in more.items():
        free = _free(agents[0], slot, device_of.get(slot))
        if amount > free:
            where = f"device {device_of[slot]}" if slot in device_of else f"agent {agents[0].id}"
            raise InsufficientResources(
                f"{slot}={format_amount(slot, amount)} more requested, but only "
                f"{format_amount(slot, free)} is free on {where}, where the session runs",
                slot=slot,
                free=format_amount(slot, free),
            )


def _free(agent: AgentState, slot: str, device_id: str | None) -> int:
    if device_id is None:
        return max(0, agent.capacity.get(slot, 0) - agent.used.get(slot, 0))
    devices: dict[str, Device] = {device.id: device for device in agent.devices}
    free = devices[device_id].free if device_id in devices else 0
    return max(0, free // thousandths(slot, 1))


def _violations(
    caps: Mapping[Scope, ScopeCaps], more: ResourceSlots, usage: Mapping[Scope, Mapping[str, int]]
) -> list[Violation]:
    """Return a violation of each cap that ``more`` resources would exceed."""
    exceeded = []
    for scope, scope_caps in caps.items():
        for slot, amount in more.items():
            limit, used = scope_caps.limit(slot), usage.get(scope, {}).get(slot, 0)
            if slot != SESSIONS and limit is not None and used + amount > limit:
                exceeded.append(violation(scope_caps, slot, amount, limit, used))
    return exceeded
