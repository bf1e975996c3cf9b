"""Tags of endpoints, and the phases of their replicas.

Follows 0050; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import UtcDateTime

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.add_column(sa.Column("tags", sa.Text(), server_default="", nullable=False))
    op.create_table(
        "endpoint_replica_changes",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column(
            "replica_id",
            sa.String(64),
            sa.ForeignKey(
                "endpoint_replicas.id",
                ondelete="CASCADE",
            ),
            nullable=False,
        ),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("reason", sa.JSON(none_as_null=True)),
    )
    op.create_index(
        "ix_endpoint_replica_changes_replica_id", "endpoint_replica_changes", ["replica_id", "id"]
    )
