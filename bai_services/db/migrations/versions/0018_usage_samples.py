"""Samples of the usage of kernels, for charts.

Follows 0017; created 2026-11-24.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "usage_samples",
        sa.Column("kernel_id", sa.String(36), primary_key=True),
        sa.Column("interval_seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.DateTime(), primary_key=True),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("devices", sa.JSON, nullable=False),
    )
    op.create_index(
        "ix_usage_samples_interval_seconds", "usage_samples", ["interval_seconds", "at"]
    )
