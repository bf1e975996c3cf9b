"""Shares of session apps, and their used entry tokens."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

app_shares = sa.Table(
    "app_shares",
    metadata,
    identity(),
    created_at(),
    sa.Column(
        "session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("app", sa.String(64), nullable=False),
    # user, project or public; for user and project, the column user_id or project_id is set.
    sa.Column("audience", sa.String(16), nullable=False),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    # List of networks (CIDR); NULL: any address.
    sa.Column("allowed_addresses", sa.JSON(none_as_null=True)),
    sa.Column("expires_at", UtcDateTime, nullable=False, index=True),
    sa.Column("created_by", sa.String(64), nullable=False),
)

# Used entry tokens of shared apps: all managers together accept each token only once.
used_entry_tokens = sa.Table(
    "used_entry_tokens",
    metadata,
    sa.Column("nonce", sa.String(64), primary_key=True),
    sa.Column("expires_at", UtcDateTime, nullable=False, index=True),
)
