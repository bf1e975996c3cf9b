"""Pending revocations of browser sign-ins and API tokens at the Hub.

Follows 0015; created 2026-11-22.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("users", sa.Column("tokens_to_end", sa.String(16)))
