"""Separate indexes for allocations that are in use and for released ones.

With one index of all ``freed_at``, SQLite reads all live allocations to find those of one session.

Follows 0049; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"


def upgrade() -> None:
    for name, column, condition in (
        ("ix_allocations_live", "agent_id", sa.text("freed_at IS NULL")),
        ("ix_allocations_freed_at", "freed_at", sa.text("freed_at IS NOT NULL")),
    ):
        op.drop_index(name, "allocations")
        op.create_index(
            name, "allocations", [column], sqlite_where=condition, postgresql_where=condition
        )
