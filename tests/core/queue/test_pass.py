"""One scheduling pass: started sessions with their agents, and reasons of pending sessions."""

from __future__ import annotations

import pytest

from bai_services.core.scheduling.caps import Scope, ScopeCaps
from bai_services.core.scheduling.placement import (
    AgentState,
    Placement,
    Refusal,
    Request,
    place_first_kernel,
)
from bai_services.core.scheduling.queue import (
    Backfill,
    GroupState,
    PassResult,
    PendingSession,
    Snapshot,
    run_pass,
)

from .factories import ANN, BOB, agent, request


def queue(*requests: Request | tuple[Request, Scope]) -> list[PendingSession]:
    pairs = [r if isinstance(r, tuple) else (r, BOB) for r in requests]
    return [PendingSession(f"s{i}", i, r, (scope,)) for i, (r, scope) in enumerate(pairs, start=1)]


def started_on_agents(result: PassResult) -> list[tuple[str, str]]:
    return [(d.session_id, d.placement.agent_id) for d in result.decisions]


@pytest.mark.parametrize(
    "agents, wanted, chosen",
    [
        pytest.param(
            [agent("a"), agent("b", cpu=2, mem=4)],
            request(),
            "b",
            id="pack: the agent with the least free capacity",
        ),
        pytest.param(
            [agent("b"), agent("a")], request(), "a", id="ties: the agent with the lowest id"
        ),
        pytest.param(
            [agent("a", is_alive=False), agent("b")],
            request(),
            "b",
            id="only agents that are alive",
        ),
        pytest.param(
            [agent("a", is_schedulable=False), agent("b")],
            request(),
            "b",
            id="only schedulable agents",
        ),
        pytest.param(
            [agent("a", architecture="arm64"), agent("b")],
            request(),
            "b",
            id="only agents of the architecture",
        ),
        pytest.param(
            [agent("a", resource_group="x"), agent("b")],
            request(),
            "b",
            id="only agents of the resource group",
        ),
        pytest.param(
            [agent("a"), agent("b", gpus=1)],
            request(cuda_shares="0.5"),
            "b",
            id="only agents with the device",
        ),
    ],
)
def test_place_chooses_the_expected_agent(
    agents: list[AgentState], wanted: Request, chosen: str
) -> None:
    placement = place_first_kernel(agents, wanted)
    assert isinstance(placement, Placement)
    assert placement.agent_id == chosen


def test_place_returns_a_refusal_if_no_agent_fits() -> None:
    refusal = place_first_kernel([agent("a", cpu=2), agent("b", cpu=4)], request(cpu="5"))
    assert isinstance(refusal, Refusal)
    assert "cpu=5 requested, but at most 4 is free" in str(refusal.text)


def test_sessions_start_in_order_until_capacity_is_used() -> None:
    result = run_pass(Snapshot(queue(*[request(cpu="4")] * 3), [agent("a")]))
    assert started_on_agents(result) == [("s1", "a"), ("s2", "a")]
    assert result.reasons["s3"][0]["check"] == "resources"
    assert "cpu=4 requested, but at most 0 is free" in result.reasons["s3"][0]["message"]


def test_session_without_capacity_blocks_only_its_group() -> None:
    pending = queue(request(cpu="7"), request(cpu="7"), request(), request("other"))
    agents = [agent("a"), agent("b", resource_group="other")]
    strict = {"main": GroupState("main", backfill=Backfill.OFF)}
    result = run_pass(Snapshot(pending, agents, groups=strict))
    assert started_on_agents(result) == [("s1", "a"), ("s4", "b")]
    assert result.reasons["s3"][0]["check"] == "order"


def test_session_over_its_cap_is_overtaken() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", slots={"cpu": 3000}, max_sessions=5)}
    pending = queue((request(cpu="2"), ANN), (request(cpu="2"), ANN), request())
    result = run_pass(Snapshot(pending, [agent("a")], caps))
    assert started_on_agents(result) == [("s1", "a"), ("s3", "a")]
    reason = result.reasons["s2"][0]
    assert (reason["check"], reason["scope"], reason["slot"]) == ("policy", "user", "cpu")
    assert (reason["asked"], reason["limit"], reason["used"], reason["left"]) == (
        "2",
        "3",
        "2",
        "1",
    )


def test_session_larger_than_any_agent_blocks_no_other() -> None:
    result = run_pass(Snapshot(queue(request(cpu="99"), request()), [agent("a")]))
    assert started_on_agents(result) == [("s2", "a")]


def test_higher_priority_starts_before_earlier_session() -> None:
    first, second = queue(request(cpu="8"), request(cpu="8"))
    high_priority = PendingSession(
        second.id, second.sequence, second.request, second.scopes, priority=20
    )
    assert started_on_agents(run_pass(Snapshot([first, high_priority], [agent("a")]))) == [
        ("s2", "a")
    ]


def test_inactive_group_starts_nothing() -> None:
    result = run_pass(Snapshot(queue(request()), [agent("a")], inactive_groups=frozenset({"main"})))
    assert not result.decisions
    assert "not active" in result.reasons["s1"][0]["message"]


def test_shares_allocated_in_one_pass_do_not_exceed_the_device_capacity() -> None:
    pending = queue(*[request(cuda_shares="0.4")] * 5)
    result = run_pass(Snapshot(pending, [agent("a", gpus=2)]))
    devices = [d.placement.devices[0].device_id for d in result.decisions]
    assert devices == ["a-g0", "a-g0", "a-g1", "a-g1"]
    assert "at most 0.2 is free" in result.reasons["s5"][0]["message"]
