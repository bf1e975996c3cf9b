"""The plans of one resource group in a pass: start or drop planned sessions, and make new plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from ....resources import CPU, ResourceSlots
from ...caps import Scope
from ...placement import Placement, Placer
from ...preemption.options import VictimOrder
from ...preemption.plan import Plan, Preemption, to_hold
from ...preemption.rules import Rank, Rule, rule_of
from ..dominant_shares import DominantShares, amounts_by_resource, fair_scopes
from ..durations import Durations
from ..group_queue import GroupQueue
from ..model import Backfill, Certainty, Reservation, RunningSession
from ..order import Turns
from ..releases import Releases, releases_of
from ..reserve import later
from ..shape import Shape
from .victims import SearchResult, Victims, Wanted, find_victims

# Maximum number of shapes for which a pass searches for victims.
MAX_SEARCHES = 8

# Function that starts a planned session on its placements.
StartPlanned = Callable[[Shape, str, tuple[Placement, ...]], None]


@dataclass(frozen=True, slots=True)
class _Held:
    """A planned session that waits, and the placements that are held for it in this pass."""

    shape: Shape
    plan: Plan
    placements: tuple[Placement, ...]


class GroupPlans:
    """The plans of one group during one pass.

    At the beginning of a pass, ``start_planned`` starts the planned sessions that fit. For the
    others, it allocates the held resources, so that the rest of the pass cannot use them. At the
    end of the pass, ``release`` releases the held resources.
    """

    def __init__(self, group_queue: GroupQueue, now: datetime) -> None:
        self._group_queue = group_queue
        self._now = now
        self._held: list[_Held] = []
        self.dropped: list[str] = []

    def start_planned(self, start: StartPlanned) -> None:
        """Start planned sessions that fit now, and hold the resources of the others. Add sessions
        whose plan no longer helps to ``dropped``.
        """
        placer = self._group_queue.placer
        self._held = [
            _Held(shape, shape.pending.plan, self._to_hold(shape.pending.plan))
            for shape in sorted(self._group_queue.planned.values(), key=lambda s: s.members[0])
            if shape.pending.plan is not None
        ]
        for held in self._held:
            placer.allocate(held.placements)
        for held in list(self._held):
            placer.release(held.placements)
            self._held.remove(held)
            shape, session_id = held.shape, held.shape.members[0][1]
            if self._group_queue.quotas.exceeds_cap(shape.rows, shape.need):
                self.dropped.append(session_id)
                continue
            placements = placer.place(shape.handle)
            if placements is not None:
                start(shape, session_id, placements)
            elif self._helps(held):
                placer.allocate(held.placements)
                self._held.append(held)
                self._group_queue.reserve_quota_for(shape)
            else:
                self.dropped.append(session_id)

    def _to_hold(self, plan: Plan) -> tuple[Placement, ...]:
        leaving = [*self._remaining(plan), *self._ending_before(plan.stops_at)]
        return to_hold(plan.placements, _placements_of(leaving))

    def _ending_before(self, until: datetime) -> list[RunningSession]:
        """Return the sessions that end before ``until`` and are not a victim of any plan."""
        group_queue = self._group_queue
        victims = group_queue.victims()
        return [s for s in group_queue.ended_before(until) if s.id not in victims]

    def _remaining(self, plan: Plan) -> Iterator[RunningSession]:
        """Return the victims of a plan that still occupy resources."""
        running = self._group_queue.running
        return (running[key] for key in plan.victim_ids if key in running)

    def _helps(self, held: _Held) -> bool:
        """Return whether a planned session will fit when its victims have ended.

        The rules must still allow the preemption of the victims that are not being stopped yet.
        """
        group_queue, handle = self._group_queue, held.shape.handle
        remaining = list(self._remaining(held.plan))
        if not all(self._may_preempt(held.shape, victim) for victim in remaining):
            return False
        probe = group_queue.placer.fork()
        for session in [*remaining, *self._ending_before(held.plan.stops_at)]:
            probe.release(session.placements)
        self._hold_fully(probe)
        fits = probe.fits(handle)
        group_queue.placer.recycle(probe)
        return fits

    def _hold_fully(self, probe: Placer) -> None:
        """Allocate the full needs of the plans on a fork on which ending sessions are released."""
        for held in self._held:
            probe.release(held.placements)
            remaining = _placements_of(self._remaining(held.plan))
            probe.allocate(to_hold(held.plan.placements, remaining))

    def _may_preempt(self, shape: Shape, victim: RunningSession) -> bool:
        if not victim.is_running:
            return True  # it is already being stopped
        options = self._group_queue.state.preemption
        rank = Rank(victim.priority, victim.job_priority, victim.scopes)
        return victim.is_preemptible and rule_of(options, _rank_of(shape), rank) is not None

    def releases(self, durations: Durations) -> Releases:
        """Return when running sessions are expected to release their resources, as if the plans
        were already carried out (``carry_out``).
        """
        group_queue, now = self._group_queue, self._now
        if not self._held:
            running, by_end = group_queue.running, group_queue.by_end
            return Releases(running, by_end, group_queue.unlimited.values(), now, durations)
        victims = group_queue.victims()
        sessions = [s for s in group_queue.running.values() if s.id not in victims]
        return releases_of([*sessions, *map(self._as_running, self._held)], now, durations)

    def _as_running(self, held: _Held) -> RunningSession:
        pending, seconds = held.shape.pending, held.shape.pending.max_run_seconds
        return RunningSession(
            held.shape.members[0][1],
            self._group_queue.state.name,
            pending.scopes,
            held.plan.placements,
            held.shape.slots,
            self._now,
            None if seconds is None else later(held.plan.starts_at, seconds),
            pending.kind,
        )

    def carry_out(self, future: Placer) -> None:
        """Change a fork of the placer as if the planned sessions had replaced their victims."""
        for held in self._held:
            future.release(held.placements)
            for victim in self._remaining(held.plan):
                future.release(victim.placements)
            future.allocate(held.plan.placements)

    def reservations(self) -> tuple[Reservation, ...]:
        """Return a reservation for each session that waits for its victims."""
        group = self._group_queue.state.name
        return tuple(
            Reservation(
                held.shape.members[0][1],
                group,
                held.plan.starts_at,
                Certainty.ESTIMATED,
                held.plan.placements,
            )
            for held in self._held
        )

    def release(self) -> None:
        """Release the resources that ``start_planned`` has allocated."""
        for held in self._held:
            self._group_queue.placer.release(held.placements)

    def new_plan(self, reserved: Reservation | None) -> Preemption | None:
        """Return a plan for the first session that does not fit and for which victims exist.

        ``reserved`` is the reservation of the group. The plan never delays the reserved session: a
        plan for another session uses no agent of the reservation. Victims have a lower priority
        than the reserved session, so they cannot overtake it when they are pending again.
        """
        group_queue = self._group_queue
        group_queue.next_plan_at = None
        options = group_queue.state.preemption
        if not (options.enabled and group_queue.may_plan):
            return None
        searches = 0
        for shape, session_id in self._in_order(reserved):
            if searches >= MAX_SEARCHES:
                break
            if group_queue.quotas.exceeds_cap(shape.rows, shape.need):
                continue
            if not group_queue.placer.fits_when_empty(shape.handle):
                continue
            if group_queue.placer.fits(shape.handle):
                continue  # it fits, so it waits for another reason
            searches += 1
            victims = self._search(shape, session_id, reserved)
            if victims is not None:
                stops_at = self._now + timedelta(seconds=options.grace_seconds)
                plan = Plan(victims.sessions, victims.placements, stops_at)
                return Preemption(session_id, group_queue.state.name, plan)
        return None

    def _in_order(self, reserved: Reservation | None) -> Iterator[tuple[Shape, str]]:
        """Yield the first session of each shape without a plan, in queue order."""
        group_queue = self._group_queue
        state = group_queue.state
        only = group_queue.stopped_by if state.backfill is Backfill.OFF else ""
        lowest = min((rank.priority for rank in group_queue.preemptible().ranks), default=None)
        if lowest is None:
            return
        shapes = [
            shape
            for shape in group_queue.shapes.values()
            if shape.pending.plan is None and shape.priority >= lowest
        ]
        turns = Turns(shapes, state.order, group_queue.standing)
        while (shape := turns.peek()) is not None:
            _, session_id = turns.session(shape)
            turns.drop()
            if session_id not in self.dropped and only in ("", session_id):
                yield shape, session_id

    def _search(
        self, shape: Shape, session_id: str, reserved: Reservation | None
    ) -> Victims | None:
        group_queue = self._group_queue
        options, placer = group_queue.state.preemption, group_queue.placer
        kept = group_queue.victims()
        probe = placer.fork()
        # Sessions that end without preemption before the victims would be stopped.
        until = self._now + timedelta(seconds=options.grace_seconds)
        soon_ended = self._ending_before(until)
        for session in soon_ended:
            probe.release(session.placements)
        self._hold_fully(probe)
        kept |= {session.id for session in soon_ended}
        is_reserved = reserved is not None and reserved.session_id == session_id
        below_priority = None
        if reserved is not None and not is_reserved:
            _close_agents(probe, {placement.agent_id for placement in reserved.placements})
            other = group_queue.shape_of.get(reserved.session_id)
            below_priority = None if other is None else other.priority
        if probe.fits(shape.handle):
            placer.recycle(probe)
            return None
        search = self._fair_search(shape, probe, kept, below_priority)
        placer.recycle(probe)
        if search.next_at is not None:
            known = group_queue.next_plan_at
            group_queue.next_plan_at = min(known or search.next_at, search.next_at)
        return search.victims

    def _fair_search(
        self, shape: Shape, probe: Placer, kept: frozenset[str], below_priority: int | None
    ) -> SearchResult:
        """Find victims. After the preemption, the users of victims by fair share must still have
        larger shares.

        Victims by priority also reduce the shares, but these victims are known only after a search.
        A second search therefore assumes that all sessions of lower priority end.
        """
        group_queue = self._group_queue
        options = group_queue.state.preemption
        search = SearchResult()
        for counts_lower in (False, True):
            over_share: frozenset[str] = frozenset()
            if options.over_fair_share:
                over_share = self._over_share(shape, counts_lower)
            wanted = Wanted(
                shape.pending.request,
                shape.handle,
                _rank_of(shape),
                kept,
                over_share,
                below_priority,
            )
            trial = probe.fork() if options.over_fair_share else probe
            search = find_victims(group_queue.preemptible(), trial, options, wanted, self._now)
            if trial is not probe:
                probe.recycle(trial)
            if search.victims is None or self._keeps_order(shape, search.victims):
                break
        return search

    def _keeps_order(self, shape: Shape, victims: Victims) -> bool:
        """Return whether the users of victims by fair share would still have the larger shares."""
        running = self._group_queue.running
        shared = [running[key] for key, rule in victims.sessions if rule is Rule.FAIR_SHARE]
        if not shared:
            return True
        after = self._shares_after_plans().copy()
        after.add(shape.party[-1], shape.amounts)
        for key, _ in victims.sessions:
            victim = running[key]
            user = fair_scopes(victim.scopes)[-1]
            after.add(user, amounts_by_resource(victim.slots), -1)
        own = after.of(shape.party[-1])
        return all(after.of(fair_scopes(victim.scopes)[-1]) >= own for victim in shared)

    def _over_share(self, shape: Shape, counts_lower: bool) -> frozenset[str]:
        """Return sessions of the same priority that may be preempted: before and after the
        preemption, their user has a larger share than the pending session's user.

        The shares include the effect of existing plans. The order of the shares stays the same, so
        a victim cannot in turn preempt the session for which it was stopped. With ``counts_lower``,
        all sessions that may be preempted by priority count as ended.
        """
        group_queue = self._group_queue
        options, shares = group_queue.state.preemption, self._shares_after_plans()
        victims = group_queue.victims()
        rank, own = _rank_of(shape), shares.of_with(shape.party[-1], shape.amounts)
        table = group_queue.preemptible()
        is_shared = [rule_of(options, rank, other) is Rule.FAIR_SHARE for other in table.ranks]
        users = {
            other.scopes: shares.of(_user_of(other))
            for other, shared in zip(table.ranks, is_shared, strict=True)
            if shared
        }
        if not any(share > own for share in users.values()):
            return frozenset()
        rules = (Rule.PRIORITY, Rule.FAIR_SHARE) if counts_lower else (Rule.FAIR_SHARE,)
        left: dict[object, float] = {}
        found = set()
        for counted in rules:
            for session in _by_loss(group_queue.running.values(), options.order):
                other = Rank(session.priority, session.job_priority, session.scopes)
                if session.id in victims or rule_of(options, rank, other) is not counted:
                    continue
                user = _user_of(other)
                share = left.get(user, shares.of(user))
                share -= shares.fraction(amounts_by_resource(session.slots))
                if counted is Rule.PRIORITY:
                    left[user] = share
                elif share >= own:
                    left[user] = share
                    found.add(session.id)
        return frozenset(found)

    def _shares_after_plans(self) -> DominantShares:
        """Return the shares of the users when the planned sessions have replaced their victims."""
        shares, promised = self._group_queue.shares, self._group_queue.promised
        if not self._held:
            return shares
        after = shares.copy()
        for held in self._held:
            if held.shape.pending.id not in promised:
                after.add(held.shape.party[-1], held.shape.amounts)
            for victim in self._remaining(held.plan):
                user = fair_scopes(victim.scopes)[-1]
                after.add(user, amounts_by_resource(victim.slots), -1)
        return after


def _placements_of(sessions: Iterable[RunningSession]) -> list[Placement]:
    return [placement for session in sessions for placement in session.placements]


def _rank_of(shape: Shape) -> Rank:
    return Rank(shape.priority, shape.pending.job_priority, shape.pending.scopes)


def _user_of(rank: Rank) -> Scope | None:
    return fair_scopes(rank.scopes)[-1]


def _by_loss(sessions: Iterable[RunningSession], order: VictimOrder) -> list[RunningSession]:
    """Sort sessions by start time: approximately the order in which they are preempted."""
    is_oldest = order is VictimOrder.OLDEST
    return sorted(sessions, key=lambda s: (s.started_at, s.id), reverse=not is_oldest)


# More than the free cpu of any agent.
_ALL_CPU = ResourceSlots({CPU: 2**50})


def _close_agents(probe: Placer, agent_ids: Iterable[str]) -> None:
    """Allocate all cpu of agents, so that no session fits there."""
    probe.allocate([Placement(agent_id, _ALL_CPU) for agent_id in sorted(agent_ids)])
