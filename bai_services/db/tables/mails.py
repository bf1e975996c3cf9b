"""Queue of outgoing mails; a row is deleted when its mail is sent, given up or obsolete."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

mails = sa.Table(
    "mails",
    metadata,
    identity(),
    created_at(),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("recipient", sa.String(64), nullable=False),
    sa.Column("language", sa.String(8), nullable=False),
    sa.Column("values", sa.JSON, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    # Number of failed attempts, time and error of the last attempt, and time of the next attempt.
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("failed_at", UtcDateTime),
    sa.Column("last_error", sa.String(255), nullable=False, default=""),
    sa.Column("next_at", UtcDateTime, nullable=False, index=True),
)
