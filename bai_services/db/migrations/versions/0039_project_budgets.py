"""Budgets of projects.

Follows 0038; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.create_table(
        "project_budgets",
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("warn_percents", sa.JSON(), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("starts_at", sa.DateTime()),
        sa.Column("ends_at", sa.DateTime()),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("stop_after_minutes", sa.Integer()),
        sa.Column("spent", sa.Double()),
        sa.Column("spent_at", sa.DateTime()),
        sa.Column("spent_since", sa.DateTime()),
        sa.Column("reported_percent", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("blocked_at", sa.DateTime()),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_project_budgets_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_budgets")),
    )
