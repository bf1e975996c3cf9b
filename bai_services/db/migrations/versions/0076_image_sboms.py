"""Requests to agents to read the SBOMs of images.

Follows 0075; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0076"
down_revision = "0075"


def upgrade() -> None:
    op.create_table(
        "image_sboms",
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_image_sboms_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_image_sboms")),
    )
