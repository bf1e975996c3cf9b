"""Names of deleted endpoints are reserved for their former owner and project.

Follows 0063; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0064"
down_revision = "0063"


def upgrade() -> None:
    op.create_table(
        "endpoint_names",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("released_at", UtcDateTime()),
    )
    op.create_index("ix_endpoint_names_owner_id", "endpoint_names", ["owner_id"])
    op.execute(
        "INSERT INTO endpoint_names (name, owner_id, project_id) "
        "SELECT name, owner_id, project_id FROM endpoints"
    )
