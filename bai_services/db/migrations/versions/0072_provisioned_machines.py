"""Machines that the provisioning command has started.

Follows 0071; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bai_services.db.tables.base import Slots, UtcDateTime

revision = "0072"
down_revision = "0071"


def upgrade() -> None:
    op.create_table(
        "provisioned_machines",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_changed_at", UtcDateTime(), nullable=False),
        sa.Column("slots", Slots(), nullable=False),
        sa.Column("reference", sa.String(255), nullable=False),
        sa.Column("invitation_id", sa.String(64)),
        sa.Column("agent_id", sa.String(64)),
        sa.Column("joined_at", UtcDateTime()),
        sa.Column("idle_since", UtcDateTime()),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("message", sa.String(500), nullable=False),
    )
    op.create_index("ix_provisioned_machines_status", "provisioned_machines", ["status"])
