"""Read the input of idle checkers, and store their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.cluster.devices import is_device_slot, thousandths
from bai_services.core.errors import Conflict
from bai_services.core.resources import CPU, MEM, ResourceSlots, family_of
from bai_services.core.sessions.idle_checks.checkers import (
    AppliedChecker,
    BindingScope,
    CheckerType,
    CheckStatus,
)
from bai_services.core.sessions.idle_checks.pressure import WaitingSession
from bai_services.core.sessions.idle_checks.replay import RecordedSession
from bai_services.core.sessions.idle_checks.usage_table import DeviceFacts, KernelFacts
from bai_services.core.sessions.lifecycle import LIVE, SessionType, Status

from ...database import Database
from ...integrity import insert_ignoring
from ...scheduling.caps import CHUNK
from ...tables.accounts import keypairs, projects, users
from ...tables.idle_checks import idle_checker_bindings as bindings
from ...tables.idle_checks import idle_checkers as checkers
from ...tables.idle_checks import idle_decisions, session_idle_checks
from ...tables.sessions import kernels, sessions
from ..store import visible_to
from .checkers import SCOPE_IDS
from .results import CHECK_COLUMNS, Key, StoredCheck, checker_of, read_checks

# CPU amounts are integers in thousandths of a core.
_CORE = 1000
# Maximum number of kernels (in ``recorded``: of sessions) per query, because each row contains an
# injection, which is large.
_KERNELS_PER_QUERY = 100
# Maximum number of sessions per query, to avoid blocking the event loop.
_SESSIONS_PER_QUERY = 500
# Maximum number of pending sessions that count as pressure.
MAX_WAITING = 1000


@dataclass(frozen=True, slots=True)
class RunningSession:
    """A running session to which at least one checker applies."""

    id: str
    name: str
    type: SessionType
    owner: str
    domain: str
    resource_group: str
    families: frozenset[str]
    started_at: datetime
    used_at: datetime | None
    reported_at: datetime | None
    kernel_ids: tuple[str, ...]
    checkers: tuple[AppliedChecker, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """A session that a checker stops now, or would stop in a dry run."""

    at: datetime
    checker_id: str
    checker: str
    session_id: str
    session: str
    owner: str
    domain: str
    is_dry_run: bool
    rule: Mapping[str, Any] | None


class IdleCheckStore:
    """Reads and writes results of idle checkers.

    Each public method is one transaction, except ``kernel_facts`` and ``recorded``.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def has_bindings(self) -> bool:
        """Return whether any binding is enabled."""
        async with self._db.read() as tx:
            enabled = sa.select(sa.literal(1)).where(bindings.c.is_enabled).limit(1)
            return bool(await tx.scalar(enabled))

    async def running(self) -> list[RunningSession]:
        """Return the running sessions to which at least one enabled binding applies."""
        async with self._db.read() as tx:
            by_scope = await _bound_checkers(tx)
            if not by_scope:
                return []
            set_by_users = await self._set_by_users(tx)
            found: list[RunningSession] = []
            last = -1
            while True:
                rows = (await tx.execute(_RUNNING, {"last": last})).all()
                if not rows:
                    return found
                kernel_ids: dict[str, list[str]] = defaultdict(list)
                of_page = {"last": last, "until": rows[-1].sequence}
                for session_id, kernel_id in await tx.execute(_RUNNING_KERNELS, of_page):
                    kernel_ids[session_id].append(kernel_id)
                found += [
                    _running_session(row, kernel_ids[row.id], applied)
                    for row in rows
                    if (applied := _applied(row, by_scope, set_by_users))
                ]
                last = rows[-1].sequence

    async def _set_by_users(self, tx: AsyncConnection) -> Mapping[Key, Any]:
        columns = session_idle_checks.c
        rows = await tx.execute(
            sa.select(
                columns.session_id, columns.checker_id, columns.kept_alive_at, columns.is_excluded
            ).where(sa.or_(columns.kept_alive_at.is_not(None), columns.is_excluded))
        )
        return {(row.session_id, row.checker_id): row for row in rows}

    async def kernel_facts(self, kernel_ids: Sequence[str]) -> list[KernelFacts]:
        """Return the limits and devices of kernels, at most ``_KERNELS_PER_QUERY`` per query."""
        found: list[KernelFacts] = []
        for start in range(0, len(kernel_ids), _KERNELS_PER_QUERY):
            chunk = kernel_ids[start : start + _KERNELS_PER_QUERY]
            async with self._db.read() as tx:
                rows = await tx.execute(_FACTS.where(kernels.c.id.in_(chunk)))
                found += [_facts(row) for row in rows]
        return found

    async def waiting(self) -> list[WaitingSession]:
        """Return the oldest pending sessions, at most ``MAX_WAITING``."""
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(sessions.c.resource_group, sessions.c.requested_slots, sessions.c.reasons)
                .where(sessions.c.status == Status.PENDING)
                .order_by(sessions.c.sequence)
                .limit(MAX_WAITING)
            )
            return [
                WaitingSession(row.resource_group, families_of(row.requested_slots), row.reasons)
                for row in rows
            ]

    async def stored(self) -> list[StoredCheck]:
        """Return all results, except reset ones (see ``write``) whose session does not run yet."""
        is_reset = sa.and_(
            sessions.c.status.in_(_RUNS_LATER),
            session_idle_checks.c.status == CheckStatus.NOT_CHECKED,
        )
        select = sa.select(*CHECK_COLUMNS).join_from(session_idle_checks, sessions)
        async with self._db.read() as tx:
            return [StoredCheck(*row) for row in await tx.execute(select.where(~is_reset))]

    async def write(
        self,
        changed: Sequence[StoredCheck],
        removed: Collection[Key],
        decisions: Sequence[Decision],
    ) -> None:
        """Store changed results, delete removed results, and add decisions; keep users' settings.

        A removed result of a session that will run again, because it was preempted or suspended,
        is reset instead: the session stays excluded, and its keep-alives stay used.

        For each checker and session, keep only the first decision and the first dry-run decision.
        """
        if not (changed or removed or decisions):
            return
        async with self._db.write() as tx:
            if removed:
                keys = [{"of_session": key[0], "of_checker": key[1]} for key in sorted(removed)]
                await tx.execute(_RESET_CHECK, keys)
                await tx.execute(_DELETE_CHECK, keys)
            if changed:
                # A session or checker may have been deleted since it was judged.
                live_sessions = await _existing_sessions(
                    tx, sorted({check.session_id for check in changed})
                )
                live_checkers = set(await tx.scalars(sa.select(checkers.c.id).with_for_update()))
                await _upsert(
                    tx,
                    [
                        check
                        for check in changed
                        if check.session_id in live_sessions and check.checker_id in live_checkers
                    ],
                )
            if decisions:
                names = Decision.__dataclass_fields__
                await tx.execute(
                    insert_ignoring(tx, idle_decisions),
                    [{name: getattr(each, name) for name in names} for each in decisions],
                )

    async def clean_up(self, before: datetime) -> None:
        """Delete the decisions before a time, and bindings that are no longer valid.

        A binding is deleted if its scope no longer exists. If the user of a binding has moved to
        another domain, a binding of a domain admin is deleted; other bindings get the new domain.
        """
        domain = sa.select(users.c.domain).where(users.c.id == bindings.c.scope_id)
        has_moved = sa.and_(
            bindings.c.scope == BindingScope.USER, bindings.c.domain != domain.scalar_subquery()
        )
        async with self._db.write() as tx:
            await tx.execute(idle_decisions.delete().where(idle_decisions.c.at < before))
            for scope, column in SCOPE_IDS.items():
                await tx.execute(
                    bindings.delete().where(
                        bindings.c.scope == scope, bindings.c.scope_id.not_in(sa.select(column))
                    )
                )
            await tx.execute(
                bindings.delete().where(has_moved, bindings.c.changed_by_role == Role.ADMIN)
            )
            await tx.execute(
                bindings.update().where(has_moved).values(domain=domain.scalar_subquery())
            )

    async def remove_decisions(self, session_ids: Sequence[str]) -> None:
        """Delete the decisions for sessions that could not be stopped."""
        async with self._db.write() as tx:
            await tx.execute(
                idle_decisions.delete().where(
                    idle_decisions.c.session_id == sa.bindparam("of_session"),
                    idle_decisions.c.is_dry_run.is_(False),
                ),
                [{"of_session": session_id} for session_id in session_ids],
            )

    async def is_unchanged(self, session_id: str, applied: AppliedChecker) -> bool:
        """Return whether the users' settings for the session equal those in ``applied``."""
        columns = session_idle_checks.c
        async with self._db.read() as tx:
            found = await tx.execute(
                sa.select(columns.kept_alive_at, columns.is_excluded).where(
                    columns.session_id == session_id,
                    columns.checker_id == applied.checker.id,
                )
            )
            row = found.one_or_none()
        return row is not None and tuple(row) == (applied.kept_alive_at, applied.is_excluded)

    async def keep_alive(self, session_id: str, at: datetime) -> int:
        """Restart the windows of a session; return the number of checkers that allow this.

        The windows of dry runs also restart, but this does not use up a keep-alive, because dry
        runs stop nothing.

        Raises
        ------
        Conflict
            If no checker that may stop the session allows another keep-alive.
        """
        async with self._db.write() as tx:
            viewed = (await read_checks(tx, [session_id])).get(session_id, [])
            kept = 0
            for check in viewed:
                if check.checker.type is CheckerType.LIFETIME:
                    continue
                keep = session_idle_checks.update().where(
                    session_idle_checks.c.session_id == session_id,
                    session_idle_checks.c.checker_id == check.checker.id,
                )
                restarted = {
                    "kept_alive_at": at,
                    "status": CheckStatus.ACTIVE,
                    "ends_at": None,
                    "expected_ends_at": None,
                    "is_due": False,
                }
                if check.stored.is_dry_run:
                    await tx.execute(keep.values(restarted))
                    continue
                keep_alives = session_idle_checks.c.keep_alives
                changed = await tx.execute(
                    keep.where(keep_alives < check.checker.settings.max_keep_alives).values(
                        {**restarted, "keep_alives": keep_alives + 1}
                    )
                )
                kept += changed.rowcount
            if not kept:
                raise Conflict(
                    "no idle checker of the session allows another keep-alive"
                    if any(not check.stored.is_dry_run for check in viewed)
                    else "no idle checker applies to the session"
                )
            return kept

    async def exclude(self, session_id: str, is_excluded: bool) -> int:
        """Exclude a session from the checkers that allow this, or include it again.

        Raises
        ------
        Conflict
            If no checker of the session allows its exclusion.
        """
        async with self._db.write() as tx:
            # Read the bindings, because there are no results before the first check of the session.
            row = (await tx.execute(_OF_SESSION, {"id": session_id})).one_or_none()
            applied = () if row is None else _applied(row, await _bound_checkers(tx), {})
            open_to_users = [each for each in applied if each.checker.settings.allows_exclusion]
            if not open_to_users:
                raise Conflict("no idle checker of the session allows its exclusion")
            ids = [each.checker.id for each in open_to_users]
            status = CheckStatus.EXCLUDED if is_excluded else CheckStatus.NOT_CHECKED
            await _upsert(
                tx,
                [
                    StoredCheck(
                        session_id, each.checker.id, status, each.is_dry_run, False, None, None
                    )
                    for each in open_to_users
                ],
            )
            changed = await tx.execute(
                session_idle_checks.update()
                .where(
                    session_idle_checks.c.session_id == session_id,
                    session_idle_checks.c.checker_id.in_(ids),
                )
                .values(is_excluded=is_excluded)
            )
            return changed.rowcount

    async def recorded(
        self, visible: Visibility, start: datetime, end: datetime, limit: int
    ) -> list[RecordedSession]:
        """Return the newest sessions that ran in a period, at most ``limit``."""
        async with self._db.read() as tx:
            rows = (
                await tx.execute(
                    sa.select(
                        sessions.c.id,
                        sessions.c.name,
                        users.c.username,
                        projects.c.name.label("project"),
                        sessions.c.type,
                        sessions.c.started_at,
                        sessions.c.terminated_at,
                        sessions.c.requested_slots,
                        sessions.c.cluster_size,
                    )
                    .join_from(sessions, users, sessions.c.owner_id == users.c.id)
                    .join(projects, sessions.c.project_id == projects.c.id)
                    .where(
                        sessions.c.started_at < end,
                        sa.or_(
                            sessions.c.terminated_at.is_(None), sessions.c.terminated_at > start
                        ),
                        *visible_to(visible),
                    )
                    .order_by(sessions.c.started_at.desc(), sessions.c.id)
                    .limit(limit)
                )
            ).all()
        ids = [row.id for row in rows]
        of_session: dict[str, list[KernelFacts]] = defaultdict(list)
        for first in range(0, len(ids), _KERNELS_PER_QUERY):
            async with self._db.read() as tx:
                chunk = ids[first : first + _KERNELS_PER_QUERY]
                for row in await tx.execute(_FACTS.where(kernels.c.session_id.in_(chunk))):
                    of_session[row.session_id].append(_facts(row))
        return [
            RecordedSession(
                id=row.id,
                name=row.name,
                owner=row.username,
                project=row.project,
                type=SessionType(row.type),
                started_at=row.started_at,
                ended_at=min(row.terminated_at or end, end),
                devices=_device_count(row.requested_slots) * row.cluster_size,
                kernels=tuple(of_session[row.id]),
            )
            for row in rows
        ]


