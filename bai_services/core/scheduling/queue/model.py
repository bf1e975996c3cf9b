"""Input and output of a scheduling pass: plain values, in the order of the cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ...resources import ResourceSlots
from ..caps import Scope, ScopeCaps, Usage
from ..placement import AgentState, Placement, Policy, Request
from ..placement.tables import Tables

# One check of a waiting session as a JSON object: check, passed, message, and its numbers.
Reason = dict[str, Any]
# A party whose sessions alternate with those of others: domain, project and user.
Party = tuple[Scope | None, ...]

DEFAULT_PRIORITY = 10
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Order(StrEnum):
    """Order among sessions of one priority."""

    FIFO = "fifo"
    LIFO = "lifo"
    DRF = "drf"
    FAIR_SHARE = "fair-share"


class Backfill(StrEnum):
    """Which sessions may start past the first one that does not fit.

    ``off``: none. ``aggressive``: any that fits. ``reserving``: any that does not delay the session
    with a reservation.
    """

    OFF = "off"
    AGGRESSIVE = "aggressive"
    RESERVING = "reserving"


class Certainty(StrEnum):
    """How sure an estimated start is."""

    # Exact if sessions run until their limits; only a session of higher priority (for lifo: any
    # later one) can delay it.
    KNOWN = "known"
    # Depends on an assumption that may fail: a learned run time, a dependency that succeeds, or
    # that no later arrival passes it.
    ESTIMATED = "estimated"
    ROUGH = "rough"  # beyond the simulation: extrapolated from the pace of the starts before it
    UNKNOWN = "unknown"  # no basis for an estimate


class Bucket(NamedTuple):
    """Usage of a scope on one day (UTC) in one resource group."""

    day: int  # days since 1970-01-01
    slots: Mapping[str, int]  # slot to quantity times seconds


@dataclass(frozen=True, slots=True)
class FairShare:
    """The options of the order fair-share."""

    half_life_days: float = 7.0
    lookback_days: int = 28
    default_weight: float = 1.0
    # Weights of domains, projects and users; the others have ``default_weight``.
    weights: Mapping[Scope, float] = field(default_factory=dict)
    # Weight of each slot; defaults: cpu 1, mem 0.001, devices 10.
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupState:
    """A resource group with its current options."""

    name: str
    is_active: bool = True
    order: Order = Order.FIFO
    placement: Policy = Policy.PRICED
    backfill: Backfill = Backfill.RESERVING
    fair_share: FairShare = field(default_factory=FairShare)
    # Learned tables of the group's requests for priced and fgd; None: defaults from the agents.
    tables: Tables | None = field(default=None, compare=False)
    # The agent that round-robin chose last; it continues from there.
    last_agent: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting session, with the scopes that it will count in.

    These are all of domain, project, user, keypair and resource group that it has. The order drf
    uses the user's share, fair-share those of domain, project and user.
    """

    id: str
    sequence: int
    request: Request
    scopes: tuple[Scope, ...]
    priority: int = DEFAULT_PRIORITY
    # Why no session of its owner may start: an account, keypair, project or domain is inactive.
    closed: str = ""
    # Conditions that must hold before it may start, whatever room there is: unfinished
    # dependencies.
    unmet: str = ""
    # The ids of these sessions, for estimates: it is released when all of them have ended.
    awaits: tuple[str, ...] = ()
    not_before: datetime | None = None
    created_at: datetime = _LONG_AGO
    # Maximum run time (lifetime, batch timeout); None: no limit.
    seconds: int | None = None
    # Session type and image family: sessions of one kind have similar run times.
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A session that holds resources, from scheduled to terminating."""

    id: str
    group: str
    scopes: tuple[Scope, ...]
    placements: tuple[Placement, ...]  # one per kernel
    slots: ResourceSlots  # sum over its kernels: what it counts in its scopes
    started_at: datetime
    ends_at: datetime | None = None  # enforced end; None: no limit
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent state of everything that a pass reads (step 1).

    ``usage`` is what every scope counts now and ``agents`` have their current usage, both including
    ``running``. A group missing from ``groups`` has the defaults of ``GroupState``; those in
    ``closed_groups`` are inactive.
    """

    waiting: Sequence[Waiting]
    agents: Sequence[AgentState]
    caps: Mapping[Scope, ScopeCaps] = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    closed_groups: frozenset[str] = frozenset()
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    running: Sequence[Running] = ()
    now: datetime = _LONG_AGO
    # Daily buckets per resource group and scope (domain, project, user); used by fair-share only.
    history: Mapping[str, Mapping[Scope, Sequence[Bucket]]] = field(default_factory=dict)
    # Run times of ended sessions of a kind in seconds: a sample of the latest, in any order.
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes for ``Queue.apply``. Each entry sets the new state of what it names.

    A waiting session (also one that waits again) is in ``waiting``, a running one in ``running``,
    one that is neither any more in ``gone``. Starts and ends update the counters of their scopes
    and agents; ``usage`` and ``agents`` overwrite these.
    """

    waiting: Sequence[Waiting] = ()
    running: Sequence[Running] = ()
    gone: Sequence[str] = ()
    agents: Sequence[AgentState] = ()
    gone_agents: Sequence[str] = ()
    caps: Mapping[Scope, ScopeCaps | None] = field(default_factory=dict)  # None: no caps any more
    usage: Usage = field(default_factory=dict)
    groups: Sequence[GroupState] = ()
    history: Mapping[str, Mapping[Scope, Sequence[Bucket]]] | None = None
    durations: Mapping[str, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A session that starts, with one placement per kernel: main1, sub1, sub2 …"""

    session_id: str
    placements: tuple[Placement, ...]

    @property
    def placement(self) -> Placement:
        """The placement of its first kernel."""
        return self.placements[0]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room reserved, from a start time on, for a session that cannot start now."""

    session_id: str
    group: str
    starts_at: datetime | None  # None: unknown; the room is reserved all the same
    certainty: Certainty
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated start of a waiting session; None: no basis for an estimate."""

    starts_at: datetime | None
    certainty: Certainty


# Called repeatedly during long computations, so that the caller can yield to other work.
GiveWay = Callable[[], None]


def no_op() -> None:
    """Do nothing: the default for ``GiveWay``."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Decisions in the order in which they must be written; reasons of all that still wait.

    ``reasons`` is a view: sessions of one shape share one tuple, so equal reasons are the same
    object. ``wake_at`` is when time alone may let a session start; None: only a change can.
    ``changed`` holds the reasons that no earlier result of the same queue has reported.
    """

    decisions: tuple[Decision, ...]
    reasons: Mapping[str, tuple[Reason, ...]]
    reservations: tuple[Reservation, ...] = ()
    wake_at: datetime | None = None
    changed: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that would let a waiting session start sooner."""

    kind: str  # resource-group, smaller, preset or quota
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Everything known about why one session waits and until when."""

    session_id: str
    position: int  # 1 is next in its resource group
    ahead: int
    checks: tuple[Reason, ...]  # all checks, passed or failed
    estimate: Estimate
    sooner: tuple[Suggestion, ...] = ()
