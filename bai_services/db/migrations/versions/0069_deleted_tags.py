"""Images whose tags were deleted in the registry, and removal of unused images from agents.

Follows 0068; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0069"
down_revision = "0068"


def upgrade() -> None:
    problem = sa.Column("registry_problem", sa.String(255), nullable=False, server_default="")
    op.add_column("images", problem)
    removed = sa.Column("scan_removed", sa.Integer(), nullable=False, server_default="0")
    op.add_column("image_registries", removed)
    op.create_table(
        "image_prunes",
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_image_prunes_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_image_prunes")),
    )
