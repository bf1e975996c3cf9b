"""What the queue keeps beside sessions: who writes it, and what each scope has used by day."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

# Who may write under a name. ``token`` rises with each holder: one that has been replaced is
# known by its old token, however late it writes. ``beat`` rises while the holder is well.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    # Empty when it was given back.
    sa.Column("holder", sa.String(255), nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("taken_at", UtcDateTime, nullable=False),
)

# What a domain, project or user used in one day (UTC) in one resource group: amount times
# seconds. Made of the ledger, and made again whenever it is wanted. No integer is wide enough
# for the bytes of a large cluster times the seconds of a day.
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
