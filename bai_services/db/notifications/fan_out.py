"""Create the notifications and deliveries of new events, and remove old events."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, roles_above
from bai_services.core.notifications.catalogue import EVENTS, Channel, EventName, EventType
from bai_services.core.notifications.events import (
    KEPT_FOR,
    MAX_NOTIFICATIONS_PER_USER,
    StoredEvent,
)
from bai_services.core.notifications.settings import NotificationSettings
from bai_services.core.notifications.webhooks import (
    LOG_KEPT_FOR,
    MAX_PENDING_DELIVERIES,
    DeliveryStatus,
    WebhookKind,
)

from ..database import Database
from ..integrity import insert_ignoring
from ..tables.accounts import memberships, users
from ..tables.notifications import (
    notification_events,
    notification_mails,
    notification_settings,
    notifications,
    webhook_deliveries,
    webhooks,
)

MAX_EVENTS_PER_STEP = 200
SETTING_COLUMNS = tuple(
    notification_settings.c[name] for name in NotificationSettings.__dataclass_fields__
)
_DEFAULTS = NotificationSettings()
_CHANNEL_OF = {WebhookKind.JSON: Channel.WEBHOOK, WebhookKind.SLACK: Channel.SLACK}
# Roles of the owners whose sessions a domain administrator may not read.
_HIDDEN_FROM_DOMAINS = roles_above(Role.ADMIN, "session.read")
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class _Recipient:
    id: str
    settings: NotificationSettings


@dataclass(slots=True)
class _Rows:
    """The rows to insert for a batch of events."""

    notifications: list[dict[str, Any]] = field(default_factory=list)
    mails: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)


class FanOutStore:
    """Creates and removes notifications and deliveries. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def has_open(self) -> bool:
        rows = sa.select(notification_events.c.id).where(notification_events.c.is_open).limit(1)
        async with self._db.read() as tx:
            return await tx.scalar(rows) is not None

    async def fan_out(self, now: datetime, *, sends_mails: bool) -> set[str]:
        """Create the notifications and deliveries of the oldest new events.

        Return the ids of users with new notifications in the web UI. All rows of an event are
        written in one transaction, so a crash neither loses nor repeats rows.
        """
        async with self._db.write() as tx:
            events = await _open_events(tx)
            if not events:
                return set()
            recipients = {event.id: await _recipients(tx, event) for event in events}
            everyone = {user.id for found in recipients.values() for user in found}
            hooks = await _hooks(tx, everyone)
            hidden = await _hidden_users(tx, events)
            rows = _Rows()
            for event in events:
                kind = EVENTS[EventName(event.name)]
                for user in recipients[event.id]:
                    _add_user(rows, event, kind, user, hooks.own.get(user.id, ()), sends_mails, now)
                _add_administrators(rows, event, event.user_id in hidden, hooks.shared, now)
            deliveries = _limited(rows.deliveries, hooks.pending)
            for table, values in (
                (notifications, rows.notifications),
                (notification_mails, rows.mails),
                (webhook_deliveries, deliveries),
            ):
                for start in range(0, len(values), _CHUNK):
                    await tx.execute(insert_ignoring(tx, table), values[start : start + _CHUNK])
            await _count_dropped(tx, rows.deliveries, deliveries)
            await tx.execute(
                sa.update(notification_events)
                .where(notification_events.c.id.in_([event.id for event in events]))
                .values(is_open=False)
            )
            return {row["user_id"] for row in rows.notifications}

    async def remove_old(self, now: datetime) -> None:
        """Remove old events with their notifications and deliveries, old finished deliveries, and
        the oldest notifications of users with too many notifications.
        """
        ranked = sa.select(
            notifications.c.user_id,
            notifications.c.event_id,
            sa.func.row_number()
            .over(
                partition_by=notifications.c.user_id,
                order_by=(notifications.c.created_at.desc(), notifications.c.event_id),
            )
            .label("rank"),
        ).subquery()
        excess = sa.select(ranked.c.user_id, ranked.c.event_id).where(
            ranked.c.rank > MAX_NOTIFICATIONS_PER_USER
        )
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(notification_events).where(
                    notification_events.c.created_at < now - KEPT_FOR
                )
            )
            await tx.execute(
                sa.delete(webhook_deliveries).where(
                    webhook_deliveries.c.finished_at < now - LOG_KEPT_FOR
                )
            )
            keys = sa.tuple_(notifications.c.user_id, notifications.c.event_id)
            await tx.execute(sa.delete(notifications).where(keys.in_(excess)))


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Enabled webhooks that are not suspended: webhooks of users by owner, and of administrators.

    ``pending``: the number of pending deliveries by webhook.
    """

    own: Mapping[str, Sequence[Any]]
    shared: Sequence[Any]
    pending: Mapping[str, int]


async def _open_events(tx: AsyncConnection) -> list[StoredEvent]:
    columns = [notification_events.c[name] for name in StoredEvent.__dataclass_fields__]
    rows = sa.select(*columns).where(notification_events.c.is_open)
    rows = rows.order_by(notification_events.c.created_at, notification_events.c.id)
    found = await tx.execute(rows.limit(MAX_EVENTS_PER_STEP))
    events = [StoredEvent(**row) for row in found.mappings()]
    for number, event in enumerate(events):
        if event.user_id is None:
            # The event may have thousands of recipients: process it in a separate transaction.
            return events[: max(number, 1)]
    return events


async def _recipients(tx: AsyncConnection, event: StoredEvent) -> list[_Recipient]:
    rows = (
        sa.select(users.c.id, *SETTING_COLUMNS)
        .outerjoin_from(users, notification_settings, notification_settings.c.user_id == users.c.id)
        .where(users.c.status == "active")
    )
    if event.user_id is not None:
        rows = rows.where(users.c.id == event.user_id)
    elif event.project_id is not None:
        members = sa.select(memberships.c.user_id).where(
            memberships.c.project_id == event.project_id
        )
        rows = rows.where(users.c.id.in_(members))
    elif event.audience_domain is not None:
        rows = rows.where(users.c.domain == event.audience_domain)
        if event.role is not None:
            rows = rows.where(users.c.role.in_((event.role, Role.SUPERADMIN)))
    elif event.role is not None:
        rows = rows.where(users.c.role == event.role)
    return [_Recipient(row[0], settings_of(row[1:])) for row in await tx.execute(rows)]


async def _hidden_users(tx: AsyncConnection, events: Sequence[StoredEvent]) -> set[str]:
    """Return the affected users (also inactive) whose events domain administrators may not read."""
    concerned = {event.user_id for event in events if event.user_id is not None}
    rows = sa.select(users.c.id).where(
        users.c.id.in_(sorted(concerned)), users.c.role.in_(sorted(_HIDDEN_FROM_DOMAINS))
    )
    return set(await tx.scalars(rows))


def settings_of(values: Sequence[Any]) -> NotificationSettings:
    """Return settings from the values of ``SETTING_COLUMNS``; NULL values become the defaults."""
    if values[0] is None:
        return _DEFAULTS
    names = (column.name for column in SETTING_COLUMNS)
    return NotificationSettings(**dict(zip(names, values, strict=True)))


async def _hooks(tx: AsyncConnection, user_ids: Collection[str]) -> _Hooks:
    columns = ("id", "owner_id", "domain", "kind", "events")
    rows = sa.select(*(webhooks.c[name] for name in columns)).where(
        webhooks.c.is_enabled, webhooks.c.suspended_at.is_(None)
    )
    own: dict[str, list[Any]] = defaultdict(list)
    shared: list[Any] = []
    for row in await tx.execute(rows):
        if row.owner_id is None:
            shared.append(row)
        elif row.owner_id in user_ids:
            own[row.owner_id].append(row)
    counts = (
        sa.select(webhook_deliveries.c.webhook_id, sa.func.count())
        .where(webhook_deliveries.c.status == DeliveryStatus.PENDING)
        .group_by(webhook_deliveries.c.webhook_id)
    )
    return _Hooks(own, shared, {row[0]: row[1] for row in await tx.execute(counts)})


def _add_user(
    rows: _Rows,
    event: StoredEvent,
    kind: EventType,
    user: _Recipient,
    hooks: Sequence[Any],
    sends_mails: bool,
    now: datetime,
) -> None:
    channels = user.settings.channels_of(kind)
    key = {"user_id": user.id, "event_id": event.id}
    if Channel.WEB in channels:
        rows.notifications.append({**key, "created_at": event.created_at, "is_read": False})
    if Channel.MAIL in channels and sends_mails:
        rows.mails.append({**key, "due_at": user.settings.mail_time(kind, now)})
    due = user.settings.message_time(kind, now)
    rows.deliveries += [
        _delivery(hook.id, event, now, due)
        for hook in hooks
        if _CHANNEL_OF[WebhookKind(hook.kind)] in channels
    ]


def _add_administrators(
    rows: _Rows,
    event: StoredEvent,
    is_hidden: bool,
    hooks: Sequence[Any],
    now: datetime,
) -> None:
    for hook in hooks:
        reaches = hook.domain is None or (hook.domain == event.domain and not is_hidden)
        if reaches and event.name in hook.events:
            rows.deliveries.append(_delivery(hook.id, event, now, now))


def _delivery(webhook_id: str, event: StoredEvent, now: datetime, due: datetime) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "created_at": now,
        "webhook_id": webhook_id,
        "event_id": event.id,
        "status": DeliveryStatus.PENDING,
        "attempts": 0,
        "next_at": due,
        "last_error": "",
    }


def _limited(
    deliveries: Sequence[dict[str, Any]], pending: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Drop deliveries to webhooks with too many pending deliveries; return the others."""
    counts = defaultdict(int, pending)
    kept = []
    for delivery in deliveries:
        if counts[delivery["webhook_id"]] < MAX_PENDING_DELIVERIES:
            counts[delivery["webhook_id"]] += 1
            kept.append(delivery)
    return kept


async def _count_dropped(
    tx: AsyncConnection, created: Sequence[dict[str, Any]], kept: Sequence[dict[str, Any]]
) -> None:
    if len(created) == len(kept):
        return
    ids = {delivery["id"] for delivery in kept}
    counts: dict[str, int] = defaultdict(int)
    for delivery in created:
        counts[delivery["webhook_id"]] += delivery["id"] not in ids
    for webhook_id, count in sorted(counts.items()):
        await tx.execute(
            sa.update(webhooks)
            .where(webhooks.c.id == webhook_id)
            .values(dropped=webhooks.c.dropped + count)
        )
