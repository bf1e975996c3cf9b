"""Usage of endpoints by day remains when an endpoint is deleted.

Follows 0062; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0063"
down_revision = "0062"


def upgrade() -> None:
    op.create_table(
        "endpoint_usage_days",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("day", UtcDateTime(), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("endpoint_id", "day", "token"),
    )
    op.create_index("ix_endpoint_usage_days_day", "endpoint_usage_days", ["day"])
    op.create_index("ix_endpoint_usage_days_owner_id", "endpoint_usage_days", ["owner_id", "day"])
    op.execute(
        "INSERT INTO endpoint_usage_days (endpoint_id, endpoint, owner_id, project_id, domain, "
        "day, token, requests, input_tokens, output_tokens) "
        "SELECT e.id, e.name, e.owner_id, e.project_id, p.domain, "
        "u.day, u.token, u.requests, u.input_tokens, u.output_tokens "
        "FROM endpoint_usage u JOIN endpoints e ON e.id = u.endpoint_id "
        "JOIN projects p ON p.id = e.project_id"
    )
    op.drop_table("endpoint_usage")
