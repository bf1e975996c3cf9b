"""The queue of one resource group: pending sessions by shape, running sessions and agents."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heapify, heappop, heappush

from ..caps import Scope
from ..placement import AgentState
from ..placement.placer import Placer
from .dominant_shares import DominantShares, capacity_of, fair_factor
from .model import (
    DailyUsage,
    GroupState,
    Order,
    Party,
    PendingSession,
    Reason,
    Reservation,
    RunningSession,
)
from .order import Standing
from .preemption.candidates import Candidates
from .quota import Quotas
from .reserved_parts import ReservedParts
from .selection import Selection
from .shape import Shape, ShapeKey, shape_key

# A placer never removes a prepared request. Therefore the placer is replaced when the handle of a
# removed shape exceeds this number plus four per remaining shape.
_MAX_HANDLES = 4096


class GroupQueue:
    """One resource group of a ``Queue``; changes are applied between passes.

    A *party* is the domain, project and user to which a session is charged. Under the orders drf
    and fair-share, the parties take turns to start sessions; their standings decide which party is
    next.
    """

    def __init__(self, state: GroupState, agents: Iterable[AgentState], quotas: Quotas) -> None:
        self.state = state
        self.quotas = quotas
        self.agents = {agent.id: agent for agent in sorted(agents, key=lambda a: a.id)}
        self.placer = self._new_placer(list(self.agents.values()))
        self.shapes: dict[ShapeKey, Shape] = {}
        self.shape_of: dict[str, Shape] = {}
        self.selection = Selection()
        # Shapes of the sessions with a plan (one session each); not in ``selection``.
        self.planned: dict[str, Shape] = {}
        # Sessions with a plan, which ``shares`` counts as running: their users get less of the
        # remaining resources.
        self.promised: set[str] = set()
        # Sessions excluded from passes. Deferred: their start time has not come. Blocked: their
        # account, keypair, project or domain is inactive, or a dependency is unmet.
        self.deferred: dict[str, PendingSession] = {}
        self.blocked: dict[str, PendingSession] = {}
        self.running: dict[str, RunningSession] = {}
        # Running sessions with an enforced end: (end, start, id), sorted.
        self.by_end: list[tuple[datetime, datetime, str]] = []
        # Running sessions without an enforced end.
        self.unlimited: dict[str, RunningSession] = {}
        # Sessions that are being stopped.
        self.ending: dict[str, RunningSession] = {}
        # Sessions that may be preempted; None: no pass has needed them yet.
        self.candidates: Candidates | None = None
        # Whether passes may make new plans, and when the next plan may be possible without other
        # changes.
        self.may_plan = True
        self.next_plan_at: datetime | None = None
        self.unreported: list[str] = []  # excluded sessions whose reasons have not been reported
        self._alarms: list[tuple[datetime, str]] = []
        self.shares = DominantShares()
        self._capacity = capacity_of(self.agents.values())
        self.shares.set_capacity(self._capacity)
        self._history: Mapping[Scope, Sequence[DailyUsage]] = {}
        self._fair: dict[Party, Standing] = {}  # negated fair-share factors by party
        self._day = 0
        self._numbers = 0
        self.is_dirty = True  # whether the group has changed since its last pass
        # Whether maintenance restricts the agents of any session.
        self.is_restricted = False
        self.parts = ReservedParts()
        self.parts.set_held(state.held, ())
        # Version of the caps and usage counters (``Queue``) at the last pass.
        self.quota_version = -1
        # Results of the last pass.
        self.stopped_by: str = ""  # id of the session that no later session may overtake
        # Whether a session over a cap precedes the first session that lacks free capacity.
        self.has_capped_ahead = False
        # Whether an agent still has free cpu after the reserved session has started.
        self.has_spare_beside_reservation = False
        self.reservations: tuple[Reservation, ...] = ()
        # Reasons why a request does not fit, by its handle in the placer; empty tuple: it fits.
        self.capacity_reasons: dict[int, tuple[Reason, ...]] = {}
        self.reserved: dict[str, tuple[Reason, ...]] = {}  # reasons of sessions with a reservation
        self.reported_reserved: dict[str, tuple[Reason, ...]] = {}
        self._quota_reserved_for: list[Shape] = []

    def _new_placer(self, agents: list[AgentState]) -> Placer:
        state = self.state
        return Placer(agents, state.placement, state.tables, last_agent=state.last_agent)

    def fork(self, quotas: Quotas) -> GroupQueue:
        """Return a read-only copy.

        The copy shares its shapes with this queue, so their members can still change.
        """
        other = copy.copy(self)
        other.quotas = quotas
        other.agents, other.placer = dict(self.agents), self.placer.fork_for_thread()
        other.shapes, other.shape_of = dict(self.shapes), dict(self.shape_of)
        other.selection, other.planned = self.selection.copy(), dict(self.planned)
        other.promised = set(self.promised)
        other.ending, other.candidates = dict(self.ending), None
        other.deferred, other.blocked = dict(self.deferred), dict(self.blocked)
        other.by_end, other.unlimited = list(self.by_end), dict(self.unlimited)
        other.parts = self.parts.copy()
        other.running, other.shares = dict(self.running), self.shares.copy()
        other.capacity_reasons, other._fair = dict(self.capacity_reasons), dict(self._fair)
        return other

    def fork_to_run(self, quotas: Quotas, pending: Mapping[str, PendingSession]) -> GroupQueue:
        """Return a copy with separate shapes, on which passes can be run.

        If this queue is a fork, its original may have changed the shared members of shapes and the
        shared alarms. Therefore the members are rebuilt from ``pending``, and the alarms from the
        deferred sessions. Passes on the copy make no new preemption plans.
        """
        other = self.fork(quotas)
        copies = {id(shape): shape.without_members(other.placer) for shape in self.shapes.values()}
        other.shapes = {copy.key: copy for copy in copies.values()}
        other.shape_of = {key: copies[id(shape)] for key, shape in self.shape_of.items()}
        for key, shape in other.shape_of.items():
            shape.members.append((pending[key].sequence, key))
        for shape in other.shapes.values():
            shape.members.sort()
        other.selection.replace(lambda shape: copies[id(shape)])
        other.planned = {key: copies[id(shape)] for key, shape in self.planned.items()}
        other.may_plan = False
        times = ((session.not_before, key) for key, session in self.deferred.items())
        other._alarms = [(at, key) for at, key in times if at is not None]
        heapify(other._alarms)
        other.unreported, other._quota_reserved_for = [], []
        return other

    # ---- Pending sessions ----

    def add(self, pending: PendingSession, now: datetime) -> None:
        """Add a session to the queue."""
        self.is_dirty = True
        if pending.blocked_reason or pending.unmet_dependencies:
            self.blocked[pending.id] = pending
            self.unreported.append(pending.id)
        elif pending.not_before is not None and pending.not_before > now:
            self.deferred[pending.id] = pending
            self.unreported.append(pending.id)
            heappush(self._alarms, (pending.not_before, pending.id))
        else:
            self._enqueue(pending)

    def _enqueue(self, pending: PendingSession) -> None:
        key = shape_key(pending)
        shape = self.shapes.get(key)
        if shape is None:
            self._numbers += 1
            shape = self.shapes[key] = Shape(self._numbers, pending, self.quotas, self.placer)
            if pending.plan is None:
                self.selection.add(shape)
            else:
                self.planned[pending.id] = shape
                self.promised.add(pending.id)
                self.shares.add(shape.party[-1], shape.amounts)
        self._mark_changed(shape)
        insort(shape.members, (pending.sequence, pending.id))
        shape.fresh.append(pending.id)
        self.shape_of[pending.id] = shape

    def remove(self, pending: PendingSession) -> None:
        """Remove a session from the queue."""
        self.is_dirty = True
        self.blocked.pop(pending.id, None)
        self.deferred.pop(pending.id, None)
        shape = self.shape_of.pop(pending.id, None)
        if shape is not None:
            at = bisect_left(shape.members, (pending.sequence, pending.id))
            del shape.members[at]
            self._mark_changed(shape)
            self._drop_if_empty(shape)

    def started(self, counts: Mapping[Shape, int]) -> None:
        """Remove started sessions: the first (lifo: last) ``counts[shape]`` of each shape."""
        for shape, count in counts.items():
            part = slice(-count, None) if self.state.order is Order.LIFO else slice(count)
            for _, session_id in shape.members[part]:
                del self.shape_of[session_id]
            del shape.members[part]
            self._mark_changed(shape)
            self._drop_if_empty(shape)

    def _mark_changed(self, shape: Shape) -> None:
        if shape.pending.plan is None:
            self.selection.mark_changed(shape)

    def end_promise(self, shape: Shape) -> None:
        """Remove the amounts of a planned session from ``shares``: it starts, or its plan ends."""
        if shape.pending.id in self.promised:
            self.promised.remove(shape.pending.id)
            self.shares.add(shape.party[-1], shape.amounts, -1)

    def _drop_if_empty(self, shape: Shape) -> None:
        if not shape.members:
            del self.shapes[shape.key]
            if shape.pending.plan is None:
                self.selection.drop(shape)
            else:
                del self.planned[shape.pending.id]
                self.end_promise(shape)
            if shape.handle > _MAX_HANDLES + 4 * len(self.shapes):
                self._replace_placer()

    def enqueue_due(self, now: datetime) -> None:
        """Move deferred sessions to the queue if their start time has been reached."""
        while self._alarms and self._alarms[0][0] <= now:
            _, session_id = heappop(self._alarms)
            pending = self.deferred.get(session_id)
            if pending is not None and pending.not_before is not None and pending.not_before <= now:
                del self.deferred[session_id]
                self._enqueue(pending)
                self.is_dirty = True

    def next_wake_at(self) -> datetime | None:
        """Return when the next deferred session or reservation is due; None: no known time."""
        while self._alarms and self._alarms[0][1] not in self.deferred:
            heappop(self._alarms)
        times = [r.starts_at for r in self.reservations if r.starts_at is not None]
        if self._alarms:
            times.append(self._alarms[0][0])
        if self.next_plan_at is not None:
            times.append(self.next_plan_at)
        return min(times, default=None)

    # ---- Running sessions ----

    def track_running(self, running: RunningSession) -> None:
        """Add a running session, or update it."""
        if running.id in self.running:
            self.untrack_running(running.id)
        self.running[running.id] = running
        if self.parts.is_used:
            self.parts.track(running)
        if running.is_ending:
            self.ending[running.id] = running
        if self.candidates is not None:
            self.candidates.add(running)
        if running.ends_at is None:
            self.unlimited[running.id] = running
        else:
            insort(self.by_end, (running.ends_at, running.started_at, running.id))

    def untrack_running(self, session_id: str) -> None:
        """Remove a session that is no longer running."""
        running = self.running.pop(session_id)
        self.ending.pop(session_id, None)
        if self.parts.is_used:
            self.parts.untrack(running)
        if self.candidates is not None:
            self.candidates.remove(session_id)
        if running.ends_at is None:
            del self.unlimited[session_id]
        else:
            end = (running.ends_at, running.started_at, session_id)
            del self.by_end[bisect_left(self.by_end, end)]

    def preemptible(self) -> Candidates:
        """Return the running sessions that may be preempted."""
        if self.candidates is None or self.candidates.is_worn:
            self.candidates = Candidates(self.running.values())
        return self.candidates

    def victims(self) -> frozenset[str]:
        """Return the sessions that are victims of any plan."""
        plans = (shape.pending.plan for shape in self.planned.values())
        return frozenset(key for plan in plans if plan is not None for key in plan.victim_ids)

    def ended_before(self, until: datetime) -> list[RunningSession]:
        """Return the running sessions that are being stopped or end no later than ``until``."""
        count = bisect_right(self.by_end, until, key=lambda end: end[0])
        with_end = {key: self.running[key] for _, _, key in self.by_end[:count]}
        return list({**self.ending, **with_end}.values())

    def withhold_parts(self, now: datetime) -> None:
        """Keep reserved parts of agents free for members of the reservations, as required at
        ``now``.
        """
        if self.parts.is_used or self.placer.is_withholding:
            sets = {shape.pending.request.beside for shape in self.shapes.values()}
            self.parts.apply(self.placer, sets, now)

    # ---- Quota reserved for sessions with a reservation ----

    def reserve_quota(self) -> None:
        """Charge the sessions with a reservation to their scopes during a pass."""
        for reservation in self.reservations:
            shape = self.shape_of.get(reservation.session_id)
            if shape is not None:
                self.reserve_quota_for(shape)

    def reserve_quota_for(self, shape: Shape) -> None:
        """Charge one session of a shape to its scopes until ``release_reserved_quota``."""
        self.quotas.allocate(shape.rows, shape.need)
        self._quota_reserved_for.append(shape)

    def release_reserved_quota(self) -> None:
        """Revert the charges for sessions with a reservation."""
        for shape in self._quota_reserved_for:
            self.quotas.release(shape.rows, shape.need)
        self._quota_reserved_for.clear()

    def fits_when_empty(self, shape: Shape) -> bool:
        """Return whether a session of a shape would fit if the group were empty and healthy."""
        return self.placer.fits_when_empty(shape.handle)

    def reasons_of(self, session_id: str) -> tuple[Reason, ...] | None:
        """Return the reasons of a pending session; None if the session is excluded from passes."""
        shape = self.shape_of.get(session_id)
        if shape is None:
            return None
        return self.reserved.get(session_id, shape.reasons)

    def pending_ids(self) -> list[str]:
        """Return the ids of all pending sessions, including those excluded from passes."""
        return [*self.shape_of, *self.deferred, *self.blocked]

    # ---- Agents ----

    def set_agent(self, agent: AgentState) -> None:
        """Replace the state of one agent, including its usage, or add it."""
        before = self.agents.get(agent.id)
        self.placer.update(agent)
        self.agents[agent.id] = agent
        self._change_capacity([] if before is None else [before], [agent])
        self.is_dirty = True

    def remove_agent(self, agent_id: str) -> None:
        """Remove an agent."""
        agent = self.agents.pop(agent_id, None)
        if agent is not None:
            self.placer.remove(agent_id)
            self._change_capacity([agent], [])
            self.is_dirty = True

    def _change_capacity(self, before: list[AgentState], after: list[AgentState]) -> None:
        old, new = capacity_of(before), capacity_of(after)
        if old != new:
            names = {*self._capacity, *old, *new}
            totals = {n: self._capacity.get(n, 0) + new.get(n, 0) - old.get(n, 0) for n in names}
            self._capacity = {name: total for name, total in sorted(totals.items()) if total}
            self.shares.set_capacity(self._capacity)
            self._fair.clear()

    def set_state(self, state: GroupState) -> None:
        """Replace the options of the group; they take effect at the next pass."""
        before, self.state = self.state, state
        self.parts.set_held(state.held, self.running.values())
        self.is_dirty = True
        if before.order is not state.order:
            self.selection.mark_all_changed()
        self._fair.clear()
        if before.placement != state.placement:
            self._replace_placer()
        elif state.tables is not None and before.tables is not state.tables:
            self.placer.set_tables(state.tables)

    def _replace_placer(self) -> None:
        """Create a new placer from the current agents and prepare all requests again."""
        self.state = replace(self.state, last_agent=self.placer.last_agent or self.state.last_agent)
        before, self.placer = self.placer, self._new_placer(self.placer.agents())
        self.placer.withhold_like(before)
        self.capacity_reasons = {}
        for shape in self.shapes.values():
            shape.handle = self.placer.prepare(shape.pending.request)
        self.selection.mark_all_changed()

    # ---- Fair share ----

    def set_history(self, history: Mapping[Scope, Sequence[DailyUsage]]) -> None:
        self._history = history
        self._fair.clear()
        self.is_dirty = True

    def set_day(self, day: int) -> None:
        """Set the current day; usage of earlier days decays."""
        if day != self._day:
            self._day = day
            self._fair.clear()
            if self.state.order is Order.FAIR_SHARE:
                self.is_dirty = True

    def standing(self, party: Party) -> Standing:
        """Return the standing of a party; the party with the smallest standing is next.

        Under drf, the standing is the user's dominant share. Under fair-share, it consists of the
        negated fair-share factors of domain, project and user, and then the dominant share.
        """
        return self.standing_with(party, self.shares)

    def standing_with(self, party: Party, shares: DominantShares) -> Standing:
        """Return the standing of a party if the users have these dominant shares."""
        share = shares.of(party[-1])
        if self.state.order is Order.DRF:
            return (share,)
        fair = self._fair.get(party)
        if fair is None:
            fair = self._fair[party] = tuple(-self.factor(scope) for scope in party)
        return (*fair, share)

    def factor(self, scope: Scope | None) -> float:
        """Return the fair-share factor of a domain, project or user in this group."""
        if scope is None:
            return 1.0
        buckets = self._history.get(scope, ())
        return fair_factor(scope, buckets, self.state.fair_share, self._capacity, self._day)
