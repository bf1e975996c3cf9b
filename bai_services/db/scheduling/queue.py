"""Store of the queue: reads the input of scheduling passes, and writes their results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import WriteConflict
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.placement import AgentState, Policy, Request
from bai_services.core.scheduling.queue import Changes, Decision, Snapshot
from bai_services.core.sessions.lifecycle import Event, Status, next_status

from .. import bulk
from ..database import Database
from ..tables.budgets import project_budgets
from ..tables.sessions import kernels, sessions, status_history
from ..usage import record_writes
from . import lease, ledger
from .agent_states import read_agents, read_agents_of
from .caps import CHUNK, read_caps, read_usage
from .queue_groups import read_groups
from .queue_rows import (
    read_dependents,
    read_durations,
    read_pending,
    read_recent,
    read_running,
)
from .reservations import read_reserved

# Maximum number of decisions or wait states per transaction; lower on SQLite, where a write
# transaction blocks all other writers.
BATCH = 250
SQLITE_BATCH = 40

_TEXT_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Committed:
    """The placed sessions, and the sessions with rejected decisions.

    A decision is rejected if it lost a race, or if its session is no longer pending.
    """

    placed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitState:
    """Why a session is pending, its position in the queue (from 1), and its estimated start.

    ``position`` and ``estimate`` are None if they are unknown.
    """

    reasons: Sequence[Mapping[str, Any]]
    position: int | None = None
    estimate: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Touched:
    """Entities that may have changed since the last read."""

    sessions: frozenset[str] = field(default_factory=frozenset)
    agents: frozenset[str] = field(default_factory=frozenset)
    scopes: frozenset[Scope] = field(default_factory=frozenset)


async def read_changes(tx: AsyncConnection, touched: Touched) -> Changes:
    """Return the current state of the touched entities; see ``QueueStore.changes``."""
    ids = set(touched.sessions) | await read_dependents(tx, touched.sessions)
    pending = await read_pending(tx, ids)
    running = await read_running(tx, ids)
    remaining = {p.id for p in pending} | {r.id for r in running}
    scopes = {s for p in pending for s in p.scopes} | {s for r in running for s in r.scopes}
    scopes |= touched.scopes
    agent_ids = {p.agent_id for r in running for p in r.placements} | touched.agents
    agents = await read_agents_of(tx, agent_ids)
    caps = await read_caps(tx, scopes)
    return Changes(
        pending=pending,
        running=running,
        removed=tuple(sorted(ids - remaining)),
        agents=agents,
        removed_agents=tuple(sorted(agent_ids - {agent.id for agent in agents})),
        caps={scope: caps.get(scope) for scope in scopes},
        usage=await read_usage(tx, scopes),
    )


class QueueStore:
    """Reads and writes of the scheduler.

    Every write requires the current token of the lease. The token None, for tools that run without
    a manager, skips this check.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self.batch = SQLITE_BATCH if database.is_sqlite else BATCH

    async def snapshot(self, now: datetime) -> Snapshot:
        """Return the stored input of a scheduling pass, without the usage history."""
        async with self._db.read_one_state() as tx:
            pending = await read_pending(tx)
            running = await read_running(tx)
            groups = await read_groups(tx)
            scopes = {s for session in pending for s in session.scopes} | {
                s for r in running for s in r.scopes
            }
            return Snapshot(
                pending=pending,
                running=running,
                agents=await read_agents(tx, groups),
                caps=await read_caps(tx, scopes),
                usage=await read_usage(tx, scopes),
                inactive_groups=frozenset(name for name, g in groups.items() if not g.is_active),
                groups=groups,
                now=now,
                durations=await read_durations(tx),
                reserved=await read_reserved(tx),
            )

    async def changes(self, touched: Touched) -> Changes:
        """Return the current state of touched entities, and of dependents of touched sessions.

        Sessions that are neither pending nor running are in ``removed``.
        """
        async with self._db.read() as tx:
            return await read_changes(tx, touched)

    async def learning_groups(self) -> list[str]:
        """Return the resource groups with a placement policy that learns from past requests."""
        async with self._db.read() as tx:
            groups = await read_groups(tx)
        return sorted(
            name for name, g in groups.items() if g.placement in (Policy.PRICED, Policy.FGD)
        )

    async def recent(
        self, group: str, limit: int
    ) -> tuple[list[Request], list[float | None], list[AgentState]]:
        """Return (requests, run times, agents) of a resource group.

        The requests are the latest ``limit``, newest first. Run times are in seconds, None for a
        session that has not ended or never ran.
        """
        async with self._db.read() as tx:
            return *await read_recent(tx, group, limit), await read_agents(tx, [group])

    async def created_after(self, sequence: int) -> dict[str, int]:
        """Return the sequence numbers above ``sequence``, by session id."""
        query = sa.select(sessions.c.id, sessions.c.sequence).where(sessions.c.sequence > sequence)
        async with self._db.read() as tx:
            return {row.id: row.sequence for row in await tx.execute(query)}

    async def last_sequence(self) -> int:
        """Return the highest sequence number of a session; 0 without sessions."""
        async with self._db.read() as tx:
            return int(await tx.scalar(sa.select(sa.func.max(sessions.c.sequence))) or 0)

    async def commit(
        self, decisions: Sequence[Decision], at: datetime, token: int | None
    ) -> Committed:
        """Place pending sessions: write status, counters, ledger and history in one transaction.

        Decisions for sessions that are no longer pending are skipped. If a cap, an agent or a
        device is no longer in the state that a decision assumes, the transaction is rolled back.
        The batch is then halved repeatedly, down to single decisions, so that a lost race does not
        reject other decisions.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token. Batches already written remain.
        """
        if not decisions:
            return Committed()
        try:
            async with self._db.write() as tx:
                if token is not None:
                    await lease.require(tx, token)
                no_longer_pending = await _place(tx, decisions, at)
        except (ledger.LostRace, WriteConflict):
            pass
        else:
            placed = tuple(d.session_id for d in decisions if d.session_id not in no_longer_pending)
            return Committed(placed, tuple(no_longer_pending))
        if len(decisions) == 1:
            return Committed(lost=(decisions[0].session_id,))
        middle = len(decisions) // 2
        first = await self.commit(decisions[:middle], at, token)
        second = await self.commit(decisions[middle:], at, token)
        return Committed(first.placed + second.placed, first.lost + second.lost)

    async def write_states(self, states: Mapping[str, WaitState], token: int | None) -> None:
        """Write the wait states of sessions; skip sessions that are no longer pending."""
        rows = [
            (
                session_id,
                list(state.reasons),
                str(state.reasons[0]["message"])[:_TEXT_LIMIT] if state.reasons else "",
                state.position,
                None if state.estimate is None else dict(state.estimate),
            )
            for session_id, state in sorted(states.items())
        ]
        async with self._db.write() as tx:
            if token is not None:
                await lease.require(tx, token)
            await _STATES_LOCK.run(tx, [row[:1] for row in rows])
            await _STATES.run(tx, rows)


