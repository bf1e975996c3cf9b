"""Accounts, policies and agents.

Follows nothing; created 2026-11-21.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _audit_log()
    _domains()
    _images()
    _keypair_policies()
    _presets()
    _project_policies()
    _resource_groups()
    _sign_in_failures()
    _user_policies()
    _agents()
    _image_aliases()
    _projects()
    _resource_group_links()
    _users()
    _agent_slots()
    _devices()
    _keypairs()
    _memberships()


def _audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("actor_id", sa.String(length=64), nullable=True),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("client_ip", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("entity", sa.String(length=64), nullable=False),
        sa.Column("entity_id", sa.String(length=255), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=True),
        sa.Column("outcome", sa.String(length=64), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    with op.batch_alter_table("audit_log", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_log_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_log_domain"), ["domain"], unique=False)


def _domains() -> None:
    op.create_table(
        "domains",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("total_resource_slots", sa.JSON(), nullable=False),
        sa.Column("max_concurrent_sessions", sa.Integer(), nullable=True),
        sa.Column("allowed_vfolder_hosts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_domains")),
    )


def _images() -> None:
    op.create_table(
        "images",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("architecture", sa.String(length=32), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("digest", sa.String(length=128), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("min_slots", sa.JSON(), nullable=False),
        sa.Column("max_slots", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("name", "architecture", name=op.f("uq_images_name_architecture")),
    )


def _keypair_policies() -> None:
    op.create_table(
        "keypair_policies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("default_for_unspecified", sa.String(length=16), nullable=False),
        sa.Column("total_resource_slots", sa.JSON(), nullable=False),
        sa.Column("max_session_lifetime_seconds", sa.Integer(), nullable=False),
        sa.Column("max_concurrent_sessions", sa.Integer(), nullable=True),
        sa.Column("max_pending_sessions", sa.Integer(), nullable=True),
        sa.Column("max_pending_slots", sa.JSON(), nullable=True),
        sa.Column("max_priority", sa.Integer(), nullable=True),
        sa.Column("max_containers_per_session", sa.Integer(), nullable=False),
        sa.Column("idle_timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("allowed_vfolder_hosts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_keypair_policies")),
    )


def _presets() -> None:
    op.create_table(
        "presets",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("resource_group", sa.String(length=64), nullable=False),
        sa.Column("resource_slots", sa.JSON(), nullable=False),
        sa.Column("shared_memory_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_presets")),
        sa.UniqueConstraint("name", "resource_group", name=op.f("uq_presets_name_resource_group")),
    )


def _project_policies() -> None:
    op.create_table(
        "project_policies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("max_vfolder_count", sa.Integer(), nullable=False),
        sa.Column("max_quota_scope_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_project_policies")),
    )


def _resource_groups() -> None:
    op.create_table(
        "resource_groups",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("engine", sa.String(length=16), nullable=False),
        sa.Column("scheduler", sa.String(length=16), nullable=False),
        sa.Column("scheduler_opts", sa.JSON(), nullable=False),
        sa.Column("allowed_session_types", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_resource_groups")),
    )


def _sign_in_failures() -> None:
    op.create_table(
        "sign_in_failures",
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.DateTime(), nullable=False),
        sa.Column("blocked_until", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_sign_in_failures")),
    )


def _user_policies() -> None:
    op.create_table(
        "user_policies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("max_vfolder_count", sa.Integer(), nullable=False),
        sa.Column("max_quota_scope_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_concurrent_logins", sa.Integer(), nullable=True),
        sa.Column("total_resource_slots", sa.JSON(), nullable=False),
        sa.Column("max_concurrent_sessions", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_user_policies")),
    )


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("resource_group", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_changed_at", sa.DateTime(), nullable=False),
        sa.Column("last_heartbeat_at", sa.DateTime(), nullable=False),
        sa.Column("schedulable", sa.Boolean(), nullable=False),
        sa.Column("engine", sa.String(length=16), nullable=False),
        sa.Column("endpoint", sa.String(length=255), nullable=False),
        sa.Column("architecture", sa.String(length=32), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_group"], ["resource_groups.name"], name=op.f("fk_agents_resource_group")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_agents_resource_group"), ["resource_group"], unique=False
        )


def _image_aliases() -> None:
    op.create_table(
        "image_aliases",
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("image_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_aliases_image_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("alias", name=op.f("pk_image_aliases")),
    )
    with op.batch_alter_table("image_aliases", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_image_aliases_image_id"), ["image_id"], unique=False)


def _projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=512), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("total_resource_slots", sa.JSON(), nullable=False),
        sa.Column("max_concurrent_sessions", sa.Integer(), nullable=True),
        sa.Column("allowed_vfolder_hosts", sa.JSON(), nullable=False),
        sa.Column("resource_policy", sa.String(length=64), nullable=False),
        sa.Column("default_image", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name=op.f("fk_projects_domain")),
        sa.ForeignKeyConstraint(
            ["resource_policy"], ["project_policies.name"], name=op.f("fk_projects_resource_policy")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("domain", "name", name=op.f("uq_projects_domain_name")),
    )


def _resource_group_links() -> None:
    op.create_table(
        "resource_group_links",
        sa.Column("resource_group", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("target", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_group"],
            ["resource_groups.name"],
            name=op.f("fk_resource_group_links_resource_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "resource_group", "kind", "target", name=op.f("pk_resource_group_links")
        ),
    )


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("username", sa.String(length=64), nullable=False),
        sa.Column("email", sa.String(length=64), nullable=False),
        sa.Column("password_hash", sa.String(length=255), nullable=True),
        sa.Column("password_changed_at", sa.DateTime(), nullable=True),
        sa.Column("need_password_change", sa.Boolean(), nullable=False),
        sa.Column("full_name", sa.String(length=64), nullable=False),
        sa.Column("description", sa.String(length=500), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("status_info", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("domain", sa.String(length=64), nullable=False),
        sa.Column("resource_policy", sa.String(length=64), nullable=False),
        sa.Column("allowed_client_ip", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("main_access_key", sa.String(length=20), nullable=True),
        sa.Column("container_uid", sa.Integer(), nullable=True),
        sa.Column("container_gid", sa.Integer(), nullable=True),
        sa.Column("needs_hub_sign_out", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["domain"], ["domains.name"], name=op.f("fk_users_domain")),
        sa.ForeignKeyConstraint(
            ["resource_policy"], ["user_policies.name"], name=op.f("fk_users_resource_policy")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
        sa.UniqueConstraint("username", name=op.f("uq_users_username")),
    )
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_users_domain"), ["domain"], unique=False)


def _agent_slots() -> None:
    op.create_table(
        "agent_slots",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.String(length=64), nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("used >= 0", name=op.f("ck_agent_slots_not_negative")),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_slots_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "slot", name=op.f("pk_agent_slots")),
    )


def _devices() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("family", sa.String(length=32), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=128), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("numa_node", sa.Integer(), nullable=True),
        sa.Column("is_simulated", sa.Boolean(), nullable=False),
        sa.Column("is_healthy", sa.Boolean(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.CheckConstraint("used >= 0 AND used <= capacity", name=op.f("ck_devices_within_device")),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_devices_agent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
    )
    with op.batch_alter_table("devices", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_devices_agent_id"), ["agent_id"], unique=False)


def _keypairs() -> None:
    op.create_table(
        "keypairs",
        sa.Column("access_key", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("secret_key_encrypted", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("rate_limit", sa.Integer(), nullable=False),
        sa.Column("last_used", sa.DateTime(), nullable=True),
        sa.Column("resource_policy", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_policy"], ["keypair_policies.name"], name=op.f("fk_keypairs_resource_policy")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_keypairs_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("access_key", name=op.f("pk_keypairs")),
    )
    with op.batch_alter_table("keypairs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_keypairs_user_id"), ["user_id"], unique=False)


def _memberships() -> None:
    op.create_table(
        "memberships",
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_memberships_project_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_memberships_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "project_id", name=op.f("pk_memberships")),
    )
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_memberships_project_id"), ["project_id"], unique=False)
