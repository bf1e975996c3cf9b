"""Invitations and credentials of agents, and their checks.

Follows 0053; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    op.create_table(
        "agent_invitations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.DateTime, nullable=False),
        sa.Column("used_at", sa.DateTime),
        sa.Column("agent_id", sa.String(64)),
        sa.ForeignKeyConstraint(
            ["resource_group"],
            ["resource_groups.name"],
            name=op.f("fk_agent_invitations_resource_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_invitations")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_agent_invitations_token_hash")),
    )
    op.create_index(
        op.f("ix_agent_invitations_resource_group"), "agent_invitations", ["resource_group"]
    )
    op.create_table(
        "agent_credentials",
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("invitation_id", sa.String(64), nullable=False),
        sa.Column("resource_group", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_credentials")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_agent_credentials_token_hash")),
    )
    op.create_table(
        "agent_checks",
        sa.Column("agent_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("result", sa.JSON),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_checks_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent_checks")),
    )


def downgrade() -> None:
    op.drop_table("agent_checks")
    op.drop_table("agent_credentials")
    op.drop_table("agent_invitations")
