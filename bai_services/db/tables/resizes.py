"""Resizes of running sessions, and the sizes between which elastic sessions are resized."""

from __future__ import annotations

import sqlalchemy as sa

from .base import Slots, UtcDateTime, metadata

# The last resize of a session: at most one row per session.
session_resizes = sa.Table(
    "session_resizes",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    # Number of the resize, from 1; reports about earlier resizes are ignored.
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),  # pending, applied or failed
    sa.Column("previous", Slots, nullable=False),
    sa.Column("requested", Slots, nullable=False),
    # User who requested the resize; "": the manager, for an elastic session.
    sa.Column("by", sa.String(64), nullable=False),
    sa.Column("requested_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.Column("message", sa.String(1024), nullable=False, default=""),
    sa.Index("ix_session_resizes_state", "state"),
)

elastic_sessions = sa.Table(
    "elastic_sessions",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("minimum", Slots, nullable=False),
    sa.Column("preferred", Slots, nullable=False),
)
