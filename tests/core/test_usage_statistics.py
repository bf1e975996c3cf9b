"""Usage statistics: intervals of reports, utilization, and totals of hours."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.usage_history import Sample
from bai_services.core.usage.budgets import Mode, is_blocked, reached_percent, spent_percent
from bai_services.core.usage.model import (
    DAY,
    HOUR,
    WAITING,
    Dimension,
    Holder,
    HourTotals,
    Price,
    Prices,
    UsageRecord,
)
from bai_services.core.usage.periods import (
    Every,
    Interval,
    intervals_of,
    parts_of,
    read_time,
    zone_of,
)

HOLDER = Holder("u1", "p1", "d", "main", "python", "batch")
SEOUL = zone_of("Asia/Seoul")
BERLIN = zone_of("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(intervals: list[Interval], zone: str) -> list[str]:
    starts = [datetime.fromtimestamp(i.start, zone_of(zone)) for i in intervals]
    return [f"{start:%m-%d %H:%M}" for start in starts]


def test_days_begin_at_midnight_of_the_time_zone() -> None:
    found = intervals_of(at("2026-03-01T10:20"), at("2026-03-03T01:00"), Every.DAY, SEOUL)
    assert local(found, "Asia/Seoul") == ["03-01 19:00", "03-02 00:00", "03-03 00:00"]


def test_day_with_the_change_to_summer_time_has_23_hours() -> None:
    found = intervals_of(at("2026-03-28T23:00"), at("2026-03-30T22:00"), Every.DAY, BERLIN)
    assert [(i.end - i.start) // HOUR for i in found] == [23, 24]


def test_months_begin_at_midnight_of_the_time_zone() -> None:
    found = intervals_of(at("2025-12-05"), at("2026-02-10"), Every.MONTH, SEOUL)
    assert local(found, "Asia/Seoul") == ["12-05 09:00", "01-01 00:00", "02-01 00:00"]


def test_days_of_a_zone_with_half_hours_begin_at_the_next_full_utc_hour() -> None:
    kolkata = zone_of("Asia/Kolkata")
    found = intervals_of(at("2026-01-01T19:00"), at("2026-01-03T00:00"), Every.DAY, kolkata)
    assert local(found, "Asia/Kolkata") == ["01-02 00:30", "01-03 00:30"]


def hour_label(hour: int, every: Every, zone: ZoneInfo) -> object:
    local = datetime.fromtimestamp(hour, zone)
    labels = {
        Every.HOUR: hour,
        Every.DAY: local.date(),
        Every.MONTH: (local.year, local.month),
        Every.PERIOD: 0,
    }
    return labels[every]


@given(
    st.builds(lambda day, hour: 24 * day + hour, st.integers(0, 120), st.sampled_from([3, 18, 22])),
    st.sampled_from([0, 900, 1800, 2700]),
    st.integers(1, 100 * HOUR),
    st.sampled_from(Every),
    st.sampled_from(["UTC", "Asia/Kolkata", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"]),
)
def test_intervals_group_full_utc_hours_by_local_hour_day_month_or_period(
    hour: int, second: int, length: int, every: Every, name: str
) -> None:
    zone = zone_of(name)
    first = int(at("2026-01-01").timestamp()) + hour * HOUR
    end = first + second + length
    naive: list[Interval] = []
    for start in range(first, end, HOUR):
        until = min(start + HOUR, end)
        label = hour_label(start, every, zone)
        if naive and hour_label(naive[-1].start, every, zone) == label:
            naive[-1] = Interval(naive[-1].start, until)
        else:
            naive.append(Interval(start, until))
    since, until_time = (datetime.fromtimestamp(n, UTC) for n in (first + second, end))
    assert intervals_of(since, until_time, every, zone) == naive


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "x" * 99])
def test_unknown_time_zone_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        zone_of(name)


def test_date_is_read_in_the_time_zone() -> None:
    assert read_time("since", "2026-01-02", SEOUL) == at("2026-01-01T15:00")
    assert read_time("since", "2026-01-02T00:00:00+00:00", SEOUL) == at("2026-01-02T00:00")
    for text in ("yesterday", "0001-01-01", "20260101", "2026-13-01"):
        with pytest.raises(InvalidRequest):
            read_time("since", text, SEOUL)


@given(st.integers(0, 100), st.integers(1, 200))
def test_parts_cover_an_interval_once(start: int, length: int) -> None:
    interval = Interval(start * HOUR, (start + length) * HOUR)
    parts = parts_of(interval)
    pieces = [*parts.hours, *([parts.days] if parts.days else [])]
    pieces.sort(key=lambda piece: piece.start)
    starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
    assert [*starts, interval.end] == [interval.start, *ends]
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert parts.days is None or parts.days.start % DAY == parts.days.end % DAY == 0
    assert parts.days is not None or length < 47


def record(slot: str = "cpu", amount: int = 2000, **values: object) -> UsageRecord:
    fields = {
        "session_id": "s",
        "kernel_id": "k",
        "slot": slot,
        "device_id": "",
        "amount": amount,
        "started_at": 0,
        "ended_at": None,
        "holder": HOLDER,
    }
    return UsageRecord(**{**fields, **values})  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.integers(0, 2 * HOUR), st.integers(0, HOUR), st.booleans(), st.integers(1, 9)),
        max_size=4,
    )
)
def test_totals_of_hours_equal_a_naive_integration(
    lives: list[tuple[int, int, bool, int]],
) -> None:
    end = 3 * HOUR
    records = [
        record(amount=amount, started_at=start, ended_at=None if is_open else start + length)
        for start, length, is_open, amount in lives
    ]
    naive: Counter[int] = Counter()
    for one in records:
        for second in range(one.started_at, end if one.ended_at is None else one.ended_at):
            naive[second // HOUR] += one.amount
    for hour in range(3):
        totals = HourTotals(hour * HOUR, Prices())
        for one in records:
            totals.add(one)
        assert sum(m.allocated for m in totals.facts.values()) == naive[hour]
        expected = {float(naive[hour])} if totals.facts else set()
        assert {m.allocated for m in totals.totals().values()} == expected


def sample(minute: int, devices: dict[str, dict[str, float]] | None = None, **metrics: float):
    start = datetime.fromtimestamp(0, UTC) + timedelta(minutes=minute)
    return Sample("k", start, metrics, devices or {})


def test_utilization_is_weighted_and_unknown_without_samples() -> None:
    """A kernel with two cores runs for 10 minutes and uses one core in the 5 measured minutes."""
    totals = HourTotals(0, Prices())
    totals.add(record(ended_at=600), [sample(0, cpu_cores=1.0)])
    totals.add(record("mem", 100, ended_at=600), [sample(0, cpu_cores=1.0)])
    cpu, mem = (totals.facts[HOLDER, slot] for slot in ("cpu", "mem"))
    assert (cpu.allocated, cpu.measured, cpu.used, cpu.wasted) == (1_200_000, 600_000, 300_000, 0)
    assert (mem.allocated, mem.measured, mem.used) == (60_000, 0, 0)


def test_idle_device_is_wasted_and_its_energy_is_counted() -> None:
    holder = Holder("u1", "p1", "d", "main", "python", "batch", "H100")
    one = record("cuda.device", 1, device_id="g0", started_at=60, ended_at=900, holder=holder)
    totals = HourTotals(0, Prices())
    totals.add(
        one,
        [
            sample(0, {"g0": {"utilization_percent": 4.0, "power_watts": 100.0}}),
            sample(5, {"g0": {"utilization_percent": 50.0}, "g1": {"utilization_percent": 0.0}}),
        ],
    )
    found = totals.totals()[Dimension.DEVICE_MODEL, "d", "H100", "cuda.device"]
    assert (found.measured, found.wasted, found.used) == (540, 240, pytest.approx(159.6))
    assert found.energy == 24_000


def test_waiting_time_is_recorded_in_the_slot_of_sessions_and_not_as_allocation() -> None:
    totals = HourTotals(0, Prices())
    totals.add(record(WAITING, 1, kernel_id="", started_at=3000))
    [(key, found)] = totals.facts.items()
    assert (key[1], found.waited, found.allocated) == ("sessions", 600, 0)


def test_price_of_a_resource_group_precedes_the_default() -> None:
    prices = Prices("EUR", (Price("", "cpu", 1.0), Price("gold", "cpu", 3.0)))
    assert prices.cost("main", "cpu", 2000 * HOUR) == 2.0
    assert prices.cost("gold", "cpu", 1000 * HOUR) == 3.0
    assert prices.cost("gold", "mem", 1) is None


@given(
    st.integers(1, 10**9).map(lambda cents: Decimal(cents) / 100),
    st.sampled_from([0, 0.29, 0.8, 1, 2]),
    st.sampled_from([-math.inf, 0, math.inf]),
)
def test_a_budget_is_fully_spent_if_and_only_if_it_blocks(
    amount: Decimal, part: float, towards: float
) -> None:
    spent = float(amount) * part
    spent = max(0.0, math.nextafter(spent, towards) if towards else spent)
    blocks = is_blocked(Mode.BLOCK, spent, amount)
    percent = spent_percent(spent, amount)
    assert (percent >= 100) is blocks
    assert reached_percent((80, 100), spent, amount) == (100 if blocks else 80 * (percent >= 80))
    assert abs(percent - math.floor(100 * Fraction(spent) / Fraction(amount))) <= 1


@pytest.mark.parametrize(
    ("spent", "percent"), [(0.17, 100), (math.nextafter(0.17, 0), 99), (0.255, 150), (0, 0)]
)
def test_spent_percent_is_rounded_down(spent: float, percent: int) -> None:
    assert spent_percent(spent, Decimal("0.17")) == percent


def test_budget_of_zero_is_spent() -> None:
    assert spent_percent(0, Decimal(0)) == reached_percent((80, 100), 0, Decimal(0)) == 100
