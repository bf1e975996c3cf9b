"""Owners may extend the lifetime of their sessions, up to a limit of the keypair policy.

Follows 0006; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    for table, column in (
        ("keypair_policies", "max_lifetime_extension_seconds"),
        ("sessions", "lifetime_extension_seconds"),
    ):
        op.add_column(table, sa.Column(column, sa.Integer(), nullable=False, server_default="0"))
