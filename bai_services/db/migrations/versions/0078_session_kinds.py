"""Kind of a session in usage records: its type, or a task of a pipeline.

Stored totals get no kind, because they contain sessions of several kinds. Sessions of earlier
attempts of a task count as batch sessions: only the session of the last attempt is known.

Follows 0077; created 2026-11-28.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0078"
down_revision = "0077"


def upgrade() -> None:
    op.add_column(
        "sessions",
        sa.Column("is_pipeline_task", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    for table in ("usage_records", "usage_hours"):
        op.add_column(
            table, sa.Column("session_kind", sa.String(16), nullable=False, server_default="")
        )
    sessions = sa.table(
        "sessions",
        sa.column("id", sa.String),
        sa.column("type", sa.String),
        sa.column("is_pipeline_task", sa.Boolean),
    )
    tasks = sa.table("pipeline_tasks", sa.column("session_id", sa.String))
    records = sa.table(
        "usage_records", sa.column("session_id", sa.String), sa.column("session_kind", sa.String)
    )
    op.execute(
        sessions.update()
        .values(is_pipeline_task=sa.true())
        .where(sa.exists().where(tasks.c.session_id == sessions.c.id))
    )
    kind = sa.case(
        (sessions.c.is_pipeline_task, sa.literal("pipeline-task")), else_=sessions.c.type
    )
    of_session = sa.select(kind).where(sessions.c.id == records.c.session_id).scalar_subquery()
    op.execute(records.update().values(session_kind=sa.func.coalesce(of_session, "")))
