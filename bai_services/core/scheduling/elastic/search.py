"""Search for the smallest loss of elastic sessions with which a waiting session can start."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice

from ...sessions.resizing import step_of
from ..caps import SESSIONS, Scope
from .sessions import ElasticSession, FreeAgent, WaitingSession
from .state import RESIZE_LOSS, Given, Order, State

# Maximum number of agents or devices that are tried for one waiting session.
MAX_TRIED = 50
# Number of these agents or devices that are compared, in ascending order of the lower bound of the
# loss. If the waiting session fits on none of them, the others are also tried.
MAX_COMPARED = 12
# Maximum number of steps that one call of ``decide`` examines in its search for the smallest loss.
# After this number, sessions shrink in the better of two fixed orders.
MAX_STEPS = 5_000
# Maximum number of sessions of a quota that a search considers in each order, in addition to the
# sessions on the agent.
MAX_GIVERS = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a waiting session starts, and how much of each slot each session gives up for it."""

    loss: float
    agent_id: str
    place: str
    given: Given

    @property
    def rank(self) -> tuple[float, str, str]:
        return self.loss, self.agent_id, self.place


def with_smallest_loss(state: State, session: WaitingSession, search: Search) -> Choice | None:
    """Return how a waiting session can start with the smallest loss for elastic sessions.

    Return None if it cannot start. The loss is the minimum unless the search ends early.
    """
    best: Choice | None = None
    places = (
        (agent_id, place)
        for agent_id in sorted(session.agents & state.agents.keys())
        for place in _places(state.agents[agent_id], session)
        if state.may_fit(session, agent_id, place)
    )
    in_quotas = _quota_shortages(state, session)
    tried = []
    for agent_id, place in islice(places, MAX_TRIED):
        shortages = _shortages(state, session, agent_id, place, in_quotas)
        bound = _remaining_cost(shortages, {}) + (RESIZE_LOSS if shortages else 0)
        tried.append((bound, agent_id, place, shortages))
    # Start with the smallest bounds, because the other places can then often be skipped.
    tried.sort(key=lambda each: each[:3])
    for number, (bound, agent_id, place, _) in enumerate(tried):
        if best is not None and (bound > best.loss or number >= MAX_COMPARED):
            break
        for order in Order:
            state.begin()
            if _fit(state, session, agent_id, place, order):
                found = Choice(state.loss(), agent_id, place, state.given())
                if best is None or found.rank < best.rank:
                    best = found
            state.undo()
    if best is None:
        return None
    for bound, agent_id, place, shortages in tried[:MAX_COMPARED]:
        if bound >= best.loss - 1e-9:
            break
        given = search.smallest(state, shortages, best.loss)
        if given is not None:
            state.begin()
            apply(state, given)
            best = Choice(state.loss(), agent_id, place, given)
            state.undo()
    return best


def apply(state: State, given: Given) -> None:
    for (key, slot), amount in given.items():
        state.change(state.sessions[key], slot, -amount)


@dataclass(frozen=True, slots=True)
class _Shortage:
    """The missing amount of a slot in a quota or on an agent.

    ``members``: the sessions that use the quota or the agent. ``givers``: the members that a search
    considers. ``largest``: the largest amount of the slot that a member has.
    """

    slot: str
    missing: int
    members: Collection[str]
    givers: Sequence[str]
    largest: int


def _shortages(
    state: State,
    session: WaitingSession,
    agent_id: str,
    place: str,
    in_quotas: Sequence[tuple[Scope, _Shortage]],
) -> list[_Shortage]:
    """Return the shortages of a waiting session on an agent and in its quotas."""
    found = []
    near: dict[str, list[str]] = {}
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        holders = state.holders(agent_id, slot, at)
        givers = near[slot] = [s.id for s in holders if state.surplus(s, slot) > 0]
        missing = need - state.free.get((agent_id, at), 0)
        if missing > 0:
            largest = max((state.sizes[key][slot] for key in givers), default=1)
            found.append(_Shortage(slot, missing, [s.id for s in holders], givers, largest))
    for scope, one in in_quotas:
        members = state.in_scope[scope]
        here = [key for key in near[one.slot] if key in members]
        found.append(replace(one, givers=list(dict.fromkeys([*here, *one.givers]))))
    return found


def _quota_shortages(state: State, session: WaitingSession) -> list[tuple[Scope, _Shortage]]:
    """Return the shortages of a waiting session in its quotas."""
    found = []
    for scope in session.scopes:
        for slot, need in session.slots.items():
            missing = need - state.left.get((scope, slot), need)
            if missing > 0:
                givers: dict[str, None] = {}
                for order in Order:
                    ranked = state.ranked(scope, slot, missing, order)
                    givers |= dict.fromkeys(islice(ranked, MAX_GIVERS))
                largest = next(state.ranked(scope, slot, sys.maxsize, Order.SIZE), None)
                size = 1 if largest is None else state.sizes[largest][slot]
                members = state.in_scope[scope].keys()
                found.append((scope, _Shortage(slot, missing, members, list(givers), size)))
    return found


