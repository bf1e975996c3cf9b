"""Batch and cluster sessions, templates, queue positions, lease, usage, caps of resource groups.

Follows 0002; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _kinds_of_sessions()
    _session_templates()
    _queue()
    _usage_buckets()
    _caps_of_resource_groups()
    _cluster_sessions()


def _kinds_of_sessions() -> None:
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("startup_command", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("starts_at", sa.DateTime(), nullable=True))
        batch_op.add_column(sa.Column("batch_timeout_seconds", sa.Integer(), nullable=True))


def _session_templates() -> None:
    op.create_table(
        "session_templates",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("scope", sa.String(length=80), nullable=False),
        sa.Column("owner_id", sa.String(length=64), nullable=True),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["domain"],
            ["domains.name"],
            name=op.f("fk_session_templates_domain"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["owner_id"],
            ["users.id"],
            name=op.f("fk_session_templates_owner_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_session_templates_project_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session_templates")),
        sa.UniqueConstraint("scope", "name", name=op.f("uq_session_templates_scope_name")),
    )
    with op.batch_alter_table("session_templates", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_session_templates_owner_id"), ["owner_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_session_templates_project_id"), ["project_id"], unique=False
        )


def _queue() -> None:
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("position", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("estimate", sa.JSON(), nullable=True))
        batch_op.create_index("ix_sessions_owner_started", ["owner_id", "started_at"], unique=False)
    with op.batch_alter_table("allocations", schema=None) as batch_op:
        batch_op.create_index("ix_allocations_freed_at", ["freed_at"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )


def _usage_buckets() -> None:
    op.create_table(
        "usage_buckets",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("resource_group", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_id", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.String(length=64), nullable=False),
        sa.Column("amount_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "day",
            "resource_group",
            "scope",
            "scope_id",
            "slot",
            name=op.f("pk_usage_buckets"),
        ),
    )


def _caps_of_resource_groups() -> None:
    """Add caps of resource groups, and compute the current usage of each group."""
    with op.batch_alter_table("resource_groups", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("total_resource_slots", sa.JSON(), server_default="{}", nullable=False)
        )
        batch_op.add_column(sa.Column("max_concurrent_sessions", sa.Integer(), nullable=True))
    held = "FROM allocations a JOIN sessions s ON a.session_id = s.id WHERE a.freed_at IS NULL"
    op.execute(
        "INSERT INTO scope_usage (scope, scope_id, slot, used) "
        f"SELECT 'resource-group', s.resource_group, a.slot, SUM(a.amount) {held} "
        "GROUP BY s.resource_group, a.slot"
    )
    op.execute(
        "INSERT INTO scope_usage (scope, scope_id, slot, used) "
        f"SELECT 'resource-group', s.resource_group, 'sessions', COUNT(DISTINCT s.id) {held} "
        "GROUP BY s.resource_group"
    )


def _cluster_sessions() -> None:
    size = sa.Column("cluster_size", sa.Integer(), server_default="1", nullable=False)
    mode = sa.Column(
        "cluster_mode", sa.String(length=16), server_default="single-node", nullable=False
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(size)
        batch_op.add_column(mode)
