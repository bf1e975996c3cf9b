"""Indexes that contain all columns of the sort order of the session list.

Follows 0019; created 2026-11-25.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

OLD = (
    "ix_sessions_created_at",
    "ix_sessions_name",
    "ix_sessions_owner_created",
    "ix_sessions_owner_started",
    "ix_sessions_project_id",
    "ix_sessions_started_at",
    "ix_sessions_status_owner",
)
NEW = {
    "ix_sessions_created_at": ["created_at", "id"],
    "ix_sessions_name": ["name", "created_at", "id"],
    "ix_sessions_owner_created": ["owner_id", "created_at", "id"],
    "ix_sessions_owner_started": ["owner_id", "started_at", "created_at", "id"],
    "ix_sessions_project_created": ["project_id", "created_at", "id"],
    "ix_sessions_started_at": ["started_at", "created_at", "id"],
    "ix_sessions_status_owner": ["status", "owner_id"],
}
OF_LIVE_SESSIONS = {
    "ix_sessions_live": ["created_at", "id"],
    "ix_sessions_live_owner": ["owner_id", "created_at", "id"],
}


def upgrade() -> None:
    for name in OLD:
        op.drop_index(name, table_name="sessions")
    for name, columns in NEW.items():
        op.create_index(name, "sessions", columns)
    is_live = sa.text("live_name IS NOT NULL")
    for name, columns in OF_LIVE_SESSIONS.items():
        op.create_index(name, "sessions", columns, sqlite_where=is_live, postgresql_where=is_live)
