"""Explanation of a pending session: checks, estimated start, suggestions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import ScopeCaps
from bai_services.core.scheduling.estimates.explainer import Choices, Explainer, explain_one
from bai_services.core.scheduling.preemption.options import PreemptionOptions
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    Changes,
    Explanation,
    Queue,
    Snapshot,
)

from ..queue.factories import (
    ANN,
    BOB,
    MAIN,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    with_usage,
)

HOUR = timedelta(hours=1)


def explanation_of(world: Snapshot, session_id: str = "s1", **choices: Any) -> Explanation:
    explanation = explain_one(queue_after_pass(world), session_id, Choices(**choices))
    assert explanation is not None
    return explanation


def nearly_full_snapshot(**facts: Any) -> Snapshot:
    """Return a snapshot with a pending session that requests 2 cores.

    In its resource group, 7 of the 8 cores remain in use for one hour. The resource group ``side``
    has a free agent.
    """
    blocker = running("r", BOB, "a", slots(cpu="7"), ends_at=NOW + HOUR)
    agents = [with_usage(agent(), slots(cpu="7")), agent("b", resource_group="side")]
    return snapshot(
        [pending_session(1, wanted=request(cpu="2"))], agents, running=[blocker], **facts
    )


def test_explanation_lists_all_checks_with_their_result() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", {"cpu": 1000}, max_sessions=3)}
    explanation = explanation_of(nearly_full_snapshot(caps=caps))
    assert [(check["check"], check["passed"]) for check in explanation.checks] == [
        ("account", True),
        ("resource-group", True),
        ("dependencies", True),
        ("not-before", True),
        ("policy", False),
        ("policy", True),
        ("resources", False),
        ("order", True),
    ]
    assert explanation.checks[5]["message"] == "user ann uses sessions=0 of 3; 1 more requested"
    assert explanation.checks[5]["left"] == "3"
    assert explanation.checks[6]["shortages"] == [{"slot": "cpu", "asked": "2", "available": "1"}]


def test_reservation_is_reported_with_its_time() -> None:
    explanation = explanation_of(nearly_full_snapshot())
    assert explanation.checks[-1]["check"] == "reservation"
    assert explanation.checks[-1]["starts_at"] == (NOW + HOUR).isoformat()
    assert explanation.estimate.starts_at == NOW + HOUR
    assert explanation.estimate.certainty is Certainty.KNOWN
    assert (explanation.position, explanation.ahead) == (1, 0)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        pytest.param(
            {"priority": 10},
            "after its start, it can be stopped for sessions of higher priority: its priority is "
            "10, and resource group main preempts sessions up to priority 10",
            id="at the limit",
        ),
        pytest.param(
            {"priority": 11},
            "it cannot be preempted: its priority is 11, and resource group main preempts sessions "
            "up to priority 10",
            id="above the limit",
        ),
        pytest.param(
            {"priority": 1, "is_preemptible": False},
            "it cannot be preempted: it was created as not preemptible",
            id="not preemptible",
        ),
    ],
)
def test_explanation_says_whether_the_session_can_be_preempted(
    facts: dict[str, Any], text: str
) -> None:
    waiting = [pending_session(1, wanted=request(cpu="9"), **facts)]
    enabled = PreemptionOptions(enabled=True, preemptible_priority=10)
    explanation = explanation_of(snapshot(waiting, [agent()], group={"preemption": enabled}))
    last = explanation.checks[-1]
    assert (last["check"], last["passed"], last["message"]) == ("preemptible", True, text)
    explanation = explanation_of(snapshot(waiting, [agent()]))
    assert "preemptible" not in {check["check"] for check in explanation.checks}


def test_estimate_is_unknown_if_no_running_session_has_a_known_end() -> None:
    world = snapshot(
        [pending_session(1, wanted=request(cpu="8"))],
        [with_usage(agent(), slots())],
        running=[running("r", BOB, "a", slots())],
    )
    explanation = explanation_of(world)
    assert (explanation.estimate.starts_at, explanation.estimate.certainty) == (
        None,
        Certainty.UNKNOWN,
    )


@pytest.mark.parametrize(
    "world, choices, expected",
    [
        pytest.param(
            nearly_full_snapshot(),
            {"groups": ["main", "side", "gone"]},
            [
                ("resource-group", "resource group side has capacity for it now"),
                ("smaller", "it would start now with cpu=1"),
            ],
            id="another permitted group; smaller request",
        ),
        pytest.param(
            nearly_full_snapshot(groups={}, caps={MAIN: ScopeCaps(MAIN, "main")}),
            {"presets": {"small": slots(), "large": slots(cpu="4")}},
            [
                ("smaller", "it would start now with cpu=1"),
                ("preset", "it would start now with the preset small (cpu=1 mem=1g)"),
            ],
            id="a smaller request; a preset that fits now",
        ),
        pytest.param(
            nearly_full_snapshot(caps={ANN: ScopeCaps(ANN, "ann", max_sessions=0)}),
            {"groups": ["side"], "presets": {"small": slots()}},
            [
                (
                    "quota",
                    "blocked by the quota of user ann (0 sessions running); with this request, the "
                    "session starts only after the quota is raised or running sessions release "
                    "enough of the quota",
                )
            ],
            id="user quota exceeded: other groups and presets are not suggested",
        ),
        pytest.param(
            snapshot([pending_session(1, wanted=request(cuda_shares="0.8"))], [
                agent(gpus=1, devices=(agent(gpus=1).devices[0].__class__("g", "cuda", used=700),))
            ]),
            {},
            [("smaller", "it would start now with cuda.shares=0.3")],
            id="a smaller share of a GPU",
        ),
        pytest.param(
            snapshot([pending_session(1, wanted=request(mem="100g"))], [
                agent(capacity={"cpu": 8000, "mem": 24684092 * 2**10})
            ]),
            {},
            [("smaller", "it would start now with mem=24105m")],
            id="less memory: rounded down to MiB",
        ),
        pytest.param(
            snapshot([pending_session(1, not_before=NOW + HOUR)], [agent()]),
            {"groups": ["side"]},
            [],
            id="no suggestion before the start time",
        ),
        pytest.param(
            snapshot([pending_session(1, wanted=request(cpu="2"))], [agent(used={"cpu": 8000})]),
            {"presets": {"small": slots()}},
            [],
            id="no suggestion without any free capacity",
        ),
    ],
)  # fmt: skip
def test_explanation_suggests_changes_with_which_the_session_starts_sooner(
    world: Snapshot, choices: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    explanation = explanation_of(world, **choices).suggestions
    assert [(s.kind, str(s.text)) for s in explanation] == expected


def test_quota_suggestion_names_running_sessions() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    queue = Queue(snapshot([pending_session(1), pending_session(2)], [agent()], caps=caps))
    queue.run(NOW)
    explanation = explain_one(queue, "s2")
    assert explanation is not None
    assert explanation.suggestions[-1].facts["first_ids"] == ["s1"]


def test_explain_does_not_change_the_queue() -> None:
    queue = Queue(nearly_full_snapshot(caps={ANN: ScopeCaps(ANN, "ann", {"cpu": 1000})}))
    before = queue.run(NOW)
    placer = queue.group_queue("main").placer
    agents, used = placer.agents(), queue.quotas.all_usage()
    presets = {"small": ResourceSlots(slots())}
    explain_one(queue, "s1", Choices(["side"], presets))
    assert (placer.agents(), queue.quotas.all_usage()) == (agents, used)
    assert queue.run(NOW).reasons["s1"] == before.reasons["s1"]


def test_explanation_is_current_after_a_change() -> None:
    queue = Queue(snapshot([pending_session(1), pending_session(2)], [agent(used={"cpu": 8000})]))
    queue.run(NOW)
    explainer = Explainer(queue)
    first = explainer.explain("s2")
    queue.apply(Changes(removed=["s1"]))
    second = explainer.explain("s2")
    assert first is not None
    assert second is not None
    assert (first.position, second.position) == (2, 1)


def test_order_check_names_the_blocking_session() -> None:
    pending = [pending_session(1, wanted=request(cpu="8")), pending_session(2)]
    world = snapshot(
        pending,
        [with_usage(agent(), slots())],
        running=[running("r", BOB, "a", slots())],
        group={"backfill": Backfill.OFF},
    )
    order = explanation_of(world, "s2").checks[-1]
    assert (order["check"], order["passed"], order["behind"]) == ("order", False, "s1")
    assert order["position"] == 2


def test_reservation_is_a_reason_only_of_the_reserved_session() -> None:
    """When s1 is removed, s2 gets the reservation and the reason "reservation"; s3 does not."""
    queue = Queue(nearly_full_snapshot())
    queue.apply(Changes(pending=[pending_session(2, wanted=request(cpu="2"))]))
    reasons = queue.run(NOW).reasons
    assert [check["check"] for check in reasons["s1"]] == ["resources", "reservation"]
    assert [check["check"] for check in reasons["s2"]] == ["resources"]
    queue.apply(Changes(removed=["s1"], pending=[pending_session(3, wanted=request(cpu="2"))]))
    result = queue.run(NOW)
    assert set(result.changed) == {"s2", "s3"}
    assert [check["check"] for check in result.changed["s2"]] == ["resources", "reservation"]
    assert [check["check"] for check in result.reasons["s3"]] == ["resources"]
    assert queue.run(NOW).changed == {}


def test_fork_is_independent_of_the_queue() -> None:
    queue = Queue(nearly_full_snapshot())
    queue.run(NOW)
    fork = queue.fork()
    queue.apply(Changes(removed=["r"], pending=[pending_session(2)]))
    assert {d.session_id for d in queue.run(NOW).decisions} == {"s1", "s2"}
    explanation = explain_one(fork, "s1")
    assert explanation is not None
    assert explanation == explain_one(queue_after_pass(nearly_full_snapshot()), "s1")
    assert explain_one(fork, "s2") is None


def queue_after_pass(world: Snapshot) -> Queue:
    queue = Queue(world)
    queue.run(NOW)
    return queue


def test_reservation_message_does_not_promise_a_start() -> None:
    """s2 has the reservation, but s1, which is ahead, starts first when its quota is free again."""
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    pending = [
        pending_session(0, ANN, max_run_seconds=10),
        pending_session(1, ANN, max_run_seconds=1),
        pending_session(2, BOB, max_run_seconds=5),
    ]
    queue = Queue(snapshot(pending, [agent(cpu=1)], caps=caps))
    assert queue.run(NOW).decisions[0].session_id == "s0"
    explanation = explain_one(queue, "s2", Choices())
    assert explanation is not None
    (reservation,) = (check for check in explanation.checks if check["check"] == "reservation")
    # 10 s later; the announced time is rounded up to a minute.
    assert reservation["starts_at"] == (NOW + timedelta(minutes=1)).isoformat()
    assert "known" not in reservation["message"]
    assert "certainty" not in reservation
    assert explanation.estimate.starts_at == NOW + timedelta(seconds=11)
    assert explanation.estimate.certainty is Certainty.ESTIMATED
