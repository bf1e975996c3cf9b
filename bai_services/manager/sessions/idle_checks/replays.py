"""Replay recorded samples under an idle checker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.idle_checks.checkers import Checker, CheckerType
from bai_services.core.sessions.idle_checks.replay import (
    RecordedSession,
    Replay,
    ReplayedStop,
    replayed_stops,
    summary,
)
from bai_services.core.sessions.usage_history import COARSE, FINE, Grid, Resolution, Sample
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.db.sessions.usage_samples import UsageSampleStore

from ...accounts import authorizer
from ...clock import Clock
from .checkers import IdleCheckers, changed_settings

MIN_PERIOD_SECONDS = 600
MAX_PERIOD_SECONDS = int(COARSE.kept_for.total_seconds())
MAX_SESSIONS = 1000
MAX_STOPS = 100
# Maximum number of samples that a replay reads.
MAX_SAMPLES = 300_000
_SESSIONS_PER_STEP = 10
# Maximum number of samples per query, so that the event loop is not blocked for long.
_SAMPLES_PER_QUERY = 600


class IdleReplays:
    """Runs one replay at a time."""

    def __init__(
        self,
        checkers: IdleCheckers,
        store: IdleCheckStore,
        samples: UsageSampleStore,
        clock: Clock,
    ) -> None:
        self._checkers = checkers
        self._store = store
        self._samples = samples
        self._clock = clock
        self._lock = asyncio.Lock()

    async def run(
        self,
        caller: Caller,
        key: str | None,
        changes: Mapping[str, Any],
        period_seconds: int,
        reuse_seconds: int,
    ) -> Replay:
        """Return the sessions that a utilization checker would have stopped in a period until now.

        ``key`` is the id or name of a checker; ``changes`` overrides its settings. If ``key`` is
        None, the settings are ``changes`` and the defaults. A stop is wrong if the session was used
        again within ``reuse_seconds``. The replay ignores bindings, pressure, keep-alives and
        exclusions.

        Raises
        ------
        InvalidRequest
            If the period or a setting is not valid, or the checker is not a utilization checker.
        """
        visible = authorizer.visibility(caller, "idle-checker.replay")
        if not MIN_PERIOD_SECONDS <= period_seconds <= MAX_PERIOD_SECONDS:
            raise InvalidRequest(
                f"period_seconds={period_seconds} must be from {MIN_PERIOD_SECONDS} to "
                f"{MAX_PERIOD_SECONDS} (30 days)",
                field="period_seconds",
            )
        checker = await self._checker(caller, key, changes)
        window_seconds = checker.settings.max_seconds
        if period_seconds < window_seconds:
            raise InvalidRequest(
                f"period_seconds={period_seconds} is shorter than the window of the checker "
                f"({window_seconds} s), so that no session could be stopped",
                field="period_seconds",
            )
        async with self._lock:
            grid, resolution = _grid(self._clock(), period_seconds)
            found = await self._store.recorded(visible, grid.start, grid.end, MAX_SESSIONS)
            sessions = [session for session in found if checker.applies_to(session.type)]
            reuse = timedelta(seconds=reuse_seconds)
            stops, judged = await self._stops(checker, sessions, grid, resolution, reuse)
        is_complete = len(found) < MAX_SESSIONS and len(judged) == len(sessions)
        return summary(judged, stops, grid, is_complete=is_complete, max_stops=MAX_STOPS)

    async def _checker(
        self, caller: Caller, key: str | None, changes: Mapping[str, Any]
    ) -> Checker:
        kind = CheckerType.UTILIZATION
        if key is None:
            return Checker("", "replay", kind, changed_settings(kind, None, changes))
        checker = await self._checkers.checker(caller, key)
        if checker.type is not kind:
            raise InvalidRequest(
                f"checker {checker.name} has the type {checker.type}; only utilization checkers "
                "can be replayed, because other activity is not recorded",
                field="checker",
            )
        settings = changed_settings(kind, checker.settings, changes)
        return Checker(checker.id, checker.name, kind, settings)

    async def _stops(
        self,
        checker: Checker,
        sessions: Sequence[RecordedSession],
        grid: Grid,
        resolution: Resolution,
        reuse: timedelta,
    ) -> tuple[list[ReplayedStop], list[RecordedSession]]:
        """Return the stops, and the judged sessions: the newest ones that have at most
        ``MAX_SAMPLES`` in total.
        """
        judged = _affordable(sessions, grid, MAX_SAMPLES)
        stops: list[ReplayedStop] = []
        for first in range(0, len(judged), _SESSIONS_PER_STEP):
            step = judged[first : first + _SESSIONS_PER_STEP]
            samples: list[Sample] = []
            for session in step:
                samples += await self._read(session, grid, resolution)
            stops += await asyncio.to_thread(
                replayed_stops, checker, step, samples, grid, reuse=reuse
            )
        return stops, judged

    async def _read(
        self, session: RecordedSession, grid: Grid, resolution: Resolution
    ) -> list[Sample]:
        samples: list[Sample] = []
        start, end = max(grid.start, session.started_at), min(grid.end, session.ended_at)
        length = timedelta(seconds=resolution.interval_seconds * _SAMPLES_PER_QUERY)
        for kernel in session.kernels:
            at = resolution.start_of(start)
            while at < end:
                samples += await self._samples.between(
                    [kernel.id], resolution, at, min(at + length, end)
                )
                at += length
        return samples


def _affordable(
    sessions: Sequence[RecordedSession], grid: Grid, max_samples: int
) -> list[RecordedSession]:
    """Return the first sessions that together have at most ``max_samples`` samples.

    A session that would exceed the maximum is skipped, for example one with 256 kernels that ran
    for 30 days.
    """
    chosen: list[RecordedSession] = []
    for session in sessions:
        begin, end = max(grid.start, session.started_at), min(grid.end, session.ended_at)
        intervals = max((end - begin).total_seconds(), 0) // grid.interval_seconds + 1
        samples = int(intervals) * len(session.kernels)
        if samples <= max_samples:
            max_samples -= samples
            chosen.append(session)
    return chosen


def _grid(now: datetime, period_seconds: int) -> tuple[Grid, Resolution]:
    """Return the intervals of a period, and the samples that cover it."""
    is_short = period_seconds <= FINE.kept_for.total_seconds()
    resolution = FINE if is_short else COARSE
    count = period_seconds // resolution.interval_seconds
    end = resolution.start_of(now)
    start = end - timedelta(seconds=count * resolution.interval_seconds)
    return Grid(start, resolution.interval_seconds, count), resolution
