"""Dependencies that services of the manager share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bai_services.db.database import Database

from .audit import Audit
from .clock import Clock
from .events import Events
from .operations.read_only import ReadOnlyPeriods


@dataclass(frozen=True, slots=True)
class ManagerContext:
    """``capacity_changed`` wakes the scheduler. ``sign_outs_due`` wakes the sign-out loops.

    ``read_only`` contains the periods of read-only maintenance.
    """

    database: Database
    clock: Clock
    audit: Audit
    events: Events
    capacity_changed: Callable[[], None]
    sign_outs_due: Callable[[], None]
    read_only: ReadOnlyPeriods
