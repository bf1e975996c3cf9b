"""Announcements and maintenance."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, changed_by_role, created_at, identity, metadata, version

announcements = sa.Table(
    "announcements",
    metadata,
    identity(),
    created_at(),
    version(),
    changed_by_role(),
    sa.Column("title", sa.String(120), nullable=False),
    # Markdown.
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("level", sa.String(16), nullable=False),
    # everyone, domain, project or role; ``target`` is the domain or role.
    sa.Column("audience", sa.String(16), nullable=False),
    sa.Column("target", sa.String(64)),
    # Domain of the audience; the domain's administrators may change the announcement.
    sa.Column("domain", sa.ForeignKey("domains.name", ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    sa.Column("starts_at", UtcDateTime, nullable=False),
    # NULL: no end.
    sa.Column("ends_at", UtcDateTime),
    sa.Column("author", sa.String(64), nullable=False),
)

announcement_dismissals = sa.Table(
    "announcement_dismissals",
    metadata,
    sa.Column(
        "announcement_id", sa.ForeignKey("announcements.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column(
        "user_id", sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
)

# Settings of the manager that administrators have set; see ``core.operations.configuration``.
setting_overrides = sa.Table(
    "setting_overrides",
    metadata,
    sa.Column("variable", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(64), nullable=False),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Column("changed_by", sa.String(64), nullable=False),
)

maintenances = sa.Table(
    "maintenances",
    metadata,
    identity(),
    created_at(),
    version(),
    # all, group or agent; ``target`` is the name of the group or the id of the agent.
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("target", sa.String(64)),
    # no-starts, drain or read-only.
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(255), nullable=False),
    sa.Column("starts_at", UtcDateTime, nullable=False),
    # NULL: no end.
    sa.Column("ends_at", UtcDateTime),
    sa.Column("author", sa.String(64), nullable=False),
)

# Settings in force in the Hub and in agents, as they have reported them.
component_settings = sa.Table(
    "component_settings",
    metadata,
    # hub or agent; ``component`` is ``hub`` or the id of the agent.
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("component", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    # NULL: a secret.
    sa.Column("value", sa.String(500)),
    sa.Column("default", sa.String(500)),
    sa.Column("origin", sa.String(16), nullable=False),
)
