"""Budgets of projects, and the spent amounts."""

from __future__ import annotations

import sqlalchemy as sa

from .base import Hundredths, UtcDateTime, changed_by_role, created_at, metadata, version

project_budgets = sa.Table(
    "project_budgets",
    metadata,
    sa.Column("project_id", sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    created_at(),
    version(),
    changed_by_role(),
    sa.Column("amount", Hundredths, nullable=False),
    sa.Column("mode", sa.String(16), nullable=False),  # warn or block
    sa.Column("warn_percents", sa.JSON, nullable=False),
    sa.Column("period", sa.String(16), nullable=False),  # month or fixed
    sa.Column("starts_at", UtcDateTime),
    sa.Column("ends_at", UtcDateTime),
    sa.Column("time_zone", sa.String(64), nullable=False),
    # Time after which running sessions of a blocked project are stopped; NULL: they continue.
    sa.Column("stop_after_minutes", sa.Integer),
    # State: ``spent`` is the amount from ``spent_since``, the start of the period, to ``spent_at``;
    # ``reported_percent`` the highest percentage that was reported; ``blocked_at`` the time since
    # when no session may start.
    sa.Column("spent", sa.Double),
    sa.Column("spent_at", UtcDateTime),
    sa.Column("spent_since", UtcDateTime),
    sa.Column("reported_percent", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Column("blocked_at", UtcDateTime),
)
