"""Free amounts and sizes of sessions while one decision is computed."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from heapq import merge
from itertools import accumulate
from typing import Any, NamedTuple

from ...resources import ResourceSlots
from ..caps import Scope
from .sessions import ElasticSession, FreeAgent, WaitingSession

# Number of changed sessions after which the rankings of sessions are computed again.
_MAX_OUTDATED = 16
# The loss of each resize, in addition to the fractions of the slots that a session loses.
RESIZE_LOSS = 0.01

# Lost amount by session and slot.
Given = dict[tuple[str, str], int]


class State:
    """Free amounts and sizes of sessions during one decision.

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

    def given(self) -> Given:
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

    def ranked(self, scope: Scope, slot: str, missing: int, order: Order) -> Iterator[str]:
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


class Order(Enum):
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
    ranking: _Ranking, others: _Ranking, changed: Collection[str], missing: int, order: Order
) -> Iterator[str]:
    """Merge two rankings, without the ``changed`` sessions of the first."""
    if order is Order.SURPLUS:
        lists, key = (ranking.by_surplus, others.by_surplus), _surplus_key
    else:
        lists, key = (ranking.by_size, others.by_size), _size_key
        alone = [ranking.first_with(missing, changed), others.first_with(missing, ())]
        if found := [giver for giver in alone if giver is not None]:
            yield min(found, key=_size_key).id
    first = (giver for giver in lists[0] if giver.id not in changed)
    yield from (giver.id for giver in merge(first, lists[1], key=key))