_SESSIONS = (
    sa.select(
        sessions.c.id,
        sessions.c.sequence,
        sessions.c.name,
        sessions.c.type,
        users.c.username,
        sessions.c.domain,
        sessions.c.project_id,
        sessions.c.owner_id,
        sessions.c.resource_group,
        sessions.c.requested_slots,
        sessions.c.started_at,
        sessions.c.used_at,
        sessions.c.use_heard_at,
        keypairs.c.resource_policy,
    )
    .join_from(sessions, users, sessions.c.owner_id == users.c.id)
    .outerjoin(keypairs, sessions.c.access_key == keypairs.c.access_key)
)
_OF_SESSION = _SESSIONS.where(sessions.c.id == sa.bindparam("id"))
_RUNNING = (
    _SESSIONS.where(
        sessions.c.status == Status.RUNNING,
        sessions.c.started_at.is_not(None),
        sessions.c.sequence > sa.bindparam("last"),
    )
    .order_by(sessions.c.sequence)
    .limit(_SESSIONS_PER_QUERY)
)
_RUNNING_KERNELS = (
    sa.select(kernels.c.session_id, kernels.c.id)
    .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
    .where(
        sessions.c.status == Status.RUNNING,
        sessions.c.sequence > sa.bindparam("last"),
        sessions.c.sequence <= sa.bindparam("until"),
    )
    .order_by(kernels.c.session_id, kernels.c.index)
)
_FACTS = sa.select(
    kernels.c.id, kernels.c.session_id, kernels.c.injection, sessions.c.requested_slots
).join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)


