"""Machines that the provisioning command has started."""

from __future__ import annotations

import sqlalchemy as sa

from .base import Slots, UtcDateTime, created_at, identity, metadata

# ``resource_group`` is not a foreign key, because machines of a deleted group must still be
# stopped.
provisioned_machines = sa.Table(
    "provisioned_machines",
    metadata,
    identity(),
    created_at(),
    sa.Column("resource_group", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("status_changed_at", UtcDateTime, nullable=False),
    sa.Column("slots", Slots, nullable=False),
    # The name of the machine that the command has returned.
    sa.Column("reference", sa.String(255), nullable=False),
    # Invitation for the agent of the machine; NULL before the first call of the command.
    sa.Column("invitation_id", sa.String(64)),
    sa.Column("agent_id", sa.String(64)),
    sa.Column("joined_at", UtcDateTime),
    # When its agent was first seen without sessions; NULL while it has sessions.
    sa.Column("idle_since", UtcDateTime),
    # See ``MachineReason`` in ``core/cluster/provisioning.py``.
    sa.Column("reason", sa.String(32), nullable=False),
    sa.Column("message", sa.String(500), nullable=False),
)
