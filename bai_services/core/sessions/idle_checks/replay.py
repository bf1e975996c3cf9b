"""Find the sessions that a utilization checker would have stopped, from recorded samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from ..lifecycle import SessionType
from ..usage_history import Grid, Resolution, Sample
from .checkers import AppliedChecker, Checker
from .judging import JudgedSession, session_rows
from .usage_table import KernelFacts, UsageTable
from .utilization import idle_points, needed_points

_HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session that ran in the replayed period. ``ended_at`` is at most the end of the period.

    ``devices`` is the number of its accelerators; shares count as parts of a device.
    """

    id: str
    name: str
    owner: str
    project: str
    type: SessionType
    started_at: datetime
    ended_at: datetime
    devices: float
    kernels: tuple[KernelFacts, ...]

    @property
    def cores(self) -> float:
        return sum(kernel.cpu_cores for kernel in self.kernels)


@dataclass(frozen=True, slots=True)
class ReplayedStop:
    """A session that the checker would have stopped.

    ``used_again_at``: time of the next use if the stop is wrong because of this use, else None.
    ``device_hours`` and ``core_hours``: time of its accelerators and cores from the stop until
    ``ended_at``.
    """

    session_id: str
    session: str
    owner: str
    project: str
    stopped_at: datetime
    ended_at: datetime
    device_hours: float
    core_hours: float
    used_again_at: datetime | None


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay. ``judged``: number of sessions that the checker judges.
    ``device_hours_freed`` and ``core_hours_freed`` exclude wrong stops.
    """

    start: datetime
    end: datetime
    interval_seconds: int
    judged: int
    judged_device_hours: float
    judged_core_hours: float
    stopped: int
    stopped_wrongly: int
    device_hours_freed: float
    core_hours_freed: float
    is_complete: bool
    stops: Sequence[ReplayedStop]


def replayed_stops(
    checker: Checker,
    sessions: Sequence[RecordedSession],
    samples: Iterable[Sample],
    grid: Grid,
    *,
    reuse: timedelta,
) -> list[ReplayedStop]:
    """Return the first stop of each session that the checker would have stopped in a period.

    A stop is wrong if the session was used in an interval that begins less than ``reuse`` later.
    """
    table = UsageTable(Resolution(grid.interval_seconds, timedelta(0)), grid.count)
    kernels = {kernel.id: kernel for session in sessions for kernel in session.kernels}
    first = table.number_of(grid.start)
    last = first + grid.count - 1
    table.advance(last)
    table.add(samples, kernels)
    if not sessions:
        return []
    rows = session_rows(table, [_as_judged(session, checker) for session in sessions])
    found = idle_points(table, rows, checker.settings, last)
    interval = grid.interval_seconds
    seconds = checker.settings.max_seconds
    points = -(-seconds // interval)
    if points > grid.count:
        # The replay stops no session, because no window of the checker fits into the period.
        return []
    needed = needed_points(points, checker.settings.idle_percent)
    grace = timedelta(seconds=checker.settings.initial_grace_seconds)
    stops = []
    for number, session in enumerate(sessions):
        begin = session.started_at + grace
        idle = found.idle[number].copy()
        idle[: max(math.ceil(begin.timestamp() / interval) - first, 0)] = False
        counts = np.cumsum(idle)
        counts[points:] -= counts[:-points].copy()
        ends = (np.arange(first, last + 1) + 1) * interval
        is_over = idle & (counts >= needed) & (ends >= begin.timestamp() + seconds)
        is_over &= ends <= session.ended_at.timestamp()
        if not is_over.any():
            continue
        index = int(is_over.argmax())
        stopped_at = datetime.fromtimestamp(int(ends[index]), UTC)
        after = found.active[number, index + 1 :]
        uses = np.flatnonzero(after[: math.ceil(reuse.total_seconds() / interval)])
        used_at = ends[index + 1 + uses[0]] - interval if len(uses) else None
        hours = (session.ended_at - stopped_at).total_seconds() / _HOUR_SECONDS
        stops.append(
            ReplayedStop(
                session.id,
                session.name,
                session.owner,
                session.project,
                stopped_at,
                session.ended_at,
                round(session.devices * hours, 2),
                round(session.cores * hours, 2),
                None if used_at is None else datetime.fromtimestamp(int(used_at), UTC),
            )
        )
    return stops


def summary(
    sessions: Sequence[RecordedSession],
    stops: Sequence[ReplayedStop],
    grid: Grid,
    *,
    is_complete: bool,
    max_stops: int,
) -> Replay:
    """Return the totals of a replay, and the stops with the most device and core hours."""
    start = grid.start
    hours = [
        (session.ended_at - max(session.started_at, start)).total_seconds() / _HOUR_SECONDS
        for session in sessions
    ]
    device_hours = sum(s.devices * time for s, time in zip(sessions, hours, strict=True))
    core_hours = sum(s.cores * time for s, time in zip(sessions, hours, strict=True))
    right = [stop for stop in stops if stop.used_again_at is None]
    largest = sorted(
        stops,
        key=lambda stop: (-stop.device_hours, -stop.core_hours, stop.stopped_at, stop.session_id),
    )
    return Replay(
        start=start,
        end=grid.end,
        interval_seconds=grid.interval_seconds,
        judged=len(sessions),
        judged_device_hours=round(device_hours, 2),
        judged_core_hours=round(core_hours, 2),
        stopped=len(stops),
        stopped_wrongly=len(stops) - len(right),
        device_hours_freed=round(sum(stop.device_hours for stop in right), 2),
        core_hours_freed=round(sum(stop.core_hours for stop in right), 2),
        is_complete=is_complete and len(stops) <= max_stops,
        stops=largest[:max_stops],
    )


def _as_judged(session: RecordedSession, checker: Checker) -> JudgedSession:
    families = {device.family for kernel in session.kernels for device in kernel.devices.values()}
    return JudgedSession(
        session.id,
        session.type,
        session.started_at,
        None,
        None,
        tuple(kernel.id for kernel in session.kernels),
        frozenset(families),
        0,
        (AppliedChecker(checker, is_dry_run=True),),
    )