# Statuses of a session that may run, or run again, after a stop.
_RUNS_LATER = tuple(LIVE - {Status.RUNNING})
_IS_CHECK = sa.and_(
    session_idle_checks.c.session_id == sa.bindparam("of_session"),
    session_idle_checks.c.checker_id == sa.bindparam("of_checker"),
)
_OF_SESSION_THAT_RUNS_LATER = sa.exists().where(
    sessions.c.id == session_idle_checks.c.session_id,
    # `in_` cannot be used, because the statement is executed with several rows of parameters.
    sa.or_(*(sessions.c.status == status for status in _RUNS_LATER)),
)
_RESET_CHECK = (
    session_idle_checks.update()
    .where(_IS_CHECK, _OF_SESSION_THAT_RUNS_LATER)
    .values(
        status=CheckStatus.NOT_CHECKED,
        ends_at=None,
        expected_ends_at=None,
        is_due=False,
        rule=None,
    )
)
_DELETE_CHECK = session_idle_checks.delete().where(_IS_CHECK, ~_OF_SESSION_THAT_RUNS_LATER)


async def _bound_checkers(tx: AsyncConnection) -> dict[Key, list[AppliedChecker]]:
    """Return the checkers of the enabled bindings, by scope."""
    by_id = {
        row.id: checker_of(row.id, row.name, row.type, row.settings)
        for row in await tx.execute(
            sa.select(checkers.c.id, checkers.c.name, checkers.c.type, checkers.c.settings)
        )
    }
    by_scope: dict[Key, list[AppliedChecker]] = defaultdict(list)
    for row in await tx.execute(sa.select(bindings).where(bindings.c.is_enabled)):
        if row.checker_id in by_id:
            checker = by_id[row.checker_id]
            applied = AppliedChecker(checker, row.is_dry_run, effective_at=row.effective_at)
            by_scope[row.scope, row.scope_id].append(applied)
    return by_scope


