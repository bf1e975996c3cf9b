"""Kernels that their agent stops when it cannot reach the manager.

Follows 0065; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0066"
down_revision = "0065"


def upgrade() -> None:
    op.add_column("kernels", sa.Column("fence_seconds", sa.Integer()))
