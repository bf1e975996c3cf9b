"""Domains, projects, users, keypairs, policies, sign-in attempts, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa

from .base import CapSlots, UtcDateTime, created_at, identity, metadata

keypair_policies = sa.Table(
    "keypair_policies",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    created_at(),
    # Limit of the slots that total_resource_slots does not contain. LIMITED: 0; UNLIMITED: no
    # limit.
    sa.Column("default_for_unspecified", sa.String(16), nullable=False, default="LIMITED"),
    sa.Column("total_resource_slots", CapSlots, nullable=False),
    sa.Column("max_session_lifetime_seconds", sa.Integer, nullable=False, default=0),
    # Maximum total extension of one session's lifetime by its owner.
    sa.Column(
        "max_lifetime_extension_seconds",
        sa.Integer,
        nullable=False,
        default=0,
        server_default="0",
    ),
    sa.Column("max_concurrent_sessions", sa.Integer),
    sa.Column("max_pending_sessions", sa.Integer),
    sa.Column("max_pending_slots", CapSlots),
    sa.Column("max_priority", sa.Integer),
    sa.Column("max_containers_per_session", sa.Integer, nullable=False, default=1),
    sa.Column("idle_timeout_seconds", sa.Integer, nullable=False, default=0),
    sa.Column("allowed_vfolder_hosts", sa.JSON, nullable=False),
)

user_policies = sa.Table(
    "user_policies",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    created_at(),
    sa.Column("max_vfolder_count", sa.Integer, nullable=False, default=0),
    sa.Column("max_quota_scope_bytes", sa.BigInteger, nullable=False, default=-1),
    sa.Column("max_concurrent_logins", sa.Integer),
    # Widest permitted audience of shared apps: none, user, project, public.
    sa.Column("app_sharing", sa.String(16), nullable=False, default="none", server_default="none"),
    # 0: no limit.
    sa.Column(
        "max_app_share_seconds",
        sa.Integer,
        nullable=False,
        default=2_592_000,
        server_default="2592000",
    ),
    # Caps on all keypairs of a user together. NULL or a missing slot: no limit.
    sa.Column("total_resource_slots", CapSlots, nullable=False),
    sa.Column("max_concurrent_sessions", sa.Integer),
    sa.Column("max_pending_sessions", sa.Integer, default=1000, server_default="1000"),
    # NULL: only the fixed limit applies.
    sa.Column("max_schedules", sa.Integer, default=20, server_default="20"),
    # NULL: no limit.
    sa.Column("max_custom_images", sa.Integer, default=3, server_default="3"),
    # Users may create endpoints that need no token.
    sa.Column(
        "allows_public_endpoints", sa.Boolean, nullable=False, default=False, server_default="0"
    ),
)

project_policies = sa.Table(
    "project_policies",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    created_at(),
    sa.Column("max_vfolder_count", sa.Integer, nullable=False, default=0),
    sa.Column("max_quota_scope_bytes", sa.BigInteger, nullable=False, default=-1),
    # NULL: no limit.
    sa.Column("max_custom_images", sa.Integer),
    # Whether imports of models by members of a model store need no approval.
    sa.Column(
        "allows_member_imports", sa.Boolean, nullable=False, default=False, server_default="0"
    ),
)

domains = sa.Table(
    "domains",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    created_at(),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("is_active", sa.Boolean, nullable=False, default=True),
    sa.Column("total_resource_slots", CapSlots, nullable=False),
    sa.Column("max_concurrent_sessions", sa.Integer),
    sa.Column("allowed_vfolder_hosts", sa.JSON, nullable=False),
)

projects = sa.Table(
    "projects",
    metadata,
    identity(),
    created_at(),
    sa.Column("domain", sa.ForeignKey("domains.name"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("is_active", sa.Boolean, nullable=False, default=True),
    sa.Column("type", sa.String(16), nullable=False, default="general"),
    sa.Column("total_resource_slots", CapSlots, nullable=False),
    sa.Column("max_concurrent_sessions", sa.Integer),
    sa.Column("allowed_vfolder_hosts", sa.JSON, nullable=False),
    sa.Column("resource_policy", sa.ForeignKey("project_policies.name"), nullable=False),
    # Name or alias of the image for session requests that name no image.
    sa.Column("default_image", sa.String(255)),
    sa.UniqueConstraint("domain", "name"),
)

users = sa.Table(
    "users",
    metadata,
    identity(),
    created_at(),
    sa.Column("username", sa.String(64), nullable=False, unique=True),
    sa.Column("email", sa.String(64), nullable=False, unique=True),
    # argon2id with its parameters and salt; NULL: the user cannot sign in with a password.
    sa.Column("password_hash", sa.String(255)),
    sa.Column("password_changed_at", UtcDateTime),
    sa.Column("need_password_change", sa.Boolean, nullable=False, default=False),
    sa.Column("full_name", sa.String(64), nullable=False, default=""),
    sa.Column("description", sa.String(500), nullable=False, default=""),
    sa.Column("status", sa.String(32), nullable=False, default="active"),
    sa.Column("status_info", sa.String(255), nullable=False, default=""),
    # True from a sign-up until an administrator approves the account.
    sa.Column(
        "awaits_approval", sa.Boolean, nullable=False, default=False, server_default=sa.false()
    ),
    sa.Column("role", sa.String(16), nullable=False, default="user"),
    sa.Column("domain", sa.ForeignKey("domains.name"), nullable=False, index=True),
    sa.Column("resource_policy", sa.ForeignKey("user_policies.name"), nullable=False),
    # List of networks (CIDR); NULL: any address.
    sa.Column("allowed_client_ip", sa.JSON(none_as_null=True)),
    sa.Column("main_access_key", sa.String(20)),
    sa.Column("container_uid", sa.Integer),
    sa.Column("container_gid", sa.Integer),
    # True from a sign-out until the Hub has stopped this user's servers.
    sa.Column("needs_hub_sign_out", sa.Boolean, nullable=False, default=False),
    # Pending revocation at the Hub: "sign-ins" (browser sign-ins) or "all" (also API tokens).
    sa.Column("tokens_to_end", sa.String(16)),
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
)

keypairs = sa.Table(
    "keypairs",
    metadata,
    sa.Column("access_key", sa.String(20), primary_key=True),
    created_at(),
    # Verifying a signature requires the secret key, so the key is stored encrypted, not hashed.
    sa.Column("secret_key_encrypted", sa.String(255), nullable=False),
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("is_active", sa.Boolean, nullable=False, default=True),
    sa.Column("rate_limit", sa.Integer, nullable=False, default=10_000),
    sa.Column("last_used", UtcDateTime),
    sa.Column("resource_policy", sa.ForeignKey("keypair_policies.name"), nullable=False),
    # When the idle timeout was last introduced or reduced, by a change of the policy or by another
    # policy; null: never.
    sa.Column("idle_limited_at", UtcDateTime),
)

# Sign-in attempts. An attempt is counted as failed before the password check; a success resets or
# reduces the counts.
sign_in_failures = sa.Table(
    "sign_in_failures",
    metadata,
    # Hash of an entered name, an account id, an address, or a name with an address. Unknown names
    # also count.
    sa.Column("subject", sa.String(64), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("last_at", UtcDateTime, nullable=False),
    sa.Column("blocked_until", UtcDateTime),
)

known_sign_in_addresses = sa.Table(
    "known_sign_in_addresses",
    metadata,
    sa.Column("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    # Hash of an address from which the user has signed in with the password.
    sa.Column("address", sa.String(64), primary_key=True),
    sa.Column("last_at", UtcDateTime, nullable=False),
)

audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", UtcDateTime, nullable=False, index=True),
    sa.Column("actor_id", sa.String(64)),
    sa.Column("actor", sa.String(64), nullable=False),
    sa.Column("client_ip", sa.String(64), nullable=False, default=""),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("entity", sa.String(64), nullable=False),
    sa.Column("entity_id", sa.String(255), nullable=False),
    sa.Column("domain", sa.String(64), index=True),
    sa.Column("outcome", sa.String(64), nullable=False),
    sa.Column("details", sa.JSON, nullable=False),
    sa.Column("on_behalf_of", sa.String(64), nullable=False, default="", server_default=""),
    # Owner of the object, who may read the entry.
    sa.Column("owner_id", sa.String(64)),
    # Position in the hash chain; NULL until the entry is chained.
    sa.Column("position", sa.BigInteger),
    sa.Column("hash", sa.String(64)),
    sa.Index("ix_audit_log_owner", "owner_id", "id"),
    sa.Index("ix_audit_log_position", "position", unique=True),
)

# The ends of the hash chain, in one row.
audit_chain = sa.Table(
    "audit_chain",
    metadata,
    sa.Column("name", sa.String(16), primary_key=True),
    # Last entry that was removed because of its age.
    sa.Column("anchor_position", sa.BigInteger, nullable=False),
    sa.Column("anchor_hash", sa.String(64), nullable=False),
    # Last chained entry.
    sa.Column("head_position", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.String(64), nullable=False),
)
