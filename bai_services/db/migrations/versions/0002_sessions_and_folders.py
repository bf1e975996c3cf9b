"""Sessions and folders.

Follows 0001; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _counters()
    _scope_usage()
    _sessions()
    _vfolders()
    _kernels()
    _session_dependencies()
    _status_history()
    _vfolder_grants()
    _vfolder_mounts()
    _allocations()


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )


def _scope_usage() -> None:
    op.create_table(
        "scope_usage",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_id", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.String(length=64), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("used >= 0", name=op.f("ck_scope_usage_not_negative")),
        sa.PrimaryKeyConstraint("scope", "scope_id", "slot", name=op.f("pk_scope_usage")),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("live_name", sa.String(length=64), nullable=True),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("owner_id", sa.String(length=64), nullable=False),
        sa.Column("access_key", sa.String(length=20), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("resource_group", sa.String(length=64), nullable=False),
        sa.Column("image", sa.String(length=255), nullable=False),
        sa.Column("architecture", sa.String(length=32), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("requested_slots", sa.JSON(), nullable=False),
        sa.Column("shared_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mounts", sa.JSON(), nullable=False),
        sa.Column("environ", sa.JSON(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_info", sa.String(length=1024), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("notices", sa.JSON(), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("hub_user", sa.String(length=64), nullable=False),
        sa.Column("hub_server", sa.String(length=64), nullable=False),
        sa.Column("started_by", sa.String(length=16), nullable=False),
        sa.Column("status_changed_at", sa.DateTime(), nullable=False),
        sa.Column("scheduled_at", sa.DateTime(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("terminated_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name=op.f("fk_sessions_domain")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_sessions_owner_id")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_sessions_project_id")
        ),
        sa.ForeignKeyConstraint(
            ["resource_group"], ["resource_groups.name"], name=op.f("fk_sessions_resource_group")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("owner_id", "live_name", name=op.f("uq_sessions_owner_id_live_name")),
        sa.UniqueConstraint("sequence", name=op.f("uq_sessions_sequence")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index("ix_sessions_created_at", ["created_at"], unique=False)
        batch_op.create_index("ix_sessions_hub_server", ["hub_user", "hub_server"], unique=False)
        batch_op.create_index("ix_sessions_name", ["name"], unique=False)
        batch_op.create_index("ix_sessions_owner_created", ["owner_id", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_project_id"), ["project_id"], unique=False)
        batch_op.create_index("ix_sessions_started_at", ["started_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_status"), ["status"], unique=False)


def _vfolders() -> None:
    op.create_table(
        "vfolders",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("host", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=80), nullable=False),
        sa.Column("live_name", sa.String(length=64), nullable=True),
        sa.Column("owner_id", sa.String(length=64), nullable=True),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("creator_id", sa.String(length=64), nullable=False),
        sa.Column("usage_mode", sa.String(length=16), nullable=False),
        sa.Column("permission", sa.String(length=2), nullable=False),
        sa.Column("cloneable", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_changed_at", sa.DateTime(), nullable=False),
        sa.Column("last_used_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name=op.f("fk_vfolders_domain")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_vfolders_owner_id")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_vfolders_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vfolders")),
        sa.UniqueConstraint("scope", "live_name", name=op.f("uq_vfolders_scope_live_name")),
    )
    with op.batch_alter_table("vfolders", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_vfolders_owner_id"), ["owner_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_vfolders_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_vfolders_scope"), ["scope"], unique=False)


def _kernels() -> None:
    op.create_table(
        "kernels",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("hostname", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("injection", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("launched_at", sa.DateTime(), nullable=True),
        sa.Column("container_id", sa.String(length=128), nullable=True),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(), nullable=True),
        sa.Column("log", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_kernels_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernels")),
    )
    with op.batch_alter_table("kernels", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_kernels_agent_id"), ["agent_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_kernels_session_id"), ["session_id"], unique=False)


def _session_dependencies() -> None:
    op.create_table(
        "session_dependencies",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("depends_on", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["depends_on"],
            ["sessions.id"],
            name=op.f("fk_session_dependencies_depends_on"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_dependencies_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "depends_on", name=op.f("pk_session_dependencies")),
    )
    with op.batch_alter_table("session_dependencies", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_session_dependencies_depends_on"), ["depends_on"], unique=False
        )


def _status_history() -> None:
    op.create_table(
        "status_history",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("from_status", sa.String(length=16), nullable=False),
        sa.Column("to_status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=1024), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_status_history_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_status_history")),
    )
    with op.batch_alter_table("status_history", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_status_history_session_id"), ["session_id"], unique=False
        )


def _vfolder_grants() -> None:
    op.create_table(
        "vfolder_grants",
        sa.Column("vfolder_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("permission", sa.String(length=2), nullable=False),
        sa.Column("granted_by", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_vfolder_grants_user_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_vfolder_grants_vfolder_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("vfolder_id", "user_id", name=op.f("pk_vfolder_grants")),
    )
    with op.batch_alter_table("vfolder_grants", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_vfolder_grants_user_id"), ["user_id"], unique=False)


def _vfolder_mounts() -> None:
    op.create_table(
        "vfolder_mounts",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("vfolder_id", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_vfolder_mounts_session_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["vfolder_id"],
            ["vfolders.id"],
            name=op.f("fk_vfolder_mounts_vfolder_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "vfolder_id", "path", name=op.f("pk_vfolder_mounts")),
    )
    with op.batch_alter_table("vfolder_mounts", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_vfolder_mounts_vfolder_id"), ["vfolder_id"], unique=False
        )


def _allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("kernel_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("device_id", sa.String(length=128), nullable=True),
        sa.Column("slot", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("allocated_at", sa.DateTime(), nullable=False),
        sa.Column("freed_at", sa.DateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["kernel_id"], ["kernels.id"], name=op.f("fk_allocations_kernel_id")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_allocations_session_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    with op.batch_alter_table("allocations", schema=None) as batch_op:
        batch_op.create_index("ix_allocations_live", ["agent_id", "freed_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_allocations_session_id"), ["session_id"], unique=False)
