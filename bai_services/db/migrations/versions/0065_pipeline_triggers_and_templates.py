"""Triggers by files and by other pipelines; templates of pipelines; tasks from the cache.

Follows 0064; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0064"


def upgrade() -> None:
    op.add_column(
        "pipeline_tasks", sa.Column("is_cached", sa.Boolean, nullable=False, server_default="0")
    )

    op.add_column(
        "pipeline_runs", sa.Column("fires_triggers", sa.Boolean, nullable=False, server_default="0")
    )
    op.create_index(
        "ix_pipeline_runs_fires_triggers",
        "pipeline_runs",
        ["ended_at"],
        sqlite_where=sa.text("fires_triggers"),
        postgresql_where=sa.text("fires_triggers"),
    )
    for column in (
        sa.Column("kind", sa.String(16), nullable=False, server_default="webhook"),
        sa.Column("vfolder_id", sa.String(64)),
        sa.Column("pattern", sa.String(255), nullable=False, server_default=""),
        sa.Column("source_id", sa.String(64)),
        sa.Column("result", sa.String(16), nullable=False, server_default=""),
        sa.Column("parameters", sa.JSON, nullable=False, server_default="{}"),
    ):
        op.add_column("pipeline_triggers", column)
    with op.batch_alter_table("pipeline_triggers", schema=None) as batch_op:
        batch_op.create_foreign_key(
            op.f("fk_pipeline_triggers_vfolder_id"),
            "vfolders",
            ["vfolder_id"],
            ["id"],
            ondelete="SET NULL",
        )
        batch_op.create_foreign_key(
            op.f("fk_pipeline_triggers_source_id"),
            "pipelines",
            ["source_id"],
            ["id"],
            ondelete="CASCADE",
        )
        batch_op.create_index("ix_pipeline_triggers_source_id", ["source_id"])
        batch_op.create_index("ix_pipeline_triggers_vfolder_id", ["vfolder_id"])
    op.create_table(
        "pipeline_trigger_files",
        sa.Column("trigger_id", sa.String(64), nullable=False),
        sa.Column("path_hash", sa.String(64), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("is_fired", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(
            ["trigger_id"],
            ["pipeline_triggers.id"],
            name=op.f("fk_pipeline_trigger_files_trigger_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("trigger_id", "path_hash", name=op.f("pk_pipeline_trigger_files")),
    )
    op.create_table(
        "pipeline_templates",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("scope", sa.String(80), nullable=False),
        sa.Column("owner_id", sa.String(64)),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("tasks", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
            name=op.f("fk_pipeline_templates_owner_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_pipeline_templates_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_templates")),
        sa.UniqueConstraint("scope", "name", name=op.f("uq_pipeline_templates_scope_name")),
    )
    for name in ("owner_id", "project_id"):
        op.create_index(f"ix_pipeline_templates_{name}", "pipeline_templates", [name])


def downgrade() -> None:
    op.drop_table("pipeline_templates")
    op.drop_table("pipeline_trigger_files")
    op.execute("DELETE FROM pipeline_triggers WHERE kind <> 'webhook'")
    with op.batch_alter_table("pipeline_triggers", schema=None) as batch_op:
        batch_op.drop_index("ix_pipeline_triggers_vfolder_id")
        batch_op.drop_index("ix_pipeline_triggers_source_id")
        batch_op.drop_constraint(op.f("fk_pipeline_triggers_source_id"), type_="foreignkey")
        batch_op.drop_constraint(op.f("fk_pipeline_triggers_vfolder_id"), type_="foreignkey")
        for name in ("kind", "vfolder_id", "pattern", "source_id", "result", "parameters"):
            batch_op.drop_column(name)
    op.drop_index("ix_pipeline_runs_fires_triggers", "pipeline_runs")
    with op.batch_alter_table("pipeline_runs", schema=None) as batch_op:
        batch_op.drop_column("fires_triggers")
    with op.batch_alter_table("pipeline_tasks", schema=None) as batch_op:
        batch_op.drop_column("is_cached")
