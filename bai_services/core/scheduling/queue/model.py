"""What a scheduling pass is given and what it answers: plain values, in the order of the cycle."""

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

# One check of a waiting session as JSON: check, passed, message, and its numbers.
Reason = dict[str, Any]

DEFAULT_PRIORITY = 10
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Order(StrEnum):
    """Whose turn it is among sessions of one priority."""

    FIFO = "fifo"
    LIFO = "lifo"
    DRF = "drf"
    FAIR_SHARE = "fair-share"


class Backfill(StrEnum):
    """What may start past the first session that there is no room for.

    ``off``: nothing. ``aggressive``: whatever fits. ``reserving``: what delays no
    reserved session.
    """

    OFF = "off"
    AGGRESSIVE = "aggressive"
    RESERVING = "reserving"


class Certainty(StrEnum):
    """How sure an estimated start is."""

    # Exact if sessions run until their limits; only one of higher priority (for lifo: any
    # later one) can delay it.
    KNOWN = "known"
    # Rests on something that may turn out otherwise: a run time that is learned, a
    # dependency that ends well, or nobody coming later who passes it.
    ESTIMATED = "estimated"
    ROUGH = "rough"  # beyond what was simulated: from the pace at which those before it start
    UNKNOWN = "unknown"  # nothing tells when


class Bucket(NamedTuple):
    """What a scope has used in one day (UTC) in one resource group."""

    day: int  # days since 1970-01-01
    slots: Mapping[str, int]  # slot to amount times seconds


@dataclass(frozen=True, slots=True)
class FairShare:
    """The options of the order fair-share."""

    half_life_days: float = 7.0
    lookback_days: int = 28
    default_weight: float = 1.0
    # Domains, projects and users that count otherwise than ``default_weight``.
    weights: Mapping[Scope, float] = field(default_factory=dict)
    # How much a slot counts; those not named: cpu 1, mem 0.001, devices 10.
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupState:
    """A resource group with its options, as they are now."""

    name: str
    is_active: bool = True
    order: Order = Order.FIFO
    placement: Policy = Policy.PRICED
    backfill: Backfill = Backfill.RESERVING
    fair_share: FairShare = field(default_factory=FairShare)
    # What priced and fgd have learned of the group's requests; None: a start that fits the agents.
    tables: Tables | None = field(default=None, compare=False)
    # The agent that round-robin chose last, from which it goes on.
    last_agent: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A session that waits, with the scopes that it will count in.

    All of domain, project, user, keypair and resource-group that it has; the
    order drf takes the user's share, fair-share those of domain, project, user.
    """

    id: str
    sequence: int
    request: Request
    scopes: tuple[Scope, ...]
    priority: int = DEFAULT_PRIORITY
    # Why nothing of its owner may start at all: an account, keypair, project or domain is closed.
    closed: str = ""
    # Why it may not start yet whatever room there is: sessions that it depends on.
    unmet: str = ""
    # The ids of these sessions, for estimates: it is let in when all of them have ended.
    awaits: tuple[str, ...] = ()
    not_before: datetime | None = None
    created_at: datetime = _LONG_AGO
    # The longest that it may run (lifetime, batch timeout); None: no limit.
    seconds: int | None = None
    # Type and family of image: sessions of one kind run similarly long.
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A session that holds a place, from scheduled to terminating."""

    id: str
    group: str
    scopes: tuple[Scope, ...]
    placements: tuple[Placement, ...]  # one per kernel
    slots: ResourceSlots  # of all its kernels: what it counts in its scopes
    started_at: datetime
    ends_at: datetime | None = None  # when it is ended at the latest; None: no limit
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent state of everything that a pass looks at (step 1).

    ``usage`` holds what every scope counts now and ``agents`` what is taken on
    each, both including ``running``. A group that ``groups`` lacks has every
    option as ``GroupState`` gives it; those in ``closed_groups`` are not active.
    """

    waiting: Sequence[Waiting]
    agents: Sequence[AgentState]
    caps: Mapping[Scope, ScopeCaps] = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    closed_groups: frozenset[str] = frozenset()
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    running: Sequence[Running] = ()
    now: datetime = _LONG_AGO
    # Daily buckets per resource group and scope (domain, project, user); for fair-share alone.
    history: Mapping[str, Mapping[Scope, Sequence[Bucket]]] = field(default_factory=dict)
    # Seconds that ended sessions of a kind have run, a sample of the latest, in any order.
    durations: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since: handed to ``Queue.apply``. Everything named is set as it is now.

    A session that waits (again) is in ``waiting``, one that runs in ``running``, one
    that does neither any more in ``gone``. Ends and starts move the counters
    of their scopes and agents by themselves; ``usage`` and ``agents`` set them.
    """

    waiting: Sequence[Waiting] = ()
    running: Sequence[Running] = ()
    gone: Sequence[str] = ()
    agents: Sequence[AgentState] = ()
    gone_agents: Sequence[str] = ()
    caps: Mapping[Scope, ScopeCaps | None] = field(default_factory=dict)  # None: none any more
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
        """The place of its first kernel."""
        return self.placements[0]


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place and a time that are kept for a session that cannot start now."""

    session_id: str
    group: str
    starts_at: datetime | None  # None: nothing tells when; the place is kept all the same
    certainty: Certainty
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a waiting session starts as far as can be told; None: nothing tells."""

    starts_at: datetime | None
    certainty: Certainty


# Called again and again while something long is worked out: whoever runs it may rest there.
GiveWay = Callable[[], None]


def no_op() -> None:
    """Give way to nobody."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Decisions in the order in which they must be written; reasons of all who still wait.

    ``reasons`` is a view: sessions of one shape share one tuple, so that equal
    reasons are the same object. ``wake_at`` is when time alone may let a session
    start; None: only a change can. ``changed`` holds those reasons that no earlier
    result of the same queue has told.
    """

    decisions: tuple[Decision, ...]
    reasons: Mapping[str, tuple[Reason, ...]]
    reservations: tuple[Reservation, ...] = ()
    wake_at: datetime | None = None
    changed: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What would let a waiting session start sooner."""

    kind: str  # resource-group, smaller, preset or quota
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """All that is known of why one session waits and until when."""

    session_id: str
    position: int  # 1 is next in its resource group
    ahead: int
    checks: tuple[Reason, ...]  # every check, passed or failed
    estimate: Estimate
    sooner: tuple[Suggestion, ...] = ()
