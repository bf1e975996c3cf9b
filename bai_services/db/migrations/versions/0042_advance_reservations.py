"""Advance reservations.

Follows 0041; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    op.create_table(
        "advance_reservations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("resources", sa.JSON, nullable=False),
        sa.Column("agents", sa.JSON, nullable=False),
        sa.Column("user_ids", sa.JSON, nullable=False),
        sa.Column("starts_at", sa.DateTime, nullable=False),
        sa.Column("ends_at", sa.DateTime, nullable=False),
        sa.Column("grace_seconds", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("note", sa.String(255), nullable=False),
        sa.Column("author_id", sa.String(64), nullable=False),
        sa.Column("author", sa.String(64), nullable=False),
        sa.Column("decided_by", sa.String(64), nullable=False),
        sa.Column("used_at", sa.DateTime),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_advance_reservations_project_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["resource_group"],
            ["resource_groups.name"],
            name=op.f("fk_advance_reservations_resource_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_advance_reservations")),
    )
    op.create_index(
        op.f("ix_advance_reservations_project_id"), "advance_reservations", ["project_id"]
    )
    op.create_index("ix_advance_reservations_state", "advance_reservations", ["state", "ends_at"])
