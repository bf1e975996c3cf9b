"""Chats of users with endpoints."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata, version

chats = sa.Table(
    "chats",
    metadata,
    identity(),
    created_at(),
    version(),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("title", sa.String(100), nullable=False),
    sa.Column("messages", sa.Integer, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("cards", sa.JSON, nullable=False),
    sa.Index("ix_chats_user_id", "user_id", "updated_at"),
    sa.Index("ix_chats_updated_at", "updated_at"),
)
