"""Add a table of used entry tokens of app shares.

With this table, a token is accepted only once, even after a restart of the manager.

Follows 0016; created 2026-11-23.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "used_entry_tokens",
        sa.Column("nonce", sa.String(64), primary_key=True),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
    )
    op.create_index("ix_used_entry_tokens_expires_at", "used_entry_tokens", ["expires_at"])
