"""Stores of webhooks and of their deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.records import Webhook, WebhookDelivery
from bai_services.core.notifications.settings import NotificationSettings
from bai_services.core.notifications.webhooks import (
    MAX_OWN_WEBHOOKS,
    MAX_WEBHOOKS,
    DeliveryStatus,
    is_to_suspend,
    retry_at,
)

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..records import first_record
from ..tables.accounts import users
from ..tables.notifications import (
    notification_events,
    notification_settings,
    webhook_deliveries,
    webhooks,
)
from .fan_out import SETTING_COLUMNS, settings_of

_MAX_ERROR_CHARACTERS = 255
_is_own = webhooks.c.owner_id.is_not(None)
_is_pending = webhook_deliveries.c.status == DeliveryStatus.PENDING
_pending = (
    sa.select(sa.func.count())
    .select_from(webhook_deliveries)
    .where(webhook_deliveries.c.webhook_id == webhooks.c.id, _is_pending)
    .correlate(webhooks)
    .scalar_subquery()
)
_SPECIAL = {"is_own": _is_own, "pending": _pending}
_FIELDS = {
    name: _SPECIAL[name] if name in _SPECIAL else webhooks.c[name]
    for name in Webhook.__dataclass_fields__
}
_ROWS = sa.select(*(column.label(name) for name, column in _FIELDS.items()))
_LISTING = Listing(
    columns={name: column for name, column in _FIELDS.items() if name not in ("events", "pending")},
    default_sort=("name", "id"),
)
_DELIVERY_FIELDS = {
    **{
        name: webhook_deliveries.c[name]
        for name in WebhookDelivery.__dataclass_fields__
        if name not in ("event", "text")
    },
    "event": notification_events.c.name,
}
_DELIVERIES = Listing(columns=_DELIVERY_FIELDS, default_sort=("-created_at", "id"))


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The data for a call of a webhook; ``settings``: the owner's settings, if it has an owner."""

    id: str
    kind: str
    url_encrypted: str = field(repr=False)
    secret_encrypted: str = field(repr=False)
    language: str = "en"
    settings: NotificationSettings | None = None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A due delivery with its event; ``user`` is the user affected by the event."""

    id: str
    created_at: datetime
    attempts: int
    event_id: str
    event: str
    event_at: datetime
    text: Mapping[str, Any]
    link: str
    domain: str | None
    user: str | None
    target: WebhookTarget


class WebhookStore:
    """Reads and writes webhooks and deliveries. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, user_id: str | None, shared: Visibility | None
    ) -> Page[Webhook]:
        """Return a page of the user's webhooks; ``shared`` adds administrators' webhooks."""
        async with self._db.read() as tx:
            rows = _ROWS.where(_visible(user_id, shared))
            return await _LISTING.page(tx, rows, query, Webhook)

    async def one(self, key: str, user_id: str | None, shared: Visibility | None) -> Webhook:
        async with self._db.read() as tx:
            return await _one(tx, key, _visible(user_id, shared))

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> Webhook:
        """Insert a webhook.

        Raises
        ------
        Conflict
            If the user, or the installation, has too many webhooks.
        """
        owner_id = values["owner_id"]
        of_owner = (
            webhooks.c.owner_id.is_(None) if owner_id is None else (webhooks.c.owner_id == owner_id)
        )
        maximum = MAX_WEBHOOKS if owner_id is None else MAX_OWN_WEBHOOKS
        async with self._db.write() as tx:
            count = await tx.scalar(
                sa.select(sa.func.count()).select_from(webhooks).where(of_owner)
            )
            if (count or 0) >= maximum:
                raise Conflict(f"there are already {count} webhooks; delete one first")
            with raise_on_violation(NotFound("the domain no longer exists")):
                await tx.execute(webhooks.insert().values(values))
            await record(tx, audit)
            return await _one(tx, values["id"], sa.true())

    async def update(
        self, key: str, changes: Mapping[str, Any], audit: AuditEntry, now: datetime
    ) -> Webhook:
        async with self._db.write() as tx:
            if changes:
                await tx.execute(sa.update(webhooks).where(webhooks.c.id == key).values(**changes))
            found = await _one(tx, key, sa.true())
            if not found.is_enabled:
                await _give_up_all(tx, key, "the webhook was disabled", now)
            await record(tx, audit)
            return found

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(webhooks).where(webhooks.c.id == key))
            await record(tx, audit)

    async def deliveries(self, key: str, query: ListQuery) -> Page[WebhookDelivery]:
        rows = (
            sa.select(
                *(column.label(name) for name, column in _DELIVERY_FIELDS.items()),
                notification_events.c.text,
            )
            .join_from(
                webhook_deliveries,
                notification_events,
                webhook_deliveries.c.event_id == notification_events.c.id,
            )
            .where(webhook_deliveries.c.webhook_id == key)
        )
        async with self._db.read() as tx:
            return await _DELIVERIES.page(tx, rows, query, _delivery)

    async def target(self, key: str) -> WebhookTarget:
        async with self._db.read() as tx:
            row = (await tx.execute(_TARGETS.where(webhooks.c.id == key))).one_or_none()
        if row is None:
            raise no_webhook(key)
        return _target(row)

    async def due(self, now: datetime, busy: Collection[str], limit: int) -> list[DueDelivery]:
        """Return the next due delivery of each webhook that is not in ``busy``."""
        values = {"now": now, "busy": list(busy), "limit": limit}
        async with self._db.read() as tx:
            return [_due(row) for row in await tx.execute(_DUE, values)]

    async def mark_delivered(self, delivery: DueDelivery, now: datetime) -> None:
        async with self._db.write() as tx:
            attempts = delivery.attempts + 1
            await _finish(tx, delivery.id, attempts, DeliveryStatus.DELIVERED, "", now)
            await tx.execute(
                sa.update(webhooks)
                .where(webhooks.c.id == delivery.target.id)
                .values(failures=0, failing_since=None, last_error="", last_delivered_at=now)
            )

    async def mark_failed(
        self, delivery: DueDelivery, error: str, now: datetime, *, is_final: bool
    ) -> datetime | None:
        """Schedule the next attempt and return its time; None if the delivery is given up.

        ``is_final``: do not try again. After too many consecutive failures, the webhook is
        suspended and all its pending deliveries are given up.
        """
        attempts = delivery.attempts + 1
        next_at = None if is_final else retry_at(delivery.created_at, attempts, now)
        text = error[:_MAX_ERROR_CHARACTERS]
        async with self._db.write() as tx:
            if next_at is None:
                await _finish(tx, delivery.id, attempts, DeliveryStatus.GIVEN_UP, text, now)
            else:
                values = {"attempts": attempts, "next_at": next_at, "last_error": text}
                await tx.execute(
                    sa.update(webhook_deliveries)
                    .where(webhook_deliveries.c.id == delivery.id, _is_pending)
                    .values(values)
                )
            row = (
                await tx.execute(
                    sa.update(webhooks)
                    .where(webhooks.c.id == delivery.target.id)
                    .values(
                        failures=webhooks.c.failures + 1,
                        failing_since=sa.func.coalesce(webhooks.c.failing_since, now),
                        last_error=text,
                    )
                    .returning(webhooks.c.failures, webhooks.c.failing_since)
                )
            ).one_or_none()
            if row is not None and is_to_suspend(row.failures, row.failing_since, now):
                await tx.execute(
                    sa.update(webhooks)
                    .where(webhooks.c.id == delivery.target.id)
                    .values(suspended_at=now)
                )
                await _give_up_all(tx, delivery.target.id, "the webhook was suspended", now)
                return None
        return next_at


