"""Model cards of the model store, and imports of models."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

# Metadata from the files of each folder of a model-store project, so that lists read no files.
model_cards = sa.Table(
    "model_cards",
    metadata,
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("refreshed_at", UtcDateTime, nullable=False),
    # ETags of the files that were read.
    sa.Column("etag", sa.String(255), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("title", sa.String(255), nullable=False),
    sa.Column("version", sa.String(255), nullable=False),
    sa.Column("is_latest", sa.Boolean, nullable=False),
    sa.Column("author", sa.String(255), nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("task", sa.String(255), nullable=False),
    sa.Column("category", sa.String(255), nullable=False),
    sa.Column("architecture", sa.String(255), nullable=False),
    sa.Column("license", sa.String(255), nullable=False),
    sa.Column("created", sa.String(255), nullable=False),
    sa.Column("last_modified", sa.String(255), nullable=False),
    # Comma-separated values, with a comma also at both ends.
    sa.Column("frameworks", sa.Text, nullable=False),
    sa.Column("labels", sa.Text, nullable=False),
    # Format: see ``resources_text`` in core/models/cards.py.
    sa.Column("min_resources", sa.Text, nullable=False),
    sa.Column("has_command", sa.Boolean, nullable=False),
    sa.Column("readme", sa.Text, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("problem_line", sa.Integer),
)

model_imports = sa.Table(
    "model_imports",
    metadata,
    identity(),
    created_at(),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    # NULL until the import is approved, and after its folder was removed.
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="SET NULL")),
    sa.Column("folder", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("revision", sa.String(128), nullable=False),
    sa.Column("commit_id", sa.String(64), nullable=False),
    sa.Column("patterns", sa.JSON, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("total_files", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("total_bytes", sa.BigInteger, nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    # ``CodedText`` of the problem; NULL if its text has no code.
    sa.Column("problem_coded", sa.JSON(none_as_null=True)),
    # When the folder of a failed import is deleted; NULL: at once.
    sa.Column("kept_until", UtcDateTime),
    sa.Index("ix_model_imports_status", "status", "created_at"),
    sa.Index("ix_model_imports_project_id", "project_id"),
    sa.Index("ix_model_imports_owner_id", "owner_id"),
)
