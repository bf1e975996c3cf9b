"""Imports of repositories, archives and files into folders.

Follows 0052; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    op.create_table(
        "folder_imports",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("vfolder_id", sa.String(64)),
        sa.Column("folder", sa.String(64), nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("branch", sa.String(128), nullable=False),
        sa.Column("commit_id", sa.String(64), nullable=False),
        sa.Column("open_path", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("total_files", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("total_bytes", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.JSON, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
            name=op.f("fk_folder_imports_owner_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_folder_imports_vfolder_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_folder_imports")),
    )
    op.create_index("ix_folder_imports_status", "folder_imports", ["status", "created_at"])
    op.create_index("ix_folder_imports_owner_id", "folder_imports", ["owner_id"])


def downgrade() -> None:
    op.drop_table("folder_imports")
