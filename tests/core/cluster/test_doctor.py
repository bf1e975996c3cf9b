"""Findings about nodes of the Swarm."""

from __future__ import annotations

import pytest

from bai_services.core.cluster.doctor import NodeResult, check_node
from bai_services.core.installation.findings import Level

STATES = {"n1": "ready", "n2": "down"}


@pytest.mark.parametrize(
    "engine, node, level, message",
    [
        pytest.param("e", "n1", Level.OK, "its state is ready", id="ready"),
        pytest.param("e", "n2", Level.ERROR, "its state is down", id="down"),
        pytest.param("e", "n3", Level.ERROR, "it is a node of another Swarm", id="another Swarm"),
        pytest.param("e", "", Level.ERROR, "the engine is not a node of the Swarm", id="no node"),
    ],
)
def test_state_of_a_swarm_node_is_reported(
    engine: str, node: str, level: Level, message: str
) -> None:
    found = check_node(NodeResult((), engine, node), STATES)
    assert found is not None and (found.level, found.message) == (level, message)


def test_swarm_is_not_reported_if_the_engine_does_not_respond() -> None:
    # A finding would tell the administrator to join the machine again, which would not help.
    assert check_node(NodeResult((), "", ""), STATES) is None
