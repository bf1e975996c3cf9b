"""Positions of the pending sessions of a resource group."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from ..queue.dominant_shares import amounts_by_resource, fair_scopes
from ..queue.group_queue import GroupQueue
from ..queue.model import Order, Party, PauseIfBusy, PendingSession, no_op
from ..queue.shape import session_slots


def positions(
    group_queue: GroupQueue, pending: Iterable[PendingSession], pause_if_busy: PauseIfBusy = no_op
) -> dict[str, int]:
    """Return the position of each session (1: the next), including sessions that may not start yet.

    Under drf and fair-share, a session is ranked as if its user's earlier sessions had started.
    """
    sessions = sorted(pending, key=lambda session: (-session.priority, session.sequence))
    if group_queue.state.order is Order.LIFO:
        sessions.sort(key=lambda session: (-session.priority, -session.sequence))
    elif group_queue.state.order is not Order.FIFO:
        sessions = _in_turns(group_queue, sessions, pause_if_busy)
    return {session.id: n for n, session in enumerate(sessions, start=1)}


def _in_turns(
    group_queue: GroupQueue, sessions: list[PendingSession], pause_if_busy: PauseIfBusy
) -> list[PendingSession]:
    """Return the sessions in the order in which the parties take turns.

    A party is the domain, project and user of a session. ``sessions`` contains the sessions of all
    parties, sorted by priority and creation order.
    """
    shares = group_queue.shares.copy()
    ordered: list[PendingSession] = []
    start = 0
    for end in range(1, len(sessions) + 1):
        if end < len(sessions) and sessions[end].priority == sessions[start].priority:
            continue
        queues: dict[Party, list[PendingSession]] = {}
        for session in reversed(sessions[start:end]):
            queues.setdefault(fair_scopes(session.scopes), []).append(session)
        heap = [
            (group_queue.standing_with(party, shares), sessions_of_party[-1].sequence, party)
            for party, sessions_of_party in queues.items()
        ]
        heapify(heap)
        while heap:
            pause_if_busy()
            standing, sequence, party = heap[0]
            now = group_queue.standing_with(party, shares)
            sessions_of_party = queues[party]
            if now != standing:
                heapreplace(heap, (now, sequence, party))
                continue
            session = sessions_of_party.pop()
            ordered.append(session)
            if session.id not in group_queue.promised:  # their amounts are already counted
                shares.add(party[-1], amounts_by_resource(session_slots(session)))
            if sessions_of_party:
                after = group_queue.standing_with(party, shares)
                heapreplace(heap, (after, sessions_of_party[-1].sequence, party))
            else:
                heappop(heap)
        start = end
    return ordered
