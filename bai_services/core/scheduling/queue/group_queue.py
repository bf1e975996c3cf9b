"""The queue of one resource group: waiting sessions by shape, running sessions, agents."""

from __future__ import annotations

import copy
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heapify, heappop, heappush

from ..caps import Scope
from ..placement import AgentState
from ..placement.placer import Placer
from .durations import Durations
from .model import Bucket, GroupState, Order, Party, Reason, Reservation, Running, Waiting
from .order import Standing
from .quota import Quotas
from .releases import Releases
from .selection import Selection
from .shape import Shape, ShapeKey, shape_key
from .shares import Shares, capacity_of, fair_factor

# Number of requests without waiting sessions that a placer still caches.
_MAX_HANDLES = 4096


class GroupQueue:
    """One resource group of a ``Queue``: persists between passes and is updated by changes."""

    def __init__(self, state: GroupState, agents: Iterable[AgentState], quotas: Quotas) -> None:
        self.state = state
        self.quotas = quotas
        self.agents = {agent.id: agent for agent in sorted(agents, key=lambda a: a.id)}
        self.placer = self._new_placer(list(self.agents.values()))
        self.shapes: dict[ShapeKey, Shape] = {}
        self.shape_of: dict[str, Shape] = {}
        self.selection = Selection()
        # Sessions excluded from passes: not yet due, or with another unmet condition.
        self.deferred: dict[str, Waiting] = {}
        self.held: dict[str, Waiting] = {}
        self.running: dict[str, Running] = {}
        # Running sessions with a limit, sorted by end; those without a limit.
        self.by_end: list[tuple[datetime, datetime, str]] = []
        self.endless: dict[str, Running] = {}
        self.unreported: list[str] = []  # excluded sessions whose reasons were not reported yet
        self._alarms: list[tuple[datetime, str]] = []
        self.shares = Shares()
        self._capacity = capacity_of(self.agents.values())
        self.shares.set_capacity(self._capacity)
        self._history: Mapping[Scope, Sequence[Bucket]] = {}
        self._fair: dict[Party, Standing] = {}  # fair-share standing of each party
        self._day = 0
        self._numbers = 0
        # Results of the last pass.
        self.is_dirty = True
        self.quota_version = -1
        self.stopped_by: str = ""  # the session that no other may pass
        self.is_passed = False  # a session held back by caps precedes the one that needs room
        self.has_spare = False  # there is room beside the reserved session when it starts
        self.reservations: tuple[Reservation, ...] = ()
        # by handle; empty tuple: there is room
        self.room_reasons: dict[int, tuple[Reason, ...]] = {}
        self.reserved: dict[str, tuple[Reason, ...]] = {}  # reasons of sessions with a reservation
        self.reported_reserved: dict[str, tuple[Reason, ...]] = {}
        self._kept: list[Shape] = []

    def _new_placer(self, agents: list[AgentState]) -> Placer:
        state = self.state
        return Placer(agents, state.placement, state.tables, last_agent=state.last_agent)

    def fork(self, quotas: Quotas) -> GroupQueue:
        """Return a copy for reading, unaffected by later changes of this one; shapes are shared."""
        other = copy.copy(self)
        other.quotas = quotas
        other.agents, other.placer = dict(self.agents), self.placer.fork_for_thread()
        other.shapes, other.shape_of = dict(self.shapes), dict(self.shape_of)
        other.selection = self.selection.copy()
        other.deferred, other.held = dict(self.deferred), dict(self.held)
        other.by_end, other.endless = list(self.by_end), dict(self.endless)
        other.running, other.shares = dict(self.running), self.shares.copy()
        other.room_reasons, other._fair = dict(self.room_reasons), dict(self._fair)
        return other

    def fork_to_run(self, quotas: Quotas, waiting: Mapping[str, Waiting]) -> GroupQueue:
        """Return a copy on which passes can be run, with shapes of its own.

        If this is itself a fork, its shapes and alarms belong to the original and may have changed
        since; so members and alarms are rebuilt from ``waiting``.
        """
        other = self.fork(quotas)
        copies = {id(shape): shape.without_members(other.placer) for shape in self.shapes.values()}
        other.shapes = {copy.key: copy for copy in copies.values()}
        other.shape_of = {key: copies[id(shape)] for key, shape in self.shape_of.items()}
        for key, shape in other.shape_of.items():
            shape.members.append((waiting[key].sequence, key))
        for shape in other.shapes.values():
            shape.members.sort()
        other.selection.replace(lambda shape: copies[id(shape)])
        times = ((w.not_before, key) for key, w in self.deferred.items())
        other._alarms = [(at, key) for at, key in times if at is not None]
        heapify(other._alarms)
        other.unreported, other._kept = [], []
        return other

    # ---- Waiting sessions ----

    def add(self, waiting: Waiting, now: datetime) -> None:
        """Add a session to the queue."""
        self.is_dirty = True
        if waiting.closed or waiting.unmet:
            self.held[waiting.id] = waiting
            self.unreported.append(waiting.id)
        elif waiting.not_before is not None and waiting.not_before > now:
            self.deferred[waiting.id] = waiting
            self.unreported.append(waiting.id)
            heappush(self._alarms, (waiting.not_before, waiting.id))
        else:
            self._line_up(waiting)

    def _line_up(self, waiting: Waiting) -> None:
        key = shape_key(waiting)
        shape = self.shapes.get(key)
        if shape is None:
            self._numbers += 1
            shape = self.shapes[key] = Shape(self._numbers, waiting, self.quotas, self.placer)
            self.selection.add(shape)
        self.selection.moved(shape)
        insort(shape.members, (waiting.sequence, waiting.id))
        shape.fresh.append(waiting.id)
        self.shape_of[waiting.id] = shape

    def remove(self, waiting: Waiting) -> None:
        """Remove a session from the queue."""
        self.is_dirty = True
        self.held.pop(waiting.id, None)
        self.deferred.pop(waiting.id, None)
        shape = self.shape_of.pop(waiting.id, None)
        if shape is not None:
            at = bisect_left(shape.members, (waiting.sequence, waiting.id))
            del shape.members[at]
            self.selection.moved(shape)
            self._forget_if_empty(shape)

    def started(self, counts: Mapping[Shape, int]) -> None:
        """Remove the first (for lifo the last) ``counts[shape]`` sessions of each shape."""
        for shape, count in counts.items():
            part = slice(-count, None) if self.state.order is Order.LIFO else slice(count)
            for _, session_id in shape.members[part]:
                del self.shape_of[session_id]
            del shape.members[part]
            self.selection.moved(shape)
            self._forget_if_empty(shape)

    def _forget_if_empty(self, shape: Shape) -> None:
        if not shape.members:
            del self.shapes[shape.key]
            self.selection.drop(shape)
            if shape.handle > _MAX_HANDLES + 4 * len(self.shapes):
                self._replace_placer()

    def wake(self, now: datetime) -> None:
        """Include the sessions that are due now in passes."""
        while self._alarms and self._alarms[0][0] <= now:
            _, session_id = heappop(self._alarms)
            waiting = self.deferred.get(session_id)
            if waiting is not None and waiting.not_before is not None and waiting.not_before <= now:
                del self.deferred[session_id]
                self._line_up(waiting)
                self.is_dirty = True

    def wakes_at(self) -> datetime | None:
        """Return when the state changes without any event."""
        while self._alarms and self._alarms[0][1] not in self.deferred:
            heappop(self._alarms)
        times = [r.starts_at for r in self.reservations if r.starts_at is not None]
        if self._alarms:
            times.append(self._alarms[0][0])
        return min(times, default=None)

    # ---- Running sessions ----

    def note_running(self, running: Running) -> None:
        """Add a running session, or update it."""
        if running.id in self.running:
            self.forget_running(running.id)
        self.running[running.id] = running
        if running.ends_at is None:
            self.endless[running.id] = running
        else:
            insort(self.by_end, (running.ends_at, running.started_at, running.id))

    def forget_running(self, session_id: str) -> None:
        """Remove a session that no longer runs."""
        running = self.running.pop(session_id)
        if running.ends_at is None:
            del self.endless[session_id]
        else:
            end = (running.ends_at, running.started_at, session_id)
            del self.by_end[bisect_left(self.by_end, end)]

    def releases(self, now: datetime, durations: Durations) -> Releases:
        """Return when and where room is released."""
        return Releases(self.running, self.by_end, self.endless.values(), now, durations)

    # ---- Quota reserved for sessions with a reservation ----

    def keep(self) -> None:
        """Count the sessions with a reservation in their scopes during a pass."""
        for reservation in self.reservations:
            shape = self.shape_of.get(reservation.session_id)
            if shape is not None:
                self.reserve_quota_for(shape)

    def reserve_quota_for(self, shape: Shape) -> None:
        """Count one session of a shape in its scopes until ``let_go``."""
        self.quotas.take(shape.rows, shape.need)
        self._kept.append(shape)

    def let_go(self) -> None:
        """Stop counting the reserved sessions."""
        for shape in self._kept:
            self.quotas.give(shape.rows, shape.need)
        self._kept.clear()

    def can_ever(self, shape: Shape) -> bool:
        """Return whether the group could hold a session of a shape if it was empty."""
        return self.placer.can_ever(shape.handle)

    def reasons_of(self, session_id: str) -> tuple[Reason, ...] | None:
        """Return why a session waits that takes part in passes; None for any other session."""
        shape = self.shape_of.get(session_id)
        if shape is None:
            return None
        return self.reserved.get(session_id, shape.reasons)

    def waiting_ids(self) -> list[str]:
        """Return the ids of all sessions that wait here, excluded ones included."""
        return [*self.shape_of, *self.deferred, *self.held]

    # ---- Agents ----

    def set_agent(self, agent: AgentState) -> None:
        """Set the state of one agent, usage included, or add a new one."""
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
            amounts = {n: self._capacity.get(n, 0) + new.get(n, 0) - old.get(n, 0) for n in names}
            self._capacity = {name: amount for name, amount in sorted(amounts.items()) if amount}
            self.shares.set_capacity(self._capacity)
            self._fair.clear()

    def set_state(self, state: GroupState) -> None:
        """Replace the options; they take effect at the next pass."""
        before, self.state = self.state, state
        self.is_dirty = True
        if before.order is not state.order:
            self.selection.all_moved()
        self._fair.clear()
        if before.placement != state.placement:
            self._replace_placer()
        elif state.tables is not None and before.tables is not state.tables:
            self.placer.set_tables(state.tables)

    def _replace_placer(self) -> None:
        """Create a new placer from the current agents; all requests are prepared again."""
        self.state = replace(self.state, last_agent=self.placer.last_agent or self.state.last_agent)
        self.placer = self._new_placer(self.placer.agents())
        self.room_reasons = {}
        for shape in self.shapes.values():
            shape.handle = self.placer.prepare(shape.waiting.request)
        self.selection.all_moved()

    # ---- Fair share ----

    def set_history(self, history: Mapping[Scope, Sequence[Bucket]]) -> None:
        self._history = history
        self._fair.clear()
        self.is_dirty = True

    def set_day(self, day: int) -> None:
        """Set the current day: usage of earlier days decays."""
        if day != self._day:
            self._day = day
            self._fair.clear()
            if self.state.order is Order.FAIR_SHARE:
                self.is_dirty = True

    def standing(self, party: Party) -> Standing:
        """Return the standing of a user; smaller is earlier, ties go by dominant share."""
        return self.standing_with(party, self.shares)

    def standing_with(self, party: Party, shares: Shares) -> Standing:
        """Return the standing of a user for the given shares."""
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
