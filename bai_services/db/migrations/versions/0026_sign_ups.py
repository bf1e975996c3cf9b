"""Invitations to sign up, and sign-ups that await the confirmation of their e-mail address.

Follows 0025; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column(
        "users",
        sa.Column("awaits_approval", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "sign_up_invitations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("description", sa.String(255), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("max_uses", sa.Integer(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["domain"],
            ["domains.name"],
            name=op.f("fk_sign_up_invitations_domain"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_sign_up_invitations_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_up_invitations")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_sign_up_invitations_token_hash")),
    )
    op.create_table(
        "pending_sign_ups",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.Column("token_hash", sa.String(64)),
        sa.Column("username", sa.String(64), nullable=False),
        sa.Column("email", sa.String(64), nullable=False),
        sa.Column("full_name", sa.String(64), nullable=False),
        sa.Column("password_hash", sa.String(255), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("invitation_id", sa.String(64)),
        sa.Column("needs_approval", sa.Boolean(), nullable=False),
        sa.Column("consents", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["domain"],
            ["domains.name"],
            name=op.f("fk_pending_sign_ups_domain"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["invitation_id"],
            ["sign_up_invitations.id"],
            name=op.f("fk_pending_sign_ups_invitation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pending_sign_ups")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_pending_sign_ups_token_hash")),
    )
