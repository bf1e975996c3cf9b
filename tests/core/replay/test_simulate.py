"""Replay of a workload through the queue: start times, measures, policies."""

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Mode, Policy
from bai_services.core.scheduling.queue import Backfill, GroupState, Order
from bai_services.core.scheduling.replay.daily_usage import UsageByDay, days_of
from bai_services.core.scheduling.replay.measures import report, use_over_time
from bai_services.core.scheduling.replay.policies import ReplayPolicy
from bai_services.core.scheduling.replay.simulate import replay
from bai_services.core.scheduling.replay.workload import GROUP, Job

from ..queue.random_jobs import agent


def job(name, at, cores, seconds, **more):
    return Job(name, at, seconds, ResourceSlots({"cpu": cores * 1000}), **more)


def run_replay(jobs, *, cores=4, agents=1, **options):
    options.setdefault("placement", Policy.BEST_FIT)
    machines = [agent(f"a{n}", cores, 1) for n in range(agents)]
    return replay(jobs, machines, GroupState(GROUP, **options))


def start_times(replayed):
    return {o.job.id: o.started for o in replayed.outcomes}


WIDE_FIRST = [
    job("long", 0, 3, 100, limit=100),
    job("wide", 1, 4, 10, limit=10),
    job("short", 2, 1, 50, limit=50),
    job("late", 3, 1, 500, limit=500),
]


@pytest.mark.parametrize(
    ("case", "backfill", "expected"),
    [
        ("no backfill", Backfill.OFF, {"wide": 100, "short": 110, "late": 110}),
        (
            "all sessions that fit may overtake",
            Backfill.AGGRESSIVE,
            {"short": 2, "late": 52, "wide": 552},
        ),
        (
            "only sessions that end before the reserved start may overtake",
            Backfill.RESERVING,
            {"short": 2, "wide": 100, "late": 110},
        ),
    ],
)
def test_backfill_mode_determines_the_start_times(case, backfill, expected) -> None:
    assert start_times(run_replay(WIDE_FIRST, backfill=backfill)) == {"long": 0, **expected}, case


def test_cluster_session_starts_with_all_kernels() -> None:
    wide = job("wide", 1, 4, 10, kernels=2, mode=Mode.MULTI_NODE, limit=10)
    result = run_replay([job("one", 0, 1, 30, limit=30), wide], agents=2)
    assert start_times(result) == {"one": 0, "wide": 30}


def test_higher_priority_starts_first() -> None:
    result = run_replay([job("a", 0, 4, 10), job("b", 1, 4, 10), job("c", 2, 4, 10, priority=50)])
    assert start_times(result) == {"a": 0, "c": 10, "b": 20}


@pytest.mark.parametrize("order", [Order.DRF, Order.FAIR_SHARE])
def test_fair_orders_prefer_the_user_with_the_smallest_share(order) -> None:
    lengths = (7200, 14_400, 7200, 7200)
    anns = [job(f"a{n}", n, 4, length, user="ann") for n, length in enumerate(lengths)]
    bobs = job("b", 100, 4, 10, user="bob")
    result = run_replay([*anns, bobs], cores=8, order=order)
    assert (start_times(result)["b"], start_times(result)["a2"]) == (7200, 7210)


def test_session_that_never_fits_is_reported_with_the_reason() -> None:
    result = report(run_replay([job("big", 0, 9, 10), job("fits", 1, 1, 10)]))
    assert (result["started"], result["never_started"]) == (1, 1)
    (never,) = result["never_started_first"]
    assert never["id"] == "big"
    assert never["reasons"][0]["check"] == "resources"


def test_report_contains_the_measures_of_the_replay() -> None:
    jobs = [job("a", 0, 4, 20, user="ann"), job("b", 0, 2, 20, user="bob")]
    result = report(run_replay(jobs))
    assert result["makespan_seconds"] == 40
    assert result["wait_seconds"] == {"mean": 10.0, "median": 10.0, "p95": 19.0, "max": 20.0}
    assert result["bounded_slowdown"]["max"] == 2.0
    assert result["utilization_percent"] == {"cpu": 75.0, "cuda": 0.0}
    # The users' mean slowdowns are 1 and 2, so Jain's index is (1 + 2)^2 / (2 * (1 + 4)).
    assert result["fairness"] == {"users": 2, "jain_index": 0.9, "worst_user_slowdown": 2.0}
    assert use_over_time(run_replay(jobs))["cpu"] == ([0, 20, 40], [100.0, 50.0, 0.0])


def test_report_of_an_empty_replay_has_no_jobs() -> None:
    assert report(run_replay([]))["jobs"] == 0


def test_usage_is_counted_by_day() -> None:
    assert days_of(86_000, 86_400 * 2 + 5) == [(0, 400), (1, 86_400), (2, 5)]
    usage = UsageByDay(GROUP)
    usage.add(job("a", 0, 1, 20, user="ann"), 0)
    (buckets,) = usage.history()[GROUP].values()
    assert buckets[0].slots == {"cpu": 20_000}
    assert usage.is_due(0)
    assert not usage.is_due(3599)
    assert usage.is_due(3600)


def test_policy_accepts_the_options_of_a_resource_group() -> None:
    options = {"placement": "spread", "backfill": "aggressive", "strategy": "FILL"}
    policy = ReplayPolicy.of({"scheduler": "lifo", "scheduler_opts": options}, "mine")
    agents = [agent("a0", 4, 1), agent("a1", 4, 1)]
    result = policy.replay([job("a", 0, 1, 10), job("b", 0, 1, 10)], agents)
    assert {o.placements[0].agent_id for o in result.outcomes} == {"a0", "a1"}
    assert ReplayPolicy.of({}, "plain").order is Order.FIFO


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "policy p: write a map"),
        ({"order": "fifo"}, "policy p: order: unknown field"),
        (
            {"scheduler": "best"},
            "'best' is not a valid scheduler; use one of: fifo, lifo, drf, fair-share",
        ),
        ({"scheduler": ["fifo"]}, "is not a valid scheduler"),
        ({"scheduler_opts": []}, None),
        ({"scheduler_opts": "x"}, "scheduler_opts must be a map"),
        ({"scheduler_opts": {"placement": "tight"}}, "'tight' is not a valid placement"),
        ({"scheduler_opts": {"color": 1}}, "'color'"),
    ],
)
def test_invalid_policy_is_rejected_and_empty_options_are_accepted(document, message) -> None:
    if message is None:
        assert ReplayPolicy.of(document, "p").options.backfill is Backfill.RESERVING
        return
    with pytest.raises(InvalidRequest, match=message):
        ReplayPolicy.of(document, "p")
