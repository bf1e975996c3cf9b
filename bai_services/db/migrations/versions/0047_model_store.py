"""Model store: cards of models, imports of models, and whether members may import.

Follows 0046; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"

_CARD_TEXTS = (
    "name", "title", "version", "author", "task", "category", "architecture", "license", "created",
    "last_modified",
)  # fmt: skip


def upgrade() -> None:
    op.add_column(
        "project_policies",
        sa.Column("allows_member_imports", sa.Boolean(), nullable=False, server_default="0"),
    )
    op.create_table(
        "model_cards",
        sa.Column("vfolder_id", sa.String(64), nullable=False),
        sa.Column("refreshed_at", sa.DateTime, nullable=False),
        sa.Column("etag", sa.String(255), nullable=False),
        *(sa.Column(name, sa.String(255), nullable=False) for name in _CARD_TEXTS),
        sa.Column("is_latest", sa.Boolean, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("frameworks", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("min_resources", sa.Text, nullable=False),
        sa.Column("has_command", sa.Boolean, nullable=False),
        sa.Column("readme", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("problem_line", sa.Integer),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_model_cards_vfolder_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("vfolder_id", name=op.f("pk_model_cards")),
    )
    op.create_table(
        "model_imports",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("vfolder_id", sa.String(64)),
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
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_model_imports_project_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
            name=op.f("fk_model_imports_owner_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_model_imports_vfolder_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_imports")),
    )
    op.create_index("ix_model_imports_status", "model_imports", ["status", "created_at"])
    op.create_index("ix_model_imports_project_id", "model_imports", ["project_id"])
    op.create_index("ix_model_imports_owner_id", "model_imports", ["owner_id"])


def downgrade() -> None:
    op.drop_table("model_imports")
    op.drop_table("model_cards")
    with op.batch_alter_table("project_policies", schema=None) as batch_op:
        batch_op.drop_column("allows_member_imports")
