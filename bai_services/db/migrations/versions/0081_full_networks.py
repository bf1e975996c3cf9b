"""Agents without a free subnet for networks of sessions.

Follows 0080; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0081"
down_revision = "0080"


def upgrade() -> None:
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("is_network_full", sa.Boolean(), nullable=False, server_default=sa.false())
        )
