"""Growth and shrinking of elastic sessions, as a pure function of the group's state.

Waiting sessions have precedence: while any session waits for capacity, no session grows. Elastic
sessions shrink only if a waiting session can then start. Under a constant load, the first call
returns all changes and the next call returns none.

For each waiting session, elastic sessions lose as little as possible, within the limits
``MAX_STEPS``, ``MAX_COMPARED`` and ``MAX_GIVERS`` of the search.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from heapq import heappop, heappush, merge
from itertools import accumulate, islice
from typing import Any, NamedTuple

from ..resources import ResourceSlots
from ..sessions.resizing import step_of
from .caps import SESSIONS, Scope

# Maximum number of waiting sessions that one call of ``decide`` considers, in queue order.
MAX_WAITING = 20
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
# Number of changed sessions after which the rankings of sessions are computed again.
_MAX_OUTDATED = 16
# The loss of each resize, in addition to the fractions of the slots that a session loses.
RESIZE_LOSS = 0.01


@dataclass(frozen=True, slots=True)
class ElasticSession:
    """A running session that may be resized between ``minimum`` and ``preferred``.

    ``devices`` maps each of its share slots to a device id. ``may_grow`` and ``may_shrink`` are
    false while a resize is in progress, and for some time afterwards.
    """

    id: str
    agent_id: str
    scopes: Sequence[Scope]
    size: ResourceSlots
    minimum: ResourceSlots
    preferred: ResourceSlots
    devices: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = True
    may_shrink: bool = True


@dataclass(frozen=True, slots=True)
class FreeAgent:
    """Free amounts of an agent: of its plain slots, and of each healthy device in thousandths.

    ``families``: the family of each device.
    """

    id: str
    slots: Mapping[str, int]
    devices: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session that waits for capacity or quota.

    ``agents``: the agents on which the session may run. ``share``: the slot of the requested device
    share, "" if no share is requested. ``is_plain``: the session has one kernel and no other device
    slots. Elastic sessions shrink only to make room for plain sessions.
    """

    id: str
    scopes: Sequence[Scope]
    slots: ResourceSlots
    agents: frozenset[str]
    share: str = ""
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class Resizing:
    """A new size of a session; ``beneficiary``: the waiting session that needs it, or ""."""

    session_id: str
    size: ResourceSlots
    beneficiary: str = ""


