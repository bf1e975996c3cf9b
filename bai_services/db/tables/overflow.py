"""Rules that move pending sessions of projects to another resource group."""

from __future__ import annotations

import sqlalchemy as sa

from .base import changed_by_role, created_at, identity, metadata, version

overflow_rules = sa.Table(
    "overflow_rules",
    metadata,
    identity(),
    created_at(),
    version(),
    changed_by_role(),
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    sa.Column(
        "from_group", sa.ForeignKey("resource_groups.name", ondelete="CASCADE"), nullable=False
    ),
    sa.Column(
        "to_group", sa.ForeignKey("resource_groups.name", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("after_seconds", sa.Integer, nullable=False),
    sa.UniqueConstraint("project_id", "from_group", "to_group"),
)
