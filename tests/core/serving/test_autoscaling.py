"""Number of replicas for a load, compared with a naive computation second by second."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.autoscaling import (
    LoadSample,
    ScalingRule,
    ScheduledBounds,
    desired_replicas,
    mean_load,
)

NOW = 1_900_000_000.0
RULE = ScalingRule(min_replicas=0, max_replicas=50, target=10, utilization=0.7)


def samples_of(loads: list[float], now: float = NOW) -> list[LoadSample]:
    """Return one sample for each of the last seconds; the last value is the most recent."""
    first = now - len(loads)
    return [LoadSample(first + index, load) for index, load in enumerate(loads)]


def naive(loads: list[float], ready: int, wanted: int) -> int:
    """Return the number of replicas for one sample per second and the bounds 0 and 50."""
    loads = [0.0] * (400 - len(loads)) + loads
    stable = ceil(sum(loads[-60:]) / 60 / 7 - 1e-9)
    windows = [sum(loads[end - 6 : end]) / 6 for end in range(len(loads) - 54, len(loads) + 1)]
    panic = ceil(windows[-1] / 7 - 1e-9)
    if wanted > 0 and stable == 0:
        found = 0 if not any(loads[-300:]) else 1
    elif panic >= 2 * max(ready, 1) or (wanted == 0 and panic):
        found = max(panic, wanted, stable)
    elif stable >= wanted:
        found = stable
    else:
        found = max(stable, min(wanted, ceil(max(windows) / 7 - 1e-9)))
    return min(found, 50)


@given(
    levels=st.lists(st.integers(0, 200), min_size=66, max_size=66),
    quiet=st.sampled_from([0, 30, 100, 330]),
    ready=st.integers(0, 40),
    starting=st.integers(0, 10),
)
def test_result_is_that_of_the_naive_computation(
    levels: list[float], quiet: int, ready: int, starting: int
) -> None:
    loads = [level for level in levels for _ in range(5)]
    loads = [*loads[: 330 - quiet], *([0] * quiet)]
    wanted = ready + starting
    found = desired_replicas(RULE, samples_of(loads), ready, NOW, wanted)
    assert found.replicas == naive(loads, ready, wanted)


@given(load=st.integers(1, 300), before=st.integers(0, 50))
def test_constant_load_does_not_oscillate(load: int, before: int) -> None:
    ready = wanted = before
    found = []
    for second in range(0, 130, 2):
        now = NOW + second
        samples = samples_of([load] * (second + 1), now)
        wanted = desired_replicas(RULE, samples, ready, now, wanted).replicas
        ready = wanted
        found.append(wanted)
    # The number grows at once, and shrinks only when the stable window is full.
    assert set(found[35:]) == {min(50, ceil(load / 7))}
    changes = [after - now for now, after in zip(found, found[1:], strict=False) if after != now]
    assert all(change > 0 for change in changes) or all(change < 0 for change in changes)


def test_burst_is_answered_at_once_and_kept_while_its_replicas_start() -> None:
    loads: list[float] = [1.0] * 300
    ready, wanted, found = 1, 1, []
    for second in range(120):
        loads.append(70.0)
        # Replicas need 30 s to start.
        ready = wanted if second > 36 else 1
        wanted = desired_replicas(RULE, samples_of(loads[-330:]), ready, NOW, wanted).replicas
        found.append(wanted)
    assert found[6] == 10
    assert set(found[6:]) == {10}


def test_result_is_within_the_bounds_and_has_a_reason() -> None:
    busy, idle = samples_of([100.0] * 330), samples_of([0.0] * 330)
    rule = replace(RULE, min_replicas=1, max_replicas=4)
    found = [
        desired_replicas(rule, busy, 2, NOW),
        desired_replicas(rule, idle, 2, NOW),
        desired_replicas(RULE, idle, 2, NOW),
        desired_replicas(RULE, idle[-100:], 2, NOW),
        desired_replicas(RULE, [], 2, NOW),
        desired_replicas(RULE, idle[:-40], 2, NOW),
        desired_replicas(RULE, busy, 15, NOW),
    ]
    assert [(decision.replicas, str(decision.reason)) for decision in found] == [
        (4, "burst with a load of 100; the maximum is 4 replicas"),
        (1, "no load for 5min; the minimum is 1 replica"),
        (0, "no load for 5min"),
        (1, "no load; the last replica is kept for 5min"),
        (2, "the load is unknown; nothing is changed"),
        (2, "the load is unknown; nothing is changed"),
        (15, "mean load of 100"),
    ]


def test_samples_hold_until_the_next_one() -> None:
    samples = [LoadSample(0, 1), LoadSample(10, 5), LoadSample(15, 0)]
    assert mean_load(samples, 5, 25) == pytest.approx((5 * 1 + 5 * 5) / 20)
    assert mean_load([], 5, 25) == 0


NIGHT = ScheduledBounds(frozenset({4}), time(22), time(6), "Asia/Seoul", 0, 1)
# Clocks in Berlin skip 02:00 to 03:00 on 31 March 2030, a Sunday, and repeat it on 27 October.
EARLY = ScheduledBounds(frozenset({6}), time(2, 30), time(4), "Europe/Berlin", 5, 9)


@pytest.mark.parametrize(
    ("bounds", "at", "is_inside"),
    [
        (NIGHT, datetime(2030, 1, 4, 12, 59, tzinfo=UTC), False),
        (NIGHT, datetime(2030, 1, 4, 13, 0, tzinfo=UTC), True),
        (NIGHT, datetime(2030, 1, 4, 20, 59, tzinfo=UTC), True),
        (NIGHT, datetime(2030, 1, 4, 21, 0, tzinfo=UTC), False),
        (NIGHT, datetime(2030, 1, 5, 13, 0, tzinfo=UTC), False),
        (EARLY, datetime(2030, 3, 31, 0, 59, tzinfo=UTC), False),
        (EARLY, datetime(2030, 3, 31, 1, 0, tzinfo=UTC), True),
        (EARLY, datetime(2030, 3, 31, 2, 0, tzinfo=UTC), False),
        (EARLY, datetime(2030, 10, 27, 0, 30, tzinfo=UTC), True),
        (EARLY, datetime(2030, 10, 27, 2, 59, tzinfo=UTC), True),
        (EARLY, datetime(2030, 10, 27, 3, 0, tzinfo=UTC), False),
    ],
)
def test_schedule_follows_the_clocks_of_its_zone(
    bounds: ScheduledBounds, at: datetime, is_inside: bool
) -> None:
    assert bounds.contains(at) == is_inside
    rule = replace(RULE, schedule=(bounds,)).at(at.timestamp())
    expected = (bounds.min_replicas, bounds.max_replicas) if is_inside else (0, 50)
    assert (rule.min_replicas, rule.max_replicas) == expected
