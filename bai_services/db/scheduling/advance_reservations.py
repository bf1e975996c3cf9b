"""Store of advance reservations; bookings of one resource group are serialized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Owner, Role, Visibility
from bai_services.core.audit import AuditEntry, changed_values
from bai_services.core.errors import AlreadyExists, Conflict, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event, reservation_decided
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import (
    KEPT_AFTER_END,
    MAX_REQUESTED,
    MAX_RESERVATIONS,
    MAX_STORED,
    AdvanceReservation,
    Booking,
    choose_agents,
    require_suitable,
)
from bai_services.core.scheduling.caps import Scope, ScopeKind, raise_if_violated, violations
from bai_services.core.scheduling.placement import Placement
from bai_services.core.scheduling.queue.reserved_parts import choose_agents_for_parts
from bai_services.core.scheduling.reservation_states import OPEN_STATES, ReservationState
from bai_services.core.sessions.lifecycle import OCCUPYING, Status

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..notifications.events import raise_events
from ..tables.accounts import domains, memberships, projects, users
from ..tables.advance_reservations import advance_reservations
from ..tables.cluster import resource_group_links, resource_groups
from ..tables.sessions import kernels, sessions
from .agent_states import read_agents
from .caps import read_caps
from .queue_rows import RESERVATION_OPTION, read_running

_r = advance_reservations.c
_ROWS = sa.select(
    *(column for column in advance_reservations.columns if column.name != "author_id"),
    projects.c.name.label("project"),
    projects.c.domain,
).join_from(advance_reservations, projects, _r.project_id == projects.c.id)
_LISTING = Listing(
    columns={
        "id": _r.id,
        "name": _r.name,
        "project": projects.c.name,
        "project_id": _r.project_id,
        "domain": projects.c.domain,
        "resource_group": _r.resource_group,
        "state": _r.state,
        "starts_at": _r.starts_at,
        "ends_at": _r.ends_at,
        "created_at": _r.created_at,
        "author": _r.author,
    },
    default_sort=("-starts_at", "id"),
)


class AdvanceReservationStore:
    """Reads and writes advance reservations. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[AdvanceReservation]:
        async with self._db.read() as tx:
            names = await _usernames(tx)
            rows = _ROWS.where(*_visible_to(visible))
            return await _LISTING.page(tx, rows, query, lambda **row: _reservation(row, names))

    async def one(self, key: str, visible: Visibility) -> tuple[AdvanceReservation, Owner | None]:
        """Return the reservation with the id ``key``, else the open reservation with this name.

        The second value is the author; None if the account does not exist.

        Raises
        ------
        NotFound
            If no reservation matches, or open reservations of several projects have this name.
        """
        async with self._db.read() as tx:
            return await _find(tx, key, visible)

    async def create(
        self, values: Mapping[str, Any], audit: AuditEntry, event: Event | None = None
    ) -> AdvanceReservation:
        """Insert a reservation, raise ``event``, and delete reservations that ended long ago.

        ``values`` are the columns without ``agents``, which this method chooses.

        Raises
        ------
        Conflict
            If too few agents can be reserved, or there are too many reservations.
        AlreadyExists
            If the project has an open reservation with that name.
        QuotaExceeded
            If the reservation together with overlapping reservations of the project exceeds a
            quota.
        NotFound
            If the project may not use the resource group.
        """
        async with self._db.write() as tx:
            await _lock(tx, values["resource_group"])
            await _require_usable(tx, values["resource_group"], values["project_id"])
            await _remove_old(tx, values["created_at"])
            await _check_counts(tx, values)
            taken = sa.select(_r.id).where(
                _r.project_id == values["project_id"],
                _r.name == values["name"],
                _r.state.in_(OPEN_STATES),
                _r.ends_at > values["created_at"],
            )
            if await tx.scalar(taken) is not None:
                raise AlreadyExists(
                    f"the project already has a reservation {values['name']!r}",
                    name=values["name"],
                )
            agents = await _book(tx, values)
            await tx.execute(
                sa.insert(advance_reservations).values(**{**values, "agents": list(agents)})
            )
            await record(tx, audit)
            await _raise(tx, event)
            return (await _find(tx, values["id"], Visibility()))[0]

    async def decide(
        self,
        key: str,
        state: ReservationState,
        by: str,
        at: datetime,
        audit: AuditEntry,
        event: Event | None = None,
    ) -> AdvanceReservation:
        """Approve, reject or cancel an open reservation, and raise ``event``.

        An approval chooses the agents again. The audit entry gets the changed values.

        Raises
        ------
        Conflict
            If the reservation has been decided or has ended, or too few agents can be reserved.
        """
        async with self._db.write() as tx:
            found = (await _find(tx, key, Visibility()))[0]
            await _lock(tx, found.resource_group)
            found = (await _find(tx, key, Visibility()))[0]
            allowed = (
                OPEN_STATES
                if state is ReservationState.CANCELLED
                else (ReservationState.REQUESTED,)
            )
            if found.state not in allowed or found.ends_at <= at:
                raise Conflict(
                    f"reservation {found.name} is {found.state}"
                    + (" and has ended" if found.ends_at <= at else ""),
                    state=found.state,
                )
            changes: dict[str, Any] = {"state": state}
            if state is ReservationState.APPROVED:
                row = (
                    await tx.execute(sa.select(advance_reservations).where(_r.id == found.id))
                ).one()
                changes["agents"] = list(await _book(tx, row._asdict()))
            await tx.execute(
                sa.update(advance_reservations)
                .where(_r.id == found.id)
                .values(**changes, decided_by=by)
            )
            before = {"state": found.state, "agents": found.agents}
            details = {**audit.details, **changed_values(before, changes)}
            await record(tx, replace(audit, details=details))
            await _raise(tx, event)
            return (await _find(tx, found.id, Visibility()))[0]

    async def record_use(self, now: datetime) -> list[str]:
        """Record the use of reservations, and expire reservations that are not used in time.

        A reservation that a pending session names does not expire, because running sessions of
        others can delay the start of that session.

        Return the names of the expired reservations.
        """
        async with self._db.write() as tx:
            rows = (
                await tx.execute(
                    sa.select(advance_reservations, projects.c.domain)
                    .join_from(advance_reservations, projects, _r.project_id == projects.c.id)
                    .where(
                        _r.state == ReservationState.APPROVED,
                        _r.starts_at <= now,
                        _r.ends_at > now,
                        _r.used_at.is_(None),
                    )
                )
            ).all()
            expired = []
            for row in rows:
                if await _is_used(tx, row):
                    changes: dict[str, Any] = {"used_at": now}
                elif now >= row.starts_at + timedelta(
                    seconds=row.grace_seconds
                ) and not await _is_awaited(tx, row):
                    changes = {"state": ReservationState.EXPIRED}
                    expired.append(row.name)
                    await _raise(tx, _expiry(row, now))
                else:
                    continue
                await tx.execute(
                    sa.update(advance_reservations).where(_r.id == row.id).values(**changes)
                )
            return expired

    async def member_ids(self, project_id: str, usernames: Sequence[str]) -> dict[str, str]:
        """Return the ids of the users who are members of a project, by user name."""
        chosen = (
            sa.select(users.c.username, users.c.id)
            .join_from(users, memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.project_id == project_id, users.c.username.in_(usernames))
        )
        async with self._db.read() as tx:
            return {row.username: row.id for row in await tx.execute(chosen)}

    async def current(self, group: str, now: datetime) -> list[AdvanceReservation]:
        """Return the approved reservations of a resource group that have not ended."""
        chosen = _ROWS.where(
            _r.resource_group == group, _r.state == ReservationState.APPROVED, _r.ends_at > now
        ).order_by(_r.starts_at, _r.id)
        async with self._db.read() as tx:
            return [_reservation(row._asdict(), {}) for row in await tx.execute(chosen)]

    async def usable(
        self, key: str, project_id: str, user_id: str, now: datetime
    ) -> AdvanceReservation:
        """Return the approved reservation with the id or name ``key``, if the user may use it.

        Raises
        ------
        NotFound
            If the user may use no such reservation, or the reservation has ended.
        """
        async with self._db.read() as tx:
            found = (
                await tx.execute(
                    sa.select(_r.id, _r.user_ids)
                    .where(
                        _r.project_id == project_id,
                        sa.or_(_r.id == key, _r.name == key),
                        _r.state == ReservationState.APPROVED,
                        _r.ends_at > now,
                    )
                    .order_by(_r.starts_at)
                )
            ).first()
            if found is None or (found.user_ids and user_id not in found.user_ids):
                raise NotFound(
                    f"there is no reservation {key[:64]!r} of the project that you may use",
                    reservation=key[:64],
                )
            return (await _find(tx, found.id, Visibility()))[0]


