"""Learned run times, and estimated starts with their certainty."""

import random
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeCaps
from bai_services.core.scheduling.estimates.estimate import Budget, estimate_starts
from bai_services.core.scheduling.placement import Placement, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    Estimate,
    GroupState,
    Order,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
)
from bai_services.core.scheduling.queue.durations import WINDOW, Durations, run_time
from bai_services.core.scheduling.replay.workload import ARCHITECTURE, GROUP

from ..queue.factories import WAITS_FOR_S0
from ..queue.random_jobs import agent
from ..queue.test_reservations import NOW, time_after

USER = Scope("user", "u")


@pytest.mark.parametrize(
    ("case", "samples", "elapsed", "expected"),
    [
        ("no samples of the kind", [], 0, None),
        ("median of all samples", [10, 20, 30, 40, 50], 0, (30, 5)),
        ("one sample is enough", [70], 0, (70, 1)),
        ("samples shorter than the elapsed time are ignored", [10] * 90 + [60] * 10, 20, (60, 10)),
        ("too few longer samples: twice the elapsed time", [10, 20, 30], 25, (50, 1)),
        ("no longer sample: twice the elapsed time", [10, 20, 30], 100, (200, 0)),
    ],
)
def test_run_time_of_a_kind_depends_on_the_elapsed_time(case, samples, elapsed, expected) -> None:
    assert Durations({"k": samples}).median("k", elapsed) == expected, case


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=2 * WINDOW))
def test_online_learning_equals_learning_from_the_latest_samples(samples) -> None:
    online = Durations()
    for seconds in samples:
        online.median("k")
        online.add("k", seconds)
    latest = samples[-WINDOW:]
    assert list(online["k"]) == latest
    assert online.median("k") == Durations({"k": latest}).median("k")
    assert online.median("k").seconds == statistics.median_high(latest)


def test_run_time_is_learned_and_bounded_by_the_limit() -> None:
    learned = Durations({"k": [100] * 9})
    assert run_time(pending(1, max_run_seconds=50, kind="k"), learned) == (50, Certainty.KNOWN)
    assert run_time(pending(1, max_run_seconds=500, kind="k"), learned) == (
        100,
        Certainty.ESTIMATED,
    )
    assert run_time(pending(1, kind="other"), learned) == (float("inf"), Certainty.UNKNOWN)


def pending(cores, **more):
    return PendingSession(
        more.pop("id", "w"),
        more.pop("sequence", 1),
        Request(ResourceSlots({"cpu": cores * 1000}), GROUP, ARCHITECTURE),
        more.pop("scopes", ()),
        **more,
    )


def queue_of(busy, queued, cores=4, durations=None, caps=None, **options):
    """Return a queue after its first pass, with one agent.

    ``busy`` describes the running sessions: cores, seconds until the end (None: unknown), kind.
    ``queued`` contains the pending sessions; their ids are replaced by s0, s1 …
    """
    slots = [ResourceSlots({"cpu": asked * 1000}) for asked, _, _ in busy]
    running = [
        RunningSession(
            f"r{n}", GROUP, (USER,), (Placement("a", slots[n]),), slots[n], time_after(-1),
            None if ends is None else time_after(ends), kind,
        )
        for n, (_, ends, kind) in enumerate(busy)
    ]  # fmt: skip
    used = sum(s["cpu"] for s in slots)
    queue = Queue(
        Snapshot(
            [replace(session, id=f"s{n}", sequence=n) for n, session in enumerate(queued)],
            [replace(agent("a", cores, 0), used={"cpu": used})],
            caps=caps or {},
            usage={USER: {"cpu": used, "sessions": len(busy)}},
            groups={GROUP: GroupState(GROUP, placement=Policy.BEST_FIT, **options)},
            running=running,
            now=NOW,
            durations=durations or {},
        )
    )
    queue.run(NOW)
    return queue


