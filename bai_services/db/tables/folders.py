"""Folders of users and projects, their grants and invitations, mounts, and storage quotas."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

vfolders = sa.Table(
    "vfolders",
    metadata,
    identity(),
    created_at(),
    sa.Column("host", sa.String(64), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("domain", sa.ForeignKey("domains.name"), nullable=False),
    # user:ID or project:ID; (scope, live_name) is unique.
    sa.Column("scope", sa.String(80), nullable=False, index=True),
    # The name; NULL in the trash and after the purge has begun, so that the name can be used again.
    sa.Column("live_name", sa.String(64)),
    sa.Column("owner_id", sa.ForeignKey("users.id"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id"), index=True),
    sa.Column("creator_id", sa.String(64), nullable=False),
    sa.Column("usage_mode", sa.String(16), nullable=False, default="general"),
    sa.Column("permission", sa.String(2), nullable=False, default="rw"),
    sa.Column("cloneable", sa.Boolean, nullable=False, default=False),
    sa.Column("status", sa.String(16), nullable=False, default="ready"),
    sa.Column("status_changed_at", UtcDateTime, nullable=False),
    sa.Column("last_used_at", UtcDateTime),
    # Explanation of the status for users.
    sa.Column("status_info", sa.String(255), nullable=False, default=""),
    # Path of a directory that existed before the folder was registered. Such a directory has no
    # quota and is never deleted. NULL: an ordinary folder.
    sa.Column("unmanaged_path", sa.String(1024)),
    # Until all files of a clone are copied: id of the source folder.
    sa.Column("source_id", sa.String(64)),
    # While the folder is being transferred: id of the next owner.
    sa.Column("next_owner_id", sa.String(64)),
    # Usage at the last measurement, and its time (``counted_at``).
    sa.Column("used_files", sa.BigInteger),
    sa.Column("used_bytes", sa.BigInteger),
    sa.Column("counted_at", UtcDateTime),
    sa.UniqueConstraint("scope", "live_name"),
)

vfolder_grants = sa.Table(
    "vfolder_grants",
    metadata,
    sa.Column("vfolder_id", sa.ForeignKey("vfolders.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
    created_at(),
    sa.Column("permission", sa.String(2), nullable=False),
    sa.Column("granted_by", sa.String(64), nullable=False),
)

# Mounts of live sessions; a folder with a row here cannot be deleted.
vfolder_mounts = sa.Table(
    "vfolder_mounts",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "vfolder_id", sa.ForeignKey("vfolders.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
    sa.Column("path", sa.String(512), primary_key=True),
)

# Invitation of a user to a folder; accepting it creates a grant.
vfolder_invitations = sa.Table(
    "vfolder_invitations",
    metadata,
    identity(),
    created_at(),
    sa.Column(
        "vfolder_id", sa.ForeignKey("vfolders.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column(
        "invitee_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("inviter_id", sa.String(64), nullable=False, index=True),
    sa.Column("inviter", sa.String(64), nullable=False),
    sa.Column("permission", sa.String(2), nullable=False),
    sa.Column("status", sa.String(16), nullable=False, default="pending"),
    sa.Column("status_changed_at", UtcDateTime, nullable=False),
)

# Limits and usage of one user or project on one storage host.
quota_scopes = sa.Table(
    "quota_scopes",
    metadata,
    sa.Column("host", sa.String(64), primary_key=True),
    sa.Column("scope", sa.String(80), primary_key=True),
    # Limit set by an administrator; -1: unlimited, NULL: the limit of the policy applies.
    sa.Column("override_bytes", sa.BigInteger),
    # Limit last set in the file system; -1: unlimited, NULL: never set.
    sa.Column("enforced_bytes", sa.BigInteger),
    sa.Column("used_bytes", sa.BigInteger),
    sa.Column("counted_at", UtcDateTime),
)
