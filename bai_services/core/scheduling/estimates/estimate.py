"""Estimate the starts of pending sessions by simulating a copy of the queue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple

from ..queue.durations import Durations, end_of, run_time
from ..queue.model import Certainty, Changes, Estimate, PendingSession
from ..queue.reserve import later
from ..queue.run import Queue
from .certainty import Labels
from .position import positions

_NOTHING = Estimate(None, Certainty.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one simulation, checked before each pass except the first."""

    sessions: int = 2_000  # number of simulated starts
    seconds: float = 0.5  # measured with ``clock``
    clock: Callable[[], float] = time.perf_counter


class _End(NamedTuple):
    at: datetime
    number: int
    session_id: str


def estimate_starts(queue: Queue, budget: Budget | None = None) -> dict[str, Estimate]:
    """Return the estimated start of every pending session of a queue.

    The simulation runs passes on a copy of the queue: now, at each end of a session, at each
    requested start time and at the start of each reservation. A session that runs now ends at its
    limit; without a limit, it ends after the run time learned for its kind. A session that starts
    in the simulation ends at its limit or after the learned run time, whichever is earlier. A
    session may start when all its dependencies have ended. ``Labels`` determines the certainty of
    each estimate. Victims of existing preemption plans end at their planned stop; the simulation
    makes no new plans.

    The queue must not change during the call.
    """
    simulation = _Simulation(queue.fork_to_run(), budget or Budget())
    simulation.run()
    return simulation.estimates()


class _Simulation:
    def __init__(self, queue: Queue, budget: Budget) -> None:
        self._queue = queue
        self._budget = budget
        self._began_at = queue.now
        self._durations = Durations(queue.durations)
        self._stop_at = budget.clock() + budget.seconds
        self._pending = queue.all_pending()
        self._ends: list[_End] = []
        self._starts: dict[str, Estimate] = {}
        self._is_cut = False
        self._labels = Labels(queue, self._pending)
        # Number of unfinished dependencies, by session.
        self._left: dict[str, int] = {}
        # Ids of the dependent sessions, by session id.
        self._dependents: dict[str, list[str]] = {}
        stops = queue.stops()
        for running in queue.all_running():
            queue.pause_if_busy()
            seconds = end_of(running, queue.now, self._durations).seconds
            if running.id in stops:
                seconds = min(seconds, (stops[running.id] - queue.now).total_seconds())
            self._end_after(queue.now, max(0.0, seconds), running.id)
        self._note_dependents()

    def _note_dependents(self) -> None:
        for pending in self._pending.values():
            if pending.blocked_reason or not pending.dependency_ids:
                continue
            self._left[pending.id] = len(pending.dependency_ids)
            for other in pending.dependency_ids:
                self._dependents.setdefault(other, []).append(pending.id)

    def _end_after(self, now: datetime, seconds: float, session_id: str) -> None:
        if not math.isinf(seconds):
            heappush(self._ends, _End(later(now, seconds), len(self._ends), session_id))

    def run(self) -> None:
        """Run passes until no event remains or the budget is spent."""
        queue = self._queue
        self._pass(queue.now)
        while queue.count_pending():
            if self._is_spent():
                self._is_cut = True
                return
            at = self._next_pass_at()
            if at is None:
                return
            ended = self._pop_ended(at)
            queue.apply(Changes(removed=ended, pending=self._release_dependents(ended, at)))
            self._pass(at)

    def _is_spent(self) -> bool:
        budget = self._budget
        return len(self._starts) >= budget.sessions or budget.clock() >= self._stop_at

    def _next_pass_at(self) -> datetime | None:
        """Return the time of the next pass, or None if no event remains.

        The next pass is due at the next end of a session or at the queue's wake time, whichever is
        earlier.
        """
        times = [self._ends[0].at] if self._ends else []
        wake = self._queue.next_wake_at()
        is_awaited = self._ends or self._queue.count_deferred() or self._queue.is_restricted
        if wake is not None and is_awaited:
            times.append(wake)
        return min(times, default=None)

    def _pop_ended(self, at: datetime) -> list[str]:
        ended = []
        while self._ends and self._ends[0].at <= at:
            ended.append(heappop(self._ends).session_id)
        return ended

    def _release_dependents(self, ended: Iterable[str], at: datetime) -> list[PendingSession]:
        """Return sessions that wait for no more dependencies, as copies without dependencies."""
        released = []
        for other in ended:
            for session_id in self._dependents.get(other, ()):
                self._left[session_id] -= 1
                if self._left[session_id] == 0:
                    pending = replace(
                        self._pending[session_id], unmet_dependencies=None, dependency_ids=()
                    )
                    self._labels.note_dependencies_ended(pending, at)
                    released.append(pending)
        return released

    def _pass(self, at: datetime) -> None:
        queue = self._queue
        queue.pause_if_busy()
        result = queue.run(at, explains=False)
        labels = self._labels
        certainties = labels.label_pass(at, result)
        for decision in result.decisions:
            pending = self._pending[decision.session_id]
            self._starts[pending.id] = Estimate(at, certainties[pending.id])
            run = run_time(pending, self._durations)
            self._end_after(at, run.seconds, pending.id)
            if run.certainty is not Certainty.KNOWN:
                labels.note_uncertain_end(pending, at)

    def estimates(self) -> dict[str, Estimate]:
        """Return all estimates.

        If the budget was spent, the remaining starts of a group are extrapolated from its start
        rate. They are unknown if no session of the group has started after the first pass.
        """
        starts = self._starts
        estimates = {key: starts.get(key, _NOTHING) for key in self._pending}
        if self._is_cut:
            for group in self._queue.groups():
                estimates.update(self._extrapolated(group))
        return estimates

    def _extrapolated(self, group: str) -> dict[str, Estimate]:
        group_queue = self._queue.group_queue(group)
        start_seconds = [
            (e.starts_at - self._began_at).total_seconds()
            for key, e in self._starts.items()
            if e.starts_at is not None and self._pending[key].request.resource_group == group
        ]
        last = max(start_seconds, default=0.0)
        later_starts = sum(seconds > 0 for seconds in start_seconds)
        if not later_starts or not group_queue.state.is_active:
            return {}
        interval = last / later_starts
        startable = [
            self._pending[key]
            for key, shape in group_queue.shape_of.items()
            if group_queue.fits_when_empty(shape)
        ]
        return {
            session_id: Estimate(later(self._began_at, last + n * interval), Certainty.ROUGH)
            for session_id, n in positions(
                group_queue, startable, self._queue.pause_if_busy
            ).items()
        }
