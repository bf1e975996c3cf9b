"""Schedules and their runs; ``version`` of announcements, maintenances and idle checkers.

Follows 0037; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"

VERSIONED = ("announcements", "maintenances", "idle_checkers")


def upgrade() -> None:
    for table in VERSIONED:
        op.add_column(table, sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("user_policies", sa.Column("max_schedules", sa.Integer(), server_default="20"))
    op.create_table(
        "session_schedules",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("template", sa.String(255)),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("start", sa.String(200), nullable=False),
        sa.Column("stop", sa.String(200)),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("valid_from", sa.DateTime()),
        sa.Column("valid_until", sa.DateTime()),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("catch_up_minutes", sa.Integer(), nullable=False),
        sa.Column("overlap", sa.String(16), nullable=False),
        sa.Column("next_start_at", sa.DateTime()),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
            name=op.f("fk_session_schedules_owner_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session_schedules")),
        sa.UniqueConstraint("owner_id", "name", name=op.f("uq_session_schedules_owner_id_name")),
    )
    op.create_index(
        op.f("ix_session_schedules_next_start_at"), "session_schedules", ["next_start_at"]
    )
    op.create_table(
        "schedule_runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("schedule_id", sa.String(64), nullable=False),
        sa.Column("due_at", sa.DateTime(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.JSON()),
        sa.Column("stops_at", sa.DateTime()),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["session_schedules.id"],
            name=op.f("fk_schedule_runs_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_runs")),
        sa.UniqueConstraint(
            "schedule_id", "due_at", name=op.f("uq_schedule_runs_schedule_id_due_at")
        ),
    )
    op.create_index(op.f("ix_schedule_runs_due_at"), "schedule_runs", ["due_at"])
    op.create_index("ix_schedule_runs_status_stops_at", "schedule_runs", ["status", "stops_at"])
