"""`preopen_ports`: ports for programs of the user in a session."""

from __future__ import annotations

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


async def test_ports_are_passed_in_a_reserved_environment_variable(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    spec = {"name": "lab1", "resources": SMALL, "preopen_ports": [8501, 9000]}
    session = await user.post("/sessions", spec)
    assert session["preopen_ports"] == [8501, 9000]
    assert session["environ"] == {}
    key = f"/sessions/{session['id']}"
    # The first placement of a test run may JIT-compile the placement code.
    await user.get(key, wait="SCHEDULED", timeout="60", timeout_seconds=70)
    await agent.prepare()
    await user.get(key, wait="PREPARED", timeout="60", timeout_seconds=70)
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    assert plan["environ"]["BAI_PREOPEN_PORTS"] == "8501,9000"
    assert "jupyterlab:http:" in plan["environ"]["BAI_SERVICE_PORTS"]
    # An identical request returns the same session. A request with other ports is a conflict.
    assert (await user.post("/sessions", spec))["id"] == session["id"]
    with pytest.raises(errors.AlreadyExists):
        await user.post("/sessions", {**spec, "preopen_ports": [8501]})
    forged = {"name": "lab2", "resources": SMALL, "environ": {"BAI_PREOPEN_PORTS": "2200"}}
    with pytest.raises(errors.InvalidRequest, match="reserved"):
        await user.post("/sessions", forged)


@pytest.mark.parametrize("ports", [[2200], [80], [8501, 8501], ["x"], [6006]])
async def test_reserved_or_invalid_port_is_rejected(
    agent: FakeAgent, user: Client, ports: list[object]
) -> None:
    with pytest.raises(errors.InvalidRequest, match="port"):
        await user.post("/sessions", {"name": "lab1", "resources": SMALL, "preopen_ports": ports})