class _State:
    """Free amounts during one decision.

    Changes after ``begin`` are a trial: ``loss`` and ``given`` describe it, ``undo`` reverts it.
    """

    def __init__(
        self,
        sessions: Iterable[ElasticSession],
        agents: Iterable[FreeAgent],
        headroom: Mapping[Scope, Mapping[str, int]],
    ) -> None:
        self.sessions = {s.id: s for s in sessions}
        self.on_agent: dict[str, list[ElasticSession]] = defaultdict(list)
        self.in_scope: dict[Scope, dict[str, ElasticSession]] = defaultdict(dict)
        for session in self.sessions.values():
            self.on_agent[session.agent_id].append(session)
            for scope in session.scopes:
                self.in_scope[scope][session.id] = session
        self.agents = {a.id: a for a in agents}
        self.free: dict[tuple[str, str], int] = {}
        for agent in self.agents.values():
            self.free |= {(agent.id, slot): n for slot, n in agent.slots.items()}
            self.free |= {(agent.id, device): n for device, n in agent.devices.items()}
        self.left = {(scope, slot): n for scope, of in headroom.items() for slot, n in of.items()}
        self.sizes = {s.id: s.size for s in self.sessions.values()}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        # The sizes of changed sessions before the trial.
        self._before: dict[str, ResourceSlots] = {}
        self._rankings: dict[tuple[Scope, str], _Ranking] = {}
        # Sessions that have changed since ``_rankings`` were computed.
        self._outdated: set[str] = set()

    def begin(self) -> None:
        """Begin a trial; earlier changes are kept."""
        self._outdated |= self._before.keys()
        self._undo.clear()
        self._before.clear()
        if len(self._outdated) > _MAX_OUTDATED:
            self._rankings.clear()
            self._outdated.clear()

    def undo(self) -> None:
        for table, key, value in reversed(self._undo):
            table[key] = value
        self._undo.clear()
        self._before.clear()

    def given(self) -> _Given:
        """Return what each session loses in the trial."""
        return {
            (key, slot): lost
            for key, had in self._before.items()
            for slot, amount in had.items()
            if (lost := amount - self.sizes[key].get(slot, 0))
        }

    def loss(self) -> float:
        """Return the sum of the fractions that sessions lose of their slots in the trial, plus
        ``RESIZE_LOSS`` for each session that is resized.
        """
        loss = 0.0
        for key, had in self._before.items():
            size = self.sizes[key]
            loss += RESIZE_LOSS + sum(1 - size.get(slot, 0) / had[slot] for slot in had)
        return loss

    def surplus(self, session: ElasticSession, slot: str) -> int:
        """Return how much of a slot a session can give up."""
        if not session.may_shrink:
            return 0
        surplus: int = self.sizes[session.id].get(slot, 0) - session.minimum.get(slot, 0)
        return max(0, surplus)

    def holders(self, agent_id: str, slot: str, place: str) -> list[ElasticSession]:
        """Return the sessions that use a slot on an agent, or on one of its devices."""
        return [s for s in self.on_agent.get(agent_id, ()) if s.devices.get(slot, slot) == place]

    def may_fit(self, session: WaitingSession, agent_id: str, place: str) -> bool:
        """Return whether a waiting session fits on an agent if all sessions there shrink."""
        for slot, need in session.slots.items():
            at = place if slot == session.share else slot
            missing = need - self.free.get((agent_id, at), 0)
            if missing <= 0:
                continue
            given = (self.surplus(s, slot) for s in self.holders(agent_id, slot, at))
            if missing > sum(given):
                return False
        return True

    def ranked(self, scope: Scope, slot: str, missing: int, order: _Order) -> Iterator[str]:
        """Return the sessions of a scope that can give up a slot, in an order, lazily.

        With the order ``SIZE``, the first is a session that alone can give up the missing amount,
        if there is one.
        """
        ranking = self._rankings.get((scope, slot))
        members = self.in_scope[scope]
        if ranking is None:
            self._outdated |= self._before.keys()
            known = (m for m in members.values() if m.id not in self._outdated)
            ranking = self._rankings[scope, slot] = _Ranking(self._givers(known, slot))
        changed = (self._outdated | self._before.keys()) & members.keys()
        others = _Ranking(self._givers((members[key] for key in changed), slot))
        return _in_order(ranking, others, changed, missing, order)

    def _givers(self, members: Iterable[ElasticSession], slot: str) -> list[_Giver]:
        found = ((m.id, self.surplus(m, slot)) for m in members)
        return [_Giver(key, n, self.sizes[key].get(slot, 0)) for key, n in found if n > 0]

    def change(self, session: ElasticSession, slot: str, amount: int) -> None:
        """Add ``amount``, which may be negative, to the size of a session."""
        size = self.sizes[session.id]
        self._before.setdefault(session.id, size)
        self._set(self.sizes, session.id, ResourceSlots({**size, slot: size.get(slot, 0) + amount}))
        self.take(session.agent_id, session.devices.get(slot, slot), session.scopes, slot, amount)

    def take(
        self, agent_id: str, place: str, scopes: Iterable[Scope], slot: str, amount: int
    ) -> None:
        self._set(self.free, (agent_id, place), self.free.get((agent_id, place), 0) - amount)
        for scope in scopes:
            if (scope, slot) in self.left:
                self._set(self.left, (scope, slot), self.left[scope, slot] - amount)

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key, 0)))
        table[key] = value


class _Order(Enum):
    """Order in which sessions shrink: by surplus, so that few sessions shrink, or by size."""

    SURPLUS = auto()
    SIZE = auto()


class _Giver(NamedTuple):
    """A session that can give up ``surplus`` of its ``size`` of a slot."""

    id: str
    surplus: int
    size: int


