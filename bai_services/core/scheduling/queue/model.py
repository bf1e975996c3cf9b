"""Data classes for the input and output of a scheduling pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from ...coded_text import CodedText
from ...resources import ResourceSlots
from ..advance_reservations import HeldAgents
from ..caps import Scope, ScopeCaps, Usage
from ..maintenance import MaintenanceWindow
from ..placement import AgentState, Placement, Policy, Request
from ..placement.pricing.tables import Tables
from ..preemption.options import OFF, PreemptionOptions
from ..preemption.plan import Plan, Preemption

# Result of one check of a pending session as a JSON object: check, passed, message (in English),
# coded (the ``CodedText`` of the message as JSON), and facts.
Reason = dict[str, Any]
# A party: the domain, project and user to which a session is charged, each None if unknown. Under
# drf and fair-share, the parties take turns to start sessions.
Party = tuple[Scope | None, ...]

DEFAULT_PRIORITY = 10
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


class Order(StrEnum):
    """Order of pending sessions with the same priority."""

    FIFO = "fifo"
    LIFO = "lifo"
    DRF = "drf"
    FAIR_SHARE = "fair-share"


class Backfill(StrEnum):
    """Which sessions may overtake the first session that does not fit.

    ``off``: none. ``aggressive``: every session that fits. ``reserving``: every session that fits
    and does not delay the session with a reservation.
    """

    OFF = "off"
    AGGRESSIVE = "aggressive"
    RESERVING = "reserving"


class Certainty(StrEnum):
    """How certain an estimated start or end is; the comments describe starts."""

    # Exact if sessions run until their limits; only a new session of higher priority (for lifo: any
    # new session) can delay the start.
    KNOWN = "known"
    # Assumes that predicted run times are correct, that dependencies succeed and that no later
    # session overtakes this session.
    ESTIMATED = "estimated"
    ROUGH = "rough"  # after the simulation: extrapolated from the start rate of earlier sessions
    UNKNOWN = "unknown"  # no basis for an estimate


class DailyUsage(NamedTuple):
    """Usage of a scope on one day (UTC) in one resource group."""

    day: int  # days since 1970-01-01
    slots: Mapping[str, int]  # slot-seconds by slot


@dataclass(frozen=True, slots=True)
class FairShare:
    """Options of the order fair-share."""

    half_life_days: float = 7.0
    lookback_days: int = 28
    default_weight: float = 1.0
    # Weights of domains, projects and users; scopes that are missing have ``default_weight``.
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
    # Tables learned from the group's requests, for priced and fgd; None: defaults from the agents.
    tables: Tables | None = field(default=None, compare=False)
    # Id of the agent that round-robin chose last; the next search begins after this agent.
    last_agent: str = ""
    maintenance: tuple[MaintenanceWindow, ...] = ()
    # The approved advance reservations that have not ended.
    held: tuple[HeldAgents, ...] = ()
    preemption: PreemptionOptions = OFF
    # When the oldest machine that is being started for the group was requested.
    machines_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A pending session and the scopes to which it will be charged.

    Scopes are the domain, project, user, keypair and resource group, where set. The order drf
    compares users by their dominant share. The order fair-share compares domains, projects and
    users by their fair-share factors.
    """

    id: str
    sequence: int
    request: Request
    scopes: tuple[Scope, ...]
    priority: int = DEFAULT_PRIORITY
    # Text with the name of the inactive user, keypair, project or domain; None if all are active.
    blocked_reason: CodedText | None = None
    # Text with the names of the unfinished dependencies; None if all have finished.
    unmet_dependencies: CodedText | None = None
    # Ids of the unfinished dependencies. Estimates assume that all of them succeed.
    dependency_ids: tuple[str, ...] = ()
    not_before: datetime | None = None  # earliest start; None: any time
    created_at: datetime = _LONG_AGO
    # The smaller of lifetime and batch timeout; None: no limit.
    max_run_seconds: int | None = None
    # Session type and image without its tag: run times are learned per kind.
    kind: str = ""
    # Id of the requested advance reservation, or "".
    reservation_id: str = ""
    # Set while maintenance or an advance reservation restricts the agents: the reason, and the
    # request without restriction.
    maintenance: CodedText | None = None
    unrestricted: Request | None = None
    # Used only by preemption, to compare sessions of one user that have the same priority.
    job_priority: int = 0
    is_preemptible: bool = True
    # Set while running sessions are being stopped for this session.
    plan: Plan | None = None

    def without_maintenance(self) -> PendingSession:
        """Return the session without the restriction of its agents."""
        if self.unrestricted is None:
            return self
        return replace(self, request=self.unrestricted, maintenance=None, unrestricted=None)


