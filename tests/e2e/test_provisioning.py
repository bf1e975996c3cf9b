"""A command starts a real agent for a pending session, and stops it when it is idle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e import provisioning_command
from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

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


@pytest.fixture
def cloud_hub(tmp_path: Path) -> Iterator[RunningHub]:
    command = tmp_path / "command"
    source = Path(provisioning_command.__file__).read_text()
    command.write_text(f"#!{sys.executable}\n{source}")
    command.chmod(0o755)
    environment = {
        "BAI_PROVISIONING_COMMAND": str(command),
        f"{'BAI_PROVISIONING_ENV_'}FOLDER": str(tmp_path),
    }
    running = RunningHub(tmp_path / "hub", environment=environment)
    (tmp_path / "hub-url").write_text(running.url)
    try:
        yield running.start()
    finally:
        running.stop()
        for file in tmp_path.glob("*/pid"):
            psutil.Process(int(file.read_text())).kill()


def machines(admin: httpx.Client) -> list[dict[str, Any]]:
    listed = checked(admin.get("/provisioned-machines", params={"resource_group": GROUP}), 200)
    items: list[dict[str, Any]] = listed["items"]
    return items


def test_pending_session_starts_on_a_new_machine_that_stops_afterwards(
    cloud_hub: RunningHub, tmp_path: Path
) -> None:
    admin, user = cloud_hub.rest("admin"), cloud_hub.rest("user")
    group = {"name": GROUP, "engine": "process", "scheduler_opts": OPTIONS}
    checked(admin.post("/resource-groups", json=group), 201)
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