def _visible(user_id: str | None, shared: Visibility | None) -> sa.ColumnElement[bool]:
    found = webhooks.c.owner_id == user_id if user_id is not None else sa.false()
    if shared is None:
        return found
    of_domain = sa.true() if shared.domain is None else webhooks.c.domain == shared.domain
    return sa.or_(found, sa.and_(webhooks.c.owner_id.is_(None), of_domain))


async def _one(tx: AsyncConnection, key: str, condition: sa.ColumnElement[bool]) -> Webhook:
    rows = await tx.execute(_ROWS.where(webhooks.c.id == key, condition))
    found = first_record(Webhook, rows)
    if found is None:
        raise no_webhook(key)
    return found


async def _finish(
    tx: AsyncConnection,
    key: str,
    attempts: int,
    status: DeliveryStatus,
    error: str,
    now: datetime,
) -> None:
    values = {
        "status": status,
        "attempts": attempts,
        "next_at": None,
        "finished_at": now,
        "last_error": error,
    }
    await tx.execute(
        sa.update(webhook_deliveries)
        .where(webhook_deliveries.c.id == key, _is_pending)
        .values(values)
    )


async def _give_up_all(tx: AsyncConnection, webhook_id: str, error: str, now: datetime) -> None:
    await tx.execute(
        sa.update(webhook_deliveries)
        .where(webhook_deliveries.c.webhook_id == webhook_id, _is_pending)
        .values(
            status=DeliveryStatus.GIVEN_UP,
            next_at=None,
            finished_at=now,
            last_error=error,
        )
    )


