"""The queue of all resource groups, its state between passes, and the steps of a pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..caps import Scope
from ..placement import AgentState, Placement
from ..preemption.plan import Plan, Preemption
from .dominant_shares import amounts_by_resource, fair_scopes, today
from .durations import Durations
from .explain import blocked_reasons, explain_group
from .group_pass import GroupPass
from .group_queue import GroupQueue
from .model import (
    Certainty,
    Changes,
    Decision,
    GroupState,
    PassResult,
    PauseIfBusy,
    PendingSession,
    Reason,
    Reservation,
    RunningSession,
    Snapshot,
    no_op,
)
from .quota import Quotas
from .reasons import Reasons, unreported_reasons
from .restrictions import restricted
from .shape import Shape, session_slots, shape_key


def run_pass(snapshot: Snapshot) -> PassResult:
    """Run one pass: decide which sessions start where, and explain why others do not start.

    The result is deterministic.
    """
    return Queue(snapshot).run(snapshot.now)


# Maximum number of rounds in one pass (see ``Queue._decide``); more than three are rarely needed.
MAX_ROUNDS = 10
# Maximum number of preemption plans that one pass makes for a group, and of repetitions after
# members of a reservation have started.
MAX_PLANS = 5


class Queue:
    """The queue of all resource groups: it receives changes and returns decisions and reasons.

    The state of a snapshot is stored as integer columns, to which changes are applied::

        queue = Queue(snapshot)
        result = queue.run(now)                  # sessions of decisions count as running
        queue.apply(Changes(removed=["s1"]))     # a session ended: its resources are free
        queue.apply(Changes(pending=[session]))  # a new session, or a start was not stored
        queue.run(now)                           # takes almost no time without changes

    Not thread-safe. After changes, the decisions equal the decisions of a new queue with the same
    state, except for ties that a placement policy breaks by earlier placements.
    """

    def __init__(self, snapshot: Snapshot, pause_if_busy: PauseIfBusy = no_op) -> None:
        """Load a snapshot; long-running methods call ``pause_if_busy`` repeatedly."""
        self.pause_if_busy = pause_if_busy
        self._now = snapshot.now
        self._pending: dict[str, PendingSession] = {}
        self._running: dict[str, RunningSession] = {}
        self._quotas = Quotas(snapshot.caps, snapshot.usage)
        self._durations = snapshot.durations
        self._history = snapshot.history
        self._version = 0  # incremented when usage counters or caps change
        self._revision = 0
        self._last = PassResult((), {})
        # Plans of the current pass.
        self._preemptions: list[Preemption] = []
        self._dropped_plans: list[str] = []
        self._group_queues = self._new_group_queues(snapshot)
        self._group_of_agent = {agent.id: agent.resource_group for agent in snapshot.agents}
        for running in snapshot.running:
            pause_if_busy()
            self._track_running(running)
            self._count_share(running, 1)
        for pending in snapshot.pending:
            pause_if_busy()
            self._add(pending)
        for session_id in sorted(snapshot.reserved & self._pending.keys()):
            self._restore_reservation(self._pending[session_id])

    def _restore_reservation(self, pending: PendingSession) -> None:
        """Record that a session had a reservation; the next pass computes new placements."""
        group = pending.request.resource_group
        group_queue = self.group_queue(group)
        reservation = Reservation(pending.id, group, None, Certainty.UNKNOWN)
        group_queue.reservations = (*group_queue.reservations, reservation)

    def _new_group_queues(self, snapshot: Snapshot) -> dict[str, GroupQueue]:
        agents: dict[str, list[AgentState]] = {}
        for agent in snapshot.agents:
            agents.setdefault(agent.resource_group, []).append(agent)
        names = {*snapshot.groups, *snapshot.inactive_groups, *agents}
        names.update(pending.request.resource_group for pending in snapshot.pending)
        group_queues = {}
        for name in sorted(names):
            state = snapshot.groups.get(name, GroupState(name))
            if name in snapshot.inactive_groups:
                state = replace(state, is_active=False)
            group_queues[name] = self._new_group_queue(state, agents.get(name, []))
        return group_queues

    def _new_group_queue(self, state: GroupState, agents: Sequence[AgentState]) -> GroupQueue:
        group_queue = GroupQueue(state, agents, self._quotas)
        group_queue.set_history(self._history.get(state.name, {}))
        return group_queue

    def group_queue(self, group: str) -> GroupQueue:
        """Return the queue of a resource group; create an empty one if the group is unknown."""
        group_queue = self._group_queues.get(group)
        if group_queue is None:
            self._group_queues[group] = group_queue = self._new_group_queue(GroupState(group), ())
            self._group_queues = dict(sorted(self._group_queues.items()))
        return group_queue

    def pending(self, session_id: str) -> PendingSession | None:
        """Return a pending session, or None."""
        return self._pending.get(session_id)

    def running_session(self, session_id: str) -> RunningSession | None:
        """Return a session with allocated resources, or None."""
        return self._running.get(session_id)

    def running(self, group: str) -> list[RunningSession]:
        """Return the running sessions of a group."""
        return list(self.group_queue(group).running.values())

    def stops(self) -> dict[str, datetime]:
        """Return the planned stop times of the victims of preemption plans."""
        return {
            key: plan.stops_at
            for group_queue in self._group_queues.values()
            for shape in group_queue.planned.values()
            if (plan := shape.pending.plan) is not None
            for key in plan.victim_ids
        }

    def all_running(self) -> list[RunningSession]:
        """Return all running sessions."""
        return list(self._running.values())

    def all_pending(self) -> dict[str, PendingSession]:
        """Return all pending sessions by id."""
        return dict(self._pending)

    def is_capped(self, pending: PendingSession) -> bool:
        """Return whether any scope of a session has a cap on a slot that it requests."""
        need = self._quotas.need(session_slots(pending))
        return self._quotas.is_capped(self._quotas.rows(pending.scopes), need)

    def pending_in(self, group: str) -> list[PendingSession]:
        """Return all pending sessions of a group, in no particular order."""
        return [self._pending[session_id] for session_id in self.group_queue(group).pending_ids()]

    def running_in_scope(self, kind: str, scope_id: str, slot: str = "") -> list[str]:
        """Return the ids of the running sessions that are charged to a scope, oldest first.

        With ``slot``, return only sessions that use this slot.
        """
        scope = Scope(kind, scope_id)
        charged = [
            r
            for r in self._running.values()
            if scope in r.scopes and (not slot or r.slots.get(slot, 0))
        ]
        return [r.id for r in sorted(charged, key=lambda r: (r.started_at, r.id))]

    @property
    def revision(self) -> int:
        """A number that increases with every change and every pass that is not skipped."""
        return self._revision

    @property
    def now(self) -> datetime:
        """The time of the last pass, or of the snapshot before the first pass."""
        return self._now

    @property
    def durations(self) -> Mapping[str, Sequence[int]]:
        """Run times of ended sessions in seconds, by kind."""
        return self._durations

    @property
    def quotas(self) -> Quotas:
        """Caps and counters of all scopes."""
        return self._quotas

    def groups(self) -> list[str]:
        """Return the names of all resource groups, sorted."""
        return list(self._group_queues)

    def fork(self) -> Queue:
        """Return a read-only copy of the current state, for an ``Explainer`` in another thread.

        Copying dicts and columns takes much less time than a pass. Run passes and apply changes
        only on the original.
        """
        other = copy.copy(self)
        other._pending, other._running = dict(self._pending), dict(self._running)
        other._group_of_agent = dict(self._group_of_agent)
        other._quotas = self._quotas.copy()
        other._group_queues = {
            name: group_queue.fork(other._quotas)
            for name, group_queue in self._group_queues.items()
        }
        other._last = PassResult((), {})
        return other

    def fork_to_run(self) -> Queue:
        """Return a copy on which passes can be run; can also be called on a fork."""
        other = self.fork()
        other._group_queues = {
            name: group_queue.fork_to_run(other._quotas, other._pending)
            for name, group_queue in self._group_queues.items()
        }
        other._durations = self._learned()
        return other

    # ---- Changes ----

    def apply(self, changes: Changes) -> None:
        """Apply changes; the next pass takes them into account."""
        self._revision += 1
        for session_id in changes.removed:
            self._remove(session_id)
        for agent_id in changes.removed_agents:
            self._remove_agent(agent_id)
        for state in changes.groups:
            self.group_queue(state.name).set_state(state)
        for running in changes.running:
            self.pause_if_busy()
            self._set_running(running)
        for pending in changes.pending:
            self.pause_if_busy()
            known = self._pending.get(pending.id)
            if known is None or known.without_maintenance() != pending:
                self._remove(pending.id)
                self._add(pending)
        for agent in changes.agents:
            self._set_agent(agent)
        self._apply_counters(changes)

    def _apply_counters(self, changes: Changes) -> None:
        for scope, caps in changes.caps.items():
            self._quotas.set_caps(scope, caps)
        for scope, used in changes.usage.items():
            if self._quotas.used(scope) != {slot: n for slot, n in used.items() if n}:
                self._quotas.set_usage(scope, used)
                self._version += 1
        self._version += bool(changes.caps)
        if changes.history is not None:
            self._history = changes.history
            for name, group_queue in self._group_queues.items():
                group_queue.set_history(self._history.get(name, {}))
        if changes.durations is not None:
            self._durations = changes.durations
            for group_queue in self._group_queues.values():
                group_queue.is_dirty = True

    def _add(self, pending: PendingSession) -> None:
        self._pending[pending.id] = pending
        self.group_queue(pending.request.resource_group).add(pending, self._now)

    def _remove(self, session_id: str) -> None:
        pending = self._pending.pop(session_id, None)
        if pending is not None:
            self.group_queue(pending.request.resource_group).remove(pending)
        running = self._running.pop(session_id, None)
        if running is not None:
            self.group_queue(running.group).untrack_running(session_id)
            self._charge_or_release(running, -1)

    def _track_running(self, running: RunningSession) -> None:
        self._running[running.id] = running
        self.group_queue(running.group).track_running(running)

    def _set_running(self, running: RunningSession) -> None:
        known = self._running.get(running.id)
        if known is not None and known.placements == running.placements:
            self._track_running(running)
            if known != running:
                self.group_queue(running.group).is_dirty = True
            return
        self._remove(running.id)
        self._track_running(running)
        self._charge_or_release(running, 1)

    def _charge_or_release(self, running: RunningSession, sign: int) -> None:
        """Charge (``sign`` 1) or release (-1) a session's capacity and quota between passes."""
        group_queue = self.group_queue(running.group)
        if sign > 0:
            group_queue.placer.allocate(running.placements)
        else:
            group_queue.placer.release(running.placements)
        group_queue.is_dirty = True
        rows, need = self._quotas.rows(running.scopes), self._quotas.need(running.slots)
        if sign > 0:
            self._quotas.allocate(rows, need)
        else:
            self._quotas.release(rows, need)
        self._version += 1
        self._count_share(running, sign)

    def _count_share(self, running: RunningSession, sign: int) -> None:
        user = fair_scopes(running.scopes)[-1]
        self.group_queue(running.group).shares.add(user, amounts_by_resource(running.slots), sign)

    def _set_agent(self, agent: AgentState) -> None:
        before = self._group_of_agent.get(agent.id)
        if before not in (None, agent.resource_group):
            self._remove_agent(agent.id)
        self._group_of_agent[agent.id] = agent.resource_group
        self.group_queue(agent.resource_group).set_agent(agent)

    def _remove_agent(self, agent_id: str) -> None:
        group = self._group_of_agent.pop(agent_id, None)
        if group is not None:
            self.group_queue(group).remove_agent(agent_id)

    # ---- A pass ----

    def run(self, now: datetime, *, explains: bool = True) -> PassResult:
        """Run one pass and return its decisions.

        The pass is skipped if nothing has changed and no start time or reservation is due. For
        fair-share, a new day is a change. Without ``explains``, reasons are not computed:
        simulations do not need them.
        """
        # 1. Snapshot: the current columns, at the time of this pass.
        self._now = now
        for group_queue in self._group_queues.values():
            group_queue.set_day(today(now))
            group_queue.enqueue_due(now)
            self._apply_maintenance(group_queue)
        group_queues = [
            group_queue
            for group_queue in self._group_queues.values()
            if self._needs_pass(group_queue)
        ]
        if not group_queues:
            return self._unchanged()
        self._revision += 1
        # 2.-6. Order, admit, place, reserve, backfill, preempt.
        self._preemptions, self._dropped_plans = [], []
        decisions = self._decide(group_queues)
        # 7. Explain the changed groups, and all groups if a usage counter or a cap has changed.
        changed: dict[str, tuple[Reason, ...]] = {}
        for group_queue in self._group_queues.values():
            if group_queue.is_dirty or group_queue.quota_version != self._version:
                group_queue.is_dirty = False
                group_queue.quota_version = self._version
                if explains:
                    explain_group(group_queue, self.pause_if_busy)
                    changed.update(unreported_reasons(group_queue))
        self._mark_planned()
        reservations = tuple(
            r for group_queue in self._group_queues.values() for r in group_queue.reservations
        )
        self._last = PassResult(
            tuple(decisions),
            Reasons(self),
            reservations,
            self.next_wake_at(),
            changed,
            tuple(self._preemptions),
            tuple(self._dropped_plans),
        )
        return self._last

    def _mark_planned(self) -> None:
        """Mark groups with changed plans, because the next pass may make other plans."""
        for preemption in self._preemptions:
            self.group_queue(preemption.group).is_dirty = True
        for session_id in self._dropped_plans:
            if (pending := self._pending.get(session_id)) is not None:
                self.group_queue(pending.request.resource_group).is_dirty = True

    def _apply_maintenance(self, group_queue: GroupQueue) -> None:
        """Restrict the sessions of a group to the agents that maintenance and advance reservations
        do not withhold now.

        Most calls only compare the restriction of each shape and change no session.
        """
        state = group_queue.state
        if not (state.maintenance or state.held or group_queue.is_restricted):
            return
        group_queue.is_restricted = False
        for shape in list(group_queue.shapes.values()):
            current = self._pending[shape.members[0][1]]
            restricted = self._restricted(group_queue, current)
            group_queue.is_restricted |= restricted.maintenance is not None
            if restricted.request == current.request and shape_key(restricted) == shape.key:
                continue
            for _, session_id in list(shape.members):
                self.pause_if_busy()
                pending = self._pending[session_id]
                group_queue.remove(pending)
                self._pending[session_id] = self._restricted(group_queue, pending)
                group_queue.add(self._pending[session_id], self._now)

    def _restricted(self, group_queue: GroupQueue, pending: PendingSession) -> PendingSession:
        return restricted(group_queue.state, group_queue.agents.keys(), self._now, pending)

    def _needs_pass(self, group_queue: GroupQueue) -> bool:
        if any(
            r.starts_at is not None and r.starts_at <= self._now for r in group_queue.reservations
        ):
            group_queue.is_dirty = True
        if group_queue.next_plan_at is not None and group_queue.next_plan_at <= self._now:
            group_queue.is_dirty = True
        return group_queue.is_dirty or group_queue.quota_version != self._version

    def _decide(self, group_queues: list[GroupQueue]) -> list[Decision]:
        """Run the pass of each group.

        The quota of sessions with a reservation is withheld from all other groups. Because the
        first group may exhaust a cap before the second makes a reservation, rounds are repeated (at
        most MAX_ROUNDS in total) until decisions of one group no longer affect another.
        """
        decisions: list[Decision] = []
        # By group: the number of decisions of all groups after the group's last round.
        known: dict[str, int] = {}
        for _ in range(MAX_ROUNDS):
            before = self._reserved()
            for group_queue in self._group_queues.values():
                group_queue.reserve_quota()
            for group_queue in group_queues:
                group_queue.release_reserved_quota()
                decisions += self._decide_group(group_queue)
                known[group_queue.state.name] = len(decisions)
            for group_queue in self._group_queues.values():
                group_queue.release_reserved_quota()
            group_queues = self._affected(before, known, len(decisions))
            if not group_queues:
                break
        return decisions

    def _affected(self, before: set[str], known: Mapping[str, int], made: int) -> list[GroupQueue]:
        """Return the groups affected by decisions or reservations of other groups since their
        round.
        """
        if len(self._group_queues) == 1:
            return []
        # The quota of a reserved session is already charged, so its start changes no charges.
        if before & self._pending.keys() != self._reserved():
            return list(self._group_queues.values())
        return [
            group_queue
            for name, group_queue in self._group_queues.items()
            if known.get(name, 0) < made and (group_queue.stopped_by or group_queue.reservations)
        ]

    def _reserved(self) -> set[str]:
        return {
            r.session_id
            for group_queue in self._group_queues.values()
            for r in group_queue.reservations
        }

    def _decide_group(self, group_queue: GroupQueue) -> list[Decision]:
        if not group_queue.state.is_active:
            group_queue.reservations = ()
            return []
        decisions: list[Decision] = []
        for _ in range(MAX_PLANS):
            group_queue.release_reserved_quota()
            one = GroupPass(group_queue, self._start, self._now, self._learned())
            decisions += one.run(self._pending, self.pause_if_busy)
            for session_id in one.dropped_plans:
                self._dropped_plans.append(session_id)
                self._set_plan(session_id, None)
            if one.preemption is not None:
                # Repeat the pass, to hold resources for the new plan.
                self._preemptions.append(one.preemption)
                self._set_plan(one.preemption.session_id, one.preemption.plan)
            elif not one.has_used_parts:
                break
        return decisions

    def _set_plan(self, session_id: str, plan: Plan | None) -> None:
        """Set or remove the plan of a pending session; the next pass of its group uses it."""
        pending = self._pending[session_id]
        group_queue = self.group_queue(pending.request.resource_group)
        group_queue.remove(pending)
        self._pending[session_id] = replace(pending, plan=plan)
        group_queue.add(self._pending[session_id], self._now)

    def _learned(self) -> Durations:
        known = self._durations
        return known if isinstance(known, Durations) else Durations(known)

    def _unchanged(self) -> PassResult:
        last = self._last
        if last.decisions or last.changed or last.preemptions or last.dropped_plans:
            last = self._last = replace(
                last, decisions=(), changed={}, preemptions=(), dropped_plans=()
            )
        return last

    def next_wake_at(self) -> datetime | None:
        """Return when the next pass is due without changes; None if no pass is due."""
        times = [
            at
            for group_queue in self._group_queues.values()
            if (at := group_queue.next_wake_at()) is not None
        ]
        times += [
            window.ends_at
            for group_queue in self._group_queues.values()
            if group_queue.is_restricted
            for window in group_queue.state.maintenance
            if window.ends_at is not None
        ]
        times += [
            one.ends_at
            for group_queue in self._group_queues.values()
            if group_queue.is_restricted
            for one in group_queue.state.held
        ]
        return min((at for at in times if at > self._now), default=None)

    def _start(
        self,
        group_queue: GroupQueue,
        shape: Shape,
        session_id: str,
        placements: tuple[Placement, ...],
    ) -> RunningSession:
        """Turn a pending session that a pass has placed into a running session."""
        pending = self._pending.pop(session_id)
        seconds = pending.max_run_seconds
        running = RunningSession(
            session_id,
            group_queue.state.name,
            pending.scopes,
            placements,
            shape.slots,
            self._now,
            None if seconds is None else self._now + timedelta(seconds=seconds),
            pending.kind,
            pending.priority,
            pending.job_priority,
            pending.is_preemptible,
            is_running=False,
        )
        self._track_running(running)
        self._quotas.allocate(shape.rows, shape.need)
        self._version += 1
        group_queue.shares.add(shape.party[-1], shape.amounts)
        return running

    def reasons_of(self, session_id: str) -> tuple[Reason, ...]:
        """Return why a session was pending after the last pass.

        Raises
        ------
        KeyError
            If the session is not pending.
        """
        pending = self._pending[session_id]
        reasons = self.group_queue(pending.request.resource_group).reasons_of(session_id)
        return blocked_reasons(pending) if reasons is None else reasons

    def pending_ids(self) -> Iterator[str]:
        """Return the ids of all pending sessions."""
        return iter(self._pending)

    def count_pending(self) -> int:
        return len(self._pending)

    @property
    def is_restricted(self) -> bool:
        """Whether maintenance or an advance reservation restricts any session."""
        return any(group_queue.is_restricted for group_queue in self._group_queues.values())

    def count_deferred(self) -> int:
        """Return the number of pending sessions with a start time in the future."""
        return sum(len(group_queue.deferred) for group_queue in self._group_queues.values())
