"""Resizes of running sessions, and elastic sessions.

Follows 0040; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.create_table(
        "session_resizes",
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("previous", sa.JSON, nullable=False),
        sa.Column("requested", sa.JSON, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("requested_at", sa.DateTime, nullable=False),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("message", sa.String(1024), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_resizes_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_session_resizes")),
    )
    op.create_index("ix_session_resizes_state", "session_resizes", ["state"])
    op.create_table(
        "elastic_sessions",
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("minimum", sa.JSON, nullable=False),
        sa.Column("preferred", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_elastic_sessions_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_elastic_sessions")),
    )
