"""Add a table of the addresses from which each account has signed in.

After failed sign-ins, further attempts from such an address are delayed instead of blocked.

Follows 0012; created 2026-11-22.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "known_sign_in_addresses",
        sa.Column(
            "user_id",
            sa.String(64),
            sa.ForeignKey("users.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("address", sa.String(64), primary_key=True),
        sa.Column("last_at", sa.DateTime(), nullable=False),
    )
