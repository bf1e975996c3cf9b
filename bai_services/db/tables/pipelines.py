"""Pipelines, their versions, runs, task runs, schedules, triggers and templates."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata, version

pipelines = sa.Table(
    "pipelines",
    metadata,
    identity(),
    created_at(),
    version(),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    # user:ID or project:ID.
    sa.Column("scope", sa.String(80), nullable=False),
    # NULL: the pipeline belongs to its project.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE")),
    # The role of the user who has saved the definition.
    sa.Column("author_role", sa.String(16), nullable=False),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    # The folder at /pipeline; NULL after it was removed.
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="SET NULL")),
    # The YAML text, and the result of ``PipelineDefinition.as_json``.
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("parsed", sa.JSON, nullable=False),
    sa.Column("tasks", sa.Integer, nullable=False),
    sa.Column("max_concurrent_runs", sa.Integer, nullable=False),
    sa.Column("last_run_id", sa.String(64)),
    sa.UniqueConstraint("scope", "name"),
    sa.Index("ix_pipelines_owner_id", "owner_id"),
    sa.Index("ix_pipelines_project_id", "project_id"),
    sa.Index("ix_pipelines_vfolder_id", "vfolder_id"),
)

pipeline_versions = sa.Table(
    "pipeline_versions",
    metadata,
    sa.Column("pipeline_id", sa.ForeignKey("pipelines.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    created_at(),
    sa.Column("definition", sa.Text, nullable=False),
)

pipeline_runs = sa.Table(
    "pipeline_runs",
    metadata,
    identity(),
    created_at(),
    sa.Column("pipeline_id", sa.ForeignKey("pipelines.id", ondelete="CASCADE"), nullable=False),
    sa.Column("pipeline_version", sa.Integer, nullable=False),
    # The user who has started the run; its sessions use this user's quota.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),  # see RunStatus
    # The schedule or trigger that has created the run, "" if a user has created it.
    sa.Column("cause", sa.String(80), nullable=False, server_default=""),
    # Copies: later changes of the pipeline do not affect its runs.
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("parsed", sa.JSON, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("tasks", sa.Integer, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    # Set by requests that the next step of the runner processes.
    sa.Column("is_due", sa.Boolean, nullable=False),
    # The run has ended, and the triggers of other pipelines have not processed its end yet.
    sa.Column("fires_triggers", sa.Boolean, nullable=False, server_default="0"),
    sa.Index("ix_pipeline_runs_status", "status", "created_at"),
    sa.Index("ix_pipeline_runs_pipeline_id", "pipeline_id", "created_at"),
    sa.Index("ix_pipeline_runs_owner_id", "owner_id", "status"),
    sa.Index(
        "ix_pipeline_runs_fires_triggers",
        "ended_at",
        sqlite_where=sa.text("fires_triggers"),
        postgresql_where=sa.text("fires_triggers"),
    ),
)

pipeline_tasks = sa.Table(
    "pipeline_tasks",
    metadata,
    sa.Column("run_id", sa.ForeignKey("pipeline_runs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("task", sa.String(64), primary_key=True),
    # Index of the mapped value, 0 without a map.
    sa.Column("item_index", sa.Integer, primary_key=True),
    # Position in topological order.
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("status", sa.String(24), nullable=False),  # see TaskStatus
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("retry_at", UtcDateTime),
    sa.Column("message", sa.Text, nullable=False),
    # The outputs were taken from the cache.
    sa.Column("is_cached", sa.Boolean, nullable=False, server_default="0"),
    # The session of the last attempt. No foreign key: it is stored before the session is created.
    sa.Column("session_id", sa.String(64)),
    sa.Column("queued_at", UtcDateTime),
    sa.Column("started_at", UtcDateTime),
    sa.Column("ended_at", UtcDateTime),
    sa.Index("ix_pipeline_tasks_status", "status"),
    sa.Index("ix_pipeline_tasks_session_id", "session_id"),
)

pipeline_schedules = sa.Table(
    "pipeline_schedules",
    metadata,
    identity(),
    created_at(),
    version(),
    sa.Column("pipeline_id", sa.ForeignKey("pipelines.id", ondelete="CASCADE"), nullable=False),
    # The user who owns the created runs.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    # Either a rule in the time zone, or an interval that begins at ``anchor_at``.
    sa.Column("start", sa.String(200)),
    sa.Column("every_minutes", sa.Integer),
    sa.Column("time_zone", sa.String(64), nullable=False),
    sa.Column("anchor_at", UtcDateTime, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("catch_up", sa.String(16), nullable=False),  # see CatchUp
    sa.Column("is_paused", sa.Boolean, nullable=False),
    # NULL: the schedule is paused, or has no further start.
    sa.Column("next_start_at", UtcDateTime, index=True),
    sa.Column("last_start_at", UtcDateTime),
    sa.Column("last_run_id", sa.String(64)),
    sa.Column("last_message", sa.Text, nullable=False),
    sa.UniqueConstraint("pipeline_id", "name"),
)

pipeline_triggers = sa.Table(
    "pipeline_triggers",
    metadata,
    identity(),
    created_at(),
    sa.Column("pipeline_id", sa.ForeignKey("pipelines.id", ondelete="CASCADE"), nullable=False),
    # The user who owns the created runs.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False, server_default="webhook"),  # see TriggerKind
    # The key of the signatures, encrypted with the manager's key; "" for other kinds.
    sa.Column("secret_encrypted", sa.Text, nullable=False),
    # The watched folder; NULL after it was removed, and for other kinds.
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="SET NULL")),
    sa.Column("pattern", sa.String(255), nullable=False, server_default=""),
    # The pipeline whose runs fire the trigger.
    sa.Column("source_id", sa.ForeignKey("pipelines.id", ondelete="CASCADE")),
    sa.Column("result", sa.String(16), nullable=False, server_default=""),  # see RunResult
    # Parameters of the runs, with references to values of the event.
    sa.Column("parameters", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("is_enabled", sa.Boolean, nullable=False),
    sa.Column("last_call_at", UtcDateTime),
    sa.Column("last_run_id", sa.String(64)),
    sa.Column("last_message", sa.Text, nullable=False),
    sa.UniqueConstraint("pipeline_id", "name"),
    sa.Index("ix_pipeline_triggers_source_id", "source_id"),
    sa.Index("ix_pipeline_triggers_vfolder_id", "vfolder_id"),
)

# The files of a folder that match the pattern of a trigger.
pipeline_trigger_files = sa.Table(
    "pipeline_trigger_files",
    metadata,
    sa.Column(
        "trigger_id", sa.ForeignKey("pipeline_triggers.id", ondelete="CASCADE"), primary_key=True
    ),
    # SHA-256 of the path, because indexes limit the length of their values.
    sa.Column("path_hash", sa.String(64), primary_key=True),
    sa.Column("path", sa.Text, nullable=False),
    # The id of the run of the file, stored before the run; NULL: the file is older than the
    # trigger.
    sa.Column("run_id", sa.String(64)),
    sa.Column("is_fired", sa.Boolean, nullable=False),
)

pipeline_templates = sa.Table(
    "pipeline_templates",
    metadata,
    identity(),
    created_at(),
    # user:ID or project:ID.
    sa.Column("scope", sa.String(80), nullable=False),
    # NULL: the template belongs to its project.
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE")),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("tasks", sa.Integer, nullable=False),
    sa.UniqueConstraint("scope", "name"),
    sa.Index("ix_pipeline_templates_owner_id", "owner_id"),
    sa.Index("ix_pipeline_templates_project_id", "project_id"),
)
