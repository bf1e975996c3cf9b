"""Shares in the start options: enforcement level, and sizes in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.scheduling.placement import AgentState
from bai_services.manager.cluster.agent_capacity import AgentCapacity
from tests.core.placement.worlds import agent

SHARES = "cuda.shares"


def sharing(name: str, *of_devices: Sharing, used: tuple[int | None, ...] = ()) -> AgentState:
    made = agent(name, used or (0,) * len(of_devices))
    pairs = zip(made.devices, of_devices, strict=True)
    return replace(made, devices=tuple(replace(d, sharing=s) for d, s in pairs))


FIRM = Sharing(Level.PROCESS, least=50, most=1000, is_uniform=True)
WATCHED = Sharing(Level.SOFT)


@pytest.mark.parametrize(
    "agents, level",
    [
        pytest.param([sharing("a", FIRM)], Level.PROCESS, id="one level"),
        pytest.param([sharing("a", FIRM), sharing("b", WATCHED)], Level.SOFT, id="the least firm"),
        pytest.param(
            [sharing("a", FIRM, WATCHED.restricted_to(Level.PROCESS))],
            Level.PROCESS,
            id="what is not held as firmly as is demanded is not given",
        ),
        pytest.param(
            [sharing("a", FIRM, WATCHED, used=(0, None))], Level.PROCESS, id="a broken device"
        ),
        pytest.param(
            [sharing("a", FIRM), replace(sharing("b", WATCHED), is_schedulable=False)],
            Level.PROCESS,
            id="a drained agent",
        ),
        pytest.param([replace(sharing("a", FIRM), is_alive=False)], None, id="nobody is there"),
        pytest.param([sharing("a", Sharing(Level.HARDWARE, most=0))], None, id="whole devices"),
    ],
)
def test_how_firmly_a_session_can_count_on_its_share(
    agents: list[AgentState], level: Level | None
) -> None:
    amounts = AgentCapacity(agents).amounts
    assert (amounts[SHARES].enforcement if SHARES in amounts else None) == level
    assert amounts["cpu"].enforcement is amounts["cuda.device"].enforcement is None
