"""Storage hosts that do not work on the machine of an agent.

Follows 0076; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0077"
down_revision = "0076"


def upgrade() -> None:
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("storage_problems", sa.JSON(), nullable=False, server_default="{}")
        )
