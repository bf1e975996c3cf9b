"""`bai admin cluster doctor`: checks of real machines, reported by fake agents."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bai_services import __version__
from bai_services.agent.checks import CHECK, CheckRequest, MachineChecks, check_storage
from bai_services.core.cluster.joining import StoragePath
from bai_services.core.errors import Forbidden
from bai_services.core.installation.findings import Level
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.skip import skip_or_fail


@pytest.fixture
def storage(api: Api) -> Path:
    root = api.world.manager.settings.storage_root
    root.mkdir(exist_ok=True)
    return root


@dataclass
class Node:
    """A fake agent that runs the real checks of this machine."""

    api: Api
    agent_id: str
    home: Path

    @asynccontextmanager
    async def running(self, **facts: Any) -> AsyncIterator[FakeAgent]:
        agent = FakeAgent(self.api.agent, self.agent_id, **{"version": __version__, **facts})
        await agent.beat()
        task = asyncio.create_task(self._work(agent))
        yield agent
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _work(self, agent: FakeAgent) -> None:
        checks = MachineChecks(self.api.url, "", self.home)
        while True:
            for item in await agent.work(20):
                request = CheckRequest.from_json(item)
                result = await asyncio.to_thread(checks.run, request)
                body = {"work_id": item["id"], "kind": CHECK, "state": "done"}
                path = f"/agents/{agent.id}/reports"
                await agent.client.post(path, {**body, "check": result.to_json()})


def messages(node: dict[str, Any], level: Level) -> dict[str, str]:
    found = [one for one in node["findings"] if one["level"] == level]
    assert all(bool(one["remedy"]) is (level is not Level.OK) for one in found)
    return {one["check"]: one["message"] for one in found}


@pytest.mark.both_databases
async def test_every_node_is_checked(api: Api, tmp_path: Path, storage: Path) -> None:
    admin = await api.client("admin")
    async with Node(api, "n1", tmp_path).running(), Node(api, "n2", tmp_path).running(version="0"):
        report = await admin.post("/cluster-checks")
    first, second = report["nodes"]
    assert messages(first, Level.ERROR) == {}
    passed = messages(first, Level.OK)
    assert {"manager", "clock skew", "disk", "gpu", "storage local", "version"} <= passed.keys()
    assert passed["storage local"] == f"{storage} is mounted"
    assert messages(second, Level.WARNING)["version"] == (
        f"the agent has version 0, the manager {__version__}"
    )
    assert [finding["level"] for finding in report["findings"]] == ["ok"]
    assert report["level"] == "warning"
    # The marker is removed.
    assert not any(name.startswith(".bai-check") for name in os.listdir(storage))


async def test_node_that_hangs_does_not_delay_the_others(
    api: Api, tmp_path: Path, storage: Path
) -> None:
    api.world.manager.cluster.doctor.report_seconds = 3
    await FakeAgent(api.agent, "hangs").beat()
    await FakeAgent(api.agent, "stopped").beat(is_leaving=True)
    await FakeAgent(api.agent, "away").beat()
    api.world.clock.advance(seconds=41)
    await FakeAgent(api.agent, "hangs").beat()
    await api.world.manager.cluster.agents.check_deadlines()
    async with Node(api, "works", tmp_path).running():
        report = await (await api.client("admin")).post("/cluster-checks")
    away, hangs, stopped, works = report["nodes"]
    assert messages(away, Level.ERROR)["agent"].startswith("no heartbeat since")
    assert messages(hangs, Level.ERROR)["agent"] == "it did not report in time"
    assert messages(stopped, Level.WARNING)["agent"].startswith("it was stopped at")
    assert messages(works, Level.ERROR) == {}
    assert report["level"] == "error"


async def test_endpoint_of_a_docker_agent_is_reached_from_the_manager(
    api: Api, tmp_path: Path
) -> None:
    api.world.manager.cluster.doctor.report_seconds = 3
    listener = socket.create_server(("127.0.0.1", 0))
    open_port = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        Node(api, "n1", tmp_path).running(engine="docker", endpoint=open_port),
        Node(api, "n2", tmp_path).running(engine="docker", endpoint=f"unix://{tmp_path}/none"),
    ):
        report = await (await api.client("admin")).post("/cluster-checks")
    listener.close()
    assert "connects to" in messages(report["nodes"][0], Level.OK)["endpoint"]
    assert "does not reach" in messages(report["nodes"][1], Level.ERROR)["endpoint"]


async def test_storage_that_the_agent_reports_is_part_of_the_report(
    api: Api, tmp_path: Path, storage: Path
) -> None:
    """The check itself finds no problem, because the file system works for a moment."""
    await api.world.manager.folders.storage_hosts.get("local").start()
    async with Node(api, "n1", tmp_path).running(storage={"local": "not-responding"}):
        report = await (await api.client("admin")).post("/cluster-checks")
    (node,) = report["nodes"]
    assert messages(node, Level.ERROR) == {
        "storage local": (
            "no session with folders on this storage host is placed here (not-responding)"
        )
    }


def test_missing_and_other_file_systems_are_errors(tmp_path: Path) -> None:
    assert [one.level for one in check_storage(StoragePath("s", str(tmp_path)))] == [Level.OK]
    (missing,) = check_storage(StoragePath("s", str(tmp_path / "none")))
    assert missing.level is Level.ERROR and "does not exist" in missing.message
    (other,) = check_storage(StoragePath("s", str(tmp_path)), ".bai-check-1")
    assert other.level is Level.ERROR and "not the file system of the manager" in other.message


def test_read_only_file_system_without_the_marker_is_reported_as_read_only(tmp_path: Path) -> None:
    words = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
    if subprocess.run(words, capture_output=True).returncode:
        skip_or_fail("mount", "mounting requires root")
    try:
        (found,) = check_storage(StoragePath("s", str(tmp_path)), ".bai-check-1")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert found.message == f"{tmp_path} is mounted read-only"


async def test_only_superadmins_check_the_cluster(api: Api) -> None:
    with pytest.raises(Forbidden):
        await (await api.client("user")).post("/cluster-checks")
