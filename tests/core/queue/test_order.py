"""Order of pending sessions: every ordering policy, and priority."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import (
    Changes,
    DailyUsage,
    FairShare,
    GroupState,
    Order,
    PendingSession,
    Queue,
    run_pass,
)
from bai_services.core.scheduling.queue.dominant_shares import (
    DominantShares,
    amounts_by_resource,
    fair_factor,
    today,
)

from .factories import (
    ANN,
    BOB,
    CARL,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    started_sessions,
)

DAY = today(NOW)
LAB, SHOP = Scope(ScopeKind.PROJECT, "lab"), Scope(ScopeKind.PROJECT, "shop")
EAST, WEST = Scope(ScopeKind.DOMAIN, "east"), Scope(ScopeKind.DOMAIN, "west")
CORE_DAY = 1000 * 86_400


def whole_day_usage(cores: int, days_ago: int = 0) -> list[DailyUsage]:
    """Return the usage of ``cores`` cores during one whole day."""
    return [DailyUsage(DAY - days_ago, {"cpu": cores * CORE_DAY})]


ORDERS = [
    pytest.param(
        {},
        [pending_session(2), pending_session(1), pending_session(3)],
        ["s1", "s2", "s3"],
        id="fifo: the earliest session first",
    ),
    pytest.param(
        {"order": Order.LIFO},
        [pending_session(2), pending_session(1), pending_session(3)],
        ["s3", "s2", "s1"],
        id="lifo: the latest session first",
    ),
    pytest.param(
        {},
        [pending_session(1), pending_session(2, priority=0), pending_session(3, priority=100)],
        ["s3", "s1", "s2"],
        id="fifo: higher priority first, then creation time",
    ),
    pytest.param(
        {"order": Order.LIFO},
        [pending_session(1, priority=20), pending_session(2), pending_session(3)],
        ["s1", "s3", "s2"],
        id="lifo: higher priority first, then the latest creation",
    ),
    pytest.param(
        {"order": Order.DRF},
        [
            pending_session(1),
            pending_session(2),
            pending_session(3),
            pending_session(4, BOB),
            pending_session(5, BOB),
        ],
        ["s1", "s4", "s2", "s5", "s3"],
        id="drf: users alternate, although all sessions of one user were created first",
    ),
    pytest.param(
        {"order": Order.DRF},
        [
            pending_session(1, ANN, request(cpu="4")),
            pending_session(2),
            pending_session(3, BOB),
            pending_session(4, BOB),
            pending_session(5, BOB),
        ],
        ["s1", "s3", "s4", "s5", "s2"],
        id="drf: after a large session, the other user starts several sessions",
    ),
    pytest.param(
        {"order": Order.DRF},
        [
            pending_session(1, ANN, request(mem="40g")),
            pending_session(2),
            pending_session(3, BOB),
            pending_session(4, BOB),
        ],
        ["s1", "s3", "s4", "s2"],
        id="drf: shares of the dominant resource (memory) are compared",
    ),
    pytest.param(
        {"order": Order.DRF},
        [
            pending_session(1),
            pending_session(2, BOB),
            pending_session(3, BOB, priority=20),
            pending_session(4, BOB, priority=20),
        ],
        ["s3", "s4", "s1", "s2"],
        id="drf: higher priority first, then the smaller dominant share",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE},
        [pending_session(1), pending_session(2), pending_session(3, BOB)],
        ["s3", "s1", "s2"],
        id="fair-share: all sessions of the user with less usage first",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE},
        [pending_session(1), pending_session(2, BOB), pending_session(3, CARL)],
        ["s3", "s2", "s1"],
        id="fair-share: first the user without usage, then the user with less usage",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE, "fair_share": FairShare(weights={ANN: 100.0})},
        [pending_session(1), pending_session(2, BOB)],
        ["s1", "s2"],
        id="fair-share: a large weight reduces the effect of usage",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE, "fair_share": FairShare(lookback_days=1)},
        [pending_session(1), pending_session(2, BOB)],
        ["s1", "s2"],
        id="fair-share: usage before the lookback period is ignored",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE},
        [pending_session(1, priority=20), pending_session(2, BOB)],
        ["s1", "s2"],
        id="fair-share: higher priority first, then the user with less usage",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE},
        [
            pending_session(1, scopes=(EAST, LAB, CARL)),
            pending_session(2, scopes=(WEST, SHOP, ANN)),
        ],
        ["s2", "s1"],
        id="fair-share: usage of the domain counts before usage of the user",
    ),
    pytest.param(
        {"order": Order.FAIR_SHARE},
        [
            pending_session(1, scopes=(WEST, LAB, CARL)),
            pending_session(2, scopes=(WEST, SHOP, ANN)),
        ],
        ["s2", "s1"],
        id="fair-share: usage of the project counts before usage of the user",
    ),
]
HISTORY = {
    "main": {
        ANN: whole_day_usage(8, 2),
        BOB: whole_day_usage(1, 2),
        EAST: whole_day_usage(4, 2),
        LAB: whole_day_usage(2, 2),
    }
}


@pytest.mark.parametrize("options, pending, expected", ORDERS)
def test_sessions_start_in_the_order_of_the_policy(
    options: dict[str, Any], pending: list[PendingSession], expected: list[str]
) -> None:
    world = snapshot(pending, [agent(cpu=64)], group=options, history=HISTORY)
    assert started_sessions(run_pass(world)) == expected


@pytest.mark.parametrize("options, pending, expected", ORDERS)
def test_positions_equal_the_start_order(
    options: dict[str, Any], pending: list[PendingSession], expected: list[str]
) -> None:
    full = agent(cpu=64, used={"cpu": 64_000})
    queue = Queue(snapshot(pending, [full], group=options, history=HISTORY))
    assert not queue.run(NOW).decisions
    positions = Explainer(queue).positions("main")
    assert sorted(positions, key=lambda session: positions[session]) == expected
    assert sorted(positions.values()) == list(range(1, len(expected) + 1))


def test_drf_includes_running_sessions() -> None:
    blocker = running("r", ANN, "a", slots(cpu="2"))
    full = agent(used={"cpu": 2000, "mem": 2**30})
    world = snapshot(
        [
            pending_session(1),
            pending_session(2, BOB),
            pending_session(3, BOB),
            pending_session(4, BOB),
        ],
        [full],
        running=[blocker],
        group={"order": Order.DRF},
    )
    # After s2 and s3, both users have the same dominant share, so the earlier session s1 is next.
    assert started_sessions(run_pass(world)) == ["s2", "s3", "s1", "s4"]


def test_drf_ignores_resources_that_the_group_does_not_have() -> None:
    shares = DominantShares()
    shares.set_capacity({"cpu": 8000})
    shares.add(ANN, {"cpu": 2000, "rocm": 5000})
    assert shares.of(ANN) == 0.25
    shares.add(ANN, {"cpu": 2000}, -1)
    assert shares.of(ANN) == 0.0


def test_drf_adds_shares_and_devices_of_one_family() -> None:
    assert amounts_by_resource(slots(cuda_device="2", cuda_shares="0.5")) == {
        "cpu": 1000,
        "mem": 2**30,
        "cuda": 2500,
    }


@pytest.mark.parametrize(
    "buckets, options, expected",
    [
        pytest.param([], FairShare(), 1.0, id="no usage: factor 1"),
        pytest.param(
            whole_day_usage(8),
            FairShare(lookback_days=1),
            0.5,
            id="full usage in the whole lookback period: factor 1/2",
        ),
        pytest.param(
            whole_day_usage(8, 7),
            FairShare(lookback_days=8),
            2 ** (-1 / 16),
            id="usage counts half after a half life",
        ),
        pytest.param(
            whole_day_usage(8, 28),
            FairShare(),
            1.0,
            id="usage before the lookback period: factor 1",
        ),
        pytest.param(
            whole_day_usage(8),
            FairShare(lookback_days=1, default_weight=2.0),
            2**-0.5,
            id="twice the weight: half the exponent",
        ),
        pytest.param(
            whole_day_usage(10**6), FairShare(), 2**-10, id="very high usage: factor 2^-10"
        ),
        pytest.param(
            whole_day_usage(8), FairShare(default_weight=0.0), 2**-10, id="weight 0: factor 2^-10"
        ),
    ],
)
def test_fair_share_factor_follows_the_formula(
    buckets: list[DailyUsage], options: FairShare, expected: float
) -> None:
    assert fair_factor(ANN, buckets, options, {"cpu": 8000}, DAY) == pytest.approx(expected)


def test_fair_share_applies_resource_weights() -> None:
    options = FairShare(lookback_days=1, resource_weights={"mem": 1.0, "cuda.shares": 2.0})
    capacity = {"cpu": 1000, "mem": 2**30, "cuda": 1000}
    bucket = [DailyUsage(DAY, {"cuda.device": 86_400})]
    # The device is fully used and has weight 2. All weights add up to 4, so the exponent is 0.5.
    assert fair_factor(ANN, bucket, options, capacity, DAY) == pytest.approx(2**-0.5)


def test_changed_order_takes_effect_at_the_next_pass() -> None:
    queue = Queue(snapshot([pending_session(n) for n in (1, 2, 3)], [agent(cpu=1)]))
    assert started_sessions(queue.run(NOW)) == ["s1"]
    queue.apply(Changes(groups=[GroupState("main", order=Order.LIFO)], removed=["s1"]))
    assert started_sessions(queue.run(NOW)) == ["s3"]


def test_usage_decays_from_day_to_day() -> None:
    history = {"main": {ANN: whole_day_usage(4), BOB: whole_day_usage(6, 20)}}
    options = {"order": Order.FAIR_SHARE, "fair_share": FairShare(lookback_days=25)}
    world = snapshot(
        [pending_session(1, ANN), pending_session(2, BOB)],
        [agent(cpu=1)],
        group=options,
        history=history,
    )
    # After 20 days, about a seventh of the usage of BOB counts: less than the usage of ANN.
    assert started_sessions(run_pass(world)) == ["s2"]
    queue = Queue(snapshot([], [agent(cpu=1)], group=options, history=history))
    queue.run(NOW)
    # After 26 days, all usage is older than the lookback period, so the earlier session is next.
    queue.apply(Changes(pending=[pending_session(1), pending_session(2, BOB)]))
    assert started_sessions(queue.run(NOW + timedelta(days=26))) == ["s1"]
