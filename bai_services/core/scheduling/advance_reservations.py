"""Advance reservations: agents that are held for the sessions of a project in a period.

A reservation holds agents that are chosen at the booking: whole agents, or the same amounts on each
of them. No agent is booked beyond its capacity at any time. During the period, other sessions do
not start on whole reserved agents. Before the period, other sessions start there only if their
enforced maximum run time ends before the period begins. On partly booked agents, other sessions
start if they fit beside the booked part during their whole possible run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..coded_text import CodedText, TextTemplate
from ..counts import counted
from ..errors import Conflict, InvalidRequest
from ..operations.periods import require_not_past
from ..resources import ResourceSlots
from .caps import Scope
from .maintenance import Restriction
from .placement import AgentState
from .reservation_states import ReservationState

MAX_NODES = 1000
# Maximum number of open reservations, of reservations of a project that wait for approval, and of
# stored reservations. If there are more stored reservations, the oldest closed ones are removed.
MAX_RESERVATIONS = 500
MAX_REQUESTED = 20
MAX_STORED = 2000
MAX_MEMBERS = 200
# Maximum time from the request to the start, and maximum length of a reservation.
MAX_AHEAD = timedelta(days=90)
MAX_PERIOD = timedelta(days=30)
# Time from the start after which an unused reservation expires.
DEFAULT_GRACE_SECONDS = 1800
MAX_GRACE_SECONDS = 24 * 3600
# When a reservation is created, reservations that ended longer ago than this are removed.
KEPT_AFTER_END = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """A reservation of ``resources`` on each of ``nodes`` agents of a resource group.

    With ``whole_machines``, it holds whole agents with at least these resources.
    ``users``: the members of the project who may use the reservation; all members if empty.
    ``agents``: the held agents; before the approval, a preliminary choice, which the approval
    repeats. ``used_at``: when a member's session was first found on these agents in the period.
    """

    id: str
    created_at: datetime
    name: str
    project_id: str
    project: str
    domain: str
    resource_group: str
    nodes: int
    resources: ResourceSlots
    whole_machines: bool
    agents: Sequence[str]
    users: Sequence[str]
    starts_at: datetime
    ends_at: datetime
    grace_seconds: int
    state: ReservationState
    note: str
    author: str
    decided_by: str
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldAgents:
    """An approved reservation as input of a scheduling pass.

    ``project`` and ``users`` are the scopes that may use the reservation; without ``users``, all
    sessions of the project may use it. ``booked``: the amounts booked on each of the agents; empty:
    the whole agents.
    """

    id: str
    project_name: str
    starts_at: datetime
    ends_at: datetime
    agents: frozenset[str]
    project: Scope
    users: frozenset[Scope] = frozenset()
    booked: ResourceSlots = field(default_factory=ResourceSlots)

    def admits(self, scopes: Collection[Scope]) -> bool:
        """Return whether a session that is charged to these scopes may use the reservation."""
        return self.project in scopes and (not self.users or not self.users.isdisjoint(scopes))

    def withholds(
        self, now: datetime, max_run_seconds: int | None, scopes: Collection[Scope]
    ) -> bool:
        """Return whether a session may not start on the agents now."""
        if now >= self.ends_at or self.admits(scopes):
            return False
        if now >= self.starts_at or max_run_seconds is None:
            return True
        # ``now`` plus a very long run time could be out of range, so subtract instead.
        return timedelta(seconds=max_run_seconds) > self.starts_at - now


def held_restriction(
    held: Sequence[HeldAgents],
    agents: Collection[str],
    now: datetime,
    *,
    max_run_seconds: int | None,
    scopes: Collection[Scope],
    reservation_id: str = "",
) -> Restriction | None:
    """Return the agents to which reservations restrict a session; None: no restriction.

    ``agents`` are all agents of the resource group. A session that names a reservation runs only on
    the reserved agents. The returned text names the reservation that withholds the most agents. A
    reservation of parts of agents withholds no agent (see ``held_parts``).
    """
    allowed, text, most = set(agents), None, 0
    for one in held:
        if one.id == reservation_id and now < one.ends_at and one.admits(scopes):
            others = allowed - one.agents
            if others and text is None:
                text = TextTemplate.ONLY_RESERVED_AGENTS.text(project=one.project_name)
            allowed &= one.agents
        elif not one.booked and one.withholds(now, max_run_seconds, scopes):
            withheld = one.agents & set(agents)
            allowed -= withheld
            if len(withheld) > most:
                most = len(withheld)
                template = (
                    TextTemplate.RESERVED_UNTIL
                    if now >= one.starts_at
                    else TextTemplate.RESERVED_AHEAD
                )
                text = template.text(
                    project=one.project_name,
                    starts_at=one.starts_at.isoformat(),
                    ends_at=one.ends_at.isoformat(),
                )
    return None if text is None else Restriction(tuple(sorted(allowed)), text)


def held_parts(
    held: Sequence[HeldAgents],
    agents: Collection[str],
    now: datetime,
    *,
    max_run_seconds: int | None,
    scopes: Collection[Scope],
) -> tuple[tuple[str, ...], CodedText | None]:
    """Return the reservations of parts of agents whose booked amounts a session must leave free,
    and the reason.

    Reservations are returned as ids; the text names the first of them.
    """
    met = [
        one
        for one in held
        if one.booked
        and not one.agents.isdisjoint(agents)
        and one.withholds(now, max_run_seconds, scopes)
    ]
    if not met:
        return (), None
    first = met[0]
    template = (
        TextTemplate.RESERVED_PART_UNTIL
        if now >= first.starts_at
        else TextTemplate.RESERVED_PART_AHEAD
    )
    text = template.text(
        project=first.project_name,
        slots=str(first.booked),
        count=len(first.agents & set(agents)),
        starts_at=first.starts_at.isoformat(),
        ends_at=first.ends_at.isoformat(),
    )
    return tuple(one.id for one in met), text


def both(one: Restriction | None, other: Restriction | None) -> Restriction | None:
    """Return the intersection of two restrictions and the text of the stricter restriction."""
    if one is None or other is None:
        return other if one is None else one
    stricter = one if len(one.agents) <= len(other.agents) else other
    agents = set(one.agents) & set(other.agents)
    return Restriction(tuple(sorted(agents)), stricter.text)


def check_period(starts_at: datetime, ends_at: datetime, now: datetime, grace_seconds: int) -> None:
    """Raise ``InvalidRequest`` if a period cannot be reserved."""
    if ends_at <= starts_at or ends_at <= now:
        raise InvalidRequest(
            "a reservation must end after its start and in the future", field="ends_at"
        )
    require_not_past(starts_at, now, "starts_at")
    if starts_at > now + MAX_AHEAD:
        raise InvalidRequest(
            f"a reservation can start at most {MAX_AHEAD.days} days ahead", field="starts_at"
        )
    if ends_at - starts_at > MAX_PERIOD:
        raise InvalidRequest(
            f"a reservation can last at most {MAX_PERIOD.days} days", field="ends_at"
        )
    if not 60 <= grace_seconds <= MAX_GRACE_SECONDS:
        raise InvalidRequest(
            f"grace_seconds must be between 60 and {MAX_GRACE_SECONDS}", field="grace_seconds"
        )


@dataclass(frozen=True, slots=True)
class Booking:
    """Agents and period of an approved reservation; no other reservation can book them.

    ``booked``: the amounts on each agent; empty: the whole agents.
    """

    agents: frozenset[str]
    starts_at: datetime
    ends_at: datetime
    name: str = field(default="", compare=False)
    booked: ResourceSlots = field(default_factory=ResourceSlots)


def choose_agents(
    agents: Iterable[AgentState],
    booked: Sequence[Booking],
    busy_until: Mapping[str, datetime | None],
    *,
    nodes: int,
    resources: ResourceSlots,
    period: tuple[datetime, datetime],
) -> tuple[str, ...]:
    """Return the agents to hold for a reservation of whole agents.

    ``busy_until``: the latest time at which the sessions of an agent end; None: unknown. Agents
    that are certainly free at the start are preferred, then agents with few devices.

    Raises
    ------
    Conflict
        If too few agents are suitable and not reserved in the period.
    """
    starts_at = period[0]
    overlapping = overlapping_bookings(booked, period)
    taken = {agent for booking in overlapping for agent in booking.agents}
    suitable = [agent for agent in agents if suits(agent, resources)]
    free = [agent for agent in suitable if agent.id not in taken]
    raise_if_too_few(free, suitable, overlapping, nodes, resources)

    def rank(agent: AgentState) -> tuple[bool, int, str]:
        until = busy_until.get(agent.id, starts_at)
        return until is None or until > starts_at, len(agent.devices), agent.id

    return tuple(sorted(agent.id for agent in sorted(free, key=rank)[:nodes]))


def overlapping_bookings(
    booked: Iterable[Booking], period: tuple[datetime, datetime]
) -> list[Booking]:
    starts_at, ends_at = period
    return [b for b in booked if b.starts_at < ends_at and starts_at < b.ends_at]


def require_suitable(
    agents: Iterable[AgentState], nodes: int, resources: ResourceSlots, group: str
) -> None:
    """Raise ``Conflict`` if no agent of the resource group ``group`` is suitable."""
    known = list(agents)
    if any(suits(agent, resources) for agent in known):
        return
    if resources and not any(_has(agent, resources) for agent in known):
        problem = f"no agent of resource group {group} has {resources}"
    else:
        problem = f"no agent of resource group {group}{_with(resources)} accepts sessions"
    raise Conflict(problem, nodes=nodes, available=0, reservations=[])


def raise_if_too_few(
    free: Sequence[AgentState],
    suitable: Sequence[AgentState],
    overlapping: Sequence[Booking],
    nodes: int,
    resources: ResourceSlots,
) -> None:
    """Raise ``Conflict`` if fewer than ``nodes`` suitable agents can be reserved."""
    if len(free) >= nodes:
        return
    ids = {agent.id for agent in suitable}
    names = sorted({b.name for b in overlapping if b.name and b.agents & ids})
    why = f"; reserved in this period: {', '.join(names)}" if names else ""
    raise Conflict(
        f"{counted(nodes, 'agents')}{_with(resources)} requested, but only {len(free)} of "
        f"{counted(len(suitable), 'suitable agents')} can be reserved{why}",
        nodes=nodes,
        available=len(free),
        reservations=names,
    )


def suits(agent: AgentState, resources: ResourceSlots) -> bool:
    """Return whether an agent accepts sessions and, when empty, has these resources."""
    return agent.is_alive and agent.is_schedulable and _has(agent, resources)


def _has(agent: AgentState, resources: ResourceSlots) -> bool:
    empty = agent.fully_available()
    return all(empty.free(slot) >= amount for slot, amount in resources.items())


def _with(resources: ResourceSlots) -> str:
    return f" with {resources}" if resources else ""
