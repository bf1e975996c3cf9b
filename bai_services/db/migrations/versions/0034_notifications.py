"""Notifications: events, notifications of users, conditions and settings; ``mails.failed_at``.

Follows 0033; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column("mails", sa.Column("failed_at", sa.DateTime(), nullable=True))
    op.create_table(
        "notification_events",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("key", sa.String(length=160), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("text", sa.JSON(), nullable=False),
        sa.Column("link", sa.String(length=255), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=True),
        sa.Column("user_id", sa.String(length=64), nullable=True),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("audience_domain", sa.String(length=64), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=True),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_notification_events_user_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_events")),
        sa.UniqueConstraint("key", name=op.f("uq_notification_events_key")),
    )
    with op.batch_alter_table("notification_events", schema=None) as batch_op:
        batch_op.create_index("ix_notification_events_created_at", ["created_at"], unique=False)
        batch_op.create_index(
            "ix_notification_events_open", ["is_open", "created_at"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_notification_events_user_id"), ["user_id"], unique=False
        )

    op.create_table(
        "notifications",
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("is_read", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event_id"],
            ["notification_events.id"],
            name=op.f("fk_notifications_event_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_notifications_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "event_id", name=op.f("pk_notifications")),
    )
    with op.batch_alter_table("notifications", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_notifications_event_id"), ["event_id"], unique=False)
        batch_op.create_index(
            "ix_notifications_user_id_created_at", ["user_id", "created_at"], unique=False
        )

    op.create_table(
        "notification_mails",
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("due_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event_id"],
            ["notification_events.id"],
            name=op.f("fk_notification_mails_event_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_notification_mails_user_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", "event_id", name=op.f("pk_notification_mails")),
    )
    with op.batch_alter_table("notification_mails", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_notification_mails_due_at"), ["due_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_notification_mails_event_id"), ["event_id"], unique=False
        )

    op.create_table(
        "notification_conditions",
        sa.Column("key", sa.String(length=160), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.Column("rearm_seconds", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_notification_conditions")),
    )
    op.create_table(
        "notification_position",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("history_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_position")),
    )
    op.create_table(
        "notification_settings",
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("language", sa.String(length=8), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=False),
        sa.Column("quiet_starts", sa.String(length=5), nullable=False),
        sa.Column("quiet_ends", sa.String(length=5), nullable=False),
        sa.Column("digest", sa.String(length=8), nullable=False),
        sa.Column("digest_time", sa.String(length=5), nullable=False),
        sa.Column("channels", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_notification_settings_user_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_notification_settings")),
    )
