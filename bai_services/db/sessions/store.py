"""Store of sessions: creation, transitions, changes and reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import AlreadyExists, Conflict, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.caps import SESSIONS
from bai_services.core.scheduling.queue import Changes
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import (
    LIVE,
    Event,
    Status,
)
from bai_services.core.sessions.logs import AttemptLog
from bai_services.core.sessions.records import StatusChange
from bai_services.core.sessions.suspensions import Phase

from ..accounts.user_domains import lock_active_in
from ..accounts.visibility import visible_rows
from ..audit import record
from ..database import Database
from ..scheduling.caps import CHUNK
from ..scheduling.queue import Touched, read_changes
from ..tables.sessions import counters, kernels, sessions, status_history
from ..tables.suspensions import session_suspensions
from . import attempt_logs, dependencies, session_insert, suspension_writes
from .rows import (
    LISTING,
    SELECT,
    SELECT_ID,
    SessionKernels,
    SessionRow,
    SessionView,
    read_kernels_of,
    read_rows,
    read_views,
    require_by_id,
    row_of,
)
from .session_insert import NewSession
from .transitions import Move, Transition, TransitionValues, apply, apply_all, texts_of

AuditOf = Callable[[Sequence[NewSession]], AuditEntry]


def visible_to(visible: Visibility) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that restrict a select to the sessions that a caller may see."""
    c = sessions.c
    return visible_rows(visible, domain=c.domain, owner_id=c.owner_id, project_id=c.project_id)


