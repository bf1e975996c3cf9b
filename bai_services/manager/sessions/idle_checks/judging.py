"""Judge running sessions by their idle checkers, and stop sessions that are idle for too long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bai_services.core.sessions.idle_checks.checkers import MAX_WINDOW_SECONDS, CheckerType
from bai_services.core.sessions.idle_checks.judging import (
    INTERVAL_SECONDS,
    LAGS,
    JudgedSession,
    Judgement,
    judge,
    strictest,
    table_for,
)
from bai_services.core.sessions.idle_checks.pressure import (
    WaitingCounts,
    count_waiting,
    waiting_for,
)
from bai_services.core.sessions.idle_checks.usage_table import KernelFacts
from bai_services.core.sessions.lifecycle import Result
from bai_services.core.sessions.usage_history import COARSE, FINE, Resolution
from bai_services.db.sessions.idle_checks.results import Key, StoredCheck
from bai_services.db.sessions.idle_checks.store import Decision, IdleCheckStore, RunningSession
from bai_services.db.sessions.usage_samples import UsageSampleStore

from ...clock import Clock
from ...loop import Loop
from ...metrics import Metrics
from ...scheduling.lease import Lease
from ..planned_stops import PlannedStops

log = logging.getLogger(__name__)

TICK_SECONDS = float(INTERVAL_SECONDS)
# Minimum time between two steps, in seconds, and as a multiple of the duration of the last step.
_MIN_WAIT_SECONDS = 0.5
_MIN_WAIT_FACTOR = 4
# Steps are planned this much later, because a step just before a moment would have no effect.
_MARGIN_SECONDS = 0.02
# After the announced end of a session, its next report is awaited for this time.
_REPORT_WAIT = timedelta(seconds=5)
# A larger difference between the clock and the monotonic clock counts as a clock change.
_CLOCK_TOLERANCE = timedelta(seconds=10)
# End times that differ by less are not stored again. Users see the stored end.
_END_TOLERANCE = timedelta(seconds=1)
# If samples begin more than this time in the future, the clock was set back.
_SAMPLE_TOLERANCE = timedelta(seconds=FINE.interval_seconds)
_DECISIONS_KEPT_FOR = timedelta(days=30)
_CLEANUP_INTERVAL_SECONDS = 3600.0
# Number of kernels per query of samples: a query returns at most about 600 samples.
_KERNELS_PER_QUERY = 2
# Number of kernels per query of the newest samples.
_UPDATED_KERNELS_PER_QUERY = 50
# Number of intervals that are read again, because other managers may store samples late.
_LATE_INTERVALS = 2


@dataclass(slots=True)
class _Results:
    """Results of a step by session and checker, results to store, and sessions to stop."""

    current: dict[Key, StoredCheck] = field(default_factory=dict)
    changed: list[StoredCheck] = field(default_factory=list)
    removed: Collection[Key] = ()
    decisions: list[Decision] = field(default_factory=list)
    has_new_warnings: bool = False
    # Times at which a session must be judged again: warnings and ends.
    moments: list[datetime] = field(default_factory=list)
    # Sessions whose enforced end may have changed.
    limited: set[str] = field(default_factory=set)
    due: dict[str, tuple[RunningSession, list[Judgement]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stops:
    """Ids of the sessions that a step has stopped, and of sessions that it must not stop."""

    stopped: set[str] = field(default_factory=set)
    declined: list[str] = field(default_factory=list)


class IdleJudging:
    """Judges every ``TICK_SECONDS``, and at warnings and announced ends.

    Only the manager that holds the lease judges.
    The arrays with the samples are built again after a start, a takeover of the lease and a change
    of the clock. A session is stopped only if its end was shown for at least the time of the final
    warning, by the monotonic clock of this manager.
    """

    def __init__(
        self,
        store: IdleCheckStore,
        samples: UsageSampleStore,
        stops: PlannedStops,
        clock: Clock,
        *,
        lease: Lease,
        metrics: Metrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._samples = samples
        self._stops = stops
        self._clock = clock
        self._lease = lease
        self._metrics = metrics
        self._monotonic = monotonic
        # Called when the final warning of a session begins.
        self.on_final_warning: Callable[[], None] = lambda: None
        # Called with the ids of sessions whose enforced end may have changed.
        self.on_changed_ends: Callable[[Collection[str]], None] = lambda ids: None
        self._loop = Loop("idle checks", self.step, TICK_SECONDS)
        # When the next step is due after the last one.
        self.next_step_seconds = TICK_SECONDS
        self._cleaned_at: float | None = None
        self._reset()

    def _reset(self) -> None:
        """Reset the state to that after a start."""
        self._tables = {
            resolution: table_for(resolution, longest)
            for resolution, longest in (
                (FINE, FINE.kept_for),
                (COARSE, timedelta(seconds=MAX_WINDOW_SECONDS)),
            )
        }
        self._read_until: dict[Resolution, datetime] = {}
        self._kernels: dict[str, KernelFacts] = {}
        self._started: dict[str, datetime] = {}
        self._loaded: dict[Resolution, set[str]] = {FINE: set(), COARSE: set()}
        self._is_new = True
        # When the end of a session was first shown: monotonic time and clock time.
        self._shown_since: dict[Key, tuple[float, datetime]] = {}
        self._last: tuple[datetime, float] | None = None
        self._trusted_since: datetime | None = None

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Judge all sessions once."""
        if await self._lease.hold() is None:
            self._reset()
            return
        now, monotonic = self._clock(), self._monotonic()
        self._notice_clock_change(now, monotonic)
        sessions = await self._store.running() if await self._store.has_bindings() else []
        if self._is_new and await self._clock_was_set_back(now):
            self._trusted_since = now
            # Delete samples in the future, because they would count when the clock reaches their
            # times.
            await self._samples.delete_from(FINE, now + _SAMPLE_TOLERANCE)
        self._is_new = False
        # Read at each step, because users may keep sessions alive or exclude them between steps.
        stored = {check.key: check for check in await self._store.stored()}
        await self._read_kernels(sessions)
        await self._read_samples(sessions, now)
        waiting = await self._waiting(sessions)
        results = await asyncio.to_thread(self._judge, sessions, waiting, stored, now, monotonic)
        await self._store.write(results.changed, results.removed, results.decisions)
        if results.has_new_warnings:
            self.on_final_warning()
        if results.limited:
            self.on_changed_ends(results.limited)
        stops = await self._stop_due(results.due)
        if stops.declined:
            await self._store.remove_decisions(stops.declined)
        for decision in results.decisions:
            if decision.is_dry_run:
                self._metrics.idle_decisions.labels("dry-run").inc()
            elif decision.session_id in stops.stopped:
                self._metrics.idle_decisions.labels("stop").inc()
        await self._clean_up(now, monotonic)
        self._plan_next_step(results.moments, now, self._monotonic() - monotonic)

    def _plan_next_step(self, moments: Iterable[datetime], now: datetime, seconds: float) -> None:
        """Plan the next step for the earliest moment. ``seconds``: duration of the current step.

        Without a planned step, a session would be stopped up to ``TICK_SECONDS`` after its
        announced end.
        """
        waits = [(moment - now).total_seconds() - seconds for moment in moments]
        least = max(_MIN_WAIT_SECONDS, _MIN_WAIT_FACTOR * seconds)
        first = max(min(waits, default=TICK_SECONDS) + _MARGIN_SECONDS, least)
        self.next_step_seconds = min(first, TICK_SECONDS)
        self._loop.run_within(self.next_step_seconds)

    def _judge(
        self,
        sessions: Sequence[RunningSession],
        waiting: WaitingCounts,
        stored: Mapping[Key, StoredCheck],
        now: datetime,
        monotonic: float,
    ) -> _Results:
        """Judge sessions, and compare the results with the stored ones; runs in a thread."""
        by_id = {session.id: session for session in sessions}
        judged = [self._judged_session(session, waiting) for session in sessions]
        results = _Results()
        for raw in judge(judged, self._tables, now, self._trusted_since):
            before = stored.get((raw.session_id, raw.checker.id))
            if before is not None and before.ends_at is None:
                # The end is no longer shown, because a user has kept the session alive or has
                # excluded it for a short time.
                self._shown_since.pop(before.key, None)
            was_shown = (raw.session_id, raw.checker.id) in self._shown_since
            judgement = self._after_warning(raw, now, monotonic)
            session = by_id[judgement.session_id]
            check = _check_of(judgement)
            if before is None or _differs(before, check):
                results.changed.append(check)
                if judgement.checker.type is CheckerType.LIFETIME:
                    results.limited.add(check.session_id)
            else:
                check = before
            results.current[check.key] = check
            results.moments += _moments(judgement, now)
            if check.key in self._shown_since and not (was_shown or check.is_dry_run):
                results.has_new_warnings = True
            is_repeated = judgement.is_dry_run and before is not None and before.is_due
            if judgement.is_due and not is_repeated:
                results.decisions.append(_decision_of(judgement, check, session, now))
            if judgement.is_due and not judgement.is_dry_run:
                results.due.setdefault(session.id, (session, []))[1].append(judgement)
        results.removed = stored.keys() - results.current.keys()
        results.limited |= {session_id for session_id, _ in results.removed} & by_id.keys()
        return results

    def _notice_clock_change(self, now: datetime, monotonic: float) -> None:
        """Restart all windows if the clock was changed."""
        last, self._last = self._last, (now, monotonic)
        if last is None:
            return
        expected = last[0] + timedelta(seconds=monotonic - last[1])
        if abs(now - expected) > _CLOCK_TOLERANCE:
            log.warning("the clock was changed by %s; idle checks start again", now - expected)
            self._reset()
            self._last, self._trusted_since = (now, monotonic), now

    async def _read_kernels(self, sessions: Sequence[RunningSession]) -> None:
        """Read the limits of new kernels, and discard kernels that ended or were restarted."""
        started = {key: session.started_at for session in sessions for key in session.kernel_ids}
        kept = {key for key, at in self._started.items() if started.get(key) == at}
        for table in self._tables.values():
            table.keep(kept)
        for loaded in self._loaded.values():
            loaded &= kept
        self._kernels = {key: facts for key, facts in self._kernels.items() if key in kept}
        new = [key for key in started if key not in self._kernels]
        self._kernels |= {facts.id: facts for facts in await self._store.kernel_facts(new)}
        self._started = {key: started[key] for key in self._kernels}

    async def _read_samples(self, sessions: Sequence[RunningSession], now: datetime) -> None:
        needed: dict[Resolution, set[str]] = {FINE: set(), COARSE: set()}
        for session in sessions:
            for applied in session.checkers:
                if applied.checker.type is CheckerType.UTILIZATION:
                    needed[applied.checker.settings.resolution] |= {*session.kernel_ids}
        for resolution, kernel_ids in needed.items():
            table, loaded = self._tables[resolution], self._loaded[resolution]
            length = timedelta(seconds=resolution.interval_seconds)
            start = now - table.points * length - LAGS[resolution] - length
            # After a clock change, older samples do not count.
            if self._trusted_since is not None:
                start = max(start, self._trusted_since)
            new = sorted((kernel_ids & self._kernels.keys()) - loaded)
            since = self._read_until.get(resolution, start)
            await self._add(resolution, sorted(loaded), since, now)
            for first in range(0, len(new), _KERNELS_PER_QUERY):
                chunk = new[first : first + _KERNELS_PER_QUERY]
                await self._add(resolution, chunk, start, now)
                loaded |= {*chunk}
            self._read_until[resolution] = max(start, now - _LATE_INTERVALS * length)

    async def _clock_was_set_back(self, now: datetime) -> bool:
        """Return whether stored samples are in the future."""
        last = await self._samples.last(FINE, datetime.max.replace(tzinfo=now.tzinfo))
        return last is not None and last > now + _SAMPLE_TOLERANCE

    async def _add(
        self, resolution: Resolution, kernel_ids: Sequence[str], start: datetime, end: datetime
    ) -> None:
        for first in range(0, len(kernel_ids), _UPDATED_KERNELS_PER_QUERY):
            chunk = kernel_ids[first : first + _UPDATED_KERNELS_PER_QUERY]
            found = await self._samples.between(chunk, resolution, start, end)
            await asyncio.to_thread(self._tables[resolution].add, found, self._kernels)

    def _judged_session(self, session: RunningSession, waiting: WaitingCounts) -> JudgedSession:
        families = {
            device.family
            for key in session.kernel_ids
            if key in self._kernels
            for device in self._kernels[key].devices.values()
        }
        return JudgedSession(
            session.id,
            session.type,
            session.started_at,
            session.used_at,
            session.reported_at,
            session.kernel_ids,
            session.families | families,
            waiting_for(session.resource_group, session.families, waiting),
            session.checkers,
        )

    async def _waiting(self, sessions: Iterable[RunningSession]) -> WaitingCounts:
        uses_pressure = any(
            applied.checker.settings.min_seconds_under_pressure
            or applied.checker.settings.only_under_pressure
            for session in sessions
            for applied in session.checkers
        )
        return count_waiting(await self._store.waiting()) if uses_pressure else {}

    def _after_warning(self, judgement: Judgement, now: datetime, monotonic: float) -> Judgement:
        """Postpone the end until the final warning has been shown for long enough."""
        key = (judgement.session_id, judgement.checker.id)
        settings = judgement.checker.settings
        warning = timedelta(seconds=settings.final_warning_seconds)
        if judgement.ends_at is None or judgement.ends_at - now > warning:
            self._shown_since.pop(key, None)
            return judgement
        shown_since, shown_at = self._shown_since.setdefault(key, (monotonic, now))
        is_shown = monotonic - shown_since >= settings.final_warning_seconds
        ends_at = max(judgement.ends_at, shown_at + warning)
        return replace(
            judgement,
            ends_at=ends_at,
            is_due=judgement.is_due and (is_shown or judgement.is_dry_run),
        )

    async def _stop_due(self, due: Mapping[str, tuple[RunningSession, list[Judgement]]]) -> _Stops:
        """Stop due sessions, unless users have changed their idle checks in the meantime."""
        stops = _Stops()
        for session, judgements in due.values():
            first = strictest(judgements)
            if first is None or first.rule is None or await self._lease.hold() is None:
                stops.declined.append(session.id)
                continue
            applied = next(each for each in session.checkers if each.checker == first.checker)
            if not await self._store.is_unchanged(session.id, applied):
                stops.declined.append(session.id)
                continue
            if await self._stops.stop(session.id, first.rule, result=Result.FAILURE):
                stops.stopped.add(session.id)
        return stops

    async def _clean_up(self, now: datetime, monotonic: float) -> None:
        if (
            self._cleaned_at is not None
            and monotonic - self._cleaned_at < _CLEANUP_INTERVAL_SECONDS
        ):
            return
        self._cleaned_at = monotonic
        await self._store.clean_up(now - _DECISIONS_KEPT_FOR)