class Search:
    """A best-first search (A*) for the smallest loss that covers all shortages.

    A step takes from one session the missing amount of one shortage, or the session's whole
    surplus. Some sequence of such steps is optimal: at a vertex of the covering problem, each
    session gives nothing, its whole surplus, or the rest of a shortage.
    """

    def __init__(self) -> None:
        self._steps = 0

    def smallest(self, state: State, shortages: Sequence[_Shortage], limit: float) -> Given | None:
        """Return how much of each slot each session gives up; None if no loss below ``limit`` was
        found.
        """
        heap: list[tuple[float, tuple[tuple[tuple[str, str], int], ...]]] = [(0.0, ())]
        known = {heap[0][1]}
        while heap and self._steps < MAX_STEPS:
            _, items = heappop(heap)
            given = dict(items)
            open_ = [(one, left) for one in shortages if (left := _left(one, given)) > 0]
            if not open_:
                return given
            for one, left in open_:
                step = step_of(one.slot)
                self._steps += len(one.givers)
                for key in one.givers:
                    before = given.get((key, one.slot), 0)
                    surplus = state.surplus(state.sessions[key], one.slot) - before
                    amount = min(surplus, -(-left // step) * step)
                    if amount <= 0:
                        continue
                    after = {**given, (key, one.slot): before + amount}
                    frozen = tuple(sorted(after.items()))
                    bound = _cost(state, after) + _remaining_cost(shortages, after)
                    if frozen not in known and bound < limit - 1e-9:
                        known.add(frozen)
                        heappush(heap, (bound, frozen))
        return None


def _left(shortage: _Shortage, given: Given) -> int:
    taken = sum(
        amount
        for (key, slot), amount in given.items()
        if slot == shortage.slot and key in shortage.members
    )
    return shortage.missing - taken


def _cost(state: State, given: Given) -> float:
    fractions = sum(amount / state.sizes[key][slot] for (key, slot), amount in given.items())
    return fractions + RESIZE_LOSS * len({key for key, _ in given})


def _remaining_cost(shortages: Sequence[_Shortage], given: Given) -> float:
    """Return a lower bound of the cost of covering the remaining shortages."""
    by_slot: dict[str, float] = {}
    for one in shortages:
        left = _left(one, given)
        if left > 0:
            by_slot[one.slot] = max(by_slot.get(one.slot, 0.0), left / one.largest)
    return sum(by_slot.values())


def _places(agent: FreeAgent, session: WaitingSession) -> list[str]:
    """Return the devices of an agent that can hold a session's share; [""] without a share."""
    if not session.share:
        return [""]
    family = session.share.partition(".")[0]
    return sorted(d for d in agent.devices if agent.families.get(d) == family)


def _fit(state: State, session: WaitingSession, agent_id: str, place: str, order: Order) -> bool:
    """Shrink sessions until a waiting session fits on an agent and into its quotas.

    Return whether the session fits. Shortages in quotas are covered first, because this can also
    free the missing amount on the agent.
    """
    for scope in session.scopes:
        for slot, need in {**session.slots, SESSIONS: 1}.items():
            missing = need - state.left.get((scope, slot), need)
            if missing <= 0:
                continue
            members = state.in_scope[scope]
            at = place if slot == session.share else slot
            near: list[ElasticSession] = []
            if need > state.free.get((agent_id, at), 0):
                holders = state.holders(agent_id, slot, at)
                near = [holder for holder in holders if holder.id in members]
            # Compute the order from the amount that is missing before the sessions on the agent
            # shrink.
            others = state.ranked(scope, slot, missing, order)
            left = _free_up(state, _ordered(state, near, slot, missing, order), slot, missing)
            if _free_up(state, (members[key] for key in others), slot, left) > 0:
                return False
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        missing = need - state.free.get((agent_id, at), 0)
        if missing > 0:
            holders = state.holders(agent_id, slot, at)
            in_order = _ordered(state, holders, slot, missing, order)
            if _free_up(state, in_order, slot, missing) > 0:
                return False
    return True


def _ordered(
    state: State, sessions: Iterable[ElasticSession], slot: str, missing: int, order: Order
) -> list[ElasticSession]:
    def rank(session: ElasticSession) -> tuple[object, ...]:
        surplus = state.surplus(session, slot)
        if order is Order.SURPLUS:
            return -surplus, session.id
        return surplus < missing, -state.sizes[session.id].get(slot, 0), session.id

    return sorted(sessions, key=rank)


def _free_up(state: State, sessions: Iterable[ElasticSession], slot: str, missing: int) -> int:
    """Shrink sessions, in their order, by ``missing`` in total; return the amount that is still
    missing.
    """
    if missing <= 0:
        return missing
    for session in sessions:
        surplus = state.surplus(session, slot)
        if surplus <= 0:
            continue  # also for the number of sessions, which is not a slot
        step = step_of(slot)
        given = min(surplus, -(-missing // step) * step)
        state.change(session, slot, -given)
        missing -= given
        if missing <= 0:
            break
    return missing
