"""Reservations of parts of machines; existing reservations hold whole machines.

Follows 0059; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0060"
down_revision = "0059"


def upgrade() -> None:
    op.add_column(
        "advance_reservations",
        sa.Column("whole_machines", sa.Boolean(), nullable=False, server_default="1"),
    )
