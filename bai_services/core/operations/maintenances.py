"""Planned and current maintenance of agents, resource groups or the whole installation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..scheduling.maintenance import MaintenanceWindow

# A change during read-only maintenance is rejected with an error; this is ``reason`` in its
# details.
READ_ONLY = "read-only"
MAX_REASON_CHARS = 255
# Maximum number of stored maintenances, including ended ones that are not yet removed.
MAX_MAINTENANCES = 200


class Scope(StrEnum):
    ALL = "all"
    GROUP = "group"
    AGENT = "agent"


class Mode(StrEnum):
    """Effect of a maintenance.

    ``no-starts``: no session starts during the period. ``drain``: in addition, a session does not
    start if its maximum run time ends after the begin of the period. A session without a maximum
    run time still starts. ``read-only``: as ``no-starts``, and users can change nothing.
    """

    NO_STARTS = "no-starts"
    DRAIN = "drain"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance; ``target`` is the resource group or agent, None for ``all``.

    A maintenance without ``ends_at`` lasts until it is changed or deleted.
    """

    id: str
    created_at: datetime
    version: int
    scope: Scope
    target: str | None
    mode: Mode
    reason: str
    starts_at: datetime
    ends_at: datetime | None
    author: str


@dataclass(frozen=True, slots=True)
class CurrentMaintenance:
    """A maintenance that has not ended, as shown to a user.

    ``is_active``: it has started. ``rejects_changes``: requests of this user for changes, such as
    the start of a session, are rejected now.
    """

    id: str
    scope: Scope
    target: str | None
    mode: Mode
    reason: str
    starts_at: datetime
    ends_at: datetime | None
    is_active: bool
    rejects_changes: bool


def window_of(maintenance: Maintenance) -> MaintenanceWindow:
    """Convert a maintenance to the window that a scheduling pass takes as input."""
    agents = None
    if maintenance.scope == Scope.AGENT:
        agents = frozenset({maintenance.target or ""})
    return MaintenanceWindow(
        maintenance.starts_at,
        maintenance.ends_at,
        maintenance.reason,
        agents,
        looks_ahead=maintenance.mode == Mode.DRAIN,
    )
