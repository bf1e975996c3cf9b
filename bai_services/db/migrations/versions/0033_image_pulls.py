"""Pulls of images to agents, and the digest of an image in its registry.

Follows 0032; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.add_column(
        "images",
        sa.Column("registry_digest", sa.String(128), nullable=False, server_default=""),
    )
    op.create_table(
        "image_pulls",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("image_id", sa.String(64), nullable=False),
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("percent", sa.Integer),
        sa.Column("message", sa.String(500), nullable=False),
        sa.Column("requested_by", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_pulls_image_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_image_pulls_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_image_pulls")),
        sa.UniqueConstraint("image_id", "agent_id", name=op.f("uq_image_pulls_image_id_agent_id")),
    )
    op.create_index(op.f("ix_image_pulls_agent_id"), "image_pulls", ["agent_id"])
