"""Autoscaling of endpoints; requests of a revision during its rollout.

Follows 0044; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.add_column(sa.Column("scaling", sa.JSON()))
        batch_op.add_column(sa.Column("scaling_reason", sa.JSON()))
    with op.batch_alter_table("endpoint_revisions", schema=None) as batch_op:
        for name in ("requests", "errors"):
            batch_op.add_column(
                sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
            )
    op.create_table(
        "endpoint_scalings",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("former", sa.Integer, nullable=False),
        sa.Column("replicas", sa.Integer, nullable=False),
        sa.Column("reason", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["endpoints.id"],
            name=op.f("fk_endpoint_scalings_endpoint_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoint_scalings")),
    )
    op.create_index(
        "ix_endpoint_scalings_endpoint_id", "endpoint_scalings", ["endpoint_id", "created_at"]
    )
    op.create_table(
        "gateway_loads",
        sa.Column("gateway_id", sa.String(64), nullable=False),
        sa.Column("endpoint_id", sa.String(64), nullable=False),
        sa.Column("load", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["gateway_id"],
            ["gateways.id"],
            name=op.f("fk_gateway_loads_gateway_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("gateway_id", "endpoint_id", name=op.f("pk_gateway_loads")),
    )


def downgrade() -> None:
    op.drop_table("gateway_loads")
    op.drop_table("endpoint_scalings")
    with op.batch_alter_table("endpoint_revisions", schema=None) as batch_op:
        batch_op.drop_column("errors")
        batch_op.drop_column("requests")
    with op.batch_alter_table("endpoints", schema=None) as batch_op:
        batch_op.drop_column("scaling_reason")
        batch_op.drop_column("scaling")
