"""Enforcement level of fractional GPUs, as shown in the start options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.scheduling.placement import AgentState
from bai_services.manager.cluster.agent_capacity import AgentCapacity
from tests.core.placement.factories import agent

SHARES = "cuda.shares"


def sharing_agent(name: str, *sharings: Sharing, used: tuple[int | None, ...] = ()) -> AgentState:
    made = agent(name, used or (0,) * len(sharings))
    pairs = zip(made.devices, sharings, strict=True)
    return replace(made, devices=tuple(replace(d, sharing=s) for d, s in pairs))


PROCESS = Sharing(Level.PROCESS, least=50, most=1000, is_uniform=True)
SOFT = Sharing(Level.SOFT)


@pytest.mark.parametrize(
    "agents, level",
    [
        pytest.param([sharing_agent("a", PROCESS)], Level.PROCESS, id="one level"),
        pytest.param(
            [sharing_agent("a", PROCESS), sharing_agent("b", SOFT)],
            Level.SOFT,
            id="the weakest level counts",
        ),
        pytest.param(
            [sharing_agent("a", PROCESS, SOFT.restricted_to(Level.PROCESS))],
            Level.PROCESS,
            id="a device below the required level is not counted",
        ),
        pytest.param(
            [sharing_agent("a", PROCESS, SOFT, used=(0, None))],
            Level.PROCESS,
            id="an unhealthy device is not counted",
        ),
        pytest.param(
            [sharing_agent("a", PROCESS), replace(sharing_agent("b", SOFT), is_schedulable=False)],
            Level.PROCESS,
            id="a drained agent is not counted",
        ),
        pytest.param(
            [replace(sharing_agent("a", PROCESS), is_alive=False)], None, id="no agent is alive"
        ),
        pytest.param(
            [sharing_agent("a", Sharing(Level.HARDWARE, most=0))], None, id="no shares offered"
        ),
    ],
)
def test_enforcement_is_the_weakest_level_of_the_usable_devices(
    agents: list[AgentState], level: Level | None
) -> None:
    amounts = AgentCapacity(agents).amounts
    assert (amounts[SHARES].enforcement if SHARES in amounts else None) == level
    assert amounts["cpu"].enforcement is amounts["cuda.device"].enforcement is None
