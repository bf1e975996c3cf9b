"""Names of deleted custom images, whose copies agents remove.

Follows 0070; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0071"
down_revision = "0070"


def upgrade() -> None:
    op.create_table(
        "deleted_custom_images",
        sa.Column("image", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("image", name=op.f("pk_deleted_custom_images")),
    )
