"""Delivery state of session callbacks; the content comes from the status history."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

session_callbacks = sa.Table(
    "session_callbacks",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    # The last row of the session's history that was delivered or skipped.
    sa.Column("told_id", sa.BigInteger, nullable=False, default=0),
    # False once the end of the session was delivered or skipped.
    sa.Column("is_open", sa.Boolean, nullable=False, default=True),
    # Attempts for the current step, and when the next one is due.
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    sa.Column("next_at", UtcDateTime, nullable=False),
    sa.Column("delivered", sa.Integer, nullable=False, default=0),
    sa.Column("given_up", sa.Integer, nullable=False, default=0),
    sa.Column("last_at", UtcDateTime),
    sa.Column("last_error", sa.String(255), nullable=False, default=""),
    sa.Index("ix_session_callbacks_due", "is_open", "next_at"),
)
