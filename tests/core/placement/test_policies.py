"""Choice of the agent: policies, suitable agents, cluster sessions, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import (
    AgentState,
    Designation,
    Mode,
    Placer,
    Policy,
    Request,
    place_first_kernel,
)

from .factories import agent, place_request, request


def choose_agents(
    agents: list[AgentState], policy: Policy, wanted: Request, times: int = 1
) -> list[str]:
    placer = Placer(agents, policy)
    results = [place_request(placer, wanted) for _ in range(times)]
    return [placements[0][0] if placements else "-" for placements in results]


@pytest.mark.parametrize(
    "policy, agents, wanted, names",
    [
        pytest.param(
            Policy.PACK,
            [agent("a", (0, 0)), agent("b", (0, 500))],
            request(shares="0.5"),
            "b b b a",
            id="pack: the agent with the least free capacity",
        ),
        pytest.param(
            Policy.PACK,
            [agent("a", (0,)), agent("b")],
            request(),
            "b b b",
            id="pack: request without devices goes to an agent without devices",
        ),
        pytest.param(
            Policy.SPREAD,
            [agent("a", (0, 500)), agent("b", (0, 0))],
            request(shares="0.5"),
            "b a b",
            id="spread: the agent with the most free capacity",
        ),
        pytest.param(
            Policy.ROUND_ROBIN,
            [agent("a"), agent("b"), agent("c")],
            request(),
            "a b c a",
            id="round robin: agents in turn",
        ),
        pytest.param(
            Policy.ROUND_ROBIN,
            [agent("a", (0,)), agent("b"), agent("c", (0, 0))],
            request(device=1),
            "a c c -",
            id="round robin: only agents on which the request fits",
        ),
        pytest.param(
            Policy.BEST_FIT,
            [agent("a", (0, 0)), agent("b", (0,))],
            request(device=1),
            "b a a -",
            id="best fit: the agent with the fewest free devices and cores",
        ),
        pytest.param(
            Policy.FGD,
            [agent("a", (500,)), agent("b", (600, 0))],
            request(shares="0.4"),
            "b",
            id="fgd: the agent with the least added fragmentation",
        ),
        pytest.param(
            Policy.PRICED,
            [agent("a", (0,)), agent("b", (500,))],
            request(shares="0.5"),
            "b a",
            id="priced: the free half of a device before an unused device",
        ),
        pytest.param(
            Policy.PRICED,
            [agent("a", (0,)), agent("b")],
            request(cpu="8"),
            "b b",
            id="priced: request without devices goes to an agent without devices",
        ),
        pytest.param(
            Policy.PRICED,
            [agent("a", (0,) * 4), agent("b", (0, 0, 0, 1000))],
            request(device=1),
            "b",
            id="priced: an agent with four free devices is kept for larger requests",
        ),
    ],
)
def test_policy_chooses_the_expected_agent(
    policy: Policy, agents: list[AgentState], wanted: Request, names: str
) -> None:
    assert choose_agents(agents, policy, wanted, len(names.split())) == names.split()


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    "agents, wanted, name",
    [
        pytest.param([agent("a", is_alive=False), agent("b")], request(), "b", id="agent is alive"),
        pytest.param(
            [agent("a", is_schedulable=False), agent("b")],
            request(),
            "b",
            id="agent is schedulable",
        ),
        pytest.param(
            [agent("a", architecture="arm64"), agent("b")],
            request(),
            "b",
            id="agent has the architecture",
        ),
        pytest.param(
            [agent("a", engine="process"), agent("b")],
            request(engine="docker"),
            "b",
            id="agent has the engine",
        ),
        pytest.param(
            [agent("a", (0,), cuda_driver="525.60"), agent("b", (0,), cuda_driver="550.54.14")],
            request(device=1, min_cuda_driver="535.1"),
            "b",
            id="agent has the driver version",
        ),
        pytest.param(
            [agent("a", cuda_driver="525.60")],
            request(min_cuda_driver="535.1"),
            "a",
            id="driver version is ignored without devices",
        ),
        pytest.param(
            [agent("a", (0,))],
            request(device=1, min_cuda_driver="535.1"),
            "a",
            id="agent with unknown driver version is accepted",
        ),
        pytest.param(
            [agent("a", (0,), model="T4"), agent("b", (0,), model="A100")],
            request(device=1, device_models=("A100", "H100")),
            "b",
            id="agent has the device model",
        ),
        pytest.param(
            [agent("a", (0,)), agent("b", (0,), family="rocm")],
            request(device=1, family="rocm"),
            "b",
            id="agent has the device family",
        ),
        pytest.param(
            [agent("a", cpu=1), agent("b")], request(cpu="2"), "b", id="agent has enough cpu"
        ),
        pytest.param(
            [agent("a", mem=1), agent("b")], request(mem="2g"), "b", id="agent has enough memory"
        ),
        pytest.param(
            [agent("a"), agent("b")],
            request(designated_agents=("b",)),
            "b",
            id="the designated agent",
        ),
        pytest.param(
            [agent("a"), agent("b")],
            request(designated_agents=("b",), designation=Designation.PREFERRED),
            "b",
            id="the preferred agent",
        ),
        pytest.param(
            [agent("a"), agent("b", cpu=0)],
            request(designated_agents=("b",), designation=Designation.PREFERRED),
            "a",
            id="the preferred agent is full: another agent",
        ),
        pytest.param(
            [agent("a"), agent("b", cpu=0)],
            request(designated_agents=("b",)),
            "-",
            id="the designated agent is full: no agent",
        ),
        pytest.param(
            [agent("a"), agent("b")],
            request(avoid=("a",)),
            "b",
            id="not the agent to avoid",
        ),
        pytest.param(
            [agent("a")],
            request(avoid=("a",)),
            "a",
            id="the agent to avoid, because no other agent exists",
        ),
        pytest.param(
            [agent("a"), agent("b")],
            request(avoid=("b",), designated_agents=("b",)),
            "b",
            id="the designated agent, although it is also the agent to avoid",
        ),
    ],
)
def test_every_policy_chooses_a_suitable_agent(
    policy: Policy, agents: list[AgentState], wanted: Request, name: str
) -> None:
    assert choose_agents(agents, policy, wanted) == [name]


def test_request_for_two_device_families_is_placed_on_one_agent() -> None:
    both = agent("a", (0,))
    both = agent("a", devices=(*both.devices, *agent("r", (0,), family="rocm").devices))
    wanted = Request(
        ResourceSlots.parse({"cpu": "1", "cuda.shares": "0.5", "rocm.device": "1"}),
        "main",
        "x86_64",
    )
    for policy in Policy:
        placer = Placer([both], policy)
        placements = placer.place(placer.prepare(wanted))
        assert placements is not None
        assert [(d.slot, d.amount) for d in placements[0].devices] == [
            ("cuda.shares", 500),
            ("rocm.device", 1),
        ]
        assert place_request(placer, wanted) is None


AGENTS = [agent("a", (0, 0), cpu=4), agent("b", (0,), cpu=4)]


@pytest.mark.parametrize(
    "agents, spec, placements",
    [
        pytest.param(
            AGENTS,
            {"device": 1, "kernels": 2},
            [("a", {"g0": 1}), ("a", {"g1": 1})],
            id="single node: all kernels on one agent",
        ),
        pytest.param(
            AGENTS,
            {"device": 1, "kernels": 3},
            None,
            id="single node: too few devices for all kernels",
        ),
        pytest.param(
            AGENTS,
            {"shares": "0.5", "kernels": 2},
            [("b", {"g0": 500}), ("b", {"g0": 500})],
            id="single node: two kernels share a device",
        ),
        pytest.param(
            AGENTS,
            {"device": 1, "kernels": 3, "mode": Mode.MULTI_NODE},
            [("b", {"g0": 1}), ("a", {"g0": 1}), ("a", {"g1": 1})],
            id="multi node: kernels are placed separately",
        ),
        pytest.param(
            AGENTS,
            {"device": 1, "kernels": 4, "mode": Mode.MULTI_NODE},
            None,
            id="multi node: too few devices for all kernels",
        ),
        pytest.param(
            AGENTS,
            {"cpu": "3", "kernels": 2},
            None,
            id="single node: too little cpu for all kernels",
        ),
        pytest.param(
            AGENTS,
            {"cpu": "3", "kernels": 2, "mode": Mode.MULTI_NODE},
            [("b", {}), ("a", {})],
            id="multi node: two kernels without devices",
        ),
    ],
)
def test_all_kernels_of_a_cluster_session_are_placed_or_none(
    agents: list[AgentState], spec: dict[str, Any], placements: list[Any] | None
) -> None:
    placer = Placer(agents, Policy.BEST_FIT)
    before = placer.agents()
    wanted = request(**spec)
    assert placer.fits(placer.prepare(wanted)) == (placements is not None)
    assert placer.agents() == before
    assert place_request(placer, wanted) == placements
    if placements is None:
        assert placer.agents() == before


@pytest.mark.checklist("CLU-04")
@pytest.mark.parametrize(
    "spec, expected_agents",
    [
        pytest.param({"cpu": "1", "kernels": 2}, {"b"}, id="cpu: fits on one agent"),
        pytest.param({"device": 1, "kernels": 2}, {"a"}, id="devices: fit on one agent"),
        pytest.param({"cpu": "3", "kernels": 2}, {"a", "b"}, id="cpu: needs two agents"),
        pytest.param({"device": 1, "kernels": 3}, {"a", "b"}, id="devices: need two agents"),
    ],
)
def test_default_policy_uses_several_agents_only_if_one_is_too_small(
    spec: dict[str, Any], expected_agents: set[str]
) -> None:
    placed = place_request(Placer(AGENTS, Policy.PRICED), request(**spec, mode=Mode.MULTI_NODE))
    assert placed is not None
    assert {agent_id for agent_id, _ in placed} == expected_agents


@pytest.mark.parametrize(
    "agents, wanted, message",
    [
        pytest.param([], request(), "has no agent", id="empty group"),
        pytest.param([agent("a", is_alive=False)], request(), "1 not alive", id="lost agent"),
        pytest.param(
            [agent("a", is_schedulable=False)],
            request(),
            "1 not schedulable",
            id="unschedulable agent",
        ),
        pytest.param(
            [agent("a", (0,), cuda_driver="525.60")],
            request(device=1, min_cuda_driver="535.1"),
            "1 with a driver that is too old for CUDA 535.1",
            id="old driver",
        ),
        pytest.param(
            [agent("a")],
            request(designated_agents=("x",)),
            "1 not among the designated agents (x)",
            id="designated agents that do not exist",
        ),
        pytest.param(
            [agent("a", cpu=2), agent("b", cpu=4)],
            request(cpu="5"),
            "cpu=5 requested, but at most 4 is free",
            id="more than any agent has free",
        ),
        pytest.param(
            [agent("a", cpu=8, mem=1), agent("b", cpu=1, mem=8)],
            request(cpu="4", mem="4g"),
            "no single agent has cpu=4 mem=4g free",
            id="enough free cpu and memory, but on different agents",
        ),
        pytest.param(
            [agent("a", (600, 600))],
            request(shares="0.5"),
            "cuda.shares=0.5 requested, but at most 0.4 is free",
            id="a share of at most one device is not divided",
        ),
        pytest.param(
            [agent("a", (600, 600))],
            request(shares="0.9", allow_fragmentation=True),
            "cuda.shares=0.9 requested, but at most 0.8 is free",
            id="fragmentation allowed: more than the total free capacity",
        ),
        pytest.param(
            [agent("a", (10, 0))],
            request(device=2),
            "cuda.device=2 requested, but at most 1 is free",
            id="too few free whole devices",
        ),
        pytest.param(
            [agent("a", cpu=3)],
            request(cpu="2", kernels=2),
            "cpu=4 requested, but at most 3",
            id="two kernels together exceed the agent",
        ),
        pytest.param(
            AGENTS,
            request(device=1, kernels=4, mode=Mode.MULTI_NODE),
            "only 3 of 4 kernels fit now",
            id="only some kernels fit",
        ),
    ],
)
def test_refusal_states_its_reason(agents: list[AgentState], wanted: Request, message: str) -> None:
    placer = Placer(agents, Policy.PRICED)
    shape = placer.prepare(wanted)
    assert placer.place(shape) is None
    assert message in str(placer.refusal(shape).text)
    assert placer.refusal(shape) is placer.refusal(shape)
    assert place_first_kernel(agents, wanted) == placer.refusal(shape)


def test_too_many_device_families_are_rejected() -> None:
    slots = ResourceSlots({f"f{i}.device": 1 for i in range(5)})
    with pytest.raises(InvalidRequest, match="at most 4"):
        Placer([], Policy.PRICED).prepare(Request(slots, "main", "x86_64"))


def test_fits_when_empty_ignores_usage_and_health_of_the_agents() -> None:
    busy = agent("a", (1000, None), is_alive=False)
    placer = Placer([busy], Policy.PRICED)
    for wanted, can in ((request(device=2), True), (request(device=3), False)):
        assert placer.fits_when_empty(placer.prepare(wanted)) is can
    placer.update(agent("a", (0, 0, 0)))
    assert placer.fits_when_empty(placer.prepare(request(device=3)))


def test_agents_are_added_updated_and_removed() -> None:
    placer = Placer([agent("b", (0,))], Policy.PACK)
    shape = placer.prepare(request(device=1))
    placer.update(agent("a", (0, 0)))
    assert [a.id for a in placer.agents()] == ["a", "b"]
    placer.update(agent("b", (1000,)))
    assert place_request(placer, request(device=1)) == [("a", {"g0": 1})]
    placer.remove("a")
    version = placer.version
    assert placer.place(shape) is None
    assert placer.version == version


def test_changes_of_a_fork_do_not_affect_the_original() -> None:
    placer = Placer([agent("a", (0, 0))], Policy.PRICED)
    shape = placer.prepare(request(device=1))
    fork = placer.fork()
    placements = [fork.place(shape), fork.place(shape)]
    assert all(placements) and fork.place(shape) is None
    fork.update(agent("a", (0, 0), is_alive=False))
    assert placer.agents() == [replace(agent("a", (0, 0)), used={"cpu": 0, "mem": 0})]
    assert [placer.place(shape), placer.place(shape)] == placements


def test_round_robin_continues_after_the_agent_that_was_chosen_last() -> None:
    agents = [agent("a"), agent("b"), agent("c")]
    first = Placer(agents, Policy.ROUND_ROBIN)
    place_request(first, request())
    second = Placer(agents, Policy.ROUND_ROBIN, last_agent=first.last_agent)
    assert (place_request(second, request()) or [])[0][0] == "b"
