"""Session apps that are shared with other users."""

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
    # user, project or public: one of the next two is set, or neither.
    sa.Column("audience", sa.String(16), nullable=False),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    # List of networks (CIDR); None = from anywhere.
    sa.Column("allowed_addresses", sa.JSON(none_as_null=True)),
    sa.Column("expires_at", UtcDateTime, nullable=False, index=True),
    sa.Column("created_by", sa.String(64), nullable=False),
)
