"""Judge running sessions by the idle checkers that apply to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

import numpy as np

from ...coded_text import CodedText, TextTemplate
from ..idle import Idleness
from ..lifecycle import SessionType
from ..usage_history import COARSE, FINE, Resolution
from .checkers import (
    AppliedChecker,
    Checker,
    CheckerSettings,
    CheckerType,
    CheckStatus,
    Operator,
    metric_family,
    metric_name,
    metric_value_text,
)
from .usage_table import UsageTable, Values
from .utilization import IdlePoints, SessionRows, idle_points, needed_points, points_left

# Time between two judgements of a session.
INTERVAL_SECONDS = 15
# Maximum delay from the end of an interval until its samples are stored.
LAGS = {FINE: timedelta(seconds=20), COARSE: timedelta(seconds=75)}


@dataclass(frozen=True, slots=True)
class JudgedSession:
    """A running session. ``reported_at`` is the time of its last activity report.

    ``waiting``: number of pending sessions that wait for resources of the same kinds.
    """

    id: str
    type: SessionType
    started_at: datetime
    used_at: datetime | None
    reported_at: datetime | None
    kernel_ids: tuple[str, ...]
    families: frozenset[str]
    waiting: int
    checkers: tuple[AppliedChecker, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of one checker for one session.

    ``ends_at``: when the checker stops the session if it stays idle; None: unknown.
    ``expected_ends_at``: this time before the countdown begins; None during the countdown.
    ``is_due``: the session may be stopped now. ``rule``: text of the rule with its limits and the
    measured values.
    """

    session_id: str
    checker: Checker
    status: CheckStatus
    is_dry_run: bool
    ends_at: datetime | None = None
    is_due: bool = False
    rule: CodedText | None = None
    expected_ends_at: datetime | None = None


_Case = tuple[JudgedSession, AppliedChecker]


def judge(
    sessions: Iterable[JudgedSession],
    tables: Mapping[Resolution, UsageTable],
    now: datetime,
    trusted_since: datetime | None = None,
) -> list[Judgement]:
    """Return a judgement for each session and each checker that applies to it.

    Inactivity before ``trusted_since``, when the clock was changed, does not count.
    """
    judgements: list[Judgement] = []
    cases: dict[str, list[_Case]] = defaultdict(list)
    for session in sessions:
        for applied in session.checkers:
            if not applied.checker.applies_to(session.type):
                continue
            if applied.is_excluded and applied.checker.settings.allows_exclusion:
                judgements.append(_judgement(session, applied, CheckStatus.EXCLUDED))
            else:
                cases[applied.checker.id].append((session, applied))
    for of_checker in cases.values():
        checker = of_checker[0][1].checker
        if checker.type is CheckerType.UTILIZATION:
            table = tables[checker.settings.resolution]
            judgements += _judge_utilization(checker, of_checker, table, now, trusted_since)
        elif checker.type is CheckerType.NETWORK:
            judgements += [_judge_network(*case, now, trusted_since) for case in of_checker]
        else:
            judgements += [_judge_lifetime(*case, now) for case in of_checker]
    return judgements


