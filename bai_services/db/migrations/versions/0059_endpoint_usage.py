"""Usage of endpoints by day and token.

Follows 0058; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0059"
down_revision = "0058"


def upgrade() -> None:
    op.create_table(
        "endpoint_usage",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column(
            "endpoint_id",
            sa.String(64),
            sa.ForeignKey("endpoints.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("day", UtcDateTime(), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("endpoint_id", "day", "token"),
    )
    op.create_index("ix_endpoint_usage_day", "endpoint_usage", ["day"])