class _Ranking:
    """The sessions that can give up a slot, in both orders.

    ``largest``: for each position in the order by size, the largest surplus up to it.
    """

    def __init__(self, givers: Sequence[_Giver]) -> None:
        self.by_surplus = sorted(givers, key=_surplus_key)
        self.by_size = sorted(givers, key=_size_key)
        self.largest = list(accumulate((giver.surplus for giver in self.by_size), max))

    def first_with(self, missing: int, skipped: Collection[str]) -> _Giver | None:
        """Return the largest session that can give ``missing`` alone."""
        start = bisect_left(self.largest, missing)
        rest = (self.by_size[n] for n in range(start, len(self.by_size)))
        return next((g for g in rest if g.surplus >= missing and g.id not in skipped), None)


def _surplus_key(giver: _Giver) -> tuple[int, str]:
    return -giver.surplus, giver.id


def _size_key(giver: _Giver) -> tuple[int, str]:
    return -giver.size, giver.id


def _in_order(
    ranking: _Ranking, others: _Ranking, changed: Collection[str], missing: int, order: _Order
) -> Iterator[str]:
    """Merge two rankings, without the ``changed`` sessions of the first."""
    if order is _Order.SURPLUS:
        lists, key = (ranking.by_surplus, others.by_surplus), _surplus_key
    else:
        lists, key = (ranking.by_size, others.by_size), _size_key
        alone = [ranking.first_with(missing, changed), others.first_with(missing, ())]
        if found := [giver for giver in alone if giver is not None]:
            yield min(found, key=_size_key).id
    first = (giver for giver in lists[0] if giver.id not in changed)
    yield from (giver.id for giver in merge(first, lists[1], key=key))


def within_quotas(
    sessions: Sequence[ElasticSession],
    headroom: Mapping[Scope, Mapping[str, int]],
    waiting: Sequence[WaitingSession],
) -> list[WaitingSession]:
    """Return the waiting sessions that would be within their quotas if all elastic sessions had
    their minimum size. The other waiting sessions have no effect on elastic sessions.
    """
    surplus: dict[tuple[Scope, str], int] = defaultdict(int)
    for session in sessions:
        for slot, size in session.size.items():
            for scope in session.scopes:
                surplus[scope, slot] += max(0, size - session.minimum.get(slot, 0))

    def is_within(one: WaitingSession) -> bool:
        needs = {**one.slots, SESSIONS: 1}
        return all(
            need <= headroom[scope][slot] + surplus.get((scope, slot), 0)
            for scope in one.scopes
            for slot, need in needs.items()
            if slot in headroom.get(scope, {})
        )

    return [one for one in waiting if is_within(one)]


def decide(
    sessions: Sequence[ElasticSession],
    agents: Sequence[FreeAgent],
    headroom: Mapping[Scope, Mapping[str, int]],
    waiting: Sequence[WaitingSession],
) -> list[Resizing]:
    """Return the new sizes of the elastic sessions of a group.

    ``headroom``: the remaining amount of each limited slot, by scope. ``waiting`` is in the order
    of the queue. Resources of a waiting session are not available to later sessions.
    """
    state = _State(sessions, agents, headroom)
    if not waiting:
        return _grown(state)
    search = _Search()
    beneficiaries: dict[str, str] = {}
    for session in [one for one in waiting if one.is_plain][:MAX_WAITING]:
        chosen = _with_smallest_loss(state, session, search)
        if chosen is None:
            continue
        state.begin()
        _apply(state, chosen.given)
        _start(state, session, chosen.agent_id, chosen.place)
        beneficiaries |= {key: session.id for key, _ in chosen.given}
    return [
        Resizing(key, state.sizes[key], beneficiary) for key, beneficiary in beneficiaries.items()
    ]


