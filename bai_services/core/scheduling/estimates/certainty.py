"""Label simulated starts as ``known`` or ``estimated``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..caps import Scope
from ..placement import Policy
from ..queue.group_queue import GroupQueue
from ..queue.model import Backfill, Certainty, Order, PassResult, PendingSession, Reservation
from ..queue.run import Queue

_TICK = timedelta(microseconds=1)


@dataclass(slots=True)
class _Group:
    """State of the labels in one resource group."""

    group_queue: GroupQueue
    root: str  # equal for groups that are coupled; see ``_coupled``
    # Sealed: no session that arrives after the start of the simulation could have delayed another
    # session, up to the current pass.
    is_sealed: bool
    # Head: id of the first pending session that waits for capacity, unchanged since the simulation
    # began. No session that arrives later can delay the head. ``head_at``: the reserved start of
    # the head, if any.
    head: str = ""
    head_at: datetime | None = None
    # Window: sessions that arrive later may start if they end before the start of this reservation.
    window_of: Reservation | None = None
    priorities: Counter[int] = field(default_factory=Counter)


class Labels:
    """Labels the starts of a simulation, pass by pass.

    A ``known`` start is exact under two assumptions: sessions run until their limits, and no
    session of a higher priority (for LIFO: no session) arrives. A start is ``known`` if two
    conditions hold:

    - Every earlier session in the same group and in coupled groups ends at a limit, and the success
      of no dependency is assumed.
    - No session that arrives later can start earlier and delay the start. The second condition
      holds for starts in the current pass, for the start of the head, and while the group is
      sealed.

    Any other start is ``estimated``.
    """

    def __init__(self, queue: Queue, pending: Mapping[str, PendingSession]) -> None:
        self._began_at = queue.now
        self._pending = dict(pending)
        self._capped = {session.id for session in pending.values() if queue.is_capped(session)}
        roots = _coupled(queue, pending.values())
        self._groups = {
            name: _Group(group_queue, roots[name], group_queue.state.order is Order.FIFO)
            for name in queue.groups()
            for group_queue in [queue.group_queue(name)]
        }
        # Time after which starts are uncertain, by the root of the coupled groups.
        self._uncertain_after: dict[str, datetime] = {}
        for group in self._groups.values():
            group_queue = group.group_queue
            # With preemption, a session may start before running sessions end.
            preempts = group_queue.state.preemption.enabled or group_queue.planned
            if group_queue.state.placement is Policy.RANDOM or preempts:
                self._mark_uncertain(group, queue.now)
        for session in pending.values():
            self._note_pending(session)
        for running in queue.all_running():
            # A session without a limit ends at an unknown time. A session past its limit is being
            # stopped, and the duration of the stop is unknown.
            if running.ends_at is None or running.ends_at <= queue.now:
                self._mark_uncertain(self._groups[running.group], queue.now)

    def _note_pending(self, pending: PendingSession) -> None:
        if pending.blocked_reason is not None:
            return
        group = self._group(pending.id)
        group.priorities[pending.priority] += 1
        group.is_sealed &= pending.id not in self._capped
        if pending.unmet_dependencies and not pending.dependency_ids:
            # It is unknown when the dependencies end.
            self._mark_uncertain(group, self._began_at)

    def _group(self, session_id: str) -> _Group:
        return self._groups[self._pending[session_id].request.resource_group]

    def _mark_uncertain(self, group: _Group, after: datetime) -> None:
        self._uncertain_after[group.root] = min(after, self._uncertain_after.get(group.root, after))

    def note_dependencies_ended(self, pending: PendingSession, at: datetime) -> None:
        """Record that the dependencies of a session have ended; assume that they succeeded."""
        self._mark_uncertain(self._group(pending.id), at - _TICK)

    def note_uncertain_end(self, pending: PendingSession, at: datetime) -> None:
        """Record the start of a session that may end before its limit, or has no limit."""
        self._mark_uncertain(self._group(pending.id), at)

    def label_pass(self, at: datetime, result: PassResult) -> dict[str, Certainty]:
        """Return the label of every session that a pass has started."""
        started: dict[str, list[str]] = {}
        for decision in result.decisions:
            group_name = self._pending[decision.session_id].request.resource_group
            started.setdefault(group_name, []).append(decision.session_id)
        labels: dict[str, Certainty] = {}
        for name, group in self._groups.items():
            labels.update(self._label_group(group, at, started.get(name, [])))
        return labels

    def _label_group(self, group: _Group, at: datetime, started: list[str]) -> dict[str, Certainty]:
        is_first = at == self._began_at
        labels: dict[str, Certainty] = {}
        if started and not is_first:
            self._check_window(group, at)
            self._check_head(group, at, started)
        is_sure = at <= self._uncertain_after.get(group.root, at)
        for session_id in started:
            pending = self._pending[session_id]
            group.priorities[pending.priority] -= 1
            is_safe = is_first or group.is_sealed or session_id == group.head
            labels[session_id] = Certainty.KNOWN if is_sure and is_safe else Certainty.ESTIMATED
        if started and not is_first:
            self._check_priorities(group, started)
        if is_first:
            self._set_head(group)
        elif group.head not in group.group_queue.shape_of or not self._is_head(group):
            group.head = ""
        self._check_free_capacity(group, at)
        return labels

    # ---- The head: sessions that arrive later cannot overtake it ----

    def _set_head(self, group: _Group) -> None:
        group_queue = group.group_queue
        if group_queue.state.order not in (Order.FIFO, Order.LIFO) or group_queue.has_capped_ahead:
            return
        reservation = _reservation_of(group_queue)
        if reservation is not None and reservation.certainty is Certainty.KNOWN:
            group.head, group.head_at = reservation.session_id, reservation.starts_at
        elif (
            group_queue.state.backfill is Backfill.OFF
            and group_queue.stopped_by not in self._capped
        ):
            group.head = group_queue.stopped_by

    def _is_head(self, group: _Group) -> bool:
        group_queue = group.group_queue
        if group_queue.has_capped_ahead:
            return False
        if group.head_at is None:
            return group_queue.stopped_by == group.head
        reservation = _reservation_of(group_queue)
        return (
            reservation is not None
            and reservation.session_id == group.head
            and reservation.starts_at == group.head_at
            and reservation.certainty is Certainty.KNOWN
        )

    def _check_head(self, group: _Group, at: datetime, started: list[str]) -> None:
        """Drop the head if a session that precedes it has started.

        Also drop the head if it did not start at its reserved time.
        """
        if not group.head:
            return
        first = _sort_key(group.group_queue, self._pending[group.head])
        if any(_sort_key(group.group_queue, self._pending[s]) < first for s in started) or (
            group.head in started and group.head_at not in (None, at)
        ):
            group.head = ""

    # ---- The seal: sessions that arrive later do not fit ----

    def _check_window(self, group: _Group, at: datetime) -> None:
        """End the seal if a session starts before the reservation.

        Until the reservation starts, short sessions that arrive later may use its capacity. One of
        them could have started instead.
        """
        reservation = group.window_of
        if (
            reservation is not None
            and reservation.starts_at is not None
            and at < reservation.starts_at
        ):
            group.is_sealed = False

    def _check_priorities(self, group: _Group, started: list[str]) -> None:
        """End the seal if a session has overtaken a pending session of higher priority.

        A session that arrives with a priority between these two priorities could have started
        instead.
        """
        highest = max((p for p, n in group.priorities.items() if n), default=None)
        if highest is not None and any(self._pending[s].priority < highest for s in started):
            group.is_sealed = False

    def _check_free_capacity(self, group: _Group, at: datetime) -> None:
        """End the seal if an arriving session could start now and still run at later passes."""
        if not group.is_sealed:
            return
        group_queue, reservation = group.group_queue, _reservation_of(group.group_queue)
        if group.window_of is not None:
            until = group.window_of.starts_at
            if until is None or until <= at:
                group.window_of = None
            elif not _is_same(reservation, group.window_of):
                group.is_sealed = False
                return
        if group_queue.state.backfill is Backfill.OFF and group_queue.stopped_by:
            return
        if not group_queue.placer.has_spare_cpu():
            return
        is_short = (
            reservation is not None
            and reservation.certainty is Certainty.KNOWN
            and not group_queue.has_spare_beside_reservation
        )
        if not is_short:
            group.is_sealed = False
        elif group.window_of is None:
            group.window_of = reservation


def _reservation_of(group_queue: GroupQueue) -> Reservation | None:
    return group_queue.reservations[0] if group_queue.reservations else None


def _is_same(one: Reservation | None, other: Reservation) -> bool:
    return (
        one is not None and one.session_id == other.session_id and one.starts_at == other.starts_at
    )


def _sort_key(group_queue: GroupQueue, pending: PendingSession) -> tuple[int, int]:
    sign = -1 if group_queue.state.order is Order.LIFO else 1
    return (-pending.priority, sign * pending.sequence)


def _coupled(queue: Queue, pending: Iterable[PendingSession]) -> dict[str, str]:
    """Return the root of each group; coupled groups have the same root, the name of one of them.

    Two groups are coupled if their sessions share a cap, or if a session of one depends on a
    session of the other.
    """
    # Union-find: the parent of each group; a root is its own parent.
    parents = {name: name for name in queue.groups()}

    def root(name: str) -> str:
        while parents[name] != name:
            name = parents[name]
        return name

    group_of: dict[Scope | str, str] = {}
    scopes: dict[str, set[tuple[Scope, ...]]] = {name: set() for name in parents}
    for session in pending:
        scopes[session.request.resource_group].add(session.scopes)
        group_of[session.id] = session.request.resource_group
    for running in queue.all_running():
        scopes[running.group].add(running.scopes)
        group_of[running.id] = running.group
    for session in queue.all_pending().values():
        for other in session.dependency_ids:
            if other in group_of:
                parents[root(group_of[other])] = root(session.request.resource_group)
    capped = set(queue.quotas.all_caps())
    first: dict[Scope, str] = {}
    for name, tuples in scopes.items():
        for scope in set().union(*tuples) & capped:
            parents[root(name)] = root(first.setdefault(scope, name))
    return {name: root(name) for name in parents}
