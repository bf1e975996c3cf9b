"""Storage: unmanaged folders and folder tasks, invitations, and quota scopes.

Follows 0003; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for column in (
        sa.Column("status_info", sa.String(255), nullable=False, server_default=""),
        sa.Column("unmanaged_path", sa.String(1024)),
        sa.Column("source_id", sa.String(64)),
        sa.Column("next_owner_id", sa.String(64)),
        sa.Column("used_files", sa.BigInteger),
        sa.Column("used_bytes", sa.BigInteger),
        sa.Column("counted_at", sa.DateTime),
    ):
        op.add_column("vfolders", column)
    op.create_table(
        "vfolder_invitations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("vfolder_id", sa.String(64), nullable=False),
        sa.Column("invitee_id", sa.String(64), nullable=False),
        sa.Column("inviter_id", sa.String(64), nullable=False),
        sa.Column("inviter", sa.String(64), nullable=False),
        sa.Column("permission", sa.String(2), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_changed_at", sa.DateTime, nullable=False),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_vfolder_invitations_vfolder_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["invitee_id"],
            ["users.id"],
            name=op.f("fk_vfolder_invitations_invitee_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vfolder_invitations")),
    )
    for name in ("vfolder_id", "invitee_id", "inviter_id"):
        op.create_index(op.f(f"ix_vfolder_invitations_{name}"), "vfolder_invitations", [name])
    op.create_table(
        "quota_scopes",
        sa.Column("host", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(80), nullable=False),
        sa.Column("override_bytes", sa.BigInteger),
        sa.Column("enforced_bytes", sa.BigInteger),
        sa.Column("used_bytes", sa.BigInteger),
        sa.Column("counted_at", sa.DateTime),
        sa.PrimaryKeyConstraint("host", "scope", name=op.f("pk_quota_scopes")),
    )
