"""Triggers of pipelines.

Follows 0055; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"


def upgrade() -> None:
    op.create_table(
        "pipeline_triggers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("pipeline_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("secret_encrypted", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("last_call_at", sa.DateTime),
        sa.Column("last_run_id", sa.String(64)),
        sa.Column("last_message", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"],
            ["pipelines.id"],
            name=op.f("fk_pipeline_triggers_pipeline_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_triggers")),
        sa.UniqueConstraint(
            "pipeline_id", "name", name=op.f("uq_pipeline_triggers_pipeline_id_name")
        ),
    )


def downgrade() -> None:
    op.drop_table("pipeline_triggers")
