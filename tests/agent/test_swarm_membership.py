"""`bai-agent join` and `leave` with the engines of a real Swarm, each in a network namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bai_services import __version__
from bai_services.agent.checks import CHECK, CheckRequest, MachineChecks
from bai_services.core.errors import Conflict
from tests.testbed import ComponentMissing, swarm
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, known_world, manager_on, serving
from tests.testbed.skip import skip_or_fail

from .conftest import AGENT_ID
from .test_membership import Machine, invite

pytestmark = [pytest.mark.docker]


@pytest.fixture(scope="module")
def engines() -> Iterator[list[DockerEngine]]:
    """Provide a Swarm manager, and an engine that is in no Swarm."""
    try:
        context = swarm.running(2)
        engines = context.__enter__()
    except ComponentMissing as reason:
        skip_or_fail("docker", reason)
    try:
        engines[1].run("swarm", "leave")
        yield engines
    finally:
        context.__exit__(None, None, None)


@pytest.fixture
async def api(
    demo_database_url: str, tmp_path: Path, clock: MovableClock, engines: list[DockerEngine]
) -> AsyncIterator[Api]:
    async with (
        manager_on(
            demo_database_url, tmp_path, clock, is_migrated=True, swarm_host=engines[0].host
        ) as manager,
        serving(await known_world(manager, clock)) as served,
    ):
        manager.settings.storage_root.mkdir(exist_ok=True)
        admin = await served.client("admin")
        await admin.post("/resource-groups", {"name": "gpu", "engine": "docker"})
        yield served


def state_of(engine: DockerEngine) -> str:
    return engine.run("info", "--format", "{{.Swarm.LocalNodeState}}")


@asynccontextmanager
async def reporting(api: Api, machine: Machine, host: str) -> AsyncIterator[None]:
    """Report the real checks of a machine, with its credential."""
    client = api.with_token(machine.places.credential.read_text().strip())
    agent = FakeAgent(client, AGENT_ID, engine="docker", endpoint=host, version=__version__)
    await agent.beat()
    checks = MachineChecks(api.url, host, machine.places.state)

    async def work() -> None:
        while True:
            for item in await agent.work(20):
                result = await asyncio.to_thread(checks.run, CheckRequest.from_json(item))
                body = {"work_id": item["id"], "kind": CHECK, "state": "done"}
                body["check"] = result.to_json()
                await client.post(f"/agents/{AGENT_ID}/reports", body)

    task = asyncio.create_task(work())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await agent.beat(is_leaving=True)


def passed(node: dict[str, Any]) -> dict[str, str]:
    return {one["check"]: one["message"] for one in node["findings"] if one["level"] == "ok"}


async def test_join_and_leave_a_swarm(
    api: Api, tmp_path: Path, engines: list[DockerEngine]
) -> None:
    machine = Machine(api, tmp_path / "machine")
    host = engines[1].host
    options = ["--docker-host", host]
    token = await invite(api)
    # The group default has the engine process, so this invitation is for another machine.
    with pytest.raises(Conflict, match="--engine process"):
        await machine.join("--token", token, *options, engine="docker")
    token = await invite(api, resource_group="gpu")
    output = await machine.join("--token", token, *options, engine="docker")
    assert "joined the Swarm" in output
    assert "ok       cgroups: version" in output
    assert state_of(engines[1]) == "active"
    # The token of the Swarm is not stored.
    stored = [file.read_text() for file in machine.places.state.iterdir()]
    assert stored and not any("SWMTKN" in text for text in stored)

    output = await machine.join(*options, engine="docker")
    assert "already a node of the Swarm" in output

    async with reporting(api, machine, host):
        report = await (await api.client("admin")).post("/cluster-checks")
    (node,) = report["nodes"]
    found = passed(node)
    assert found["swarm node"] == "its state is ready"
    assert found["endpoint"].startswith("the manager's machine reaches the engine")
    assert [one for one in node["findings"] if one["level"] == "error"] == []

    await machine.leave()
    assert state_of(engines[1]) == "inactive"
    assert not machine.places.unit.exists()


async def test_node_of_another_swarm_is_refused(
    api: Api, tmp_path: Path, engines: list[DockerEngine]
) -> None:
    machine = Machine(api, tmp_path / "machine")
    token = await invite(api, resource_group="gpu")
    engines[1].run("swarm", "init")
    try:
        options = ["--docker-host", engines[1].host]
        with pytest.raises(Conflict, match="node of another Swarm"):
            await machine.join("--token", token, *options, engine="docker")
        # `leave` must not remove the node from its own Swarm.
        await machine.leave()
        assert state_of(engines[1]) == "active"
    finally:
        engines[1].run("swarm", "leave", "--force")
