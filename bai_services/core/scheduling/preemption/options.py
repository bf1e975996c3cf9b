"""Options of preemption in a resource group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_PREEMPTIBLE_PRIORITY = 5
DEFAULT_GRACE_SECONDS = 60
MAX_GRACE_SECONDS = 3600


class VictimScope(StrEnum):
    """The sessions that a pending session may preempt: sessions of the same user, project or
    domain, or all sessions of the resource group.
    """

    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    RESOURCE_GROUP = "resource-group"


class VictimOrder(StrEnum):
    """The order in which sessions of the lowest priority are preempted.

    ``newest``: sessions with the shortest run time, so that little work is lost.
    ``fewest-sessions``: as few sessions as possible, then the newest.
    """

    NEWEST = "newest"
    OLDEST = "oldest"
    FEWEST_SESSIONS = "fewest-sessions"
    SMALLEST_RESOURCES = "smallest-resources"


class PreemptionMode(StrEnum):
    """What happens to a preempted session: it returns to the queue, or it ends."""

    RESCHEDULE = "reschedule"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class PreemptionOptions:
    """The option ``preemption`` of a resource group."""

    enabled: bool = False
    # Highest priority of a session that can be preempted.
    preemptible_priority: int = DEFAULT_PREEMPTIBLE_PRIORITY
    victim_scope: VictimScope = VictimScope.RESOURCE_GROUP
    order: VictimOrder = VictimOrder.NEWEST
    # Minimum time that a session has run before it can be preempted.
    min_runtime_seconds: int = 0
    mode: PreemptionMode = PreemptionMode.RESCHEDULE
    # Whether sessions of equal priority can be preempted if their user has a larger share of the
    # group than the user of the pending session, before and after the preemption.
    over_fair_share: bool = False
    # Time between the warning and the stop.
    grace_seconds: int = DEFAULT_GRACE_SECONDS


OFF = PreemptionOptions()
