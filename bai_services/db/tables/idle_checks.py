"""Idle checkers, their bindings, and the results for sessions."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata, version

idle_checkers = sa.Table(
    "idle_checkers",
    metadata,
    identity(),
    created_at(),
    version(),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("description", sa.String(512), nullable=False, default=""),
    sa.Column("type", sa.String(32), nullable=False),  # see CheckerType
    sa.Column("settings", sa.JSON, nullable=False),  # see CheckerSettings
)

idle_checker_bindings = sa.Table(
    "idle_checker_bindings",
    metadata,
    identity(),
    created_at(),
    sa.Column("checker_id", sa.ForeignKey("idle_checkers.id", ondelete="CASCADE"), nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),  # see BindingScope
    # Id of a project or user; name of a domain, resource group or keypair policy.
    sa.Column("scope_id", sa.String(64), nullable=False),
    # Domain of the scope; NULL for resource groups and keypair policies.
    sa.Column("domain", sa.String(64)),
    sa.Column("is_enabled", sa.Boolean, nullable=False, default=True),
    sa.Column("is_dry_run", sa.Boolean, nullable=False, default=False),
    # Time of the last change of the effective rule; NULL: the change was in an earlier version.
    sa.Column("effective_at", UtcDateTime),
    # Role of the user who created or last changed the binding.
    sa.Column("changed_by_role", sa.String(16), nullable=False),
    sa.UniqueConstraint("checker_id", "scope", "scope_id"),
)

# The last result of each checker for each live session that has run, with the users' settings.
session_idle_checks = sa.Table(
    "session_idle_checks",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "checker_id",
        sa.ForeignKey("idle_checkers.id", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
    sa.Column("status", sa.String(16), nullable=False),  # see CheckStatus
    sa.Column("is_dry_run", sa.Boolean, nullable=False),
    sa.Column("is_due", sa.Boolean, nullable=False),
    sa.Column("ends_at", UtcDateTime),
    # The expected end, until the countdown begins.
    sa.Column("expected_ends_at", UtcDateTime),
    # Text of the rule with its limits and the measured values (``CodedText``).
    sa.Column("rule", sa.JSON(none_as_null=True)),
    sa.Column("kept_alive_at", UtcDateTime),
    sa.Column("keep_alives", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("is_excluded", sa.Boolean, nullable=False, default=False, server_default=sa.false()),
)

# The first decision of each checker to stop a session, and its first dry-run decision; kept for 30
# days.
idle_decisions = sa.Table(
    "idle_decisions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", UtcDateTime, nullable=False, index=True),
    sa.Column("checker_id", sa.String(64), nullable=False, index=True),
    sa.Column("checker", sa.String(64), nullable=False),
    sa.Column("session_id", sa.String(64), nullable=False),
    sa.Column("session", sa.String(64), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("domain", sa.String(64), nullable=False, index=True),
    sa.Column("is_dry_run", sa.Boolean, nullable=False),
    sa.Column("rule", sa.JSON(none_as_null=True)),
    # Prevents that a restarted manager adds a decision again.
    sa.UniqueConstraint("session_id", "checker_id", "is_dry_run"),
)
