"""Identities of users at OpenID providers."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

external_identities = sa.Table(
    "external_identities",
    metadata,
    identity(),
    created_at(),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    # Name of the provider in the Hub's configuration, for display.
    sa.Column("provider", sa.String(64), nullable=False),
    sa.Column("issuer", sa.String(255), nullable=False),
    # Identifier of the user at the issuer; never reused, unlike names and e-mail addresses.
    sa.Column("subject", sa.String(255), nullable=False),
    sa.UniqueConstraint("issuer", "subject"),
    sa.UniqueConstraint("user_id", "issuer"),
)

# Used signed tokens of other sites, until they expire: all managers together accept each token
# once.
used_signed_tokens = sa.Table(
    "used_signed_tokens",
    metadata,
    # SHA-256 of issuer and id of the token.
    sa.Column("token_hash", sa.String(64), primary_key=True),
    sa.Column("expires_at", UtcDateTime, nullable=False, index=True),
)
