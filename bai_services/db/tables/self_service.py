"""Links in mails with which users act without a sign-in."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, metadata

password_resets = sa.Table(
    "password_resets",
    metadata,
    # SHA-256 of the token in the link.
    sa.Column("token_hash", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    # Values of the account at the time of the request: the link is valid only while they are
    # unchanged.
    sa.Column("email", sa.String(64), nullable=False),
    sa.Column("password_changed_at", UtcDateTime),
    created_at(),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)
