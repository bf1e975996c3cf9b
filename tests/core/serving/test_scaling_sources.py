"""Loads from metrics, CPU usage and queries: parsers, and stability under constant load."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.autoscaling import (
    LoadSample,
    Measure,
    ScalingRule,
    ScheduledBounds,
    check_rule,
    desired_replicas,
    rule_as_json,
    rule_from_json,
    total_load,
)
from bai_services.core.serving.runtime_metrics import (
    MAX_LINE_CHARS,
    MetricReading,
    read_metric,
    read_query_answer,
)

NOW = 1_900_000_000.0
PAGE = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model="a} b"} 3.0
vllm:num_requests_running{engine="1"} 1.5 1700000000000
vllm:num_requests_running_total 99
vllm:num_requests_running NaN
vllm:num_requests_running{engine="2"} -7
vllm:num_requests_running{engine="3"
vllm:tokens 12
"""


def test_metric_is_the_sum_of_its_valid_series() -> None:
    assert read_metric(PAGE, "vllm:num_requests_running") == 4.5
    assert read_metric(PAGE, "vllm:tokens") == 12
    assert read_metric(PAGE, "vllm:token") is None
    assert read_metric(f"a {'1' * MAX_LINE_CHARS}", "a") is None


@given(st.text(alphabet='a{}" \t1eE.+-\n\\_N', max_size=200))
def test_any_page_can_be_parsed(page: str) -> None:
    value = read_metric(page, "a")
    assert value is None or value >= 0


def test_counter_is_a_rate_and_may_restart() -> None:
    first, second = MetricReading(0, 100), MetricReading(5, 150)
    assert second.load_since("tokens_total", first) == 10
    assert second.load_since("tokens_total", None) is None
    assert MetricReading(10, 3).load_since("tokens_total", second) is None
    assert MetricReading(10, 3).load_since("running", second) == 3


def answer(kind: str, result: object) -> bytes:
    data = {"resultType": kind, "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


def test_number_is_read_from_a_response_of_prometheus() -> None:
    assert read_query_answer(answer("scalar", [1.0, "2.5"])) == 2.5
    assert read_query_answer(answer("vector", [{"metric": {}, "value": [1.0, "7"]}])) == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no success"),
        (b'{"status": "error", "errorType": "bad_data"}', "bad_data"),
        (answer("matrix", []), "neither a scalar nor a vector"),
        (answer("vector", []), "0 series"),
        (answer("vector", [{}, {}]), "2 series"),
        (answer("vector", ["x"]), "not a number"),
        (answer("scalar", [1, "NaN"]), "not a number"),
        (answer("scalar", "text"), "not a number"),
        (b'{"status": "success", "data": 1}', "neither a scalar nor a vector"),
    ],
)
def test_invalid_responses_of_prometheus_are_rejected(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_query_answer(content)


def test_load_of_replicas_that_did_not_report_is_estimated() -> None:
    assert total_load([50.0, 70.0], 4) == 240
    assert total_load([], 4) is None
    assert total_load([], 0) is None


@given(work=st.floats(1, 2000), before=st.integers(1, 20), target=st.integers(10, 90))
def test_constant_work_on_replicas_with_a_limit_does_not_oscillate(
    work: float, before: int, target: int
) -> None:
    """A mean such as the CPU usage cannot exceed 100 %, however much work there is."""
    rule = ScalingRule(
        min_replicas=1,
        max_replicas=20,
        measure=Measure.CPU,
        target=target,
        utilization=1.0,
        stable_seconds=20,
        panic_seconds=4,
    )
    ready, samples, numbers = before, [], [before]
    for second in range(0, 400, 2):
        load = total_load([min(100.0, work / ready)] * ready, ready)
        assert load is not None
        samples.append(LoadSample(NOW + second, load))
        ready = desired_replicas(rule, samples, ready, NOW + second, ready).replicas
        assert 1 <= ready <= 20
        numbers.append(ready)
    changes = [b - a for a, b in zip(numbers[15:], numbers[16:], strict=False) if a != b]
    assert all(change > 0 for change in changes) or all(change < 0 for change in changes)
    assert len(set(numbers[-50:])) == 1
    # The replicas are overloaded only if their maximum number is reached.
    assert work / numbers[-1] <= target * (1 + 1e-6) or numbers[-1] == 20


def test_rule_is_stored_and_read() -> None:
    period = {
        "days": "mon-fri",
        "starts": "08:00",
        "ends": "20:30",
        "zone": "Asia/Seoul",
        "min_replicas": 2,
        "max_replicas": 6,
    }
    bounds = ScheduledBounds.from_json(period)
    assert bounds == ScheduledBounds(frozenset(range(5)), time(8), time(20, 30), "Asia/Seoul", 2, 6)
    rule = ScalingRule(1, 3, Measure.QUERY, query="sum(load)", schedule=(bounds,))
    stored = json.loads(json.dumps(rule_as_json(rule)))
    assert rule_from_json(stored) == rule
    assert stored["schedule"][0]["days"] == "mon,tue,wed,thu,fri"
    # Monday, 9:00 in Seoul.
    now = datetime(2030, 1, 7, 0, 0, tzinfo=UTC).timestamp()
    decision = desired_replicas(rule, [], 1, now, 1)
    assert decision.replicas == 2
    assert (
        str(decision.reason) == "the load is unknown; nothing is changed; the minimum is 2 replicas"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"days": ""},
        {"days": "someday"},
        {"starts": "25:00"},
        {"starts": "08:00,09:00"},
        {"ends": "* * *"},
        {"zone": "Nowhere"},
    ],
)
def test_invalid_period_of_a_schedule_is_rejected(change: dict[str, str]) -> None:
    period = {"days": "mon", "starts": "08:00", "ends": "20:00", "zone": "UTC"}
    with pytest.raises(InvalidRequest):
        ScheduledBounds.from_json({**period, "min_replicas": 1, "max_replicas": 1, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"measure": Measure.CPU, "min_replicas": 0},
        {"measure": Measure.METRIC_MEAN},
        {"measure": Measure.QUERY, "query": " "},
        {"schedule": (ScheduledBounds(frozenset({0}), time(1), time(2), "UTC", 3, 2),)},
    ],
)
def test_contradictory_values_of_a_rule_are_rejected(change: dict[str, object]) -> None:
    rule = replace(ScalingRule(min_replicas=1, max_replicas=2), **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        check_rule(rule, "scaling")