class SessionStore:
    """Creates, changes and reads sessions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def enqueue(
        self, new: NewSession, at: datetime, audit: AuditOf | None = None
    ) -> tuple[SessionRow, bool]:
        """Create a pending session like ``enqueue_all``; return it and whether it is new."""
        return (await self.enqueue_all([new], at, audit))[0]

    async def enqueue_all(
        self, new_sessions: Sequence[NewSession], at: datetime, audit: AuditOf | None = None
    ) -> list[tuple[SessionRow, bool]]:
        """Create pending sessions of one owner, all or none.

        Return each session and whether it is new. Idempotent: if a live session has the same owner,
        name and specification, that session is returned. The folders of new sessions are marked as
        in use. ``audit`` returns the audit entry for the new sessions.

        Raises
        ------
        AlreadyExists
            If a live session with that name, or on that Hub server, has another specification and
            may not be reused.
        QuotaExceeded
            If a cap on pending sessions is reached.
        NotFound, Conflict
            If a dependency does not belong to the owner, or ended without success.
        Conflict
            If the owner is no longer active or has moved to another domain.
        InUse
            If a folder can no longer be mounted.
        """
        async with self._db.write() as tx:
            created = await _create(tx, new_sessions, at)
            fresh = [new for new in new_sessions if created[new.id][1]]
            if fresh and audit is not None:
                await record(tx, audit(fresh))
        return [created[new.id] for new in new_sessions]

    async def try_enqueue(self, new: NewSession, at: datetime) -> tuple[SessionRow, Changes | None]:
        """Run ``enqueue``, read the resulting changes of the queue, and roll back.

        Return the session and the changes. The changes are None if ``enqueue`` would return an
        existing session.

        Raises
        ------
        BaiError
            As ``enqueue_all``.
        """
        async with self._db.dry_run() as tx:
            row, is_new = (await _create(tx, [new], at))[new.id]
            if not is_new:
                return row, None
            return row, await read_changes(tx, Touched(frozenset([new.id])))

    async def move(
        self,
        session_id: str,
        event: Event,
        at: datetime,
        facts: TransitionValues | None = None,
        expected: Status | None = None,
    ) -> Transition:
        """Apply an event to one session like ``move_all``.

        Raises
        ------
        NotFound
            If the session does not exist.
        InvalidTransition
            If the event is not valid in the session's status, or the status is not ``expected``.
        """
        move = Move(session_id, event, facts or TransitionValues(), expected)
        async with self._db.write() as tx:
            return await apply(tx, move, at)

    async def move_all(self, moves: Sequence[Move], at: datetime) -> list[Transition]:
        """Apply one event to each session; release the resources that the new status does not need.

        Return the transitions. Sessions that do not exist, or whose status does not allow the
        event, are skipped. Do not pass ``Event.PLACED``, which ``QueueStore.commit`` applies. A
        transaction has at most ``CHUNK`` moves, so that it does not hold its locks for long.
        """
        moved: list[Transition] = []
        for start in range(0, len(moves), CHUNK):
            async with self._db.write() as tx:
                outcomes = await apply_all(tx, moves[start : start + CHUNK], at)
            moved += [one for one in outcomes.values() if isinstance(one, Transition)]
        return moved

    async def end_instead_of_return(self, session_id: str) -> bool:
        """End a session that is being preempted or suspended, so that it does not run again.

        Return False if the session would not run again.
        """
        update = sa.update(sessions).where(
            sessions.c.id == session_id,
            sessions.c.status == Status.TERMINATING,
        )
        async with self._db.write() as tx:
            # Lock the session, because the transition at its end reads the suspension.
            found = await tx.execute(update.values(sequence=sessions.c.sequence))
            if found.rowcount == 0:
                return False
            requeued = update.where(sessions.c.is_requeued_at_end)
            changed = await tx.execute(requeued.values(is_requeued_at_end=False))
            is_forgotten = await suspension_writes.forget_open(tx, session_id)
            return changed.rowcount == 1 or is_forgotten

    async def find(self, session_id: str) -> SessionRow:
        """Return one session.

        Raises
        ------
        NotFound
            If the session does not exist.
        """
        async with self._db.read() as tx:
            return await require_by_id(tx, session_id)

    async def find_by_key(self, key: str, visible: Visibility, owner_id: str | None) -> SessionRow:
        """Return the visible session with the id ``key``, else a session with the name ``key``.

        The name is searched first among the visible sessions of ``owner_id``, then among all
        visible sessions. If any match is live, only live matches count. If several sessions of one
        owner match, the newest is returned.

        Raises
        ------
        NotFound
            If no visible session matches, or the matches have several owners.
        """
        async with self._db.read() as tx:
            rows = await read_rows(tx, sessions.c.id == key, *visible_to(visible))
            if rows:
                return rows[0]
            rows = await read_rows(tx, sessions.c.name == key, *visible_to(visible))
        own_rows = [row for row in rows if row.owner_id == owner_id]
        rows = own_rows or rows
        live = [row for row in rows if row.status in LIVE]
        if len({row.owner_id for row in live or rows}) > 1:
            raise NotFound(
                f"several users have a session named {key!r}; use the id of the session",
                session=key,
            )
        if not rows:
            raise NotFound(f"there is no session {key!r}, or you may not see it", session=key)
        return (live or rows)[-1]

    async def with_kernels(self, session_id: str) -> SessionKernels:
        """Return a session and its kernels; raise ``NotFound`` if the session does not exist."""
        async with self._db.read() as tx:
            row = await require_by_id(tx, session_id)
            kernels_of = await read_kernels_of(tx, [session_id])
            return SessionKernels(row, tuple(kernels_of[session_id]))

    async def all_with_kernels(self, ids: Sequence[str]) -> dict[str, SessionKernels]:
        """Return sessions and their kernels by session id; skip unknown ids."""
        async with self._db.read() as tx:
            rows = await _rows_of(tx, ids)
            kernels_of = await read_kernels_of(tx, [row.id for row in rows])
            return {row.id: SessionKernels(row, tuple(kernels_of[row.id])) for row in rows}

    async def view(self, session_id: str) -> SessionView:
        """Return a session with all related rows; raise ``NotFound`` if it does not exist."""
        async with self._db.read() as tx:
            return (await read_views(tx, [await require_by_id(tx, session_id)]))[0]

    async def views(self, ids: Sequence[str]) -> list[SessionView]:
        """Return the sessions with these ids, in the same order; skip unknown ids."""
        async with self._db.read() as tx:
            rows = {row.id: row for row in await _rows_of(tx, ids)}
            views: list[SessionView] = []
            for start in range(0, len(ids), CHUNK):
                part = [rows[key] for key in ids[start : start + CHUNK] if key in rows]
                views += await read_views(tx, part)
        return views

    async def rows(self, ids: Sequence[str]) -> list[SessionRow]:
        """Return the sessions with these ids, in any order; skip unknown ids."""
        async with self._db.read() as tx:
            return await _rows_of(tx, ids)

    async def page(self, query: ListQuery, visible: Visibility) -> Page[SessionView]:
        async with self._db.read() as tx:
            ids = await LISTING.page(
                tx, SELECT_ID.where(*visible_to(visible)), query, lambda id: str(id)
            )
            rows = {row.id: row for row in await _rows_of(tx, ids.items)}
            return ids.with_items(await read_views(tx, [rows[key] for key in ids.items]))

    async def in_status(self, *statuses: Status) -> list[SessionRow]:
        """Return every session in one of ``statuses``, oldest first."""
        async with self._db.read() as tx:
            return await read_rows(tx, sessions.c.status.in_(statuses))

    async def ended_since(self, since: datetime) -> list[SessionRow]:
        """Return every session that ended at or after ``since``, oldest first."""
        async with self._db.read() as tx:
            return await read_rows(tx, sessions.c.terminated_at >= since)

    async def of_hub_servers(self, servers: Sequence[tuple[str, str]]) -> list[SessionRow]:
        """Return all sessions, including ended ones, of pairs (Hub user, Hub server)."""
        names = {server for _, server in servers}
        async with self._db.read() as tx:
            rows = await read_rows(tx, sessions.c.hub_server.in_(sorted(names)))
        wanted = set(servers)
        return [row for row in rows if (row.hub_user, row.hub_server) in wanted]

    async def rename(self, session_id: str, name: str) -> SessionRow:
        """Rename a session.

        Raises
        ------
        NotFound
            If the session does not exist.
        AlreadyExists
            If the session is live, and its owner has another live session with that name.
        """
        async with self._db.write() as tx:
            await _lock_names(tx)
            row = await require_by_id(tx, session_id)
            holder_id = await tx.scalar(
                sa.select(sessions.c.id).where(
                    sessions.c.owner_id == row.owner_id,
                    sessions.c.live_name == name,
                    sessions.c.id != session_id,
                )
            )
            if holder_id is not None and row.status in LIVE:
                raise AlreadyExists(f"{row.owner} already has a session named {name!r}", name=name)
            live_name = name if row.status in LIVE else None
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id)
                .values(name=name, live_name=live_name)
            )
            return await require_by_id(tx, session_id)

    async def set_priority(self, session_id: str, priority: int) -> SessionRow:
        """Set the priority of a pending session.

        Raises
        ------
        NotFound
            If the session does not exist.
        Conflict
            If the session is no longer pending.
        """
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.status == Status.PENDING)
                .values(priority=priority)
            )
            row = await require_by_id(tx, session_id)
        if changed.rowcount == 0:
            raise Conflict(
                f"session {row.name} is {row.status}; its priority can be changed only "
                "while it is pending",
                session=session_id,
                status=row.status,
            )
        return row

    async def leave_start_to_manager(self, session_id: str) -> SessionRow:
        """Record that the manager, instead of the Hub, starts a session; idempotent."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.started_by == "hub")
                .values(started_by="manager")
            )
            return await require_by_id(tx, session_id)

    async def is_suspending(self, session_id: str) -> bool:
        """Return whether a session is stopping or has stopped, and will run again."""
        phase = (
            sa.select(session_suspensions.c.phase)
            .where(session_suspensions.c.session_id == session_id)
            .scalar_subquery()
        )
        select = sa.select(sessions.c.is_requeued_at_end, phase).where(sessions.c.id == session_id)
        async with self._db.read() as tx:
            row = (await tx.execute(select)).one_or_none()
        return row is not None and (row[0] or row[1] in (Phase.STOPPING, Phase.SUSPENDED))

    async def set_status_info(self, session_id: str, reason: str | CodedText) -> None:
        """Set the status text of a live session without a transition."""
        text, coded = texts_of(reason)
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.status.in_(sorted(LIVE)))
                .where(sessions.c.status_info != text)
                .values(status_info=text, status_coded=coded)
            )

    async def history(self, session_id: str) -> list[StatusChange]:
        """Return the status changes of a session, oldest first."""
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(*(status_history.c[f.name] for f in fields(StatusChange)))
                .where(status_history.c.session_id == session_id)
                .order_by(status_history.c.id)
            )
            return [StatusChange(**row) for row in rows.mappings()]

    async def log(self, session_id: str, hostname: str = MAIN_HOST) -> str:
        """Return the stored output of one kernel, or ""."""
        async with self._db.read() as tx:
            text = await tx.scalar(
                sa.select(kernels.c.log).where(
                    kernels.c.session_id == session_id, kernels.c.hostname == hostname
                )
            )
        return text or ""

    async def earlier_logs(self, session_id: str, hostname: str = MAIN_HOST) -> list[AttemptLog]:
        """Return the output of the earlier attempts of one kernel, oldest first."""
        async with self._db.read() as tx:
            return await attempt_logs.of_kernel(tx, session_id, hostname)


