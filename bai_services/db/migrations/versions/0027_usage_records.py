"""Usage records, their hourly and daily totals, and prices.

The manager fills in the records of existing sessions at its first start.

Follows 0026; created 2026-11-26.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def _measures() -> list[sa.Column[Any]]:
    known = ("allocated", "waited", "measured", "used", "wasted")
    columns: list[sa.Column[Any]] = [sa.Column(name, sa.Double, nullable=False) for name in known]
    return columns + [sa.Column(name, sa.Double) for name in ("energy", "cost")]


def upgrade() -> None:
    op.create_table(
        "usage_records",
        sa.Column("session_id", sa.String(64), primary_key=True),
        sa.Column("kernel_id", sa.String(64), primary_key=True),
        sa.Column("slot", sa.String(64), primary_key=True),
        sa.Column("device_id", sa.String(128), primary_key=True),
        sa.Column("started_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("image", sa.String(255), nullable=False),
        sa.Column("device_model", sa.String(128), nullable=False),
    )
    op.create_index("ix_usage_records_ended_at", "usage_records", ["ended_at"])
    op.create_table(
        "usage_hours",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("image", sa.String(255), nullable=False),
        sa.Column("device_model", sa.String(128), nullable=False),
        sa.Column("slot", sa.String(64), nullable=False),
        *_measures(),
    )
    op.create_index("ix_usage_hours_owner_id", "usage_hours", ["owner_id", "start"])
    op.create_index("ix_usage_hours_start", "usage_hours", ["start"])
    op.create_table(
        "usage_totals",
        sa.Column("dimension", sa.String(16), primary_key=True),
        sa.Column("interval_seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("domain", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("slot", sa.String(64), primary_key=True),
        *_measures(),
    )
    op.create_index(
        "ix_usage_totals_key", "usage_totals", ["dimension", "interval_seconds", "key", "start"]
    )
    op.create_table(
        "usage_prices",
        sa.Column("resource_group", sa.String(64), primary_key=True),
        sa.Column("slot", sa.String(64), primary_key=True),
        sa.Column("per_hour", sa.Double, nullable=False),
        sa.Column("currency", sa.String(16), nullable=False),
    )
