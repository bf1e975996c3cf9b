"""Load samples in memory: a bounded number leads to the same decisions as all samples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.autoscaling import LoadSample, ScalingRule, desired_replicas
from bai_services.core.serving.load_history import FULL_RESOLUTION_SECONDS, LoadHistory

NOW = 1_900_000_020.0
RULE = ScalingRule(min_replicas=0, max_replicas=50, target=10, utilization=0.7)


def history_of(loads: list[float], rule: ScalingRule = RULE, wanted: int = 0) -> LoadHistory:
    """Return a history with one sample per second; the last one is at NOW + len(loads) - 1."""
    history = LoadHistory()
    for second, load in enumerate(loads):
        history.add(rule, NOW + second, load, wanted)
    return history


@given(
    levels=st.lists(st.integers(0, 100), min_size=2, max_size=12),
    ready=st.integers(0, 20),
    wanted=st.integers(0, 20),
)
def test_decision_is_that_with_all_samples(levels: list[float], ready: int, wanted: int) -> None:
    loads = [level for level in levels for _ in range(40)]
    now = NOW + len(loads) - 1
    samples = [LoadSample(NOW - RULE.stable_seconds, 0)]
    samples += [LoadSample(NOW + second, load) for second, load in enumerate(loads)]
    expected = desired_replicas(RULE, samples, ready, now, wanted)
    found = desired_replicas(RULE, history_of(loads).samples, ready, now, wanted)
    assert found.replicas == expected.replicas


def test_memory_is_bounded_and_the_idle_period_is_known() -> None:
    rule = ScalingRule(0, 5, idle_seconds=3600)
    busy = history_of([second % 2 for second in range(5000)], rule)
    assert len(busy.samples) <= FULL_RESOLUTION_SECONDS + 2 * 3600 // 60 + 4
    assert len(history_of([3.0] * 5000, rule).samples) <= 3600 // 60 + 3
    for seconds, replicas in ((3590, 1), (3680, 0)):
        loads = [1.0, *[0.0] * seconds]
        samples = history_of(loads, rule).samples
        assert len(samples) <= 3600 // 60 + 3
        assert desired_replicas(rule, samples, 1, NOW + seconds, 1).replicas == replicas


def test_manager_that_takes_over_changes_nothing_under_the_same_load() -> None:
    history = LoadHistory()
    for second in range(200):
        history.add(RULE, NOW + second, 20, 3)
        assert desired_replicas(RULE, history.samples, 3, NOW + second, 3).replicas == 3
    # Repeat this after a gap in which the load was unknown.
    for second in range(300, 400):
        history.add(RULE, NOW + second, 20, 3)
        assert desired_replicas(RULE, history.samples, 3, NOW + second, 3).replicas == 3


def test_idle_period_can_begin_later() -> None:
    history = history_of([0.0] * 400)
    now = NOW + 399
    assert desired_replicas(RULE, history.samples, 1, now, 1).replicas == 0
    history.begin_idle_period(now - RULE.stable_seconds)
    assert desired_replicas(RULE, history.samples, 1, now, 1).replicas == 1
    assert history.samples[0].at == now - RULE.stable_seconds


def test_first_request_is_answered_at_once() -> None:
    history = history_of([0.0] * 400)
    history.add(RULE, NOW + 400, 1, 0)
    decision = desired_replicas(RULE, history.samples, 0, NOW + 400, 0)
    assert (decision.replicas, str(decision.reason)) == (1, "burst with a load of 1")
