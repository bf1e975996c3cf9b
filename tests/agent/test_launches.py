"""Batch sessions that the agent starts itself, with a real manager and without a Hub."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest

from bai_services.client import Client
from bai_services.core.errors import Conflict
from tests.testbed.manager import Api
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until_async

from .conftest import Agents, RunningAgent, launch, wait_for_session

ENDED = ("TERMINATED", "CANCELLED", "ERROR")
RUNS_BATCH = {"BAI_AGENT_RUNS_BATCH": "1"}


@pytest.fixture
async def agent(agents: Agents) -> RunningAgent:
    return await agents.start(**RUNS_BATCH)


async def submit(user: Client, command: str, name: str = "job1", **fields: Any) -> dict[str, Any]:
    spec = {
        "name": name,
        "type": "batch",
        "startup_command": command,
        "resources": {"cpu": "1", "mem": "256m"},
    }
    session: dict[str, Any] = await user.post("/sessions", {**spec, **fields})
    return session


async def ended(user: Client, session: dict[str, Any]) -> dict[str, Any]:
    return await wait_for_session(user, session["id"], lambda s: s["status"] in ENDED)


async def running(user: Client, session: dict[str, Any]) -> dict[str, Any]:
    return await wait_for_session(user, session["id"], lambda s: s["status"] == "RUNNING")


async def log_of(user: Client, session: dict[str, Any]) -> str:
    answer = await user.get(f"/sessions/{session['id']}/logs")
    return str(answer["log"])


def processes_of(session: dict[str, Any]) -> list[psutil.Process]:
    """Return the living processes of a session, found by their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("BAI_SESSION_ID") == session["id"]
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_agent_runs_the_command_and_reports_exit_code_log_and_usage(
    api: Api, user: Client, agent: RunningAgent
) -> None:
    session = await submit(user, "echo out; echo $BAI_OWNER; exit 3")
    done = await ended(user, session)
    assert (done["status"], done["result"], done["exit_code"]) == ("TERMINATED", "failure", 3)
    assert done["status_info"] == "the command exited with code 3"
    assert done["started_by"] == "agent"
    assert (await log_of(user, session)).splitlines() == ["out", "user"]
    steps = [
        step["to_status"]
        for step in (await user.get(f"/sessions/{session['id']}/history"))["items"]
    ]
    assert steps[-2:] == ["RUNNING", "TERMINATED"]
    assert await api.world.manager.sessions.records.check_consistency() == []

    async def is_removed() -> bool:
        return not (agent.home / "sessions" / session["id"]).exists()

    await wait_until_async(is_removed, 30, "the removal of the kernel's folder")
    assert (await log_of(user, session)).splitlines() == ["out", "user"]


async def test_stop_ends_all_processes(user: Client, agent: RunningAgent) -> None:
    session = await submit(user, "echo on; sleep 300 & sleep 301")
    await running(user, session)
    await wait_until_async(lambda: len(processes_of(session)) >= 3, 10, "the processes")

    async def is_logged() -> bool:
        return await log_of(user, session) == "on\n"

    await wait_until_async(is_logged, 10, "the output of the running session")
    await user.delete(f"/sessions/{session['id']}")
    done = await ended(user, session)
    assert (done["result"], done["status_info"]) == ("undefined", "stopped by user")
    assert await log_of(user, session) == "on\n"
    assert processes_of(session) == []


async def test_hub_only_attaches_a_server_to_a_session_of_an_agent(
    api: Api, user: Client, agent: RunningAgent
) -> None:
    session = await submit(user, "sleep 300")
    found = await running(user, session)
    where = {"user": found["hub_user"], "server": found["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    assert (plan["is_attached"], plan["command"]) == (True, None)
    await user.delete(f"/sessions/{session['id']}")
    await ended(user, session)
    with pytest.raises(Conflict, match="TERMINATED"):
        await api.hub.post(f"/sessions/{session['id']}/launch", where)


async def test_agent_that_stops_without_the_manager_leaves_a_guard(
    api: Api, user: Client, agents: Agents, agent: RunningAgent
) -> None:
    """The guard stops the session when the lease expires, so that it can run elsewhere."""
    admin = await api.client("admin")
    options = {"lost_agents": {"requeue_after": 45}}
    await admin.patch("/resource-groups/default", {"scheduler_opts_changes": options})
    session = await submit(user, "trap 'echo saved; exit 143' TERM; echo on; sleep 600 & wait")
    await running(user, session)

    async def is_logged() -> bool:
        return await log_of(user, session) == "on\n"

    await wait_until_async(is_logged, 10, "the output of the running session")
    await agent.kill()
    settings = {
        **RUNS_BATCH,
        "BAI_MANAGER_URL": f"http://127.0.0.1:{free_port()}",
        "BAI_AGENT_TOKEN_FILE": str(agent.home / "token"),
        "BAI_AGENT_ID": agent.id,
        "BAI_HOME": str(agent.home),
    }
    log = agent.home / "without-manager.log"
    process = launch(settings, log)
    agents.started.append(RunningAgent(agent.id, agent.home, process, log))
    await wait_until_async(lambda: "manager is unavailable" in log.read_text(), 60, "the agent")
    # The guard, but not the running agent, reads this lease, which has expired.
    lease = agent.home / "lease.json"
    content = json.loads(lease.read_text())
    lease.write_text(json.dumps({**content, "renewed_at": content["renewed_at"] - 600}))
    assert processes_of(session)
    assert await agents.started[-1].stop() == 0
    await wait_until_async(lambda: not processes_of(session), 60, "the end of the command")
    await wait_until_async(lambda: not guards(agent), 60, "the end of the guard")
    await agents.start(**RUNS_BATCH)
    again = await wait_for_session(
        user, session["id"], lambda s: s["status"] == "RUNNING" and s["restart_count"] == 1
    )
    assert again["restart_count"] == 1
    first = (await log_of(user, session)).splitlines()[:2]
    assert first == ["on", "saved"]
    await user.delete(f"/sessions/{session['id']}")
    await ended(user, session)


def guards(agent: RunningAgent) -> list[psutil.Process]:
    """Return the guards of ended agents with the same state folder as ``agent``."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("BAI_HOME") == str(agent.home)
            if is_ours and "guard" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found
