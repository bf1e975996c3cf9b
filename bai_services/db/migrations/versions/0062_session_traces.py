"""Trace context of sessions.

Follows 0061; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0062"
down_revision = "0061"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("trace", sa.String(55), nullable=True))
