"""Limit on the pending sessions of a user, in user policies.

Follows 0011; created 2026-11-22.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0011"


def upgrade() -> None:
    op.add_column(
        "user_policies",
        sa.Column("max_pending_sessions", sa.Integer(), nullable=True, server_default="1000"),
    )
