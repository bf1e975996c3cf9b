"""Pipelines of projects; the user of each run, schedule and trigger.

Follows 0060; created 2026-11-27.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0061"
down_revision = "0060"

_ATTACHED = ("pipeline_runs", "pipeline_schedules", "pipeline_triggers")


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("scope", sa.String(80)))
    op.add_column("pipelines", sa.Column("author_role", sa.String(16)))
    op.execute("UPDATE pipelines SET scope = 'user:' || owner_id, author_role = 'user'")
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.alter_column("scope", existing_type=sa.String(80), nullable=False)
        batch_op.alter_column("author_role", existing_type=sa.String(16), nullable=False)
        batch_op.alter_column("owner_id", existing_type=sa.String(64), nullable=True)
        batch_op.drop_constraint(op.f("uq_pipelines_owner_id_name"), type_="unique")
        batch_op.create_unique_constraint(op.f("uq_pipelines_scope_name"), ["scope", "name"])
        batch_op.create_index("ix_pipelines_owner_id", ["owner_id"])
    for table in _ATTACHED:
        op.add_column(table, sa.Column("owner_id", sa.String(64)))
        op.execute(
            f"UPDATE {table} SET owner_id = (SELECT pipelines.owner_id FROM pipelines "
            f"WHERE pipelines.id = {table}.pipeline_id)"
        )
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.alter_column("owner_id", existing_type=sa.String(64), nullable=False)
            batch_op.create_foreign_key(
                op.f(f"fk_{table}_owner_id"), "users", ["owner_id"], ["id"], ondelete="CASCADE"
            )
    op.create_index("ix_pipeline_runs_owner_id", "pipeline_runs", ["owner_id", "status"])


def downgrade() -> None:
    op.execute("DELETE FROM pipelines WHERE owner_id IS NULL")
    op.drop_index("ix_pipeline_runs_owner_id", "pipeline_runs")
    for table in _ATTACHED:
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_constraint(op.f(f"fk_{table}_owner_id"), type_="foreignkey")
            batch_op.drop_column("owner_id")
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.drop_index("ix_pipelines_owner_id")
        batch_op.drop_constraint(op.f("uq_pipelines_scope_name"), type_="unique")
        batch_op.create_unique_constraint(op.f("uq_pipelines_owner_id_name"), ["owner_id", "name"])
        batch_op.alter_column("owner_id", existing_type=sa.String(64), nullable=False)
        batch_op.drop_column("author_role")
        batch_op.drop_column("scope")