def estimates(busy, queued, budget=None, **more):
    """Return the estimated start of each pending session, and the certainty of the estimate.

    A start is in seconds from now, or None if it is unknown.
    Assert that the estimate does not change the queue.
    """
    queue = queue_of(busy, queued, **more)
    pending = queue.all_pending()
    revision, version = queue.revision, queue.group_queue(GROUP).placer.version
    estimated = estimate_starts(queue, budget)
    assert (queue.revision, queue.group_queue(GROUP).placer.version) == (revision, version)
    assert queue.all_pending() == pending
    return {
        key: (
            None if e.starts_at is None else (e.starts_at - NOW).total_seconds(),
            str(e.certainty),
        )
        for key, e in estimated.items()
    }


KNOWN, ESTIMATED, UNKNOWN = "known", "estimated", "unknown"


@pytest.mark.parametrize(
    ("case", "busy", "queued", "expected"),
    [
        (
            "a running session ends at a known time",
            [(4, 30, "")],
            [pending(2)],
            {"s0": (30, KNOWN)},
        ),
        (
            "a running session ends at an estimated time",
            [(4, None, "lab")],
            [pending(2)],
            {"s0": (99, ESTIMATED)},
        ),
        ("no end is known", [(4, None, "")], [pending(2)], {"s0": (None, UNKNOWN)}),
        (
            "a running session without a limit can end earlier than the estimate",
            [(2, 30, ""), (2, None, "")],
            [pending(2)],
            {"s0": (30, ESTIMATED)},
        ),
        (
            "sessions start one after the other",
            [(4, 30, "")],
            [pending(4, max_run_seconds=10), pending(4, max_run_seconds=10), pending(4)],
            {"s0": (30, KNOWN), "s1": (40, KNOWN), "s2": (50, KNOWN)},
        ),
        (
            "a small session overtakes a large one",
            [(3, 30, "")],
            [pending(4, max_run_seconds=10), pending(1, max_run_seconds=5)],
            {"s0": (30, KNOWN)},
        ),
        (
            "at the start time, a later arrival can be using the capacity",
            [],
            [pending(4, not_before=time_after(70))],
            {"s0": (70, ESTIMATED)},
        ),
        (
            "unmet dependency on an unknown session",
            [],
            [pending(1, unmet_dependencies=WAITS_FOR_S0)],
            {"s0": (None, UNKNOWN)},
        ),
        (
            "dependencies are assumed to succeed",
            [(4, 30, "")],
            [
                pending(
                    1, unmet_dependencies=WAITS_FOR_S0, dependency_ids=("r0",), max_run_seconds=5
                ),
                pending(4),
            ],
            {"s0": (30, ESTIMATED), "s1": (35, ESTIMATED)},
        ),
        (
            "a session that is too large for the group does not block other sessions",
            [(4, 30, "")],
            [pending(9), pending(1)],
            {"s0": (None, UNKNOWN), "s1": (30, KNOWN)},
        ),
        (
            "the learned run time is shorter than the limit",
            [(4, 30, "")],
            [pending(4, max_run_seconds=500, kind="lab"), pending(4)],
            {"s0": (30, KNOWN), "s1": (130, ESTIMATED)},
        ),
    ],
)
def test_estimated_starts_have_the_expected_time_and_certainty(
    case, busy, queued, expected
) -> None:
    assert estimates(busy, queued, durations={"lab": [100] * 20}) == expected, case


def test_estimates_include_future_reservations() -> None:
    """Session s3 (one core) cannot start at 100 s, because it would delay s2 (four cores)."""
    queued = [
        pending(4, max_run_seconds=100),
        pending(2, max_run_seconds=10),
        pending(4, max_run_seconds=10),
    ]
    estimated = estimates([], [*queued, pending(1, max_run_seconds=1000)])
    assert estimated == {"s1": (100, KNOWN), "s2": (110, KNOWN), "s3": (120, KNOWN)}


def test_without_backfill_a_small_session_waits_behind_a_large_one() -> None:
    queued = [pending(4, max_run_seconds=10), pending(1, max_run_seconds=5)]
    estimated = estimates([(3, 30, "")], queued, backfill=Backfill.OFF)
    assert estimated == {"s0": (30, KNOWN), "s1": (40, KNOWN)}


