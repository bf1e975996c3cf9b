"""Public keys of users for the SSH servers of their sessions."""

from __future__ import annotations

import sqlalchemy as sa

from .base import created_at, identity, metadata

ssh_keys = sa.Table(
    "ssh_keys",
    metadata,
    identity(),
    created_at(),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("public_key", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.UniqueConstraint("user_id", "name"),
    sa.UniqueConstraint("user_id", "fingerprint"),
)
