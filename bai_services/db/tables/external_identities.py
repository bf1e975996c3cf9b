"""Identities of users at OpenID providers."""

from __future__ import annotations

import sqlalchemy as sa

from .base import created_at, identity, metadata

external_identities = sa.Table(
    "external_identities",
    metadata,
    identity(),
    created_at(),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    # Name of the provider in the Hub's configuration, to show it.
    sa.Column("provider", sa.String(64), nullable=False),
    sa.Column("issuer", sa.String(255), nullable=False),
    # Identifier of the user at the issuer; never reused, unlike names and e-mail addresses.
    sa.Column("subject", sa.String(255), nullable=False),
    sa.UniqueConstraint("issuer", "subject"),
    sa.UniqueConstraint("user_id", "issuer"),
)
