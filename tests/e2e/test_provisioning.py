"""A command starts a real agent for a pending session, and stops it when it is idle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from tests.e2e import provisioning_command
from tests.e2e.conftest import LISTEN_ON_ALL_ADDRESSES
from tests.e2e.sessions import checked
from tests.hub import ROOT, RunningHub
from tests.testbed import ComponentMissing, images, second_machine
from tests.testbed.skip import skip_or_fail
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from tests.testbed.docker_engine import DockerEngine

GROUP = "cloud"
OPTIONS = {
    "provisioning": {
        "machine": {"cpu": "1", "mem": "1g"},
        "maximum": 2,
        "idle": 5,
        "join": 120,
    }
}
RUNNING_SECONDS = 180


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def cloud_hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningHub]:
    """A hub whose provisioned machines use the engine ``process`` or ``docker``."""
    environment: dict[str, str] = {}
    stack = ExitStack()
    address = "127.0.0.1"
    if request.param == "docker":
        # Use an address of this machine that the network namespaces of the machines can reach. The
        # address of Docker's bridge is not suitable: each namespace has its own bridge with this
        # address.
        try:
            address = stack.enter_context(second_machine.running()).peer_address
        except ComponentMissing as reason:
            skip_or_fail("docker", reason)
        engine: DockerEngine = request.getfixturevalue("docker_engine")
        image = images.minimal_image(engine)
        further = tmp_path / "further.py"
        further.write_text(LISTEN_ON_ALL_ADDRESSES)
        environment = {"DOCKER_HOST": engine.host, "BAI_IMAGE": image, "BAI_CONFIG": str(further)}
        prefix = "BAI_PROVISIONING_ENV_"
        environment |= {f"{prefix}IMAGE": image, f"{prefix}SOURCE": engine.host}
        environment |= {f"{prefix}ROOT": str(ROOT), "BAI_INTERNAL_ADDRESS": address}
    command = tmp_path / "command"
    source = Path(provisioning_command.__file__).read_text()
    command.write_text(f"#!{sys.executable}\n{source}")
    command.chmod(0o755)
    environment |= {
        "BAI_PROVISIONING_COMMAND": str(command),
        f"{'BAI_PROVISIONING_ENV_'}FOLDER": str(tmp_path),
    }
    running = RunningHub(tmp_path / "hub", request.param, environment)
    (tmp_path / "hub-url").write_text(running.url.replace("127.0.0.1", address))
    try:
        yield running.start()
    finally:
        running.stop()
        for file in tmp_path.glob("*/pid"):
            machine = psutil.Process(int(file.read_text()))
            # SIGTERM, because a machine with Docker removes its engine and network then.
            machine.terminate()
            machine.wait(60)
        stack.close()


def machines(admin: httpx.Client) -> list[dict[str, Any]]:
    listed = checked(admin.get("/provisioned-machines", params={"resource_group": GROUP}), 200)
    items: list[dict[str, Any]] = listed["items"]
    return items


def test_pending_session_starts_on_a_new_machine_that_stops_afterwards(
    cloud_hub: RunningHub, tmp_path: Path
) -> None:
    admin, user = cloud_hub.rest("admin"), cloud_hub.rest("user")
    group = {"name": GROUP, "engine": cloud_hub.engine, "scheduler_opts": OPTIONS}
    checked(admin.post("/resource-groups", json=group), 201)
    checked(admin.put(f"/resource-groups/{GROUP}/links/domain/default"), 200, 204)
    request = {
        "name": "burst",
        "resource_group": GROUP,
        "resources": {"cpu": "1", "mem": "512m"},
        "type": "batch",
        "startup_command": "sleep 8",
    }
    session = checked(user.post("/sessions", json=request), 201)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = checked(user.get(f"/sessions/{session['id']}"), 200)
        return found

    wait_until(lambda: shown()["status"] == "RUNNING", RUNNING_SECONDS, "the session to run")
    wait_until(lambda: machines(admin)[0]["status"] == "running", 60, "the machine to join")
    (machine,) = machines(admin)
    assert machine["agent_id"] in json.dumps(shown())
    process = psutil.Process(int(machine["reference"].removeprefix("agent-")))
    assert process.is_running()
    wait_until(lambda: shown()["status"] == "TERMINATED", 120, "the end of the session")
    wait_until(lambda: machines(admin)[0]["status"] == "stopped", 120, "the stop of the machine")
    wait_until(
        lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
        60,
        "the exit of the agent",
    )
    wait_until(
        lambda: admin.get(f"/agents/{machine['agent_id']}").status_code == 404,
        120,
        "the deletion of the agent",
    )
    calls = (tmp_path / "calls").read_text().split()
    assert calls == ['"start"', '"stop"']
