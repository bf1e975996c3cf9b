"""Growth and shrinking of elastic sessions, as a pure function of the group's state.

Waiting sessions come first: while any session waits for capacity, no session grows. Elastic
sessions shrink only if a waiting session can then start. Under a constant load, the first call
returns all changes and the next call returns none.

What the sessions lose for a waiting session is the minimum, unless the search for it exceeds
``MAX_STEPS``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product

from ..resources import ResourceSlots
from ..sessions.resizing import step_of
from .caps import SESSIONS, Scope

# Maximum number of waiting sessions that one call of ``decide`` considers, in queue order.
MAX_WAITING = 20
# Maximum number of agents or devices that are tried for one waiting session.
MAX_TRIED = 50
# Maximum number of steps that one call of ``decide`` examines in its search for the smallest loss.
# Beyond it, sessions shrink in the better of two fixed orders.
MAX_STEPS = 5_000
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

    def surplus(self, slot: str) -> int:
        """Return how much of a slot the session can give up."""
        return max(0, self.size.get(slot, 0) - self.minimum.get(slot, 0)) if self.may_shrink else 0


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
    share, "" without a share. ``is_plain``: the session has one kernel and no other device slots.
    Elastic sessions shrink only to make room for plain sessions.
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
    """Free amounts during one decision."""

    def __init__(
        self,
        sessions: Iterable[ElasticSession],
        agents: Iterable[FreeAgent],
        headroom: Mapping[Scope, Mapping[str, int]],
    ) -> None:
        self.sessions = {s.id: s for s in sessions}
        self.on_agent: dict[str, list[ElasticSession]] = defaultdict(list)
        for session in self.sessions.values():
            self.on_agent[session.agent_id].append(session)
        self.agents = {a.id: a for a in agents}
        self.free: dict[tuple[str, str], int] = {}
        for agent in self.agents.values():
            self.free |= {(agent.id, slot): n for slot, n in agent.slots.items()}
            self.free |= {(agent.id, device): n for device, n in agent.devices.items()}
        self.left = {(scope, slot): n for scope, of in headroom.items() for slot, n in of.items()}
        self.sizes = {s.id: s.size for s in self.sessions.values()}

    def copy(self) -> _State:
        made = _State((), (), {})
        made.sessions, made.agents, made.on_agent = self.sessions, self.agents, self.on_agent
        made.free, made.left, made.sizes = dict(self.free), dict(self.left), dict(self.sizes)
        return made

    def surplus(self, session: ElasticSession, slot: str) -> int:
        given: int = session.size.get(slot, 0) - self.sizes[session.id].get(slot, 0)
        return session.surplus(slot) - given

    def holders(self, agent_id: str, slot: str, place: str) -> list[ElasticSession]:
        """Return the sessions that use a slot on an agent, or on one of its devices."""
        return [s for s in self.on_agent.get(agent_id, ()) if s.devices.get(slot, slot) == place]

    def may_fit(self, session: WaitingSession, agent_id: str, place: str) -> bool:
        """Return whether a waiting session fits on an agent if all sessions there shrink."""
        for slot, need in session.slots.items():
            at = place if slot == session.share else slot
            missing = need - self.free.get((agent_id, at), 0)
            given = (self.surplus(s, slot) for s in self.holders(agent_id, slot, at))
            if missing > 0 and missing > sum(given):
                return False
        return True

    def change(self, session: ElasticSession, slot: str, amount: int) -> None:
        """Add ``amount``, which may be negative, to the size of a session."""
        size = self.sizes[session.id]
        self.sizes[session.id] = ResourceSlots({**size, slot: size.get(slot, 0) + amount})
        self.take(session.agent_id, session.devices.get(slot, slot), session.scopes, slot, amount)

    def take(
        self, agent_id: str, place: str, scopes: Iterable[Scope], slot: str, amount: int
    ) -> None:
        self.free[agent_id, place] = self.free.get((agent_id, place), 0) - amount
        for scope in scopes:
            if (scope, slot) in self.left:
                self.left[scope, slot] -= amount


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
    made: list[Resizing] = []
    for session in [one for one in waiting if one.is_plain][:MAX_WAITING]:
        before = dict(state.sizes)
        after = _with_space(state, session, search)
        if after is None:
            continue
        state = after
        made += [
            Resizing(key, size, session.id)
            for key, size in after.sizes.items()
            if size != before[key]
        ]
    return list({one.session_id: one for one in made}.values())


def _with_space(state: _State, session: WaitingSession, search: _Search) -> _State | None:
    """Return the state after the start of a waiting session, with the smallest loss for the others.

    Return None if it cannot start. The loss is the minimum unless the search ends early.
    """
    best: tuple[float, str, str, _State] | None = None
    places = [
        (agent_id, place)
        for agent_id in sorted(session.agents & state.agents.keys())
        for place in _places(state.agents[agent_id], session)
        if state.may_fit(session, agent_id, place)
    ][:MAX_TRIED]
    for (agent_id, place), ranking in product(places, _RANKINGS):
        tried = state.copy()
        if not _fit(tried, session, agent_id, place, ranking):
            continue
        key = (_loss(state, tried), agent_id, place)
        if best is None or key < best[:3]:
            best = (*key, tried)
    for agent_id, place in places if best is not None and best[0] > 0 else ():
        assert best is not None
        given = search.smallest(state, _shortages(state, session, agent_id, place), best[0])
        if given is None:
            continue
        tried = state.copy()
        for (key_of, slot), amount in given.items():
            tried.change(tried.sessions[key_of], slot, -amount)
        _start(tried, session, agent_id, place)
        best = (_loss(state, tried), agent_id, place, tried)
    return None if best is None else best[3]


@dataclass(frozen=True, slots=True)
class _Shortage:
    """What is missing of a slot in a quota or on an agent, and the sessions that can give it.

    ``largest``: the largest amount of the slot that one of them has.
    """

    slot: str
    missing: int
    holders: frozenset[str]
    largest: int


def _shortages(
    state: _State, session: WaitingSession, agent_id: str, place: str
) -> list[_Shortage]:
    found = []
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        holders = state.holders(agent_id, slot, at)
        amounts = [(need - state.free.get((agent_id, at), 0), holders)]
        for scope in session.scopes:
            in_scope = [s for s in state.sessions.values() if scope in s.scopes]
            amounts.append((need - state.left.get((scope, slot), need), in_scope))
        for missing, candidates in amounts:
            givers = frozenset(s.id for s in candidates if state.surplus(s, slot) > 0)
            if missing > 0:
                largest = max((state.sizes[key][slot] for key in givers), default=1)
                found.append(_Shortage(slot, missing, givers, largest))
    return found


_Given = dict[tuple[str, str], int]


class _Search:
    """A best-first search (A*) for the smallest loss that covers all shortages.

    A step takes from one session what one shortage lacks, or its whole surplus. A minimum is among
    the sequences of such steps: at a vertex of the covering problem, each session gives nothing,
    all, or what is left of a shortage.
    """

    def __init__(self) -> None:
        self._steps = 0

    def smallest(
        self, state: _State, shortages: Sequence[_Shortage], limit: float
    ) -> _Given | None:
        """Return what each session gives of a slot; None if no loss below ``limit`` was found."""
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
                self._steps += len(one.holders)
                for key in one.holders:
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
        if slot == shortage.slot and key in shortage.holders
    )
    return shortage.missing - taken


def _cost(state: _State, given: _Given) -> float:
    fractions = sum(amount / state.sizes[key][slot] for (key, slot), amount in given.items())
    return fractions + RESIZE_LOSS * len({key for key, _ in given})


def _remaining_cost(shortages: Sequence[_Shortage], given: _Given) -> float:
    """Return a lower bound of what it costs to cover the shortages that are left."""
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


# Sort key of a session for shrinking, computed from its surplus, its size and the missing amount.
_Ranking = Callable[[int, int, int], tuple[int, ...]]


def _by_surplus(surplus: int, size: int, missing: int) -> tuple[int, ...]:
    """Prefer sessions with a large surplus, so that few sessions shrink."""
    return (-surplus,)


def _by_size(surplus: int, size: int, missing: int) -> tuple[int, ...]:
    """Prefer sessions that can give the missing amount alone, then large sessions."""
    return surplus < missing, -size


_RANKINGS: tuple[_Ranking, ...] = (_by_surplus, _by_size)


def _fit(
    tried: _State, session: WaitingSession, agent_id: str, place: str, ranking: _Ranking
) -> bool:
    """Shrink sessions until a waiting session fits on an agent and into its quotas, and start it.

    Return whether the session fits. Quotas come first, because shrinking for a quota can also free
    the missing amount on the agent.
    """
    for scope in session.scopes:
        for slot, need in {**session.slots, SESSIONS: 1}.items():
            missing = need - tried.left.get((scope, slot), need)
            if missing <= 0:
                continue
            in_scope = [s for s in tried.sessions.values() if scope in s.scopes]
            at = place if slot == session.share else slot
            near: set[str] = set()
            if need > tried.free.get((agent_id, at), 0):
                near = {s.id for s in tried.holders(agent_id, slot, at)}
            if not _free_up(tried, in_scope, slot, missing, ranking, near):
                return False
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        missing = need - tried.free.get((agent_id, at), 0)
        holders = tried.holders(agent_id, slot, at)
        if missing > 0 and not _free_up(tried, holders, slot, missing, ranking):
            return False
    _start(tried, session, agent_id, place)
    return True


def _start(tried: _State, session: WaitingSession, agent_id: str, place: str) -> None:
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        tried.take(agent_id, at, session.scopes, slot, need)
    for scope in session.scopes:
        if (scope, SESSIONS) in tried.left:
            tried.left[scope, SESSIONS] -= 1


def _free_up(
    tried: _State,
    candidates: list[ElasticSession],
    slot: str,
    missing: int,
    ranking: _Ranking,
    first: Collection[str] = (),
) -> bool:
    """Shrink candidates by ``missing`` in total; return whether this succeeded.

    Sessions in ``first`` shrink before the others; within both parts, ``ranking`` is the order.
    """

    def rank(session: ElasticSession) -> tuple[object, ...]:
        surplus, size = tried.surplus(session, slot), tried.sizes[session.id].get(slot, 0)
        return session.id not in first, ranking(surplus, size, missing), session.id

    for session in sorted(candidates, key=rank):
        if missing <= 0:
            break
        surplus = tried.surplus(session, slot)
        if surplus <= 0:
            continue  # also for the number of sessions, which is not a slot
        step = step_of(slot)
        given = min(surplus, -(-missing // step) * step)
        tried.change(session, slot, -given)
        missing -= given
    return missing <= 0


def _loss(before: _State, after: _State) -> float:
    """Return the sum of the fractions that sessions lose of their slots, plus ``RESIZE_LOSS`` for
    each session that is resized.
    """
    loss = 0.0
    for key, size in after.sizes.items():
        had = before.sizes[key]
        if size != had:
            loss += RESIZE_LOSS + sum(1 - size.get(slot, 0) / had[slot] for slot in had)
    return loss


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
