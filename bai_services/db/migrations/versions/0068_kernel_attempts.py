"""The output of the earlier attempts of restarted sessions.

Follows 0067; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0068"
down_revision = "0067"


def upgrade() -> None:
    op.create_table(
        "kernel_attempts",
        sa.Column("kernel_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("agent_id", sa.String(64)),
        sa.Column("ended_at", sa.DateTime, nullable=False),
        sa.Column("reason", sa.String(1024), nullable=False),
        sa.Column("log", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["kernel_id"],
            ["kernels.id"],
            name=op.f("fk_kernel_attempts_kernel_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("kernel_id", "attempt", name=op.f("pk_kernel_attempts")),
    )
