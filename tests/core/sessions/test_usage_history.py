"""Usage samples, their downsampling, and time series for charts."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.sessions.usage_history import (
    COARSE,
    FINE,
    MAX_DEVICES,
    MAX_POINTS,
    Grid,
    Reading,
    Sample,
    Sampler,
    downsampled,
    mean_device_utilization,
    mean_of_kernels,
    series_of,
)

START = datetime(2026, 11, 24, tzinfo=UTC)


def time_at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def reading(seconds: float, **usage: Any) -> Reading:
    return Reading.of(usage, time_at(seconds), seconds)


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 64)), max_size=60))
def test_sample_is_the_mean_of_the_readings_in_its_interval(steps: list[tuple[int, float]]) -> None:
    sampler, time = Sampler(), 0
    expected = defaultdict(list)
    samples = []
    for seconds, cores in steps:
        time += seconds
        sampler.add("k", reading(time, cpu_cores=cores))
        expected[time_at(time - time % 15)].append(cores)
        samples += sampler.ended(time_at(time))
    samples += sampler.all()
    assert {s.at: s.metrics["cpu_cores"] for s in samples} == pytest.approx(
        {start: fmean(values) for start, values in expected.items()}
    )
    assert len(samples) == len(expected)


_usages = st.fixed_dictionaries(
    {},
    optional={
        "cpu_cores": st.integers(0, 8),
        "net_rx_bytes": st.integers(0, 2000),
        "devices": st.lists(
            st.fixed_dictionaries(
                {"id": st.sampled_from(["g0", "g1"])},
                optional={"utilization_percent": st.integers(0, 100)},
            ),
            max_size=2,
            unique_by=lambda device: device["id"],
        ),
    },
)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("kl"), _usages), max_size=40))
def test_samples_of_several_kernels_equal_a_naive_aggregation(
    heartbeats: list[tuple[int, str, dict[str, Any]]],
) -> None:
    sampler, time = Sampler(), 0
    values: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    history: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    intervals: set[tuple[str, int]] = set()
    samples: list[Sample] = []
    for step, kernel, usage in heartbeats:
        time += step
        sampler.add(kernel, reading(time, **usage))
        start = time // 15 * 15
        intervals.add((kernel, start))
        if "cpu_cores" in usage:
            values[kernel, start, "cpu_cores"].append(usage["cpu_cores"])
        for device in usage.get("devices", ()):
            if "utilization_percent" in device:
                values[kernel, start, device["id"]].append(device["utilization_percent"])
        if history[kernel] and "net_rx_bytes" in usage:
            before, last = history[kernel][-1]
            received = usage["net_rx_bytes"] - last.get("net_rx_bytes", 10**9)
            if before < time and received >= 0:
                name = "net_rx_bytes_per_second"
                values[kernel, start, name].append(received / (time - before))
        history[kernel].append((time, usage))
        samples += sampler.ended(time_at(time))
    samples += sampler.all()
    found: dict[tuple[str, int, str], float] = {}
    for sample in samples:
        start = int((sample.at - START).total_seconds())
        found |= {(sample.kernel_id, start, name): n for name, n in sample.metrics.items()}
        for device, metrics in sample.devices.items():
            if metrics:
                found[sample.kernel_id, start, device] = metrics["utilization_percent"]
    assert found == pytest.approx({key: fmean(numbers) for key, numbers in values.items()})
    assert len(samples) == len(intervals)


def test_counters_become_rates_and_a_restarted_counter_gives_no_rate() -> None:
    sampler = Sampler()
    sampler.add("k", reading(0, net_rx_bytes=1000))
    sampler.add("k", reading(5, net_rx_bytes=2000))
    sampler.add("k", reading(15, net_rx_bytes=50))
    sampler.add("k", reading(20, net_rx_bytes=100))
    first, second = sampler.all()
    assert first.metrics == {"net_rx_bytes_per_second": 200}
    assert second.metrics == {"net_rx_bytes_per_second": 10}


def test_rate_is_computed_across_a_short_gap_but_not_across_a_long_one() -> None:
    sampler = Sampler()
    sampler.add("k", reading(0, io_read_bytes=0))
    sampler.drop_silent(time_at(30))
    sampler.add("k", reading(30, io_read_bytes=300))
    sampler.drop_silent(time_at(300))
    sampler.add("k", reading(300, io_read_bytes=900))
    assert [s.metrics for s in sampler.all()] == [{}, {"io_read_bytes_per_second": 10}, {}]


_value = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3)
_device = _value | st.fixed_dictionaries({"id": _value, "utilization_percent": _value})
_names = ["cpu_cores", "mem_bytes", "net_rx_bytes", "devices", "other"]


@given(st.dictionaries(st.sampled_from(_names), _value | st.lists(_device, max_size=2)))
def test_reading_accepts_any_report(usage: dict[str, Any]) -> None:
    reading = Reading.of(usage, START, 0)
    for values in (reading.gauges, reading.counters, *reading.devices.values()):
        assert all(0 <= value < 2**63 for value in values.values())


def test_reading_has_a_bounded_number_of_devices() -> None:
    devices = [{"id": f"g{i}", "utilization_percent": 1} for i in range(MAX_DEVICES + 5)]
    assert len(reading(0, devices=devices).devices) == MAX_DEVICES


def test_downsampled_samples_are_means_by_kernel_and_interval() -> None:
    samples = [
        Sample("a", time_at(0), {"cpu_cores": 1.0}, {"g0": {"utilization_percent": 10.0}}),
        Sample("a", time_at(285), {"cpu_cores": 3.0, "mem_bytes": 8.0}),
        Sample("a", time_at(300), {"cpu_cores": 5.0}),
        Sample("b", time_at(15), {"cpu_cores": 7.0}),
    ]
    assert downsampled(samples, COARSE) == [
        Sample(
            "a",
            time_at(0),
            {"cpu_cores": 2.0, "mem_bytes": 8.0},
            {"g0": {"utilization_percent": 10}},
        ),
        Sample("b", time_at(0), {"cpu_cores": 7.0}),
        Sample("a", time_at(300), {"cpu_cores": 5.0}),
    ]


@given(st.integers(60, 30 * 86400), st.integers(0, 10**6), st.sampled_from([FINE, COARSE]))
def test_grid_covers_the_period_in_at_most_300_intervals(
    period: int, end: int, resolution: Any
) -> None:
    grid = Grid.until(time_at(end), timedelta(seconds=period), resolution)
    assert grid.count <= MAX_POINTS
    assert grid.interval_seconds % resolution.interval_seconds == 0
    assert grid.index_of(time_at(end)) == grid.count - 1
    assert grid.start <= time_at(end) - timedelta(seconds=period)
    assert grid.end - grid.start < timedelta(seconds=period + 2 * grid.interval_seconds)


def test_series_has_gaps_where_nothing_was_measured() -> None:
    grid = Grid(START, 60, 4)
    samples = [
        Sample("k", time_at(0), {"cpu_cores": 1.0}, {"a": {"utilization_percent": 20.0}}),
        Sample("k", time_at(45), {"cpu_cores": 2.0}, {"b": {"utilization_percent": 40.0}}),
        Sample("k", time_at(180), {"mem_bytes": 7.0}),
        Sample("k", time_at(240), {"cpu_cores": 9.0}),
    ]
    points = grid.merged(samples)
    assert series_of(points, "cpu_cores") == [1.5, None, None, None]
    assert series_of(points, "mem_bytes") == [None, None, None, 7.0]
    assert series_of(points, "net_rx_bytes_per_second") == []
    assert mean_device_utilization(points) == [30.0, None, None, None]


def test_every_kernel_that_has_a_metric_counts_equally() -> None:
    grid = Grid(START, 60, 4)
    busy = [
        *(Sample("a", time_at(seconds), {"cpu_cores": 4.0}) for seconds in (0, 15, 30, 45)),
        Sample("a", time_at(60), {"mem_bytes": 7.0}, {"g0": {"utilization_percent": 80.0}}),
        Sample("a", time_at(120), {"cpu_cores": 1.0}),
    ]
    idle = [
        Sample("b", time_at(45), {"cpu_cores": 0.0}),
        Sample("b", time_at(60), {"cpu_cores": 2.0}, {"g1": {}}),
    ]
    points = mean_of_kernels([grid.merged(busy), grid.merged(idle), grid.merged([])])
    assert series_of(points, "cpu_cores") == [2.0, 2.0, 1.0, None]
    assert series_of(points, "mem_bytes") == [None, 7.0, None, None]
    assert mean_device_utilization(points) == [None, 80.0, None, None]