def _running_session(
    row: Any, kernel_ids: Sequence[str], applied: tuple[AppliedChecker, ...]
) -> RunningSession:
    return RunningSession(
        row.id,
        row.name,
        SessionType(row.type),
        row.username,
        row.domain,
        row.resource_group,
        families_of(row.requested_slots),
        row.started_at,
        row.used_at,
        row.use_heard_at,
        tuple(kernel_ids),
        applied,
    )


def _applied(
    row: Any,
    by_scope: Mapping[Key, Sequence[AppliedChecker]],
    set_by_users: Mapping[Key, Any],
) -> tuple[AppliedChecker, ...]:
    """Return the checkers of a session's scopes.

    A checker is a dry run only if all its bindings to these scopes are dry runs. If there are
    several bindings, the earliest effective binding counts.
    """
    scopes = (
        (BindingScope.DOMAIN, row.domain),
        (BindingScope.PROJECT, row.project_id),
        (BindingScope.RESOURCE_GROUP, row.resource_group),
        (BindingScope.USER, row.owner_id),
        (BindingScope.KEYPAIR_POLICY, row.resource_policy),
    )
    found: dict[str, AppliedChecker] = {}
    for scope in scopes:
        for applied in by_scope.get(scope, ()):
            other = found.get(applied.checker.id, applied)
            found[applied.checker.id] = min(applied, other, key=_precedence)
    return tuple(
        applied
        if (set_for := set_by_users.get((row.id, applied.checker.id))) is None
        else replace(applied, is_excluded=set_for.is_excluded, kept_alive_at=set_for.kept_alive_at)
        for applied in found.values()
    )


