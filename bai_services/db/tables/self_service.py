"""Links in mails that need no sign-in, and invitations to sign up."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

password_resets = sa.Table(
    "password_resets",
    metadata,
    # SHA-256 of the token in the link.
    sa.Column("token_hash", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    # Values of the account at the creation of the link, which is valid only while they are
    # unchanged.
    sa.Column("email", sa.String(64), nullable=False),
    sa.Column("password_changed_at", UtcDateTime),
    created_at(),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

sign_up_invitations = sa.Table(
    "sign_up_invitations",
    metadata,
    identity(),
    created_at(),
    # User name of the administrator.
    sa.Column("created_by", sa.String(64), nullable=False),
    sa.Column("description", sa.String(255), nullable=False, default=""),
    sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("domain", sa.ForeignKey("domains.name", ondelete="CASCADE"), nullable=False),
    # NULL: the project ``default`` of the domain.
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE")),
    sa.Column("max_uses", sa.Integer, nullable=False),
    sa.Column("uses", sa.Integer, nullable=False, default=0),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

# A sign-up reserves no name, because the account is created only after the confirmation.
pending_sign_ups = sa.Table(
    "pending_sign_ups",
    metadata,
    identity(),
    created_at(),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    # SHA-256 of the token in the link; NULL before the first attempt to deliver the mail.
    sa.Column("token_hash", sa.String(64), unique=True),
    sa.Column("username", sa.String(64), nullable=False),
    sa.Column("email", sa.String(64), nullable=False),
    sa.Column("full_name", sa.String(64), nullable=False),
    sa.Column("password_hash", sa.String(255), nullable=False),
    sa.Column("domain", sa.ForeignKey("domains.name", ondelete="CASCADE"), nullable=False),
    sa.Column("invitation_id", sa.ForeignKey("sign_up_invitations.id", ondelete="CASCADE")),
    sa.Column("needs_approval", sa.Boolean, nullable=False),
    sa.Column("consents", sa.JSON, nullable=False),
)
