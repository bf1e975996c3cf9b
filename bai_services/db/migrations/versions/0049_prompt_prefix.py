"""Choice of a replica by the beginning of the prompt.

Follows 0048; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("prefix_characters", sa.Integer(), server_default="0", nullable=False)
        )
