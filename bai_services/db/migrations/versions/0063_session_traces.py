"""Trace context of sessions.

Follows 0059; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0063"
down_revision = "0059"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("trace", sa.String(55), nullable=True))
