"""Usage statistics: records, hourly and daily totals, and prices.

Times are Unix times in seconds. There are no foreign keys: statistics outlive the objects
that they describe. Records and totals are kept for about 400 days.
"""

from __future__ import annotations

import sqlalchemy as sa

from .base import metadata


def _measures() -> list[sa.Column[float]]:
    """Return the columns of ``core.usage.model.Measures``; NULL: unknown."""
    known = ("allocated", "waited", "measured", "used", "wasted")
    columns = [sa.Column(name, sa.Double, nullable=False) for name in known]
    return columns + [sa.Column(name, sa.Double) for name in ("energy", "cost")]


# One row for each row of the ledger, and one for each period in which a session held resources
# (slot ``sessions``) or waited in the queue (slot ``waiting``). Written in the transaction of the
# change.
usage_records = sa.Table(
    "usage_records",
    metadata,
    sa.Column("session_id", sa.String(64), primary_key=True),
    sa.Column("kernel_id", sa.String(64), primary_key=True),  # "" for sessions and waits
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("device_id", sa.String(128), primary_key=True),  # "": no device
    sa.Column("started_at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("owner_id", sa.String(64), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("domain", sa.String(64), nullable=False),
    sa.Column("resource_group", sa.String(64), nullable=False),
    sa.Column("image", sa.String(255), nullable=False),
    sa.Column("session_kind", sa.String(16), nullable=False, server_default=""),
    sa.Column("device_model", sa.String(128), nullable=False),  # "": no device, or unknown
    sa.Index("ix_usage_records_ended_at", "ended_at"),
)

# Totals of each user in an hour, for reports about one user.
usage_hours = sa.Table(
    "usage_hours",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("owner_id", sa.String(64), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("domain", sa.String(64), nullable=False),
    sa.Column("resource_group", sa.String(64), nullable=False),
    sa.Column("image", sa.String(255), nullable=False),
    # "": totals that were computed before the column existed
    sa.Column("session_kind", sa.String(16), nullable=False, server_default=""),
    sa.Column("device_model", sa.String(128), nullable=False),
    sa.Column("slot", sa.String(64), nullable=False),
    *_measures(),
    sa.Index("ix_usage_hours_owner_id", "owner_id", "start"),
    sa.Index("ix_usage_hours_start", "start"),
)

# Totals of an hour or of a day (UTC) for each group of each dimension, within each domain.
usage_totals = sa.Table(
    "usage_totals",
    metadata,
    sa.Column("dimension", sa.String(16), primary_key=True),
    sa.Column("interval_seconds", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("domain", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("slot", sa.String(64), primary_key=True),
    *_measures(),
    sa.Index("ix_usage_totals_key", "dimension", "interval_seconds", "key", "start"),
)

# Price of a unit of a slot for an hour; ``resource_group`` "" is the default.
usage_prices = sa.Table(
    "usage_prices",
    metadata,
    sa.Column("resource_group", sa.String(64), primary_key=True),
    sa.Column("slot", sa.String(64), primary_key=True),
    sa.Column("per_hour", sa.Double, nullable=False),
    sa.Column("currency", sa.String(16), nullable=False),
)