@dataclass(frozen=True, slots=True)
class RunningSession:
    """A session with allocated resources, in one of the statuses SCHEDULED to TERMINATING."""

    id: str
    group: str
    scopes: tuple[Scope, ...]
    placements: tuple[Placement, ...]  # one per kernel
    slots: ResourceSlots  # total of its kernels, charged to its scopes
    started_at: datetime
    ends_at: datetime | None = None  # enforced end; None: no limit
    kind: str = ""
    priority: int = DEFAULT_PRIORITY
    job_priority: int = 0
    is_preemptible: bool = True
    # ``is_running``: started, and no stop was requested. ``is_ending``: a stop was requested.
    is_running: bool = True
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent snapshot of everything that a pass reads.

    ``usage`` (per scope) and the usage of ``agents`` already include the ``running`` sessions. A
    group missing from ``groups`` has the defaults of ``GroupState``; a group in
    ``inactive_groups`` is inactive.
    """

    pending: Sequence[PendingSession]
    agents: Sequence[AgentState]
    caps: Mapping[Scope, ScopeCaps] = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    inactive_groups: frozenset[str] = frozenset()
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    running: Sequence[RunningSession] = ()
    now: datetime = _LONG_AGO
    # Daily usage by resource group and scope (domain, project, user); used by fair-share only.
    history: Mapping[str, Mapping[Scope, Sequence[DailyUsage]]] = field(default_factory=dict)
    # Run times of the latest ended sessions by kind, in seconds, in any order.
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # Ids of the pending sessions that had a reservation after the last pass. The next pass
    # withholds their quota from the other groups.
    reserved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes for ``Queue.apply``. Each entry is the new state of a session, agent, scope or group.

    ``pending``: new or requeued sessions. ``running``: started sessions. ``removed``: ids of ended
    or cancelled sessions. Starts and ends update the usage counters; then entries of ``usage`` and
    ``agents`` overwrite them. ``history`` and ``durations`` are None if they have not changed.
    """

    pending: Sequence[PendingSession] = ()
    running: Sequence[RunningSession] = ()
    removed: Sequence[str] = ()
    agents: Sequence[AgentState] = ()
    removed_agents: Sequence[str] = ()
    caps: Mapping[Scope, ScopeCaps | None] = field(default_factory=dict)  # None: removed
    usage: Usage = field(default_factory=dict)
    groups: Sequence[GroupState] = ()
    history: Mapping[str, Mapping[Scope, Sequence[DailyUsage]]] | None = None
    durations: Mapping[str, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A session that starts, with one placement per kernel: main1, sub1, sub2 …"""

    session_id: str
    placements: tuple[Placement, ...]

    @property
    def placement(self) -> Placement:
        """The placement of the session's first kernel."""
        return self.placements[0]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Placements reserved for a session that cannot start now, from its expected start on."""

    session_id: str
    group: str
    starts_at: datetime | None  # None: unknown; the placements are reserved in this case too
    certainty: Certainty
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated start of a pending session."""

    starts_at: datetime | None  # None: no basis for an estimate
    certainty: Certainty

    def announced(self) -> Estimate:
        """Return the estimate as users see it: its start is rounded up to a whole minute.

        All pages and commands show the rounded start, so that it is the same everywhere and does
        not change every second.
        """
        return Estimate(announced_start(self.starts_at), self.certainty)


def announced_start(at: datetime | None) -> datetime | None:
    """Return an expected start, rounded up to a whole minute."""
    if at is None or at > datetime.max.replace(tzinfo=at.tzinfo) - _MINUTE:
        return at
    minute = at.replace(second=0, microsecond=0)
    return minute if minute == at else minute + _MINUTE


# Callback that long computations call repeatedly to let other threads run.
PauseIfBusy = Callable[[], None]


def no_op() -> None:
    """Do nothing: the default for ``PauseIfBusy``."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Decisions in the order in which they must be written, and reasons of the pending sessions.

    ``reasons`` is a view that is valid until the queue changes; sessions of one shape share a
    tuple. ``wake_at`` is the time at which the next pass is due without changes; None: no time.
    ``changed`` holds the reasons that the queue has not reported before. ``preemptions`` are new
    plans for sessions that do not fit. ``dropped_plans`` are the sessions with a plan that no
    longer helps.
    """

    decisions: tuple[Decision, ...]
    reasons: Mapping[str, tuple[Reason, ...]]
    reservations: tuple[Reservation, ...] = ()
    wake_at: datetime | None = None
    changed: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    preemptions: tuple[Preemption, ...] = ()
    dropped_plans: tuple[str, ...] = ()


class SuggestionKind(StrEnum):
    """What a suggestion changes."""

    RESOURCE_GROUP = "resource-group"
    SMALLER = "smaller"
    PRESET = "preset"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that would let a pending session start sooner."""

    kind: SuggestionKind
    text: CodedText
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one session is pending, its estimated start, and suggestions for an earlier start."""

    session_id: str
    position: int  # in its resource group; 1: the first
    ahead: int  # number of sessions before it
    checks: tuple[Reason, ...]  # all checks, passed or failed
    estimate: Estimate
    suggestions: tuple[Suggestion, ...] = ()
