"""Shares of session apps, with limits in the owner's policy.

Follows 0008; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

INDEXED = ("session_id", "user_id", "project_id", "expires_at")


def upgrade() -> None:
    op.add_column(
        "user_policies",
        sa.Column("app_sharing", sa.String(length=16), nullable=False, server_default="none"),
    )
    op.add_column(
        "user_policies",
        sa.Column("max_app_share_seconds", sa.Integer(), nullable=False, server_default="2592000"),
    )
    op.create_table(
        "app_shares",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("app", sa.String(length=64), nullable=False),
        sa.Column("audience", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=True),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("allowed_addresses", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        *(
            sa.ForeignKeyConstraint(
                [f"{name}_id"],
                [f"{name}s.id"],
                name=op.f(f"fk_app_shares_{name}_id"),
                ondelete="CASCADE",
            )
            for name in ("session", "user", "project")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_shares")),
    )
    for name in INDEXED:
        op.create_index(op.f(f"ix_app_shares_{name}"), "app_shares", [name])
