"""Time since which a binding of an idle checker is effective; expected ends of sessions.

Follows 0078; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0079"
down_revision = "0078"


def upgrade() -> None:
    op.add_column("idle_checker_bindings", sa.Column("effective_at", UtcDateTime()))
    op.add_column("session_idle_checks", sa.Column("expected_ends_at", UtcDateTime()))
