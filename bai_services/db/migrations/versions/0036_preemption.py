"""Preemption: job priority, restarts of sessions, plans and their victims.

Follows 0035; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    # The defaults are constants. With an expression such as ``sa.true()``, SQLite would copy the
    # table and create its indexes in a random order, and this order determines which of several
    # equally good indexes a query uses.
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("job_priority", sa.Integer(), server_default="0", nullable=False)
        )
        batch_op.add_column(
            sa.Column("is_preemptible", sa.Boolean(), server_default="1", nullable=False)
        )
        batch_op.add_column(
            sa.Column("restart_count", sa.Integer(), server_default="0", nullable=False)
        )
        batch_op.add_column(sa.Column("requeued_at", sa.DateTime()))
        batch_op.add_column(
            sa.Column("is_requeued_at_end", sa.Boolean(), server_default="0", nullable=False)
        )
    op.create_table(
        "preemption_plans",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("placements", sa.JSON, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("grace_seconds", sa.Integer, nullable=False),
        sa.Column("stops_at", sa.DateTime, nullable=False),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_preemption_plans_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption_plans")),
    )
    op.create_index(op.f("ix_preemption_plans_session_id"), "preemption_plans", ["session_id"])
    op.create_index(
        "uq_preemption_plans_active",
        "preemption_plans",
        ["session_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index("ix_preemption_plans_created_at", "preemption_plans", ["created_at", "id"])
    op.create_index("ix_preemption_plans_ended_at", "preemption_plans", ["ended_at"])
    op.create_table(
        "preemption_victims",
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("rule", sa.String(16), nullable=False),
        sa.Column("stopped_at", sa.DateTime),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["preemption_plans.id"],
            name=op.f("fk_preemption_victims_plan_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_preemption_victims_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("plan_id", "session_id", name=op.f("pk_preemption_victims")),
    )
    op.create_index(op.f("ix_preemption_victims_session_id"), "preemption_victims", ["session_id"])