def _moments(judgement: Judgement, now: datetime) -> list[datetime]:
    """Return the times at which the session must be judged again: its warnings and its end.

    A session reports its activity at its announced end. Until this report is there, the session is
    not due.
    """
    settings = judgement.checker.settings
    end = judgement.ends_at or judgement.expected_ends_at
    if end is None or judgement.is_due:
        return []
    # The countdown begins at the first warning or at half of the window.
    before = {settings.max_seconds // 2, *settings.warnings_seconds, 0}
    moments = [at for left in before if (at := end - timedelta(seconds=left)) > now]
    if end <= now < end + _REPORT_WAIT:
        moments.append(now)
    return moments


def _check_of(judgement: Judgement) -> StoredCheck:
    return StoredCheck(
        judgement.session_id,
        judgement.checker.id,
        judgement.status,
        judgement.is_dry_run,
        judgement.is_due,
        judgement.ends_at,
        None if judgement.rule is None else judgement.rule.as_json(),
        expected_ends_at=judgement.expected_ends_at,
    )


def _decision_of(
    judgement: Judgement, check: StoredCheck, session: RunningSession, now: datetime
) -> Decision:
    return Decision(
        now,
        judgement.checker.id,
        judgement.checker.name,
        session.id,
        session.name,
        session.owner,
        session.domain,
        judgement.is_dry_run,
        check.rule,
    )


def _differs(before: StoredCheck, after: StoredCheck) -> bool:
    """Return whether a result must be stored again.

    A change of the numbers in the rule alone is not stored.
    """
    if (before.status, before.is_dry_run, before.is_due) != (
        after.status,
        after.is_dry_run,
        after.is_due,
    ):
        return True
    return _is_other_end(before.ends_at, after.ends_at) or _is_other_end(
        before.expected_ends_at, after.expected_ends_at
    )


def _is_other_end(before: datetime | None, after: datetime | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(before - after) >= _END_TOLERANCE
