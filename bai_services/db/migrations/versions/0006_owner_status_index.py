"""Index for a user's sessions in one status.

Follows 0005; created 2026-11-21.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.drop_index("ix_sessions_status", table_name="sessions")
    op.create_index("ix_sessions_status_owner", "sessions", ["status", "owner_id", "created_at"])
