"""Load of endpoints over time; latency of a revision during its rollout; trials of definitions.

Follows 0047; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    with op.batch_alter_table("endpoint_revisions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("latency_ms", sa.JSON()))
        batch_op.add_column(sa.Column("observed_at", sa.DateTime()))
    op.create_table(
        "endpoint_loads",
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("load", sa.Float),
        sa.Column("replicas", sa.Integer, nullable=False),
        sa.Column("ready", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["endpoints.id"],
            name=op.f("fk_endpoint_loads_endpoint_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("endpoint_id", "at", name=op.f("pk_endpoint_loads")),
    )
    op.create_index("ix_endpoint_loads_at", "endpoint_loads", ["at"])
    op.create_table(
        "endpoint_trials",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("url", sa.String(255), nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("is_healthy", sa.Boolean),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("log", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["users.id"], name=op.f("fk_endpoint_trials_owner_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint_trials")),
    )
    op.create_index("ix_endpoint_trials_owner_id", "endpoint_trials", ["owner_id"])
    op.create_index("ix_endpoint_trials_ended_at", "endpoint_trials", ["ended_at"])


def downgrade() -> None:
    op.drop_table("endpoint_trials")
    op.drop_table("endpoint_loads")
    with op.batch_alter_table("endpoint_revisions", schema=None) as batch_op:
        batch_op.drop_column("observed_at")
        batch_op.drop_column("latency_ms")
