"""Rules of projects by which pending sessions move to another resource group.

Follows 0066; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0067"
down_revision = "0066"


def upgrade() -> None:
    op.create_table(
        "overflow_rules",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column(
            "project_id",
            sa.String(64),
            sa.ForeignKey("projects.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column(
            "from_group",
            sa.String(64),
            sa.ForeignKey("resource_groups.name", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column(
            "to_group",
            sa.String(64),
            sa.ForeignKey("resource_groups.name", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("after_seconds", sa.Integer(), nullable=False),
        sa.UniqueConstraint("project_id", "from_group", "to_group"),
    )
