"""Schedules of pipelines, and why a run was created.

Follows 0054; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"


def upgrade() -> None:
    op.add_column(
        "pipeline_runs", sa.Column("cause", sa.String(80), nullable=False, server_default="")
    )
    op.create_table(
        "pipeline_schedules",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        sa.Column("pipeline_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("start", sa.String(200)),
        sa.Column("every_minutes", sa.Integer),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("anchor_at", sa.DateTime, nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("catch_up", sa.String(16), nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("next_start_at", sa.DateTime),
        sa.Column("last_start_at", sa.DateTime),
        sa.Column("last_run_id", sa.String(64)),
        sa.Column("last_message", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"],
            ["pipelines.id"],
            name=op.f("fk_pipeline_schedules_pipeline_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_schedules")),
        sa.UniqueConstraint(
            "pipeline_id", "name", name=op.f("uq_pipeline_schedules_pipeline_id_name")
        ),
    )
    op.create_index(
        op.f("ix_pipeline_schedules_next_start_at"), "pipeline_schedules", ["next_start_at"]
    )


def downgrade() -> None:
    op.drop_table("pipeline_schedules")
    op.drop_column("pipeline_runs", "cause")
