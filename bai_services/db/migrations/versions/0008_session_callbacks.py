"""Callback URLs of sessions, and the delivery state of their callbacks.

Follows 0007; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "session_callbacks",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("told_id", sa.BigInteger(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(), nullable=False),
        sa.Column("delivered", sa.Integer(), nullable=False),
        sa.Column("given_up", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.DateTime(), nullable=True),
        sa.Column("last_error", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_callbacks_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_session_callbacks")),
    )
    op.create_index("ix_session_callbacks_due", "session_callbacks", ["is_open", "next_at"])
    op.add_column("sessions", sa.Column("callback_url", sa.String(length=2048), nullable=True))
