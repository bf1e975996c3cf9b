"""Authenticators of users for one-time codes, and their recovery codes."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

one_time_codes = sa.Table(
    "one_time_codes",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    # Changes with each registration.
    sa.Column("registration_id", sa.String(64), nullable=False),
    # Stored encrypted, not hashed, because computing a code requires the secret.
    sa.Column("secret_encrypted", sa.String(255), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    # Time step of the last accepted code; codes of this and earlier steps are rejected.
    sa.Column("last_step", sa.BigInteger, nullable=False),
)

recovery_codes = sa.Table(
    "recovery_codes",
    metadata,
    sa.Column(
        "user_id", sa.ForeignKey("one_time_codes.user_id", ondelete="CASCADE"), primary_key=True
    ),
    # Keyed hash of an unused code; an accepted code is deleted.
    sa.Column("code_hash", sa.String(64), primary_key=True),
)