# Built at import, because building a statement takes longer than running it.
_OF_IDS = SELECT.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True))).order_by(
    sessions.c.sequence
)


async def _create(
    tx: AsyncConnection, new_sessions: Sequence[NewSession], at: datetime
) -> dict[str, tuple[SessionRow, bool]]:
    """Insert sessions of one owner; return the row for each id, and whether it is new."""
    # Lock the owner before the counter, so that a creation that waits for the owner does not delay
    # others.
    await lock_active_in(tx, new_sessions[0].owner_id, new_sessions[0].domain)
    # Updating the counter serializes all creations, so the following checks are exact.
    sequences = await session_insert.next_sequences(tx, len(new_sessions))
    existing = await session_insert.existing_sessions(tx, new_sessions)
    fresh = [new for new in new_sessions if new.id not in existing]
    if fresh:
        await session_insert.check_pending(tx, fresh)
        await session_insert.insert(tx, fresh, sequences[: len(fresh)], at)
        await session_insert.open_callbacks(tx, fresh, at)
        await dependencies.write(
            tx, fresh[0].owner_id, session_insert.resolve_dependencies(fresh, existing)
        )
        for new in fresh:
            await session_insert.mount_folders(tx, new, at)
    inserted = {row.id: (row, True) for row in await _rows_of(tx, [new.id for new in fresh])}
    return inserted | {new_id: (row, False) for new_id, row in existing.items()}


async def _rows_of(tx: AsyncConnection, ids: Sequence[str]) -> list[SessionRow]:
    session_rows: list[SessionRow] = []
    for start in range(0, len(ids), CHUNK):
        rows = await tx.execute(_OF_IDS, {"ids": ids[start : start + CHUNK]})
        session_rows += [row_of(row) for row in rows]
    return session_rows


async def _lock_names(tx: AsyncConnection) -> None:
    """Serialize renames with creations (see ``session_insert.next_sequences``)."""
    await tx.execute(
        sa.update(counters).where(counters.c.name == SESSIONS).values(value=counters.c.value)
    )
