"""Triggers by files and by other pipelines; templates of pipelines; tasks from the cache.

Follows 0064; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0064"


def upgrade() -> None:
    op.add_column(
        "pipeline_tasks", sa.Column("is_cached", sa.Boolean, nullable=False, server_default="0")
    )


def downgrade() -> None:
    with op.batch_alter_table("pipeline_tasks", schema=None) as batch_op:
        batch_op.drop_column("is_cached")
