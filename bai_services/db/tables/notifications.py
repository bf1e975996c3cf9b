"""Notifications: events, notifications of users, settings, and webhooks with their deliveries."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, changed_by_role, created_at, identity, metadata

# Events of the last 30 days; one row per event, for all its recipients.
notification_events = sa.Table(
    "notification_events",
    metadata,
    identity(),
    created_at(),
    # Each event has a unique key, so an event that is raised twice is stored once.
    sa.Column("key", sa.String(160), nullable=False, unique=True),
    sa.Column("name", sa.String(32), nullable=False),
    sa.Column("text", sa.JSON, nullable=False),  # ``CodedText``
    sa.Column("link", sa.String(255), nullable=False),
    # The domain to which the event belongs; NULL: the installation.
    sa.Column("domain", sa.String(64)),
    # The audience: see ``Audience``.
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.String(64)),
    sa.Column("audience_domain", sa.String(64)),
    sa.Column("role", sa.String(16)),
    # Whether the notifications and deliveries of the event have not been created yet.
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.Index("ix_notification_events_open", "is_open", "created_at"),
    sa.Index("ix_notification_events_created_at", "created_at"),
)

# The notifications of a user in the web UI.
notifications = sa.Table(
    "notifications",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "event_id",
        sa.ForeignKey("notification_events.id", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
    created_at(),
    sa.Column("is_read", sa.Boolean, nullable=False, default=False),
    sa.Index("ix_notifications_user_id_created_at", "user_id", "created_at"),
)

# Events that wait for the next mail to a user. A row is deleted when its mail is in the queue.
notification_mails = sa.Table(
    "notification_mails",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "event_id",
        sa.ForeignKey("notification_events.id", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
    sa.Column("due_at", UtcDateTime, nullable=False, index=True),
)

# Conditions that hold, such as a lost agent, and have raised an event.
notification_conditions = sa.Table(
    "notification_conditions",
    metadata,
    sa.Column("key", sa.String(160), primary_key=True),
    sa.Column("seen_at", UtcDateTime, nullable=False),
    sa.Column("rearm_seconds", sa.Integer, nullable=False),
)

# Position in the status history up to which events have been raised: one row.
notification_position = sa.Table(
    "notification_position",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("history_id", sa.BigInteger, nullable=False),
)

# Users who have never changed their settings have no row.
notification_settings = sa.Table(
    "notification_settings",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("language", sa.String(8), nullable=False),
    sa.Column("time_zone", sa.String(64), nullable=False),
    # ``HH:MM``; both are empty if there are no quiet hours.
    sa.Column("quiet_starts", sa.String(5), nullable=False),
    sa.Column("quiet_ends", sa.String(5), nullable=False),
    sa.Column("digest", sa.String(8), nullable=False),
    sa.Column("digest_time", sa.String(5), nullable=False),
    sa.Column("channels", sa.JSON, nullable=False),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    identity(),
    created_at(),
    changed_by_role(),
    # NULL: a webhook of administrators, for a domain or (domain NULL) for the installation.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("domain", sa.ForeignKey("domains.name", ondelete="CASCADE"), index=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(8), nullable=False),  # json or slack
    # The URL often contains a secret.
    sa.Column("url_encrypted", sa.Text, nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("secret_encrypted", sa.Text, nullable=False),
    sa.Column("language", sa.String(8), nullable=False),
    # Names of events, for webhooks of administrators.
    sa.Column("events", sa.JSON, nullable=False),
    sa.Column("is_enabled", sa.Boolean, nullable=False),
    # Number of consecutive failed attempts, and the time of the first.
    sa.Column("failures", sa.Integer, nullable=False, default=0),
    sa.Column("failing_since", UtcDateTime),
    sa.Column("suspended_at", UtcDateTime),
    sa.Column("last_error", sa.String(255), nullable=False, default=""),
    sa.Column("last_delivered_at", UtcDateTime),
    # Number of deliveries that were not created, because too many were pending.
    sa.Column("dropped", sa.Integer, nullable=False, default=0),
)

# Deliveries to webhooks; finished deliveries are kept for seven days.
webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    identity(),
    created_at(),
    sa.Column("webhook_id", sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    sa.Column(
        "event_id",
        sa.ForeignKey("notification_events.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    sa.Column("status", sa.String(16), nullable=False),  # pending, delivered, given-up
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("next_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime, index=True),
    sa.Column("last_error", sa.String(255), nullable=False, default=""),
    sa.UniqueConstraint("webhook_id", "event_id"),
    sa.Index("ix_webhook_deliveries_due", "status", "next_at"),
)
