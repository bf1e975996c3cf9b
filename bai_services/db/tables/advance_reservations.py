"""Advance reservations: agents that are held for the sessions of a project in a period."""

from __future__ import annotations

import sqlalchemy as sa

from .base import Slots, UtcDateTime, created_at, identity, metadata

advance_reservations = sa.Table(
    "advance_reservations",
    metadata,
    identity(),
    created_at(),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column(
        "project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column(
        "resource_group",
        sa.ForeignKey("resource_groups.name", ondelete="CASCADE"),
        nullable=False,
    ),
    sa.Column("nodes", sa.Integer, nullable=False),
    # Booked resources of each agent; with ``whole_machines``, its minimum resources.
    sa.Column("resources", Slots, nullable=False),
    sa.Column("whole_machines", sa.Boolean, nullable=False, server_default="1"),
    # Ids of the agents that are held.
    sa.Column("agents", sa.JSON, nullable=False),
    # Ids of the users who may use the reservation; empty: all members of the project.
    sa.Column("user_ids", sa.JSON, nullable=False),
    sa.Column("starts_at", UtcDateTime, nullable=False),
    sa.Column("ends_at", UtcDateTime, nullable=False),
    sa.Column("grace_seconds", sa.Integer, nullable=False),
    # requested, approved, rejected, cancelled or expired.
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("note", sa.String(255), nullable=False),
    sa.Column("author_id", sa.String(64), nullable=False),
    sa.Column("author", sa.String(64), nullable=False),
    sa.Column("decided_by", sa.String(64), nullable=False, default=""),
    sa.Column("used_at", UtcDateTime),
    sa.Index("ix_advance_reservations_state", "state", "ends_at"),
)