def _precedence(applied: AppliedChecker) -> tuple[bool, datetime]:
    return applied.is_dry_run, applied.effective_at or datetime.min.replace(tzinfo=UTC)


def _facts(row: Any) -> KernelFacts:
    slots = row.requested_slots
    devices = {
        device["id"]: DeviceFacts(device.get("family") or "", device.get("memory_bytes"))
        for device in (row.injection or {}).get("devices") or ()
        if isinstance(device, Mapping) and isinstance(device.get("id"), str)
    }
    cores = slots.get(CPU, 0) / _CORE
    return KernelFacts(row.id, row.session_id, cores, slots.get(MEM, 0), devices)


def families_of(slots: Mapping[str, int]) -> frozenset[str]:
    """Return the device families of requested resources."""
    return frozenset(family for slot in slots if (family := family_of(slot)) is not None)


def _device_count(slots: ResourceSlots) -> float:
    return sum(thousandths(slot, slots[slot]) for slot in slots if is_device_slot(slot)) / 1000


async def _existing_sessions(tx: AsyncConnection, ids: Sequence[str]) -> set[str]:
    """Return the ids of existing sessions, in several queries because parameters are limited."""
    found: set[str] = set()
    for first in range(0, len(ids), CHUNK):
        chunk = ids[first : first + CHUNK]
        found |= set(await tx.scalars(sa.select(sessions.c.id).where(sessions.c.id.in_(chunk))))
    return found


async def _upsert(tx: AsyncConnection, checks: Sequence[StoredCheck]) -> None:
    if not checks:
        return
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(session_idle_checks)
    names = ("status", "is_dry_run", "is_due", "ends_at", "expected_ends_at", "rule")
    newest = {name: insert.excluded[name] for name in names}
    await tx.execute(
        insert.on_conflict_do_update(index_elements=session_idle_checks.primary_key, set_=newest),
        [
            {
                "session_id": check.session_id,
                "checker_id": check.checker_id,
                **{name: getattr(check, name) for name in names},
            }
            # Sorted, because managers that lock the rows in different orders could deadlock.
            for check in sorted(checks, key=lambda check: check.key)
        ],
    )