_Given = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where a waiting session starts, and how much of each slot each session gives up for it."""

    loss: float
    agent_id: str
    place: str
    given: _Given

    @property
    def rank(self) -> tuple[float, str, str]:
        return self.loss, self.agent_id, self.place


def _with_smallest_loss(state: _State, session: WaitingSession, search: _Search) -> _Choice | None:
    """Return how a waiting session can start with the smallest loss for elastic sessions.

    Return None if it cannot start. The loss is the minimum unless the search ends early.
    """
    best: _Choice | None = None
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
        for order in _Order:
            state.begin()
            if _fit(state, session, agent_id, place, order):
                found = _Choice(state.loss(), agent_id, place, state.given())
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
            _apply(state, given)
            best = _Choice(state.loss(), agent_id, place, given)
            state.undo()
    return best


def _apply(state: _State, given: _Given) -> None:
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
    state: _State,
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


def _quota_shortages(state: _State, session: WaitingSession) -> list[tuple[Scope, _Shortage]]:
    """Return the shortages of a waiting session in its quotas."""
    found = []
    for scope in session.scopes:
        for slot, need in session.slots.items():
            missing = need - state.left.get((scope, slot), need)
            if missing > 0:
                givers: dict[str, None] = {}
                for order in _Order:
                    ranked = state.ranked(scope, slot, missing, order)
                    givers |= dict.fromkeys(islice(ranked, MAX_GIVERS))
                largest = next(state.ranked(scope, slot, sys.maxsize, _Order.SIZE), None)
                size = 1 if largest is None else state.sizes[largest][slot]
                members = state.in_scope[scope].keys()
                found.append((scope, _Shortage(slot, missing, members, list(givers), size)))
    return found


class _Search:
    """A best-first search (A*) for the smallest loss that covers all shortages.

    A step takes from one session the missing amount of one shortage, or the session's whole
    surplus. Some sequence of such steps is optimal: at a vertex of the covering problem, each
    session gives nothing, its whole surplus, or the rest of a shortage.
    """

    def __init__(self) -> None:
        self._steps = 0

    def smallest(
        self, state: _State, shortages: Sequence[_Shortage], limit: float
    ) -> _Given | None:
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


def _left(shortage: _Shortage, given: _Given) -> int:
    taken = sum(
        amount
        for (key, slot), amount in given.items()
        if slot == shortage.slot and key in shortage.members
    )
    return shortage.missing - taken


def _cost(state: _State, given: _Given) -> float:
    fractions = sum(amount / state.sizes[key][slot] for (key, slot), amount in given.items())
    return fractions + RESIZE_LOSS * len({key for key, _ in given})


def _remaining_cost(shortages: Sequence[_Shortage], given: _Given) -> float:
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


def _fit(state: _State, session: WaitingSession, agent_id: str, place: str, order: _Order) -> bool:
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


def _start(state: _State, session: WaitingSession, agent_id: str, place: str) -> None:
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        state.take(agent_id, at, session.scopes, slot, need)
    for scope in session.scopes:
        if (scope, SESSIONS) in state.left:
            state.left[scope, SESSIONS] -= 1


def _ordered(
    state: _State, sessions: Iterable[ElasticSession], slot: str, missing: int, order: _Order
) -> list[ElasticSession]:
    def rank(session: ElasticSession) -> tuple[object, ...]:
        surplus = state.surplus(session, slot)
        if order is _Order.SURPLUS:
            return -surplus, session.id
        return surplus < missing, -state.sizes[session.id].get(slot, 0), session.id

    return sorted(sessions, key=rank)


def _free_up(state: _State, sessions: Iterable[ElasticSession], slot: str, missing: int) -> int:
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


def _grown(state: _State) -> list[Resizing]:
    """Return the new sizes of sessions that grow, beginning with the smallest fractions."""
    order = sorted(
        (s for s in state.sessions.values() if s.may_grow), key=lambda s: (_fraction(s), s.id)
    )
    for session in order:
        for slot, preferred in session.preferred.items():
            size, step = session.size.get(slot, 0), step_of(slot)
            place = session.devices.get(slot, slot)
            room = min(
                preferred - size,
                state.free.get((session.agent_id, place), 0),
                *(n for s in session.scopes if (n := state.left.get((s, slot))) is not None),
            )
            if room < preferred - size:
                room = room // step * step
            if room > 0:
                state.change(session, slot, room)
    return [
        Resizing(key, size) for key, size in state.sizes.items() if size != state.sessions[key].size
    ]


def _fraction(session: ElasticSession) -> float:
    """Return a session's size as a fraction of its preferred size: the minimum over the slots."""
    return min(
        (session.size.get(slot, 0) / n for slot, n in session.preferred.items()), default=1.0
    )
