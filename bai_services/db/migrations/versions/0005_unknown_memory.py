"""Unknown memory of a device is NULL instead of zero.

Follows 0004; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # SQLite cannot make a column nullable without recreating the table. Therefore add a nullable
    # column, copy the values and give it the old name.
    op.add_column("devices", sa.Column("known_bytes", sa.BigInteger))
    op.execute("UPDATE devices SET known_bytes = NULLIF(memory_bytes, 0)")
    op.drop_column("devices", "memory_bytes")
    op.alter_column("devices", "known_bytes", new_column_name="memory_bytes")
