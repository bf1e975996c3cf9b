"""The schedule of a resource group: ends of running sessions, and starts of pending sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isinf
from typing import Any

from ..placement import Placement
from ..queue.dominant_shares import fair_scopes
from ..queue.durations import Durations, End, end_of, run_time
from ..queue.model import Certainty, Order, PendingSession, Reason
from .explainer import Explainer


@dataclass(frozen=True, slots=True)
class Lane:
    """A device of an agent, or the agent itself (``device_id`` is then empty)."""

    agent_id: str
    device_id: str = ""
    family: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class RunningEntry:
    """A running session.

    ``ends_at`` is the enforced or predicted end; None: unknown. ``certainty`` is the certainty of
    ``ends_at``.
    """

    session_id: str
    placements: tuple[Placement, ...]
    starts_at: datetime
    ends_at: datetime | None
    certainty: Certainty


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """A pending session.

    ``placements`` is the reservation of the session, or empty. ``starts_at`` and ``ends_at`` are
    estimates; None: unknown. ``certainty`` is the certainty of ``starts_at``. ``reason`` is the
    message of the first failed check (empty: no check failed); ``reason_coded`` is the
    ``CodedText`` of this message as JSON, or None. Under drf and fair-share, ``standing`` is the
    sort key among sessions of one priority, smallest first; under fifo and lifo it is empty.
    """

    session_id: str
    position: int
    priority: int
    placements: tuple[Placement, ...]
    starts_at: datetime | None
    ends_at: datetime | None
    certainty: Certainty
    reason: str
    reason_coded: Mapping[str, Any] | None
    standing: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """The schedule of a group: the running sessions that will end first, and the pending sessions
    that will start first.

    ``running_count`` and ``waiting_count`` count all running and all pending sessions.
    """

    at: datetime
    order: Order
    lanes: tuple[Lane, ...]
    running: tuple[RunningEntry, ...]
    waiting: tuple[PendingEntry, ...]
    running_count: int
    waiting_count: int


def group_schedule(
    explainer: Explainer, group: str, max_running: int, max_waiting: int
) -> GroupSchedule:
    """Return the running sessions that will end first, and the pending sessions that will start
    first.
    """
    queue = explainer.queue
    group_queue = queue.group_queue(group)
    durations = Durations(queue.durations)
    now = queue.now
    running = [
        (session, end_of(session, now, durations)) for session in group_queue.running.values()
    ]
    running.sort(key=lambda item: (item[1].seconds, item[0].started_at, item[0].id))
    positions = explainer.positions(group)
    estimates = explainer.estimates(group)
    reserved = {r.session_id: r.placements for r in group_queue.reservations}
    waiting = []
    for session_id in sorted(positions, key=positions.__getitem__)[:max_waiting]:
        pending = queue.pending(session_id)
        if pending is None:
            continue
        estimate = estimates[session_id].announced()
        waiting.append(
            PendingEntry(
                session_id,
                positions[session_id],
                pending.priority,
                reserved.get(session_id, ()),
                estimate.starts_at,
                _after(estimate.starts_at, run_time(pending, durations)),
                estimate.certainty,
                *_first_failure(queue.reasons_of(session_id)),
                _standing(explainer, group, pending),
            )
        )
    return GroupSchedule(
        at=now,
        order=group_queue.state.order,
        lanes=_lanes(explainer, group),
        running=tuple(
            RunningEntry(s.id, s.placements, s.started_at, _after(now, end), end.certainty)
            for s, end in running[:max_running]
        ),
        waiting=tuple(waiting),
        running_count=len(running),
        waiting_count=len(positions),
    )


def _after(at: datetime | None, end: End) -> datetime | None:
    """Return ``at`` plus a run time; None if either is unknown."""
    return None if at is None or isinf(end.seconds) else at + timedelta(seconds=end.seconds)


def _first_failure(reasons: Sequence[Reason]) -> tuple[str, Mapping[str, Any] | None]:
    """Return the message and the coded text of the first check that failed, if there is any."""
    failed = (r for r in reasons if not r["passed"])
    return next(((str(r["message"]), r["coded"]) for r in failed), ("", None))


def _standing(explainer: Explainer, group: str, pending: PendingSession) -> tuple[float, ...]:
    group_queue = explainer.queue.group_queue(group)
    if group_queue.state.order in (Order.FIFO, Order.LIFO):
        return ()
    return group_queue.standing_with(fair_scopes(pending.scopes), group_queue.shares)


def _lanes(explainer: Explainer, group: str) -> tuple[Lane, ...]:
    lanes = []
    for agent in explainer.queue.group_queue(group).agents.values():
        lanes.append(Lane(agent.id))
        lanes += [Lane(agent.id, d.id, d.family, d.model) for d in agent.devices]
    return tuple(lanes)
