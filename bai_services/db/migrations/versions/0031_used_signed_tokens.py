"""Signed tokens of other sites that have been used.

Each token signs a user in only once, even across a restart of the manager.

Follows 0030; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "used_signed_tokens",
        sa.Column("token_hash", sa.String(64), primary_key=True),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
    )
    op.create_index("ix_used_signed_tokens_expires_at", "used_signed_tokens", ["expires_at"])
