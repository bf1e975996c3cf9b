"""Pipelines, their versions, runs and task runs.

Follows 0051; created 2026-11-26.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    op.create_table(
        "pipelines",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        sa.Column("changed_at", sa.DateTime, nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vfolder_id", sa.String(64)),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("parsed", sa.JSON, nullable=False),
        sa.Column("tasks", sa.Integer, nullable=False),
        sa.Column("max_concurrent_runs", sa.Integer, nullable=False),
        sa.Column("last_run_id", sa.String(64)),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["users.id"], name=op.f("fk_pipelines_owner_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_pipelines_project_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_pipelines_vfolder_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipelines")),
        sa.UniqueConstraint("owner_id", "name", name=op.f("uq_pipelines_owner_id_name")),
    )
    op.create_index("ix_pipelines_project_id", "pipelines", ["project_id"])
    op.create_index("ix_pipelines_vfolder_id", "pipelines", ["vfolder_id"])
    op.create_table(
        "pipeline_versions",
        sa.Column("pipeline_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"],
            ["pipelines.id"],
            name=op.f("fk_pipeline_versions_pipeline_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("pipeline_id", "version", name=op.f("pk_pipeline_versions")),
    )
    op.create_table(
        "pipeline_runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("pipeline_id", sa.String(64), nullable=False),
        sa.Column("pipeline_version", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("parsed", sa.JSON, nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("tasks", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("is_due", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(
            ["pipeline_id"],
            ["pipelines.id"],
            name=op.f("fk_pipeline_runs_pipeline_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_runs")),
    )
    op.create_index("ix_pipeline_runs_status", "pipeline_runs", ["status", "created_at"])
    op.create_index("ix_pipeline_runs_pipeline_id", "pipeline_runs", ["pipeline_id", "created_at"])
    op.create_table(
        "pipeline_tasks",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("item_index", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("retry_at", sa.DateTime),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("session_id", sa.String(64)),
        sa.Column("queued_at", sa.DateTime),
        sa.Column("started_at", sa.DateTime),
        sa.Column("ended_at", sa.DateTime),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["pipeline_runs.id"],
            name=op.f("fk_pipeline_tasks_run_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "task", "item_index", name=op.f("pk_pipeline_tasks")),
    )
    op.create_index("ix_pipeline_tasks_status", "pipeline_tasks", ["status"])
    op.create_index("ix_pipeline_tasks_session_id", "pipeline_tasks", ["session_id"])


def downgrade() -> None:
    op.drop_table("pipeline_tasks")
    op.drop_table("pipeline_runs")
    op.drop_table("pipeline_versions")
    op.drop_table("pipelines")