def _delivery(**row: Any) -> WebhookDelivery:
    return WebhookDelivery(**{**row, "text": str(CodedText.from_json(row["text"]))})


_TARGET_COLUMNS = (
    webhooks.c.id.label("webhook_id"),
    webhooks.c.kind,
    webhooks.c.url_encrypted,
    webhooks.c.secret_encrypted,
    webhooks.c.language.label("webhook_language"),
    webhooks.c.owner_id,
    *SETTING_COLUMNS,
)
_settings_of_owner = notification_settings.c.user_id == webhooks.c.owner_id
_TARGETS = sa.select(*_TARGET_COLUMNS).outerjoin_from(
    webhooks, notification_settings, _settings_of_owner
)
# Webhooks of inactive users: their pending deliveries are not sent.
_of_inactive = (
    sa.select(webhooks.c.id)
    .join_from(webhooks, users, webhooks.c.owner_id == users.c.id)
    .where(users.c.status != "active")
)
_ranked = (
    sa.select(
        webhook_deliveries.c.id,
        sa.func.row_number()
        .over(
            partition_by=webhook_deliveries.c.webhook_id,
            order_by=(webhook_deliveries.c.next_at, webhook_deliveries.c.id),
        )
        .label("rank"),
    )
    .where(
        _is_pending,
        webhook_deliveries.c.next_at <= sa.bindparam("now"),
        webhook_deliveries.c.webhook_id.not_in(sa.bindparam("busy", expanding=True)),
        webhook_deliveries.c.webhook_id.not_in(_of_inactive),
    )
    .subquery()
)
_DUE = (
    sa.select(
        *_TARGET_COLUMNS,
        webhook_deliveries.c.id,
        webhook_deliveries.c.created_at,
        webhook_deliveries.c.attempts,
        notification_events.c.id.label("event_id"),
        notification_events.c.name.label("event"),
        notification_events.c.created_at.label("event_at"),
        notification_events.c.text,
        notification_events.c.link,
        notification_events.c.domain,
        users.c.username.label("user"),
    )
    .join_from(_ranked, webhook_deliveries, _ranked.c.id == webhook_deliveries.c.id)
    .join(webhooks, webhook_deliveries.c.webhook_id == webhooks.c.id)
    .join(notification_events, webhook_deliveries.c.event_id == notification_events.c.id)
    .outerjoin(users, notification_events.c.user_id == users.c.id)
    .outerjoin(notification_settings, _settings_of_owner)
    .where(_ranked.c.rank == 1)
    .order_by(webhook_deliveries.c.next_at)
    .limit(sa.bindparam("limit"))
)


def _target(row: Any) -> WebhookTarget:
    settings = None
    if row.owner_id is not None:
        settings = settings_of([row._mapping[column.name] for column in SETTING_COLUMNS])
    language = row.webhook_language if settings is None else settings.language
    return WebhookTarget(
        row.webhook_id, row.kind, row.url_encrypted, row.secret_encrypted, language, settings
    )


def _due(row: Any) -> DueDelivery:
    return DueDelivery(
        row.id,
        row.created_at,
        row.attempts,
        row.event_id,
        row.event,
        row.event_at,
        row.text,
        row.link,
        row.domain,
        row.user,
        _target(row),
    )


def no_webhook(key: str) -> NotFound:
    return NotFound(f"there is no webhook {key!r}, or you may not see it", webhook=key)