def window_seconds(settings: CheckerSettings, waiting: int) -> int:
    """Return the length of the window while ``waiting`` sessions wait for the same resources."""
    floor = settings.min_seconds_under_pressure
    if not floor or not waiting:
        return settings.max_seconds
    return max(floor, settings.max_seconds // (1 + waiting))


def strictest(judgements: Iterable[Judgement]) -> Judgement | None:
    """Return the judgement with the earliest end, ignoring dry runs; None if no judgement has an
    end.
    """
    ending = [j for j in judgements if j.ends_at is not None and not j.is_dry_run]
    return min(ending, key=lambda j: (j.ends_at, j.checker.name), default=None)


def last_interval(table: UsageTable, now: datetime) -> int:
    """Return the number of the last interval with all samples stored."""
    return table.number_of(now - LAGS[table.resolution]) - 1


def table_for(resolution: Resolution, longest: timedelta) -> UsageTable:
    """Return an empty table for windows of at most this length.

    Windows end at ``last_interval``. The table also has space for some later intervals, because
    their samples must not replace the oldest samples of a window.
    """
    interval = timedelta(seconds=resolution.interval_seconds)
    later = -(-LAGS[resolution] // interval) + 1
    return UsageTable(resolution, -(-longest // interval) + later)


def baseline_of(
    session: JudgedSession, applied: AppliedChecker, trusted_since: datetime | None = None
) -> datetime:
    """Return the time before which inactivity does not count."""
    grace = timedelta(seconds=applied.checker.settings.initial_grace_seconds)
    times = (session.started_at + grace, applied.kept_alive_at, trusted_since)
    return max(time for time in times if time is not None)


def judged_from(
    checker: Checker, started_at: datetime, kept_alive_at: datetime | None
) -> datetime | None:
    """Return when a checker can first judge a session after its start or a keep-alive.

    A utilization checker needs the samples of a whole interval. None for a lifetime checker, which
    judges at once.
    """
    if checker.type is CheckerType.LIFETIME:
        return None
    baseline = started_at + timedelta(seconds=checker.settings.initial_grace_seconds)
    if kept_alive_at is not None:
        baseline = max(baseline, kept_alive_at)
    if checker.type is CheckerType.NETWORK:
        return baseline
    resolution = checker.settings.resolution
    interval = resolution.interval_seconds
    first = ceil(baseline.timestamp() / interval) * interval
    return datetime.fromtimestamp(first + interval, UTC) + LAGS[resolution]


def utilization_rule(checker: Checker, seconds: int, means: Mapping[str, float]) -> CodedText:
    """Return the text of a utilization checker's rule with the means of a session."""
    parts = [
        TextTemplate.METRIC_MEASURED.text(
            metric_name(metric),
            value=metric_value_text(metric, mean),
            limit=metric_value_text(metric, checker.settings.thresholds[metric]),
        )
        for metric, mean in means.items()
    ]
    return TextTemplate.IDLE_UTILIZATION.text(
        *parts,
        name=checker.name,
        window_seconds=seconds,
        percent=checker.settings.idle_percent,
    )


def limit_text(checker: Checker, families: Collection[str]) -> CodedText:
    """Return the text of a checker's rule for a session with devices of these families."""
    settings = checker.settings
    seconds = settings.max_seconds
    if checker.type is CheckerType.NETWORK:
        return TextTemplate.IDLE_NETWORK.text(name=checker.name, maximum_seconds=seconds)
    if checker.type is CheckerType.LIFETIME:
        return TextTemplate.IDLE_LIFETIME.text(name=checker.name, maximum_seconds=seconds)
    parts = [
        TextTemplate.METRIC_LIMIT.text(metric_name(metric), limit=metric_value_text(metric, limit))
        for metric, limit in settings.thresholds.items()
        if (family := metric_family(metric)) is None or family in families
    ]
    is_any = settings.operator is Operator.OR and len(parts) > 1
    template = TextTemplate.IDLE_UTILIZATION_ANY if is_any else TextTemplate.IDLE_UTILIZATION
    return template.text(
        *parts, name=checker.name, window_seconds=seconds, percent=settings.idle_percent
    )


def _earliest_end(applied: AppliedChecker, ends_at: datetime) -> datetime:
    """Return the end, postponed so that the first warning of a new rule has its full time.

    A session may have been idle for long when the rule takes effect; it is judged at most
    ``INTERVAL_SECONDS`` later.
    """
    if applied.effective_at is None:
        return ends_at
    seconds = applied.checker.settings.first_warning_seconds
    if seconds:
        seconds += INTERVAL_SECONDS
    return max(ends_at, applied.effective_at + timedelta(seconds=seconds))


def _judgement(
    session: JudgedSession,
    applied: AppliedChecker,
    status: CheckStatus,
    ends_at: datetime | None = None,
    is_due: bool = False,
    rule: CodedText | None = None,
    expected: datetime | None = None,
) -> Judgement:
    return Judgement(
        session.id, applied.checker, status, applied.is_dry_run, ends_at, is_due, rule, expected
    )


def _judge_lifetime(session: JudgedSession, applied: AppliedChecker, now: datetime) -> Judgement:
    checker = applied.checker
    grace = timedelta(seconds=checker.settings.initial_grace_seconds)
    ends_at = session.started_at + grace + timedelta(seconds=checker.settings.max_seconds)
    ends_at = _earliest_end(applied, ends_at)
    is_close = ends_at - now <= _countdown_time(checker.settings, checker.settings.max_seconds)
    rule = TextTemplate.IDLE_LIFETIME.text(
        name=checker.name, maximum_seconds=checker.settings.max_seconds
    )
    status = CheckStatus.IDLE if is_close else CheckStatus.ACTIVE
    return _judgement(session, applied, status, ends_at, ends_at <= now, rule)


def _judge_network(
    session: JudgedSession,
    applied: AppliedChecker,
    now: datetime,
    trusted_since: datetime | None,
) -> Judgement:
    checker = applied.checker
    since = baseline_of(session, applied, trusted_since)
    if session.used_at is not None:
        since = max(since, session.used_at)
    seconds = checker.settings.max_seconds
    idleness = Idleness(since, since + timedelta(seconds=seconds), session.reported_at)
    if session.reported_at is None or now < baseline_of(session, applied):
        return _judgement(session, applied, CheckStatus.NOT_CHECKED)
    ends_at = _earliest_end(applied, idleness.ends_at)
    if ends_at - now > _countdown_time(checker.settings, seconds):
        return _judgement(session, applied, CheckStatus.ACTIVE, expected=ends_at)
    rule = TextTemplate.IDLE_NETWORK.text(name=checker.name, maximum_seconds=seconds)
    is_due = idleness.is_over(now) and ends_at <= now
    return _judgement(session, applied, CheckStatus.IDLE, ends_at, is_due, rule)


def _countdown_time(settings: CheckerSettings, seconds: int) -> timedelta:
    """Return how long before the end the countdown is shown."""
    return timedelta(seconds=max(max(settings.warnings_seconds, default=0), seconds // 2))


def _judge_utilization(
    checker: Checker,
    cases: Sequence[_Case],
    table: UsageTable,
    now: datetime,
    trusted_since: datetime | None,
) -> list[Judgement]:
    settings, interval = checker.settings, table.resolution.interval_seconds
    last = last_interval(table, now)
    rows = session_rows(table, [session for session, _ in cases])
    found = idle_points(table, rows, settings, last)
    first = last - table.points + 1
    seconds = np.array([window_seconds(settings, session.waiting) for session, _ in cases])
    points = np.minimum(-(-seconds // interval), table.points)
    percent = settings.idle_percent
    by_length = {int(n): needed_points(int(n), percent) for n in np.unique(points)}
    needed = np.array([by_length[int(n)] for n in points])
    baselines = np.array(
        [baseline_of(session, applied, trusted_since).timestamp() for session, applied in cases]
    )
    # An interval that begins before the baseline does not count.
    skipped = np.clip(-(-baselines // interval).astype(np.int64) - first, 0, table.points)
    columns = np.arange(table.points)
    idle = found.idle & (columns[None, :] >= skipped[:, None])
    left = points_left(idle, points, needed)
    is_idle = idle[:, -1]
    is_active = found.active[:, -1]
    # The session is stopped when the samples of the last interval have been stored.
    lag = LAGS[table.resolution].total_seconds()
    ends = np.maximum((last + 1 + left) * interval + lag, baselines + seconds)
    shown = np.maximum(max(settings.warnings_seconds, default=0), seconds // 2)
    means = _means(found, points)
    judgements = []
    for number, (session, applied) in enumerate(cases):
        ends_at = _earliest_end(applied, datetime.fromtimestamp(float(ends[number]), UTC))
        if not is_idle[number]:
            status = CheckStatus.ACTIVE if is_active[number] else CheckStatus.NOT_CHECKED
            judgements.append(_judgement(session, applied, status))
            continue
        is_held = settings.only_under_pressure and not session.waiting
        if (ends_at - now).total_seconds() > shown[number]:
            expected = None if is_held else ends_at
            judgements.append(_judgement(session, applied, CheckStatus.ACTIVE, expected=expected))
            continue
        own = {
            metric: float(values[number])
            for metric, values in means.items()
            if (family := metric_family(metric)) is None or family in session.families
        }
        rule = utilization_rule(checker, int(seconds[number]), own)
        if is_held:
            judgements.append(_judgement(session, applied, CheckStatus.IDLE, rule=rule))
            continue
        is_due = bool(left[number] == 0 and ends_at <= now)
        judgements.append(_judgement(session, applied, CheckStatus.IDLE, ends_at, is_due, rule))
    return judgements


def session_rows(table: UsageTable, sessions: Sequence[JudgedSession]) -> SessionRows:
    """Return the table rows of the sessions' kernels."""
    rows: list[int] = []
    starts: list[int] = []
    for session in sessions:
        starts.append(len(rows))
        rows += table.rows_of(session.kernel_ids or ("",))
    names = frozenset().union(*(session.families for session in sessions))
    families = {
        name: np.array([name in session.families for session in sessions]) for name in names
    }
    return SessionRows(np.array(rows, dtype=np.intp), np.array(starts, dtype=np.intp), families)


def _means(found: IdlePoints, points: np.ndarray) -> dict[str, Values]:
    """Return the mean of each metric in the windows of the sessions."""
    means = {}
    for metric, values in found.values.items():
        is_known = ~np.isnan(values)
        is_known &= np.arange(values.shape[1])[None, :] >= values.shape[1] - points[:, None]
        total = np.where(is_known, values, 0).sum(axis=1)
        means[metric] = total / np.maximum(is_known.sum(axis=1), 1)
    return means