def test_session_over_its_quota_starts_when_enough_of_the_quota_is_free() -> None:
    caps = {USER: ScopeCaps(USER, "u", {"cpu": 4000})}
    queued = [pending(2, scopes=(USER,)), pending(6)]
    estimated = estimates([(2, 50, ""), (1, 20, "")], queued, cores=8, caps=caps)
    # The start of s0 is only estimated: a later session of the user can use the quota first.
    assert estimated == {"s0": (20, ESTIMATED), "s1": (50, ESTIMATED)}


def test_first_start_is_known_although_the_second_start_is_only_estimated() -> None:
    """A later arrival can use the free core and still run at the estimated start of s1."""
    queued = [pending(5, max_run_seconds=10), pending(7, max_run_seconds=10)]
    assert estimates([(6, 30, "")], queued, cores=7) == {"s0": (30, KNOWN), "s1": (40, ESTIMATED)}


def test_starts_under_drf_are_only_estimated_because_later_sessions_can_start_first() -> None:
    queued = [pending(4, max_run_seconds=10), pending(4, max_run_seconds=10)]
    estimated = estimates([(4, 30, "")], queued, order=Order.DRF)
    assert estimated == {"s0": (30, ESTIMATED), "s1": (40, ESTIMATED)}


def test_starts_beyond_the_simulation_budget_are_extrapolated() -> None:
    queued = [pending(4, max_run_seconds=10) for n in range(300)]
    estimated = estimates([(4, 10, "")], queued, Budget(sessions=100, seconds=60))
    assert estimated["s99"] == (1000, KNOWN)
    assert estimated["s100"] == (1010, "rough")
    assert estimated["s299"] == (3000, "rough")


def test_simulation_stops_when_its_time_budget_is_spent() -> None:
    ticks = iter(range(10**6))
    budget = Budget(seconds=50, clock=lambda: float(next(ticks)))
    estimated = estimates(
        [(4, 10, "")], [pending(4, max_run_seconds=10) for n in range(200)], budget
    )
    labels = [certainty for _, certainty in estimated.values()]
    assert 40 <= labels.count(KNOWN) <= 60
    assert labels.count("rough") == 200 - labels.count(KNOWN)


def test_equal_sessions_have_estimated_starts_in_queue_order() -> None:
    rng = random.Random(3)
    queued = [pending(rng.choice([1, 2, 4]), max_run_seconds=rng.choice([5, 9])) for n in range(80)]
    estimated = estimates([(1, rng.randrange(60), "") for _ in range(4)], queued)
    by_shape = {}
    for n, session in enumerate(queued):
        if f"s{n}" in estimated:
            by_shape.setdefault((session.request, session.max_run_seconds), []).append(
                estimated[f"s{n}"][0]
            )
    assert max(len(starts) for starts in by_shape.values()) > 1
    for starts in by_shape.values():
        assert starts == sorted(starts)


def test_rough_estimates_extrapolate_the_start_rate() -> None:
    rng = random.Random(5)
    queued = [
        pending(rng.choice([1, 2, 3, 4]), max_run_seconds=rng.randrange(1, 10_000))
        for n in range(2000)
    ]
    estimated = estimates([(4, 50, "")], queued, Budget(sessions=50, seconds=60))
    simulated = sorted(seconds for seconds, label in estimated.values() if label != "rough")
    rough = [estimated[f"s{n}"][0] for n in range(2000) if estimated[f"s{n}"][1] == "rough"]
    assert (len(simulated), len(rough)) == (50, 1950)
    # The rough starts continue in queue order, at the mean interval of the simulated starts.
    interval = simulated[-1] / len(simulated)
    assert rough == pytest.approx([simulated[-1] + n * interval for n in range(1, 1951)])


@given(st.datetimes(timezones=st.just(UTC)))
def test_announced_start_is_the_next_whole_minute(at: datetime) -> None:
    announced = Estimate(at, Certainty.KNOWN).announced().starts_at
    assert announced is not None
    if at.year < 9999:
        assert (announced.second, announced.microsecond) == (0, 0)
    assert timedelta(0) <= announced - at < timedelta(minutes=1)
