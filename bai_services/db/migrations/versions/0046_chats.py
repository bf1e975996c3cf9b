"""Chats with endpoints, and the tokens of the chat page.

Follows 0045; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    op.create_table(
        "chats",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("user_id", sa.String(64), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.Column("title", sa.String(100), nullable=False),
        sa.Column("messages", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("cards", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_chats_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chats")),
    )
    op.create_index("ix_chats_user_id", "chats", ["user_id", "updated_at"])
    op.create_index("ix_chats_updated_at", "chats", ["updated_at"])
    with op.batch_alter_table("endpoint_tokens", schema=None) as batch_op:
        batch_op.add_column(sa.Column("user_id", sa.String(64)))
        batch_op.create_foreign_key(
            op.f("fk_endpoint_tokens_user_id"), "users", ["user_id"], ["id"], ondelete="CASCADE"
        )
        batch_op.create_index("ix_endpoint_tokens_user_id", ["user_id", "endpoint_id"])


def downgrade() -> None:
    with op.batch_alter_table("endpoint_tokens", schema=None) as batch_op:
        batch_op.drop_index("ix_endpoint_tokens_user_id")
        batch_op.drop_constraint(op.f("fk_endpoint_tokens_user_id"), type_="foreignkey")
        batch_op.drop_column("user_id")
    op.drop_table("chats")
