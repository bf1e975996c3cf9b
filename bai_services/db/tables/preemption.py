"""Preemption plans and their victims."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata

_IS_ACTIVE = sa.text("ended_at IS NULL")
_IF_ACTIVE: dict[str, Any] = {"sqlite_where": _IS_ACTIVE, "postgresql_where": _IS_ACTIVE}

preemption_plans = sa.Table(
    "preemption_plans",
    metadata,
    identity(),
    created_at(),
    # The pending session for which the victims are stopped.
    sa.Column(
        "session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("resource_group", sa.String(64), nullable=False),
    # Placements without the victims: [{agent_id, slots, devices}], one for each kernel.
    sa.Column("placements", sa.JSON, nullable=False),
    sa.Column("mode", sa.String(16), nullable=False),  # see PreemptionMode
    sa.Column("grace_seconds", sa.Integer, nullable=False),
    sa.Column("stops_at", UtcDateTime, nullable=False),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("outcome", sa.String(16), nullable=False, default=""),  # see PlanOutcome
    # A session has at most one plan that has not ended.
    sa.Index("uq_preemption_plans_active", "session_id", unique=True, **_IF_ACTIVE),
    sa.Index("ix_preemption_plans_created_at", "created_at", "id"),
    sa.Index("ix_preemption_plans_ended_at", "ended_at"),
)

preemption_victims = sa.Table(
    "preemption_victims",
    metadata,
    sa.Column(
        "plan_id", sa.ForeignKey("preemption_plans.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column(
        "session_id",
        sa.ForeignKey("sessions.id", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
    sa.Column("rule", sa.String(16), nullable=False),  # see Rule
    # When the manager requested the stop; NULL without a request, for example because the session
    # had already ended.
    sa.Column("stopped_at", UtcDateTime),
)
