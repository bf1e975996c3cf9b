"""Store of events, which are raised by callers, status changes and new conditions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.notifications.conditions import Condition, ConditionChanges, changes_of
from bai_services.core.notifications.events import Audience, Event
from bai_services.core.notifications.session_events import (
    REPORTED,
    REPORTED_EVENTS,
    STOPS,
    event_of,
)
from bai_services.core.pipelines.notices import is_of_run
from bai_services.core.sessions.lifecycle import SessionType

from ..database import Database
from ..integrity import insert_ignoring
from ..tables.accounts import users
from ..tables.notifications import (
    notification_conditions,
    notification_events,
    notification_position,
)
from ..tables.sessions import sessions, status_history

# Maximum number of status changes that one transaction reads.
MAX_CHANGES = 1000
_POSITION_ID = 1


async def raise_events(tx: AsyncConnection, events: Iterable[Event]) -> None:
    """Insert events as part of ``tx``; ignore events with a key that is already stored."""
    rows = [_row(event) for event in events]
    if rows:
        await tx.execute(insert_ignoring(tx, notification_events), rows)


class EventStore:
    """Raises events. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database
        # Ids of status changes after the stored position whose events have already been raised.
        self._raised: set[int] = set()

    async def add(self, events: Sequence[Event]) -> None:
        async with self._db.write() as tx:
            await raise_events(tx, events)

    async def raise_status_changes(self, settled_before: datetime) -> int:
        """Raise the events of status changes after the stored position; return their number.

        A transaction can commit later than a transaction with a higher id. Therefore the position
        only passes changes older than ``settled_before``; the next call reads newer changes again.
        The first call stores the newest id as position and raises no events.
        """
        async with self._db.read() as tx:
            position = await tx.scalar(sa.select(notification_position.c.history_id))
            newest = await tx.scalar(sa.select(sa.func.max(status_history.c.id))) or 0
        if position is None:
            await self._start_at(newest)
            return 0
        if newest <= position:
            return 0
        read_to, raised = position, 0
        while rows := await self._changes(read_to):
            raised += await self._raise(rows)
            read_to = rows[-1].id
            if len(rows) < MAX_CHANGES:
                break
        settled = await self._settled(position, newest, settled_before)
        if settled > position:
            async with self._db.write() as tx:
                await tx.execute(
                    sa.update(notification_position)
                    .where(notification_position.c.history_id < settled)
                    .values(history_id=settled)
                )
            self._raised = {each for each in self._raised if each > settled}
        return raised

    async def _changes(self, after: int) -> Sequence[Any]:
        async with self._db.read() as tx:
            return (await tx.execute(_CHANGES, {"after": after})).all()

    async def _raise(self, rows: Sequence[Any]) -> int:
        new = [row for row in rows if row.id not in self._raised]
        events = [event for row in new if (event := _change_event(row)) is not None]
        if events:
            async with self._db.write() as tx:
                await raise_events(tx, events)
        self._raised.update(row.id for row in new)
        return len(events)

    async def _settled(self, position: int, last: int, before: datetime) -> int:
        rows = sa.select(sa.func.max(status_history.c.id)).where(
            status_history.c.id > position,
            status_history.c.id <= last,
            status_history.c.at < before,
        )
        async with self._db.read() as tx:
            return await tx.scalar(rows) or position

    async def _start_at(self, newest: int) -> None:
        row = {"id": _POSITION_ID, "history_id": newest}
        async with self._db.write() as tx:
            await tx.execute(insert_ignoring(tx, notification_position).values(row))

    async def update_conditions(
        self, found: Sequence[Condition], now: datetime
    ) -> ConditionChanges:
        """Raise an event for each condition that has begun to hold; see ``changes_of``."""
        async with self._db.write() as tx:
            rows = await tx.execute(sa.select(notification_conditions))
            stored = {row.key: (row.seen_at, timedelta(seconds=row.rearm_seconds)) for row in rows}
            changes = changes_of(found, stored, now)
            await raise_events(tx, [condition.event(now) for condition in changes.begun])
            if found:
                await _store_conditions(tx, found, now)
            if changes.over:
                await tx.execute(
                    sa.delete(notification_conditions).where(
                        notification_conditions.c.key.in_(changes.over)
                    )
                )
        return changes


async def _store_conditions(tx: AsyncConnection, found: Sequence[Condition], now: datetime) -> None:
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(
        notification_conditions
    )
    await tx.execute(
        insert.on_conflict_do_update(
            index_elements=notification_conditions.primary_key,
            set_={"seen_at": insert.excluded.seen_at},
        ),
        [
            {
                "key": each.key,
                "seen_at": now,
                "rearm_seconds": int(each.rearm_after.total_seconds()),
            }
            for each in sorted(found, key=lambda each: each.key)
        ],
    )


def _row(event: Event) -> dict[str, Any]:
    audience = event.audience
    return {
        "id": str(uuid.uuid4()),
        "created_at": event.at,
        "key": event.key,
        "name": str(event.name),
        "text": event.text.as_json(),
        "link": event.link,
        "domain": event.domain,
        "user_id": audience.user_id,
        "project_id": audience.project_id,
        "audience_domain": audience.domain,
        "role": audience.role,
        "is_open": True,
    }


_stop = status_history.alias("stop")
_STOPPED_BY = (
    sa.select(_stop.c.event)
    .where(
        _stop.c.session_id == status_history.c.session_id,
        _stop.c.id < status_history.c.id,
        _stop.c.event.in_(STOPS),
    )
    .order_by(_stop.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_CHANGES = (
    sa.select(
        status_history.c.id,
        status_history.c.at,
        status_history.c.event,
        status_history.c.to_status,
        sessions.c.id.label("session_id"),
        sessions.c.name,
        sessions.c.type,
        sessions.c.environ,
        sessions.c.owner_id,
        sessions.c.domain,
        sessions.c.result,
        sessions.c.status_info,
        sessions.c.status_coded,
        users.c.username,
        # Do this only for restarts, because it reads the history of the session.
        sa.case((sessions.c.restart_count > 0, _STOPPED_BY)).label("stopped_by"),
    )
    .join_from(status_history, sessions, status_history.c.session_id == sessions.c.id)
    .join(users, sessions.c.owner_id == users.c.id)
    .where(
        status_history.c.id > sa.bindparam("after"),
        sa.or_(
            status_history.c.to_status.in_(REPORTED), status_history.c.event.in_(REPORTED_EVENTS)
        ),
    )
    .order_by(status_history.c.id)
    .limit(MAX_CHANGES)
)


def _change_event(row: Any) -> Event | None:
    # Endpoints and pipeline runs raise their own events instead of those of their sessions.
    if row.type == SessionType.INFERENCE or is_of_run(row.environ):
        return None
    reason = None
    if row.status_coded is not None:
        reason = CodedText.from_json(row.status_coded)
    elif row.status_info:
        reason = TextTemplate.PLAIN_TEXT.text(text=row.status_info)
    found = event_of(
        row.name, row.username, row.event, row.to_status, row.result, reason, row.stopped_by
    )
    if found is None:
        return None
    name, text = found
    audience = Audience(user_id=row.owner_id)
    key = f"session:{row.id}"
    return Event(key, row.at, name, audience, text, f"sessions/{row.session_id}", row.domain)
