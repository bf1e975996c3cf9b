"""Custom images, and how many of them users and projects may have.

Follows 0057; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0058"
down_revision = "0057"


def upgrade() -> None:
    op.add_column("user_policies", sa.Column("max_custom_images", sa.Integer, server_default="3"))
    op.add_column("project_policies", sa.Column("max_custom_images", sa.Integer))
    op.create_table(
        "custom_images",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("description", sa.String(512), nullable=False),
        sa.Column("image", sa.String(255), nullable=False),
        sa.Column("image_id", sa.String(64)),
        sa.Column("base_image", sa.String(255), nullable=False),
        sa.Column("architecture", sa.String(32), nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("is_publish_requested", sa.Boolean, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("kernel_id", sa.String(64), nullable=False),
        sa.Column("session_name", sa.String(64), nullable=False),
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("percent", sa.Integer),
        sa.Column("message", sa.String(500), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(128), nullable=False),
        sa.ForeignKeyConstraint(
            ["image_id"],
            ["images.id"],
            name=op.f("fk_custom_images_image_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_custom_images_owner_id")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_custom_images_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_custom_images")),
    )
    for column in ("image_id", "owner_id", "project_id", "status"):
        op.create_index(op.f(f"ix_custom_images_{column}"), "custom_images", [column])
