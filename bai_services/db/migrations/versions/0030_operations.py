"""Announcements and maintenance.

Follows 0029; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.create_table(
        "announcements",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("title", sa.String(120), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("audience", sa.String(16), nullable=False),
        sa.Column("target", sa.String(64)),
        sa.Column("domain", sa.String(64)),
        sa.Column("project_id", sa.String(64)),
        sa.Column("starts_at", sa.DateTime, nullable=False),
        sa.Column("ends_at", sa.DateTime),
        sa.Column("author", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["domain"],
            ["domains.name"],
            name=op.f("fk_announcements_domain"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_announcements_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_announcements")),
    )
    op.create_index(op.f("ix_announcements_domain"), "announcements", ["domain"])
    op.create_index(op.f("ix_announcements_project_id"), "announcements", ["project_id"])
    op.create_table(
        "announcement_dismissals",
        sa.Column("announcement_id", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["announcement_id"],
            ["announcements.id"],
            name=op.f("fk_announcement_dismissals_announcement_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_announcement_dismissals_user_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "announcement_id", "user_id", name=op.f("pk_announcement_dismissals")
        ),
    )
    op.create_index(
        op.f("ix_announcement_dismissals_user_id"), "announcement_dismissals", ["user_id"]
    )
    op.create_table(
        "maintenances",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("target", sa.String(64)),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(255), nullable=False),
        sa.Column("starts_at", sa.DateTime, nullable=False),
        sa.Column("ends_at", sa.DateTime),
        sa.Column("author", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_maintenances")),
    )
