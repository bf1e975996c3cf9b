"""Machines that a command starts for pending sessions, and stops when they are idle."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    Conflict,
    Forbidden,
    InsufficientResources,
    InvalidRequest,
    NotFound,
)
from bai_services.manager.cluster.provisioning_command import (
    MAX_OUTPUT_BYTES,
    PREFIX,
    CommandFailed,
    ProvisioningCommand,
    command_environment,
)
from bai_services.system.procfs import process_stat
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, known_world, manager_on, serving

# Appends its input to a file in one write, because two calls may run at once. The file `mode`
# selects what the script does then.
SCRIPT = """#!/bin/sh
cd {folder}
printf '%s\\n' "$(cat)" >> calls
mode=$(cat mode)
case $mode in
fail) echo "no capacity in this zone" >&2; exit 3;;
leak) tail -n 1 calls >&2; exit 3;;
*) echo '{{"reference": "vm-7"}}';;
esac
"""
OPTIONS = {
    "machine": {"cpu": "8", "mem": "16g"},
    "maximum": 2,
    "idle": 60,
    "join": 120,
    "cooldown": 300,
}
BIG = {"cpu": "6", "mem": "1g"}


@dataclass
class Cloud:
    """The resource group ``cloud``, whose machines a script starts and stops."""

    api: Api
    admin: Client
    folder: Path

    async def step(self) -> None:
        """Run a pass of the scheduler, one step of provisioning, and its calls."""
        await self.api.world.manager.scheduling.scheduler.run_pass()
        await self.api.world.manager.cluster.provisioning.step()
        await self.api.world.manager.cluster.provisioning.wait()

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []

    def set_mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    async def machines(self) -> list[dict[str, Any]]:
        listed = await self.admin.get("/provisioned-machines", resource_group="cloud")
        items: list[dict[str, Any]] = listed["items"]
        return items

    async def statuses(self) -> list[str]:
        return [one["status"] for one in await self.machines()]

    async def join(self, call: dict[str, Any]) -> FakeAgent:
        """Join as the machine that a call has started; return its agent after a heartbeat."""
        credential = f"bai-agent-{secrets.token_urlsafe(32)}"
        agent_id = call["machine"]["agent_id"]
        body = {"token": call["join"]["token"], "agent_id": agent_id, "credential": credential}
        await self.api.nobody.post("/agent-joins", body)
        agent = FakeAgent(self.api.with_token(credential), agent_id, "cloud", devices=[])
        await agent.beat()
        return agent


@pytest.fixture
async def api(demo_database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    """The API of a manager with a provisioning command."""
    script = tmp_path / "provision"
    script.write_text(SCRIPT.format(folder=tmp_path))
    script.chmod(0o755)
    options = {"is_migrated": True, "provisioning_command": str(script)}
    async with (
        manager_on(demo_database_url, tmp_path, clock, **options) as manager,
        serving(await known_world(manager, clock)) as served,
    ):
        yield served


@pytest.fixture
async def cloud(api: Api, tmp_path: Path) -> Cloud:
    admin = await api.client("admin")
    options = {"provisioning": OPTIONS}
    await admin.post("/resource-groups", {"name": "cloud", "scheduler_opts": options})
    made = Cloud(api, admin, tmp_path)
    made.set_mode("work")
    return made


async def start(user: Client, name: str) -> None:
    request = {"name": name, "resources": BIG, "resource_group": "cloud"}
    await user.post("/sessions", request)


async def test_session_may_need_a_machine_that_is_larger_than_all_agents(
    cloud: Cloud, user: Client
) -> None:
    slots = {"cpu": "2", "mem": "4g"}
    small = FakeAgent(cloud.api.agent, "small", "cloud", devices=[], slots=slots)
    await small.beat()
    options = await user.get("/sessions/options", resource_group="cloud")
    assert (options["limits"]["cpu"]["largest"], options["limits"]["cpu"]["now"]) == ("8", "2")
    await start(user, "my-lab")
    await cloud.step()
    assert len(cloud.calls()) == 1
    request = {"name": "too-large", "resources": {"cpu": "9", "mem": "1g"}}
    with pytest.raises(InsufficientResources, match="the largest agent offers 8"):
        await user.post("/sessions", {**request, "resource_group": "cloud"})


@pytest.mark.both_databases
async def test_machine_is_started_used_drained_and_stopped(cloud: Cloud, user: Client) -> None:
    await cloud.step()
    assert cloud.calls() == []
    await start(user, "first")
    await cloud.step()
    (call,) = cloud.calls()
    assert call["action"] == "start"
    assert call["machine"]["slots"] == {"cpu": "8", "mem": "16g"}
    (machine,) = await cloud.machines()
    assert (machine["status"], machine["reference"]) == ("starting", "vm-7")
    # The owner of the session sees that a machine is being started.
    await cloud.step()
    why = await user.get("/sessions/first/why")
    (failed,) = [check for check in why["checks"] if not check["passed"]]
    assert failed["message"].endswith(
        f"a machine is being started for this resource group since {machine['created_at']}"
    )
    agent = await cloud.join(call)
    await cloud.step()
    placed = await wait_for_status(user, "first", "SCHEDULED")
    assert placed["resource_group"] == "cloud"
    assert await cloud.statuses() == ["running"]
    # The machine is not stopped while it has a session, even after a long time.
    cloud.api.world.clock.advance(seconds=200)
    await agent.beat()
    await cloud.step()
    assert await cloud.statuses() == ["running"]
    await user.delete("/sessions/first")
    await wait_for_status(user, "first", "CANCELLED")
    await cloud.step()
    cloud.api.world.clock.advance(seconds=59)
    await cloud.step()
    assert await cloud.statuses() == ["running"]
    cloud.api.world.clock.advance(seconds=1)
    await cloud.step()
    assert await cloud.statuses() == ["draining"]
    assert (await cloud.admin.get(f"/agents/{agent.id}"))["schedulable"] is False
    await cloud.step()
    assert [one["action"] for one in cloud.calls()] == ["start", "stop"]
    assert cloud.calls()[1]["machine"]["reference"] == "vm-7"
    (stopped,) = await cloud.machines()
    assert (stopped["status"], stopped["reason"]) == ("stopped", "idle")
    await agent.beat(is_leaving=True)
    await cloud.step()
    with pytest.raises(NotFound):
        await cloud.admin.get(f"/agents/{agent.id}")
    actions = [
        entry["action"].partition(".")[2]
        for entry in (await cloud.admin.get("/audit-log", entity="provisioned-machine"))["items"]
    ]
    assert sorted(actions) == ["drain", "join", "start", "stop"]


async def test_number_of_machines_is_limited(cloud: Cloud, user: Client) -> None:
    for name in ("first", "second", "third"):
        await start(user, name)
    for _ in range(3):
        await cloud.step()
    assert len(cloud.calls()) == 2
    # Two machines are being started. When the first joins, no further machine is started.
    await cloud.join(cloud.calls()[0])
    for _ in range(3):
        await cloud.step()
    assert len(cloud.calls()) == 2


async def test_machine_that_never_joins_is_given_up(cloud: Cloud, user: Client) -> None:
    await start(user, "first")
    await cloud.step()
    cloud.api.world.clock.advance(seconds=121)
    await cloud.step()
    (call, stop) = cloud.calls()
    assert stop["action"] == "stop"
    (machine,) = await cloud.machines()
    assert (machine["status"], machine["reason"]) == ("failed", "never-joined")
    with pytest.raises(Forbidden, match="invitation"):
        await cloud.join(call)
    # The next machine is started after the cool-down.
    await cloud.step()
    assert len(cloud.calls()) == 2
    cloud.api.world.clock.advance(seconds=301)
    await cloud.step()
    assert len(cloud.calls()) == 3


async def test_failed_calls_are_reported(cloud: Cloud, user: Client) -> None:
    cloud.set_mode("fail")
    await start(user, "first")
    await cloud.step()
    (machine,) = await cloud.machines()
    assert (machine["status"], machine["reason"]) == ("stopping", "start-failed")
    assert machine["message"] == "exit status 3: no capacity in this zone"
    # The failed call may have started a machine: the manager calls `stop` until that succeeds.
    await cloud.step()
    assert [one["reason"] for one in await cloud.machines()] == ["stop-failed"]
    cloud.set_mode("work")
    calls = len(cloud.calls())
    cloud.api.world.clock.advance(seconds=61)
    await cloud.step()
    assert len(cloud.calls()) == calls + 1
    assert await cloud.statuses() == ["failed"]


async def test_message_of_the_command_does_not_show_the_token(cloud: Cloud, user: Client) -> None:
    cloud.set_mode("leak")
    await start(user, "first")
    await cloud.step()
    ((machine,), (call, *_)) = await cloud.machines(), cloud.calls()
    assert "[secret]" in machine["message"]
    assert call["join"]["token"] not in machine["message"]


async def test_calls_are_repeated_after_a_restart(
    cloud: Cloud, user: Client, tmp_path: Path
) -> None:
    await start(user, "first")
    provisioning = cloud.api.world.manager.cluster.provisioning
    await cloud.api.world.manager.scheduling.scheduler.run_pass()
    await provisioning.step()
    await provisioning.stop()  # the call is cancelled
    (machine,) = await cloud.machines()
    assert machine["status"] == "requested"
    await cloud.step()
    assert [one["machine"]["id"] for one in cloud.calls()][-1] == machine["id"]
    assert await cloud.statuses() == ["starting"]
    await cloud.join(cloud.calls()[-1])


async def test_administrator_stops_a_machine(cloud: Cloud, user: Client) -> None:
    await start(user, "first")
    await cloud.step()
    agent = await cloud.join(cloud.calls()[0])
    await cloud.step()
    await wait_for_status(user, "first", "SCHEDULED")
    (machine,) = await cloud.machines()
    path = f"/provisioned-machines/{machine['id']}"
    await cloud.admin.delete(path)
    with pytest.raises(Conflict):
        await cloud.admin.delete(path)
    # The machine has a session, so it is not stopped, but it gets no new session.
    await start(user, "second")
    await cloud.step()
    shown = await cloud.admin.get(path)
    assert (shown["status"], shown["reason"]) == ("draining", "stop-requested")
    assert [one["action"] for one in cloud.calls()] == ["start", "start"]
    await user.delete("/sessions/first")
    await wait_for_status(user, "first", "CANCELLED")
    await cloud.step()
    await cloud.step()
    assert (await cloud.admin.get(path))["status"] == "stopped"
    assert agent.id in [one["machine"]["agent_id"] for one in cloud.calls()]


async def test_options_of_the_group_are_checked(cloud: Cloud) -> None:
    changes = {"scheduler_opts_changes": {"provisioning": {"maximum": 1, "minimum": 2}}}
    with pytest.raises(InvalidRequest, match="minimum"):
        await cloud.admin.patch("/resource-groups/cloud", changes)


async def test_option_without_a_command_is_refused(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with (
        manager_on(demo_database_url, tmp_path, clock, is_migrated=True) as manager,
        serving(await known_world(manager, clock)) as api,
    ):
        admin = await api.client("admin")
        options = {"provisioning": OPTIONS}
        with pytest.raises(InvalidRequest, match="set BAI_PROVISIONING_COMMAND"):
            await admin.post("/resource-groups", {"name": "cloud", "scheduler_opts": options})
        for field in ("scheduler_opts", "scheduler_opts_changes"):
            with pytest.raises(InvalidRequest, match="set BAI_PROVISIONING_COMMAND"):
                await admin.patch("/resource-groups/default", {field: options})
        options["provisioning"] = {**OPTIONS, "maximum": 0}
        await admin.patch("/resource-groups/default", {"scheduler_opts": options})


async def test_session_for_which_no_machine_can_be_started_is_refused(
    cloud: Cloud, user: Client, demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    """The setting with the command was removed after the option of the group had been set."""
    agent = FakeAgent(cloud.api.agent, "small", "cloud", slots={"cpu": "1", "mem": "1g"})
    await agent.beat()
    async with (
        manager_on(demo_database_url, tmp_path, clock, is_migrated=True) as manager,
        serving(await known_world(manager, clock)) as api,
    ):
        with pytest.raises(InsufficientResources):
            await start(await api.client("user"), "large")
    await start(user, "large")


def script(folder: Path, text: str) -> ProvisioningCommand:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return ProvisioningCommand(str(path), 10.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("echo text", "no JSON object", id="text"),
        pytest.param("echo '[]'", "no JSON object", id="list"),
        pytest.param('echo \'{"error": "quota"}\'', "quota", id="error"),
        pytest.param("echo no >&2; exit 4", "exit status 4: no", id="exit status"),
        pytest.param(
            f"head -c {MAX_OUTPUT_BYTES + 1} /dev/zero", "more than", id="too much output"
        ),
    ],
)
async def test_failure_of_the_command_has_a_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        await script(tmp_path, text).run({})


async def test_command_is_killed_after_the_time_out(tmp_path: Path) -> None:
    command = script(tmp_path, "sleep 600 & echo $! > pid; wait")
    (tmp_path / "command").write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n")
    with pytest.raises(CommandFailed, match="no response within 1 s"):
        await ProvisioningCommand(command.path, 1.0).run({})
    pid = (tmp_path / "pid").read_text().strip()
    found = process_stat(int(pid))
    assert found is None or found.state == "Z"
    with pytest.raises(CommandFailed, match="cannot be started"):
        await ProvisioningCommand(str(tmp_path / "missing"), 1.0).run({})


def test_environment_of_the_command_has_no_secrets() -> None:
    environ = {
        "PATH": "/bin",
        "BAI_DATABASE_URL": "postgresql://secret",
        "JUPYTERHUB_API_TOKEN": "secret",
        f"{PREFIX}REGION": "eu",
        PREFIX: "x",
    }
    assert command_environment(environ) == {"PATH": "/bin", "REGION": "eu"}
