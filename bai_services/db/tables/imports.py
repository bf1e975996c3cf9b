"""Imports of repositories, archives and files into folders."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

folder_imports = sa.Table(
    "folder_imports",
    metadata,
    identity(),
    created_at(),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    # NULL after the folder was removed.
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="SET NULL")),
    sa.Column("folder", sa.String(64), nullable=False),
    # Whether the import has created the folder.
    sa.Column("is_new_folder", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("directory", sa.Text, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("branch", sa.String(128), nullable=False),
    sa.Column("commit_id", sa.String(64), nullable=False),
    sa.Column("open_path", sa.Text, nullable=False),
    # Encrypted; removed when the import ends.
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("total_files", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("total_bytes", sa.BigInteger, nullable=False),
    sa.Column("skipped", sa.JSON, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    # ``CodedText`` of the problem; NULL if its text has no code.
    sa.Column("problem_coded", sa.JSON(none_as_null=True)),
    sa.Index("ix_folder_imports_status", "status", "created_at"),
    sa.Index("ix_folder_imports_owner_id", "owner_id"),
)
