"""The lease for writing the queue, and the daily usage of each scope."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

# Holder of each lease. ``token`` is a fencing token: each new holder increments it, and late writes
# of a replaced holder are rejected. ``beat`` counts the renewals and the release by the current
# holder.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    # Empty after a release.
    sa.Column("holder", sa.String(255), nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("taken_at", UtcDateTime, nullable=False),
)

# Usage of a domain, project or user on one day (UTC) in one resource group: amount times seconds,
# computed from the ledger. ``amount_seconds`` is a float: the bytes of a large cluster times the
# seconds of a day exceed 64 bits.
usage_buckets = sa.Table(
    "usage_buckets",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),  # days since 1970-01-01
    sa.Column("resource_group", sa.String(64), primary_key=True),
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", sa.String(64), primary_key=True),
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("amount_seconds", sa.Double, nullable=False),
)