# Built at import, because building a statement takes longer than running it.
_STATES_LOCK = bulk.RowLock(sessions, {"id": sa.String()})
_STATES = bulk.RowUpdate(
    {
        "id": sa.String(),
        "reasons": sa.JSON(),
        "text": sa.String(),
        "position": sa.Integer(),
        "estimate": sa.JSON(none_as_null=True),
    },
    lambda v: (
        sa.update(sessions)
        .where(sessions.c.id == v["id"], sessions.c.status == Status.PENDING)
        .values(
            reasons=v["reasons"],
            status_info=v["text"],
            status_coded=None,
            position=v["position"],
            estimate=v["estimate"],
        )
    ),
)
# A budget may have been spent since the pass that made a decision.
_IS_BUDGET_SPENT = sa.exists().where(
    project_budgets.c.project_id == sessions.c.project_id, project_budgets.c.blocked_at.is_not(None)
)
_IS_PENDING = bulk.Likely(sessions.c.status == Status.PENDING)
_LOCK_PENDING = (
    sa.select(
        sessions.c.id,
        sessions.c.domain,
        sessions.c.project_id,
        sessions.c.owner_id,
        sessions.c.access_key,
        sessions.c.resource_group,
        sessions.c.status_changed_at,
        sessions.c.starts_at,
    )
    .where(
        bulk.Among(sessions.c.id, "ids"),
        _IS_PENDING,
        ~_IS_BUDGET_SPENT,
    )
    .order_by(sessions.c.id)
    .with_for_update(key_share=True)
)
_KERNELS_OF = (
    sa.select(kernels.c.session_id, kernels.c.id)
    .where(bulk.Among(kernels.c.session_id, "ids"))
    .order_by(kernels.c.session_id, kernels.c.role != "main", kernels.c.index)
)
_MOVE_PENDING = (
    sa.update(sessions)
    .where(bulk.Among(sessions.c.id, "ids"), _IS_PENDING)
    .values(
        status=next_status(Status.PENDING, Event.PLACED),
        status_changed_at=sa.bindparam("at"),
        scheduled_at=sa.bindparam("at"),
        reasons=[],
        status_info="",
        status_coded=None,
        position=None,
        estimate=None,
    )
)
_PUT_ON_AGENT = bulk.RowUpdate(
    {"id": sa.String(), "agent_id": sa.String()},
    lambda v: sa.update(kernels).where(kernels.c.id == v["id"]).values(agent_id=v["agent_id"]),
)
_HISTORY = bulk.RowInsert(
    status_history,
    ["session_id", "reason", "reason_coded"],
    ["at", "event", "from_status", "to_status"],
)


