"""Reasons as codes with values, in addition to their English texts.

Follows 0020; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("status_coded", sa.JSON))
    op.add_column("status_history", sa.Column("reason_coded", sa.JSON))
