"""Notifications, webhooks and deliveries, with the field names of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .catalogue import EventName


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification of a user in the web UI; ``link`` is a path below the web UI, or empty."""

    id: str
    created_at: datetime
    event: str
    is_urgent: bool
    text: str
    coded: Mapping[str, Any]
    link: str
    is_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationEvent:
    """An event of the catalogue; ``channels`` are the caller's channels for this event."""

    name: EventName
    is_urgent: bool
    is_for_administrators: bool
    default_channels: Sequence[str]
    channels: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettingsView:
    """Settings as shown to the user; ``mail_address`` is empty if no mail server is configured."""

    language: str
    time_zone: str
    quiet_starts: str
    quiet_ends: str
    digest: str
    digest_time: str
    channels: Mapping[str, Sequence[str]]
    mail_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook of the caller (``is_own``), of a domain, or of the installation.

    The URL may contain a secret and is not returned; ``host`` is its host. ``suspended_at``: when
    calls stopped because too many failed; None: not suspended. ``changed_by_role``: role of the
    user who created or last changed the webhook.
    """

    id: str
    created_at: datetime
    is_own: bool
    domain: str | None
    name: str
    kind: str
    host: str
    language: str
    events: Sequence[str]
    is_enabled: bool
    failures: int
    suspended_at: datetime | None
    last_error: str
    last_delivered_at: datetime | None
    pending: int
    dropped: int
    changed_by_role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedWebhook(Webhook):
    """A new webhook with the secret that signs its requests; the secret is returned only once."""

    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A delivery to a webhook; ``status``: pending, delivered or given-up."""

    id: str
    created_at: datetime
    event_id: str
    event: str
    text: str
    status: str
    attempts: int
    next_at: datetime | None
    finished_at: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """The result of a test call; ``error`` is empty if the endpoint has accepted it."""

    is_delivered: bool
    error: str
