"""Delivery state of session callbacks; the content comes from the status history."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

session_callbacks = sa.Table(
    "session_callbacks",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    # Id of the last row of ``status_history`` that was delivered or skipped.
    sa.Column("told_id", sa.BigInteger, nullable=False, default=0),
    # False after the final status of the session was delivered or skipped.
    sa.Column("is_open", sa.Boolean, nullable=False, default=True),
    # Number of failed attempts to deliver the next status change.
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    # Time of the next attempt.
    sa.Column("next_at", UtcDateTime, nullable=False),
    sa.Column("delivered", sa.Integer, nullable=False, default=0),
    sa.Column("given_up", sa.Integer, nullable=False, default=0),
    sa.Column("last_at", UtcDateTime),
    sa.Column("last_error", sa.String(255), nullable=False, default=""),
    sa.Index("ix_session_callbacks_due", "is_open", "next_at"),
)
