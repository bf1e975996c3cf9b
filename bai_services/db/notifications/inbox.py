"""Store of the notifications and settings of a user, and of the events that wait for a mail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.mail import Mail
from bai_services.core.notifications.catalogue import EVENTS
from bai_services.core.notifications.records import Notification
from bai_services.core.notifications.settings import NotificationSettings

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..mails import enqueue
from ..tables.accounts import users
from ..tables.notifications import (
    notification_events,
    notification_mails,
    notification_settings,
    notifications,
)
from .fan_out import SETTING_COLUMNS, settings_of

MAX_USERS_PER_STEP = 50
# Maximum number of events in one mail; the mail contains the number of the others.
MAX_EVENTS_PER_MAIL = 50
_URGENT = [name for name, event in EVENTS.items() if event.is_urgent]
_COLUMNS = {
    "id": notification_events.c.id,
    "created_at": notifications.c.created_at,
    "event": notification_events.c.name,
    "is_urgent": notification_events.c.name.in_(_URGENT),
    "link": notification_events.c.link,
    "is_read": notifications.c.is_read,
}
_LISTING = Listing(columns=_COLUMNS, default_sort=("-created_at", "id"))


@dataclass(frozen=True, slots=True)
class DueEvents:
    """The events for the next mail to a user, oldest first; ``more``: number of omitted events."""

    email: str
    settings: NotificationSettings
    events: Sequence[dict[str, Any]]
    more: int


class InboxStore:
    """Reads and writes notifications and their settings. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, user_id: str, query: ListQuery) -> Page[Notification]:
        rows = (
            sa.select(
                *(column.label(name) for name, column in _COLUMNS.items()),
                notification_events.c.text.label("coded"),
            )
            .join_from(
                notifications,
                notification_events,
                notifications.c.event_id == notification_events.c.id,
            )
            .where(notifications.c.user_id == user_id)
        )
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, _notification)

    async def mark_read(self, user_id: str, event_id: str) -> None:
        chosen = sa.and_(notifications.c.user_id == user_id, notifications.c.event_id == event_id)
        async with self._db.write() as tx:
            changed = await tx.execute(sa.update(notifications).where(chosen).values(is_read=True))
            if not changed.rowcount:
                raise NotFound(f"you have no notification {event_id!r}", notification=event_id)

    async def mark_all_read(self, user_id: str) -> None:
        chosen = sa.and_(notifications.c.user_id == user_id, sa.not_(notifications.c.is_read))
        async with self._db.write() as tx:
            await tx.execute(sa.update(notifications).where(chosen).values(is_read=True))

    async def settings(self, user_id: str) -> NotificationSettings:
        rows = sa.select(*SETTING_COLUMNS).where(notification_settings.c.user_id == user_id)
        async with self._db.read() as tx:
            row = (await tx.execute(rows)).one_or_none()
        return NotificationSettings() if row is None else settings_of(row)

    async def put_settings(
        self, user_id: str, settings: NotificationSettings, audit: AuditEntry
    ) -> None:
        values = {
            name: getattr(settings, name) for name in NotificationSettings.__dataclass_fields__
        }
        values["channels"] = {name: list(chosen) for name, chosen in settings.channels.items()}
        chosen = notification_settings.c.user_id == user_id
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(notification_settings).where(chosen).values(values)
            )
            if not changed.rowcount:
                await tx.execute(notification_settings.insert().values(user_id=user_id, **values))
            await record(tx, audit)

    async def enqueue_due_mails(self, now: datetime, mail_of: Callable[[DueEvents], Mail]) -> int:
        """Enqueue one mail for each user with due events; return the number of mails.

        The mail is inserted and its events are removed in one transaction.
        """
        due = sa.select(notification_mails.c.user_id).where(notification_mails.c.due_at <= now)
        async with self._db.read() as tx:
            chosen = list(await tx.scalars(due.distinct().limit(MAX_USERS_PER_STEP)))
        if not chosen:
            return 0
        async with self._db.write() as tx:
            is_due = sa.and_(
                notification_mails.c.user_id.in_(chosen), notification_mails.c.due_at <= now
            )
            by_user: dict[str, list[Any]] = defaultdict(list)
            for row in await tx.execute(_DUE.where(is_due)):
                by_user[row.user_id].append(row)
            await tx.execute(sa.delete(notification_mails).where(is_due))
            for rows in by_user.values():
                await enqueue(tx, mail_of(_due_events(rows)))
        return len(by_user)


_DUE = (
    sa.select(
        notification_mails.c.user_id,
        notification_events.c.name,
        notification_events.c.created_at,
        notification_events.c.text,
        notification_events.c.link,
        users.c.email,
        *SETTING_COLUMNS,
    )
    .join_from(
        notification_mails,
        notification_events,
        notification_mails.c.event_id == notification_events.c.id,
    )
    .join(users, notification_mails.c.user_id == users.c.id)
    .outerjoin(notification_settings, notification_settings.c.user_id == users.c.id)
    .where(users.c.status == "active")
    .order_by(notification_events.c.created_at, notification_events.c.id)
)


def _due_events(rows: Sequence[Any]) -> DueEvents:
    events = [
        {
            "event": row.name,
            "at": row.created_at.isoformat(timespec="seconds"),
            "text": row.text,
            "link": row.link,
        }
        for row in rows[:MAX_EVENTS_PER_MAIL]
    ]
    settings = settings_of(rows[0][6:])
    return DueEvents(rows[0].email, settings, events, max(len(rows) - MAX_EVENTS_PER_MAIL, 0))


def _notification(**row: Any) -> Notification:
    return Notification(**row, text=str(CodedText.from_json(row["coded"])))
