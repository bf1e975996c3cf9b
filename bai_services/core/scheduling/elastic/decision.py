"""The new sizes of the elastic sessions of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...sessions.resizing import step_of
from ..caps import SESSIONS, Scope
from .search import Search, apply, with_smallest_loss
from .sessions import ElasticSession, FreeAgent, Resizing, WaitingSession
from .state import State

# Maximum number of waiting sessions that one call of ``decide`` considers, in queue order.
MAX_WAITING = 20


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
    state = State(sessions, agents, headroom)
    if not waiting:
        return _grown(state)
    search = Search()
    beneficiaries: dict[str, str] = {}
    for session in [one for one in waiting if one.is_plain][:MAX_WAITING]:
        chosen = with_smallest_loss(state, session, search)
        if chosen is None:
            continue
        state.begin()
        apply(state, chosen.given)
        _start(state, session, chosen.agent_id, chosen.place)
        beneficiaries |= {key: session.id for key, _ in chosen.given}
    return [
        Resizing(key, state.sizes[key], beneficiary) for key, beneficiary in beneficiaries.items()
    ]


def _start(state: State, session: WaitingSession, agent_id: str, place: str) -> None:
    for slot, need in session.slots.items():
        at = place if slot == session.share else slot
        state.take(agent_id, at, session.scopes, slot, need)
    for scope in session.scopes:
        if (scope, SESSIONS) in state.left:
            state.left[scope, SESSIONS] -= 1


def _grown(state: State) -> list[Resizing]:
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