async def _remove_old(tx: AsyncConnection, now: datetime) -> None:
    """Remove reservations that ended long ago, and all but the latest closed reservations."""
    await tx.execute(sa.delete(advance_reservations).where(_r.ends_at < now - KEPT_AFTER_END))
    latest = (
        sa.select(_r.id)
        .where(~_is_open(now))
        .order_by(_r.created_at.desc(), _r.id)
        .limit(MAX_STORED - MAX_RESERVATIONS)
    )
    await tx.execute(sa.delete(advance_reservations).where(~_is_open(now), _r.id.not_in(latest)))


async def _check_counts(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Raise ``Conflict`` if there are too many open reservations or requests of the project."""
    count = sa.select(sa.func.count()).where(_is_open(values["created_at"]))
    if (found := await tx.scalar(count) or 0) >= MAX_RESERVATIONS:
        raise Conflict(f"there are {found} open reservations; cancel some first")
    requested = count.where(
        _r.project_id == values["project_id"], _r.state == ReservationState.REQUESTED
    )
    is_request = values["state"] is ReservationState.REQUESTED
    if is_request and (found := await tx.scalar(requested) or 0) >= MAX_REQUESTED:
        raise Conflict(
            f"{found} reservations of the project wait for an approval; cancel some first"
        )


def _is_open(now: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(_r.state.in_(OPEN_STATES), _r.ends_at > now)


async def _book(tx: AsyncConnection, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Check the quotas of a reservation and choose its agents."""
    charged = await _check_bookings(tx, values)
    # Leave out the names of other projects' reservations: an error message must name only
    # reservations that members of the project may see.
    bookings = [
        Booking(
            frozenset(r.agents),
            r.starts_at,
            r.ends_at,
            r.name if r.project_id == values["project_id"] else "",
            ResourceSlots() if r.whole_machines else r.resources,
        )
        for r in charged
        if r.resource_group == values["resource_group"]
    ]
    return await _choose_agents(tx, values, bookings)


async def _check_bookings(tx: AsyncConnection, values: Mapping[str, Any]) -> Sequence[sa.Row[Any]]:
    """Check the quotas; return the approved reservations of the domain or resource group that
    overlap with the new one.
    """
    group, period = values["resource_group"], (values["starts_at"], values["ends_at"])
    domain = await tx.scalar(
        sa.select(projects.c.domain).where(projects.c.id == values["project_id"])
    )
    # Serialize the bookings of the domain in several resource groups.
    await tx.execute(
        sa.select(domains.c.name).where(domains.c.name == domain).with_for_update(key_share=True)
    )
    charged = (
        await tx.execute(
            sa.select(advance_reservations, projects.c.domain)
            .join_from(advance_reservations, projects, _r.project_id == projects.c.id)
            .where(
                sa.or_(_r.resource_group == group, projects.c.domain == domain),
                _r.state == ReservationState.APPROVED,
                _r.starts_at < period[1],
                _r.ends_at > period[0],
                _r.id != values["id"],
            )
        )
    ).all()
    new = _times(values["resources"], values["nodes"])
    await _check_quotas(
        tx,
        {
            Scope(ScopeKind.DOMAIN, domain or ""): _total(
                new, (row for row in charged if row.domain == domain)
            ),
            Scope(ScopeKind.PROJECT, values["project_id"]): _total(
                new, (row for row in charged if row.project_id == values["project_id"])
            ),
            Scope(ScopeKind.RESOURCE_GROUP, group): _total(
                new, (row for row in charged if row.resource_group == group)
            ),
        },
    )
    return charged


async def _choose_agents(
    tx: AsyncConnection, values: Mapping[str, Any], bookings: Sequence[Booking]
) -> tuple[str, ...]:
    """Choose agents for a reservation that do not conflict with bookings or running sessions."""
    group, period = values["resource_group"], (values["starts_at"], values["ends_at"])
    agents = await read_agents(tx, [group])
    require_suitable(agents, values["nodes"], values["resources"], group)
    running = await read_running(tx, await _sessions_of(tx, group))
    if not values["whole_machines"]:
        ended: dict[str, list[Placement]] = {}
        for session in running:
            if session.ends_at is not None and session.ends_at <= period[0]:
                for placement in session.placements:
                    ended.setdefault(placement.agent_id, []).append(placement)
        return choose_agents_for_parts(
            agents,
            bookings,
            ended,
            nodes=values["nodes"],
            resources=values["resources"],
            period=period,
        )
    ends: dict[str, datetime | None] = {}
    for session in running:
        for placement in session.placements:
            before = ends.get(placement.agent_id, session.ends_at)
            end = session.ends_at
            ends[placement.agent_id] = None if before is None or end is None else max(before, end)
    return choose_agents(
        agents,
        bookings,
        ends,
        nodes=values["nodes"],
        resources=values["resources"],
        period=period,
    )


async def _sessions_of(tx: AsyncConnection, group: str) -> list[str]:
    chosen = sa.select(sessions.c.id).where(
        sessions.c.resource_group == group, sessions.c.status.in_(OCCUPYING)
    )
    return list(await tx.scalars(chosen))


async def _check_quotas(tx: AsyncConnection, totals: Mapping[Scope, ResourceSlots]) -> None:
    """Raise ``QuotaExceeded`` if the reserved resources exceed a quota of their scope."""
    caps = await read_caps(tx, totals.keys())
    raise_if_violated(
        [
            violation
            for scope, total in totals.items()
            if scope in caps
            for violation in violations([caps[scope]], total, {}, ever=True)
        ]
    )


def _total(new: ResourceSlots, rows: Iterable[Any]) -> ResourceSlots:
    """Return the total resources of a new reservation and of other reservations."""
    total = new
    for row in rows:
        total += _times(row.resources, row.nodes)
    return total


def _times(slots: ResourceSlots, count: int) -> ResourceSlots:
    return ResourceSlots({slot: amount * count for slot, amount in slots.items()})


async def _raise(tx: AsyncConnection, event: Event | None) -> None:
    if event is not None:
        await raise_events(tx, [event])


def _expiry(row: Any, now: datetime) -> Event | None:
    if not row.author_id:
        return None
    expired = ReservationState.EXPIRED
    return reservation_decided(
        row.id, now, row.author_id, row.domain, expired, row.starts_at, name=row.name
    )


async def _is_used(tx: AsyncConnection, row: Any) -> bool:
    """Return whether a session of a member runs on the agents of a reservation."""
    using = (
        sa.select(sessions.c.id)
        .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
        .where(
            kernels.c.agent_id.in_(row.agents),
            sessions.c.project_id == row.project_id,
            sessions.c.status.in_(OCCUPYING),
        )
    )
    if row.user_ids:
        using = using.where(sessions.c.owner_id.in_(row.user_ids))
    return await tx.scalar(using.limit(1)) is not None


async def _is_awaited(tx: AsyncConnection, row: Any) -> bool:
    """Return whether a pending session names the reservation."""
    waiting = sa.select(sessions.c.id).where(
        sessions.c.project_id == row.project_id,
        sessions.c.status == Status.PENDING,
        sessions.c.options[RESERVATION_OPTION].as_string() == row.id,
    )
    return await tx.scalar(waiting.limit(1)) is not None


async def _lock(tx: AsyncConnection, group: str) -> None:
    """Serialize the bookings of a resource group."""
    await tx.execute(
        sa.update(resource_groups)
        .where(resource_groups.c.name == group)
        .values(name=resource_groups.c.name)
    )


async def _require_usable(tx: AsyncConnection, group: str, project_id: str) -> None:
    of = resource_group_links.c
    domain = sa.select(projects.c.domain).where(projects.c.id == project_id).scalar_subquery()
    linked = sa.select(of.resource_group).where(
        sa.or_(
            sa.and_(of.kind == ScopeKind.PROJECT, of.target == project_id),
            sa.and_(of.kind == ScopeKind.DOMAIN, of.target == domain),
        )
    )
    found = await tx.scalar(
        sa.select(resource_groups.c.name).where(
            resource_groups.c.name == group,
            sa.or_(resource_groups.c.is_public, resource_groups.c.name.in_(linked)),
        )
    )
    if found is None:
        raise NotFound(
            f"there is no resource group {group!r} that the project may use", resource_group=group
        )


def _visible_to(visible: Visibility) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if visible.domain is not None:
        conditions.append(projects.c.domain == visible.domain)
    if visible.project_ids is not None:
        conditions.append(_r.project_id.in_(sorted(visible.project_ids)))
    return conditions


async def _find(
    tx: AsyncConnection, key: str, visible: Visibility
) -> tuple[AdvanceReservation, Owner | None]:
    rows = (
        await tx.execute(
            _ROWS.add_columns(_r.author_id)
            .where(sa.or_(_r.id == key, _r.name == key), *_visible_to(visible))
            .order_by(_r.created_at)
        )
    ).mappings()
    found = list(rows)
    chosen = [row for row in found if row["id"] == key] or [
        row for row in found if row["state"] in OPEN_STATES
    ]
    if len({row["project_id"] for row in chosen}) > 1:
        raise NotFound(
            f"several projects have a reservation named {key!r}; use its id", reservation=key
        )
    if not chosen:
        raise NotFound(f"there is no reservation {key!r}, or you may not see it", reservation=key)
    row = dict(chosen[-1])
    author_id = str(row.pop("author_id"))
    role = await tx.scalar(sa.select(users.c.role).where(users.c.id == author_id))
    author = None if role is None else Owner(author_id, Role(role))
    return _reservation(row, await _usernames(tx, row["user_ids"])), author


async def _usernames(tx: AsyncConnection, ids: Sequence[str] | None = None) -> dict[str, str]:
    """Return user names by id; without ``ids``, the names of all users in reservations."""
    if ids is None:
        named = await tx.scalars(sa.select(_r.user_ids))
        ids = sorted({user_id for of in named for user_id in of})
    if not ids:
        return {}
    rows = await tx.execute(sa.select(users.c.id, users.c.username).where(users.c.id.in_(ids)))
    return {row.id: row.username for row in rows}


def _reservation(row: Mapping[str, Any], names: Mapping[str, str]) -> AdvanceReservation:
    values = dict(row)
    user_ids = values.pop("user_ids")
    return AdvanceReservation(
        **{
            **values,
            "users": [names[user_id] for user_id in user_ids if user_id in names],
            "state": ReservationState(values["state"]),
        }
    )