async def _place(tx: AsyncConnection, decisions: Sequence[Decision], at: datetime) -> set[str]:
    """Write the decisions for sessions that are still pending; return the other sessions."""
    scopes, waits = await _lock_pending(tx, [d.session_id for d in decisions])
    wanted = [d for d in decisions if d.session_id in scopes]
    if wanted:
        ids = sorted(scopes)
        of_session = await _kernels_of(tx, ids)
        holders = [
            _holder(d, of_session.get(d.session_id, ()), scopes[d.session_id]) for d in wanted
        ]
        await _move_sessions(tx, ids, at)
        await _write_kernels(tx, holders)
        await _write_history(tx, wanted, at)
        await record_writes.write_waits(tx, waits, at)
        caps = await read_caps(tx, {scope for of in scopes.values() for scope in of})
        await ledger.allocate(tx, holders, caps, at)
    return {d.session_id for d in decisions} - set(scopes)


async def _lock_pending(
    tx: AsyncConnection, ids: Sequence[str]
) -> tuple[dict[str, tuple[Scope, ...]], dict[str, datetime]]:
    """Lock the sessions that are still pending and not blocked by a spent budget.

    Return the scopes and the beginning of the wait of each of these sessions.
    """
    ranked = sorted(ids)
    scopes: dict[str, tuple[Scope, ...]] = {}
    waits: dict[str, datetime] = {}
    for start in range(0, len(ranked), CHUNK):
        rows = await tx.execute(_LOCK_PENDING, {"ids": ranked[start : start + CHUNK]})
        for session_id, *charged, pending_since, starts_at in rows:
            scopes[session_id] = ledger.scopes_of(*charged)
            waits[session_id] = record_writes.wait_start(pending_since, starts_at)
    return scopes, waits


async def _kernels_of(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the kernel ids of each session, main kernel first."""
    found: dict[str, list[str]] = {}
    for start in range(0, len(ids), CHUNK):
        rows = await tx.execute(_KERNELS_OF, {"ids": ids[start : start + CHUNK]})
        for session_id, kernel_id in rows:
            found.setdefault(session_id, []).append(kernel_id)
    return found


def _holder(
    decision: Decision, kernel_ids: Collection[str], scopes: tuple[Scope, ...]
) -> ledger.SessionPlacement:
    if len(kernel_ids) != len(decision.placements):
        raise ledger.LostRace(
            f"session {decision.session_id} has {len(kernel_ids)} kernels, but "
            f"the decision has {len(decision.placements)} placements"
        )
    return ledger.SessionPlacement(
        decision.session_id, tuple(kernel_ids), scopes, decision.placements
    )


async def _move_sessions(tx: AsyncConnection, ids: Sequence[str], at: datetime) -> None:
    """Change the status of sessions to SCHEDULED; ``_lock_pending`` must have locked them."""
    moved = 0
    for start in range(0, len(ids), CHUNK):
        part = {"ids": ids[start : start + CHUNK], "at": at}
        result = await tx.execute(_MOVE_PENDING, part)
        moved += result.rowcount
    if moved != len(ids):
        raise ledger.LostRace(f"{len(ids) - moved} of {len(ids)} sessions are no longer pending")


async def _write_kernels(tx: AsyncConnection, holders: Sequence[ledger.SessionPlacement]) -> None:
    rows = sorted(
        (kernel_id, placement.agent_id)
        for holder in holders
        for kernel_id, placement in zip(holder.kernel_ids, holder.placements, strict=True)
    )
    await _PUT_ON_AGENT.run(tx, rows)


async def _write_history(tx: AsyncConnection, decisions: Sequence[Decision], at: datetime) -> None:
    await _HISTORY.run(
        tx,
        [(decision.session_id, *_placed(decision)) for decision in decisions],
        at=at,
        event=Event.PLACED,
        from_status=Status.PENDING,
        to_status=next_status(Status.PENDING, Event.PLACED),
    )


def _placed(decision: Decision) -> tuple[str, dict[str, Any]]:
    """Return the reason in the history, in English and as a code with values."""
    names = dict.fromkeys(placement.agent_id for placement in decision.placements)
    text = TextTemplate.PLACED.text(names=", ".join(names))
    return str(text)[:_TEXT_LIMIT], text.as_json()
