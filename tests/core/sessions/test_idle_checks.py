"""Evaluation of idle checkers for sessions, compared with a reference in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.idle_checks.checkers import (
    AppliedChecker,
    Checker,
    CheckerSettings,
    CheckerType,
    CheckStatus,
    Operator,
    check_settings,
)
from bai_services.core.sessions.idle_checks.judging import (
    LAGS,
    JudgedSession,
    Judgement,
    judge,
    limit_text,
    strictest,
    table_for,
    window_seconds,
)
from bai_services.core.sessions.idle_checks.replay import (
    RecordedSession,
    replayed_stops,
    summary,
)
from bai_services.core.sessions.idle_checks.usage_table import (
    DeviceFacts,
    KernelFacts,
    UsageTable,
    measured,
)
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.usage_history import COARSE, FINE, Grid, Resolution, Sample

START = datetime(2030, 1, 1, tzinfo=UTC)
GPU = {"g0": DeviceFacts("cuda", 1000)}
NOW = START + timedelta(minutes=10, seconds=40)
# Number of the last interval whose samples are certainly stored at NOW; it begins 40 s before NOW.
LAST = 40
POINTS = 240


def settings(**values: object) -> CheckerSettings:
    given_values = {"max_seconds": 300, "thresholds": {"cuda_util": 5}, **values}
    return CheckerSettings(**given_values)  # type: ignore[arg-type]


def checker(kind: CheckerType = CheckerType.UTILIZATION, **values: object) -> Checker:
    if kind is not CheckerType.UTILIZATION:
        values = {"thresholds": {}, **values}
    return Checker("c1", "gpu", kind, settings(**values))


def session(*applied: AppliedChecker, **values: object) -> JudgedSession:
    fields = {
        "id": "s1",
        "type": SessionType.INTERACTIVE,
        "started_at": START - timedelta(hours=2),
        "used_at": None,
        "reported_at": None,
        "kernel_ids": ("k1",),
        "families": frozenset({"cuda"}),
        "waiting": 0,
        "checkers": applied,
    }
    return JudgedSession(**{**fields, **values})  # type: ignore[arg-type]


def kernel(name: str = "k1", devices: Mapping[str, DeviceFacts] = GPU) -> KernelFacts:
    return KernelFacts(name, "s1", 2.0, 1000, devices)


def sample(
    number: int, utilization: float | None, memory: float | None = None, name: str = "k1"
) -> Sample:
    """Return the sample of interval ``number``; interval 0 begins at START."""
    found = {"utilization_percent": utilization, "memory_bytes": memory}
    device = {key: value for key, value in found.items() if value is not None}
    at = START + timedelta(seconds=15 * number)
    return Sample(name, at, {"cpu_cores": 0.1}, {"g0": device})


def table_of(samples: Sequence[Sample], *kernels: KernelFacts) -> UsageTable:
    table = UsageTable(FINE, POINTS)
    table.add(samples, {k.id: k for k in kernels or (kernel(),)})
    return table


def judged(
    found: JudgedSession, samples: Sequence[Sample], now: datetime = NOW, *kernels: KernelFacts
) -> Judgement:
    tables = {FINE: table_of(samples, *kernels), COARSE: UsageTable(COARSE, 288)}
    (judgement,) = judge([found], tables, now)
    return judgement


def applied(**values: object) -> AppliedChecker:
    return AppliedChecker(checker(**values), is_dry_run=False)


readings = st.lists(
    st.one_of(st.none(), st.integers(0, 10), st.just(0), st.just(0)), min_size=41, max_size=41
)


@given(
    util=readings,
    mem=readings,
    operator=st.sampled_from(Operator),
    percent=st.sampled_from([50, 80, 100]),
    seconds=st.sampled_from([60, 120, 300]),
    grace=st.sampled_from([0, 7200 + 400]),
    has_device=st.booleans(),
)
def test_judgement_equals_the_reference(
    util: list[int | None],
    mem: list[int | None],
    operator: Operator,
    percent: int,
    seconds: int,
    grace: int,
    has_device: bool,
) -> None:
    limits = {"cuda_util": 5, "cuda_mem": 5, "cpu_util": 50}
    rule = applied(
        thresholds=limits,
        operator=operator,
        idle_percent=percent,
        max_seconds=seconds,
        initial_grace_seconds=grace,
        warnings_seconds=(86400,),
    )
    families = frozenset({"cuda"}) if has_device else frozenset()
    samples = [
        sample(n, u, None if m is None else 10 * m)
        for n, (u, m) in enumerate(zip(util, mem, strict=True))
    ]
    facts = kernel(devices=GPU if has_device else {})
    result = judged(session(rule, families=families), samples, NOW, facts)

    skips_util = all(u is None for u in util) and any(m is not None for m in mem)

    def is_idle(number: int) -> bool:
        if number > LAST:
            return True
        if not number >= 0 or START + timedelta(seconds=15 * number) < begin:
            return False
        values = [(5.0, limits["cpu_util"])]
        if has_device:
            values += [] if skips_util else [(util[number], limits["cuda_util"])]
            values += [(mem[number], limits["cuda_mem"])]
        below = [value is not None and value < limit for value, limit in values]
        return all(below) if operator is Operator.AND else any(below)

    begin = START - timedelta(hours=2) + timedelta(seconds=grace)
    points = math.ceil(seconds / 15)
    if not is_idle(LAST):
        assert result.status is not CheckStatus.IDLE
        assert not result.is_due
        return
    end = LAST
    while sum(map(is_idle, range(end - points + 1, end + 1))) < math.ceil(points * percent / 100):
        end += 1
    stored = START + timedelta(seconds=15 * (end + 1)) + LAGS[FINE]
    expected = max(stored, begin + timedelta(seconds=seconds))
    assert result.status is CheckStatus.IDLE
    assert result.ends_at == expected
    assert result.is_due == (expected <= NOW and end == LAST)


def test_idle_session_is_due_after_the_whole_window() -> None:
    result = judged(session(applied()), [sample(n, 1) for n in range(41)])
    assert result.is_due
    assert str(result.rule) == (
        "low utilization: GPU utilization 1% (threshold 5%) in 90% of the samples of 5min; "
        "idle checker gpu"
    )


@pytest.mark.parametrize("missing", [range(38, 41), range(25, 30), range(41)])
def test_missing_samples_never_count_as_idle(missing: range) -> None:
    samples = [sample(n, 0) for n in range(41) if n not in missing]
    assert not judged(session(applied()), samples).is_due


@given(
    values=st.lists(st.sampled_from([0, 0, 0, 4, 9]), min_size=41, max_size=41),
    missing=st.sets(st.integers(0, 40)),
    trusted=st.one_of(st.none(), st.integers(0, 640)),
    operator=st.sampled_from(Operator),
    percent=st.sampled_from([50, 80, 100]),
)
def test_gaps_and_clock_changes_never_make_a_session_due(
    values: list[int],
    missing: set[int],
    trusted: int | None,
    operator: Operator,
    percent: int,
) -> None:
    limits = {"cuda_util": 5, "cuda_mem": 5}
    rule = session(applied(thresholds=limits, operator=operator, idle_percent=percent))
    since = None if trusted is None else START + timedelta(seconds=trusted)

    def is_due(left_out: set[int], trusted_since: datetime | None) -> bool:
        samples = [sample(n, v, 10 * v) for n, v in enumerate(values) if n not in left_out]
        tables = {FINE: table_of(samples), COARSE: UsageTable(COARSE, 288)}
        (judgement,) = judge([rule], tables, NOW, trusted_since)
        return judgement.is_due

    if is_due(missing, since):
        assert is_due(set(), None)
        assert since is None or NOW - since >= timedelta(seconds=300)


@given(
    used=st.integers(-900, 0),
    reported=st.one_of(st.none(), st.integers(-900, 0)),
    trusted=st.one_of(st.none(), st.integers(-900, 0)),
)
def test_missing_reports_and_clock_changes_never_make_a_session_due(
    used: int, reported: int | None, trusted: int | None
) -> None:
    rule = AppliedChecker(checker(CheckerType.NETWORK), is_dry_run=False)

    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    found = session(rule, used_at=at(used), reported_at=at(reported))
    (judgement,) = judge([found], {}, NOW, at(trusted))
    if judgement.is_due:
        assert max(used, trusted if trusted is not None else used) <= -300
        assert reported is not None and reported >= -60


@pytest.mark.parametrize(("family", "name"), [("gaudi2", "GAUDI2"), ("cuda", "GPU")])
def test_device_without_utilization_is_judged_by_its_memory(family: str, name: str) -> None:
    """Gaudi cards report only their memory: 10 of 1000 bytes are in use, later 100."""
    facts = kernel(devices={"g0": DeviceFacts(family, 1000)})
    limits = {f"{family}_util": 5, f"{family}_mem": 5}
    found = session(applied(thresholds=limits), families=frozenset({family}))
    small = [sample(n, None, 10) for n in range(41)]
    result = judged(found, small, NOW, facts)
    assert result.is_due
    assert result.rule is not None and f"{name} memory use 1% (threshold 5%)" in str(result.rule)
    large = [sample(n, None, 100) for n in range(41)]
    assert not judged(found, large, NOW, facts).is_due
    # Without a threshold for the memory, the checker cannot decide about the card.
    unknown = session(applied(thresholds={f"{family}_util": 5}), families=frozenset({family}))
    assert not judged(unknown, small, NOW, facts).is_due


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("net", ("net_rx_bytes_per_second", "net_tx_bytes_per_second")),
        ("io", ("io_read_bytes_per_second", "io_write_bytes_per_second")),
    ],
)
@pytest.mark.parametrize(
    ("rates", "is_due"), [((400, 500), True), ((400, 600), False), ((400, None), False)]
)
def test_network_and_io_are_judged_by_the_sum_of_both_directions(
    metric: str, parts: tuple[str, str], rates: tuple[float, float | None], is_due: bool
) -> None:
    known = {part: rate for part, rate in zip(parts, rates, strict=True) if rate is not None}
    samples = [replace(sample(n, 0), metrics=known) for n in range(41)]
    rule = session(applied(thresholds={metric: 1000}))
    assert judged(rule, samples).is_due is is_due


@pytest.mark.parametrize(("busy", "is_due"), [(4, True), (5, False)])
def test_part_of_the_samples_may_be_busy(busy: int, is_due: bool) -> None:
    """At least 80% of the 20 samples in the window must be idle, in any order."""
    rule = session(applied(max_seconds=300, idle_percent=80))
    for first in (21, 30, 35):
        samples = [sample(n, 90 if first <= n < first + busy else 0) for n in range(41)]
        assert judged(rule, samples).is_due is is_due


def test_family_that_reports_only_memory_is_judged_by_memory() -> None:
    samples = [sample(n, None, 10) for n in range(41)]
    both = applied(thresholds={"cuda_util": 5, "cuda_mem": 5})
    assert judged(session(both), samples).is_due
    assert not judged(session(applied()), samples).is_due
    # Because k2 reports a utilization, the threshold applies to k1, whose utilization is missing.
    others = [sample(n, 50, 10, "k2") for n in range(41)]
    assert not judged(session(both), samples + others, NOW, kernel(), kernel("k2")).is_due


def test_resource_that_the_session_does_not_have_is_skipped() -> None:
    samples = [sample(n, None) for n in range(41)]
    rule = applied(thresholds={"cuda_util": 5, "cpu_util": 50})
    without = session(rule, families=frozenset())
    assert judged(without, samples, NOW, kernel(devices={})).is_due
    only_gpu = session(applied(), families=frozenset())
    assert not judged(only_gpu, samples, NOW, kernel(devices={})).is_due


def test_kernels_of_a_cluster_are_averaged() -> None:
    cluster = session(applied(thresholds={"cuda_util": 5}), kernel_ids=("k1", "k2"))
    facts = (kernel("k1"), kernel("k2"))

    def samples(second: float | None) -> list[Sample]:
        return [
            sample(n, value, name=name)
            for n in range(41)
            for name, value in (("k1", 0.0), ("k2", second))
            if value is not None
        ]

    assert judged(cluster, samples(9), NOW, *facts).is_due
    assert not judged(cluster, samples(11), NOW, *facts).is_due
    assert not judged(cluster, samples(None), NOW, *facts).is_due


def test_device_that_reports_nothing_makes_the_family_unknown() -> None:
    two = KernelFacts("k1", "s1", 2.0, 1000, {**GPU, "g1": DeviceFacts("cuda", 1000)})
    assert "cuda_util" not in measured(sample(0, 3), two)


@pytest.mark.parametrize("resolution", [FINE, COARSE])
def test_samples_after_the_window_do_not_replace_its_oldest_samples(resolution: Resolution) -> None:
    """The longest window of a resolution is complete, even if the newest sample is stored early."""
    longest = timedelta(seconds=3600 if resolution is FINE else 86400)
    interval = timedelta(seconds=resolution.interval_seconds)
    count = longest // interval + 4
    rule = applied(max_seconds=int(longest.total_seconds()), idle_percent=100)
    found = session(rule, started_at=START - longest)
    for seconds in range(0, resolution.interval_seconds, 5):
        now = START + count * interval + timedelta(seconds=seconds)
        tables = {each: table_for(each, longest) for each in (FINE, COARSE)}
        samples = [replace(sample(0, 1), at=START + n * interval) for n in range(count + 1)]
        tables[resolution].add(samples, {"k1": kernel()})
        assert judge([found], tables, now)[0].is_due


def test_window_shrinks_under_pressure_but_not_below_the_floor() -> None:
    rule = settings(max_seconds=1200, min_seconds_under_pressure=300)
    assert [window_seconds(rule, n) for n in (0, 1, 2, 9)] == [1200, 600, 400, 300]
    samples = [sample(n, 0) for n in range(21, 41)]
    found = applied(max_seconds=1200, min_seconds_under_pressure=300)
    assert not judged(session(found), samples).is_due
    assert judged(session(found, waiting=3), samples).is_due


def test_checker_for_pressure_stops_nothing_while_nobody_waits() -> None:
    samples = [sample(n, 0) for n in range(41)]
    found = applied(only_under_pressure=True)
    result = judged(session(found), samples)
    assert (result.status, result.ends_at, result.is_due) == (CheckStatus.IDLE, None, False)
    assert judged(session(found, waiting=1), samples).is_due


@pytest.mark.parametrize("kind", CheckerType)
def test_new_rule_stops_no_session_before_its_first_warning_had_its_full_time(
    kind: CheckerType,
) -> None:
    # The session has been idle for longer than the rule allows when the rule takes effect.
    rule = checker(kind, warnings_seconds=(120, 60))
    idle = [sample(n, 1) for n in range(41)]
    found = session(used_at=START - timedelta(hours=1), reported_at=NOW)

    def judged_with(effective_at: datetime | None, now: datetime = NOW) -> Judgement:
        bound = AppliedChecker(rule, is_dry_run=False, effective_at=effective_at)
        return judged(replace(found, checkers=(bound,), reported_at=now), idle, now)

    assert judged_with(None).is_due
    new = judged_with(NOW)
    assert (new.status, new.is_due) == (CheckStatus.IDLE, False)
    # The rule is applied up to 15 s after it took effect.
    assert new.ends_at == NOW + timedelta(seconds=135)
    assert judged_with(NOW - timedelta(seconds=135)).is_due


def test_end_is_expected_before_the_countdown_begins() -> None:
    # The countdown begins 150 s before the end.
    applied_rule = applied(warnings_seconds=(60,))
    idle_for_90_seconds = [sample(n, 50) for n in range(35)] + [sample(n, 1) for n in range(35, 41)]
    result = judged(session(applied_rule), idle_for_90_seconds)
    assert (result.status, result.ends_at) == (CheckStatus.ACTIVE, None)
    # 90 % of the 20 intervals must be idle: the stop follows 12 intervals and the lag later.
    last_end = START + timedelta(seconds=15 * (LAST + 1))
    assert result.expected_ends_at == last_end + timedelta(seconds=12 * 15) + LAGS[FINE]
    used = judged(session(applied_rule), [sample(n, 50) for n in range(41)])
    assert (used.status, used.expected_ends_at) == (CheckStatus.ACTIVE, None)


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (
            CheckerType.UTILIZATION,
            {"thresholds": {"cpu_util": 5, "cuda_util": 10, "rngd_mem": 3, "net": 2_048}},
            "low utilization: CPU utilization below 5%, GPU utilization below 10%, network traffic "
            "below 2 KiB/s in 90% of the samples of 5min; idle checker gpu",
        ),
        (
            CheckerType.UTILIZATION,
            {"thresholds": {"mem": 30, "io": 100}, "operator": Operator.OR},
            "low utilization: one of memory use below 30%, disk access below 100 B/s in 90% of the "
            "samples of 5min; idle checker gpu",
        ),
        (
            CheckerType.UTILIZATION,
            {"thresholds": {"cuda_mem": 4}, "operator": Operator.OR},
            "low utilization: GPU memory use below 4% in 90% of the samples of 5min; "
            "idle checker gpu",
        ),
        (
            CheckerType.NETWORK,
            {},
            "idle timeout: at most 5min without use, the limit of idle checker gpu",
        ),
        (CheckerType.LIFETIME, {}, "lifetime: at most 5min, the limit of idle checker gpu"),
    ],
)
def test_rule_is_described_in_words(
    kind: CheckerType, values: dict[str, object], text: str
) -> None:
    assert str(limit_text(checker(kind, **values), {"cuda"})) == text


def test_keep_alive_starts_the_window_again() -> None:
    samples = [sample(n, 0) for n in range(41)]
    kept = replace(applied(), kept_alive_at=NOW - timedelta(seconds=60))
    result = judged(session(kept), samples)
    assert not result.is_due
    later = judged(session(kept), [sample(n, 0) for n in range(60)], NOW + timedelta(seconds=285))
    assert later.is_due


def test_nothing_before_a_change_of_the_clock_counts() -> None:
    samples = [sample(n, 0) for n in range(41)]
    tables = {FINE: table_of(samples), COARSE: UsageTable(COARSE, 288)}
    (result,) = judge([session(applied())], tables, NOW, NOW - timedelta(seconds=60))
    assert not result.is_due


def test_network_checker_needs_a_recent_report_and_exempts_batch() -> None:
    rule = AppliedChecker(checker(CheckerType.NETWORK), is_dry_run=False)
    used = {"used_at": NOW - timedelta(seconds=301)}
    assert judged(session(rule, **used, reported_at=NOW), []).is_due
    stale = judged(session(rule, **used, reported_at=NOW - timedelta(seconds=61)), [])
    assert not stale.is_due
    assert judged(session(rule, **used), []).status is CheckStatus.NOT_CHECKED
    batch = replace(rule.checker.settings, session_types=tuple(SessionType))
    found = replace(rule, checker=replace(rule.checker, settings=batch))
    tables = {FINE: table_of([]), COARSE: UsageTable(COARSE, 288)}
    assert judge([session(found, type=SessionType.BATCH, **used)], tables, NOW) == []


_seconds = st.none() | st.integers(0, 400)


@given(
    grace=st.integers(0, 100),
    kept=_seconds,
    used=_seconds,
    reported=_seconds,
    trusted=_seconds,
    maximum=st.sampled_from([60, 90, 200]),
    now=st.integers(0, 500),
)
def test_network_judgement_equals_a_count_of_idle_seconds(
    grace: int,
    kept: int | None,
    used: int | None,
    reported: int | None,
    trusted: int | None,
    maximum: int,
    now: int,
) -> None:
    """Naive oracle: count the seconds before the last report in which nothing happened."""

    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else START + timedelta(seconds=seconds)

    one = replace(
        applied(kind=CheckerType.NETWORK, max_seconds=maximum, initial_grace_seconds=grace),
        kept_alive_at=at(kept),
    )
    found = session(one, started_at=START, used_at=at(used), reported_at=at(reported))
    (judgement,) = judge([found], {}, START + timedelta(seconds=now), at(trusted))
    events = {0, grace, *(n for n in (kept, used, trusted) if n is not None)}

    def idle_seconds(until: int) -> int:
        count = 0
        while until - count >= 0 and not any(event > until - count for event in events):
            if until - count in events:
                return count
            count += 1
        return 0

    # A report is later than now if another manager, whose clock is ahead, received it.
    is_idle = (
        reported is not None
        and now - reported <= 60
        and idle_seconds(min(reported, now)) >= maximum
    )
    assert judgement.is_due is (is_idle and now >= max(grace, kept or 0))
    if judgement.ends_at is not None:
        assert judgement.ends_at == START + timedelta(seconds=max(events) + maximum)
    assert judgement.ends_at is not None or not judgement.is_due


@given(
    grace=st.integers(0, 100),
    kept=_seconds,
    maximum=st.sampled_from([60, 90, 200]),
    warnings=st.sampled_from([(), (30,), (80, 20)]),
    now=st.integers(0, 500),
)
def test_lifetime_judgement_counts_the_seconds_since_the_start(
    grace: int, kept: int | None, maximum: int, warnings: tuple[int, ...], now: int
) -> None:
    """Activity and keep-alives do not postpone the end."""
    kind = CheckerType.LIFETIME
    one = replace(
        applied(
            kind=kind,
            max_seconds=maximum,
            initial_grace_seconds=grace,
            warnings_seconds=warnings,
        ),
        kept_alive_at=None if kept is None else START + timedelta(seconds=kept),
    )
    found = session(one, started_at=START, used_at=START + timedelta(seconds=now))
    (judgement,) = judge([found], {}, START + timedelta(seconds=now))
    left = sum(1 for second in range(grace + maximum) if second >= now)
    assert judgement.is_due is (left == 0)
    is_shown = left <= max([maximum // 2, *warnings])
    assert judgement.status is (CheckStatus.IDLE if is_shown else CheckStatus.ACTIVE)


def test_strictest_judgement_is_the_earliest_end_that_is_not_a_dry_run() -> None:
    dry = Checker("d", "dry", CheckerType.LIFETIME, settings(max_seconds=60, thresholds={}))
    long = Checker("l", "long", CheckerType.LIFETIME, settings(max_seconds=9000, thresholds={}))
    short = Checker("s", "short", CheckerType.LIFETIME, settings(max_seconds=7800, thresholds={}))
    found = session(
        AppliedChecker(dry, is_dry_run=True),
        AppliedChecker(long, is_dry_run=False),
        AppliedChecker(short, is_dry_run=False),
    )
    first = strictest(judge([found], {}, NOW))
    assert first is not None
    assert first.checker.name == "short"
    assert first.ends_at == found.started_at + timedelta(seconds=7800)


def test_usage_table_forgets_intervals_that_are_too_old() -> None:
    table = table_of([sample(n, n) for n in range(POINTS + 10)])
    last = table.number_of(START) + POINTS + 9
    (row,) = table.rows_of(["k1"])
    assert list(table.window("cuda_util", [row], last)[0]) == list(range(10, POINTS + 10))
    earlier = table.window("cuda_util", [row], last - 5)[0]
    assert math.isnan(earlier[4])
    assert list(earlier[5:]) == list(range(10, POINTS + 5))
    after = table.window("cuda_util", [row], last + 3)[0]
    assert [math.isnan(value) for value in after[-4:]] == [False, True, True, True]


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (CheckerType.UTILIZATION, {"thresholds": {}}, "thresholds"),
        (CheckerType.UTILIZATION, {"thresholds": {"gpu": 5}}, "thresholds"),
        (CheckerType.UTILIZATION, {"thresholds": {"cpu_util": 101}}, "thresholds"),
        (CheckerType.UTILIZATION, {"max_seconds": 86401}, "max_seconds"),
        (CheckerType.UTILIZATION, {"idle_percent": 0}, "idle_percent"),
        (CheckerType.UTILIZATION, {"session_types": ()}, "session_types"),
        (
            CheckerType.UTILIZATION,
            {"min_seconds_under_pressure": 301},
            "min_seconds_under_pressure",
        ),
        (CheckerType.LIFETIME, {"thresholds": {"mem": 5}}, "thresholds"),
        (
            CheckerType.NETWORK,
            {"only_under_pressure": True, "thresholds": {}},
            "only_under_pressure",
        ),
        (
            CheckerType.NETWORK,
            {"session_types": (SessionType.BATCH,), "thresholds": {}},
            "session_types",
        ),
        (CheckerType.UTILIZATION, {"warnings_seconds": (-1,)}, "warnings_seconds"),
    ],
)
def test_invalid_settings_are_rejected(
    kind: CheckerType, values: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_settings(kind, settings(**values))
    assert raised.value.details["field"] == field


def test_settings_survive_storage() -> None:
    stored = settings(session_types=(SessionType.BATCH,), operator=Operator.OR)
    assert CheckerSettings.from_json(stored.as_json()) == stored


def recorded(**values: object) -> RecordedSession:
    fields = {
        "id": "s1",
        "name": "lab",
        "owner": "ann",
        "project": "vision",
        "type": SessionType.INTERACTIVE,
        "started_at": START,
        "ended_at": START + timedelta(minutes=50),
        "devices": 2.0,
        "kernels": (kernel(),),
    }
    return RecordedSession(**{**fields, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(("used_at", "is_wrong"), [(None, False), (100, True), (170, False)])
def test_replay_finds_the_stop_that_judging_would_have_made(
    used_at: int | None, is_wrong: bool
) -> None:
    busy = {*range(20), used_at}
    samples = [sample(n, 90 if n in busy else 0) for n in range(200)]
    grid = Grid(START, 15, 200)
    rule = checker()
    (stop,) = replayed_stops(rule, [recorded()], samples, grid, reuse=timedelta(minutes=30))
    live = next(
        now
        for now in (START + timedelta(seconds=15 * n) for n in range(200))
        if judged(session(AppliedChecker(rule, False), started_at=START), samples, now).is_due
    )
    # The checker is evaluated only after the samples of the last interval are stored.
    assert timedelta(0) < live - stop.stopped_at <= timedelta(seconds=35)
    assert stop.stopped_at == START + timedelta(seconds=15 * 38)
    assert (stop.used_again_at is not None) == is_wrong
    assert stop.device_hours == round(2 * (3000 - 570) / 3600, 2)
    total = summary([recorded()], [stop], grid, is_complete=True, max_stops=10)
    assert (total.stopped, total.stopped_wrongly) == (1, int(is_wrong))
    assert total.device_hours_freed == (0 if is_wrong else stop.device_hours)


def test_replay_stops_no_session_because_of_missing_samples() -> None:
    samples = [sample(n, 0) for n in range(0, 200, 2)]
    assert not replayed_stops(
        checker(), [recorded()], samples, Grid(START, 15, 200), reuse=timedelta(hours=1)
    )


@given(
    values=st.lists(
        st.one_of(st.none(), st.just(90), st.just(0), st.just(0)), min_size=30, max_size=30
    ),
    started=st.integers(-200, 300).map(lambda halves: halves / 2),
    seconds=st.sampled_from([60, 65, 120]),
    percent=st.sampled_from([50, 100]),
    grace=st.sampled_from([0, 20]),
    reuse=st.integers(0, 200),
)
def test_replay_equals_the_reference(
    values: list[int | None], started: float, seconds: int, percent: int, grace: int, reuse: int
) -> None:
    rule = checker(max_seconds=seconds, idle_percent=percent, initial_grace_seconds=grace)
    ended_at = START + timedelta(seconds=15 * 28)
    found = recorded(started_at=START + timedelta(seconds=started), ended_at=ended_at)
    samples = [sample(n, value) for n, value in enumerate(values) if value is not None]
    begin = started + grace
    points = math.ceil(seconds / 15)

    def is_idle(number: int) -> bool:
        return number >= 0 and 15 * number >= begin and values[number] == 0

    ends = (
        number
        for number in range(28)
        if is_idle(number)
        and 15 * (number + 1) >= begin + seconds
        and sum(map(is_idle, range(number - points + 1, number + 1))) >= points * percent / 100
    )
    stops = replayed_stops(
        rule, [found], samples, Grid(START, 15, 30), reuse=timedelta(seconds=reuse)
    )
    last = next(ends, None)
    if last is None:
        assert not stops
        return
    (stop,) = stops
    assert stop.stopped_at == START + timedelta(seconds=15 * (last + 1))
    uses = [n for n in range(last + 1, 30) if values[n] == 90 and 15 * (n - last - 1) < reuse]
    assert stop.used_again_at == (START + timedelta(seconds=15 * uses[0]) if uses else None)
