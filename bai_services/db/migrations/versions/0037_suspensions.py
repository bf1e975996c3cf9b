"""Suspension of sessions.

Follows 0036; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("home_agent_id", sa.String(64)))
    op.create_table(
        "session_suspensions",
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("requested_at", sa.DateTime, nullable=False),
        sa.Column("requested_by", sa.String(64), nullable=False),
        sa.Column("deadline", sa.DateTime, nullable=False),
        sa.Column("keeps_variables", sa.Boolean, nullable=False),
        sa.Column("suspended_at", sa.DateTime),
        sa.Column("expires_at", sa.DateTime),
        sa.Column("resumed_at", sa.DateTime),
        sa.Column("report", sa.JSON),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_suspensions_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_session_suspensions")),
    )
    op.create_index(op.f("ix_session_suspensions_phase"), "session_suspensions", ["phase"])
