"""The agent process with the process engine, against a real manager."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from bai_services.client import Client
from bai_services.core.errors import Conflict
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.transitions import TransitionValues
from tests.manager.test_full_disk import SmallDisk, mounted_disk
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until, wait_until_async

from .conftest import AGENT_ID, Agents, launch, wait_for_session


async def create_prepared(user: Client, name: str = "lab1", **resources: str) -> dict[str, Any]:
    spec = {"cpu": "1", "mem": "1g", **resources}
    session = await user.post("/sessions", {"name": name, "resources": spec})
    return await wait_for_session(user, session["id"], lambda s: s["status"] == "PREPARED")


async def plan_of(api: Api, session: dict[str, Any]) -> dict[str, Any]:
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    plan = await api.hub.post(f"/sessions/{session['id']}/launch", where)
    return dict(plan)


def start_as_spawner(
    plan: dict[str, Any], words: list[str], children: list[subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start a process with the environment tags that the spawner gives to a session's processes."""
    marks = {
        "BAI_SESSION_ID": plan["session_id"],
        "BAI_KERNEL_ID": plan["kernel_id"],
        "BAI_AGENT_ID": plan["agent_id"],
    }
    process = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **marks})
    children.append(process)
    return process


async def test_agent_reports_its_machine(api: Api, agents: Agents) -> None:
    await agents.start()
    agent = await (await api.client("admin")).get(f"/agents/{AGENT_ID}")
    assert agent["slots"] == {"cpu": "8", "cuda.shares": "2", "mem": "16g"}
    assert [(d["is_simulated"], d["model"]) for d in agent["devices"]] == [
        (True, "Simulated GPU"),
        (True, "Simulated GPU"),
    ]
    facts = agent["facts"]
    assert facts["isolation"] in ("bubblewrap", "none")
    assert facts["enforcement"] == {"cuda": "none"}
    assert {"hostname", "os", "kernel", "started_at"} <= set(facts)
    load = facts["load"]
    assert len(load["cpus_percent"]) == psutil.cpu_count()
    assert 0 < load["memory_used_bytes"] < load["memory_bytes"]
    assert 0 < load["disk_used_bytes"] < load["disk_bytes"]
    assert agent["engine"] == "process"


async def test_prepared_session_has_the_setup_of_its_owner(
    api: Api, agents: Agents, user: Client
) -> None:
    agent = await agents.start()
    await user.put("/me/environ/TOKEN", {"value": "s3cret-value", "is_secret": True})
    # The variables of devices take precedence.
    await user.put("/me/environ/CUDA_MEMORY_LIMITS", {"value": "all"})
    await user.put("/me/dotfiles/.vimrc", {"content": "set nu\n", "permission": "600"})
    await user.put("/me/bootstrap", {"script": "true", "timeout_seconds": 7})
    session = await create_prepared(user)
    injection = (await plan_of(api, session))["injection"]
    folder = agent.home / "sessions" / session["id"]
    setup = folder / "setup.json"
    path = str(setup)
    assert (injection["environ"]["BAI_SETUP_FILE"], injection["script_seconds"]) == (path, 7)
    assert injection["mounts"][1:] == [
        {"source": path, "target": path, "read_only": True, "is_own": True}
    ]
    assert (folder / "home/.vimrc").read_text() == "set nu\n"
    assert json.loads(setup.read_text()) == {
        "variables": {"TOKEN": "s3cret-value"},
        "scripts": [{"origin": "user", "script": "true", "timeout_seconds": 7}],
    }
    assert setup.stat().st_mode & 0o777 == 0o600


async def test_prepared_session_has_home_and_gpu_share(
    api: Api, agents: Agents, user: Client
) -> None:
    agent = await agents.start()
    session = await create_prepared(user, **{"cuda.shares": "0.25"})
    assert any("simulated" in notice for notice in session["notices"])
    injection = (await plan_of(api, session))["injection"]
    home = agent.home / "sessions" / session["id"] / "home"
    assert injection["mounts"] == [
        {"source": str(home), "target": "/home/work", "read_only": False, "is_own": True}
    ]
    assert (home.stat().st_mode & 0o777, home.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    environ = injection["environ"]
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert environ["BAI_CUDA_SHARES"] == "0.25"
    assert environ["CUDA_MEMORY_LIMITS"] == f"0:{4 * 2**30}"
    (device,) = json.loads(environ["BAI_DEVICES"])
    assert (device["share"], device["is_simulated"]) == ("0.25", True)


async def test_session_without_gpu_sees_no_gpu(api: Api, agents: Agents, user: Client) -> None:
    await agents.start()
    injection = (await plan_of(api, await create_prepared(user)))["injection"]
    environ = injection["environ"]
    assert (environ["CUDA_VISIBLE_DEVICES"], environ["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert (environ["BAI_DEVICES"], environ["BAI_CUDA_SHARES"]) == ("[]", "0")
    assert injection["device_requests"] == injection["device_nodes"] == []


async def test_usage_and_log_of_a_session_are_reported(
    api: Api, agents: Agents, user: Client, children: list[subprocess.Popen[bytes]]
) -> None:
    agent = await agents.start()
    session = await create_prepared(user)
    plan = await plan_of(api, session)
    block = "x = bytearray(50 * 2**20)\nwhile True: pass"
    busy = start_as_spawner(plan, [sys.executable, "-c", block], children)
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": f"pid-{busy.pid}"})
    (agent.home / "sessions" / session["id"] / "session.log").write_text("hello\n")

    async def is_seen() -> bool:
        (kernel,) = (await user.get(f"/sessions/{session['id']}/usage"))["kernels"]
        used = kernel["usage"]
        return used.get("mem_bytes", 0) > 50 * 2**20 and used.get("cpu_cores", 0) > 0.05

    await wait_until_async(is_seen, 30, "the reported usage")
    answer = await user.get(f"/sessions/{session['id']}/logs")
    assert "hello" in json.dumps(answer)


async def test_log_of_an_earlier_attempt_is_sent_before_it_is_removed(
    api: Api, agents: Agents, user: Client
) -> None:
    agent = await agents.start()
    session = await create_prepared(user)
    path = f"/sessions/{session['id']}"
    await plan_of(api, session)
    await api.hub.post(f"{path}/started", {"container_id": "c1"})
    log = agent.home / "sessions" / session["id"] / "session.log"
    log.write_text("epoch 1\n")
    store = SessionStore(api.world.manager.database)
    stop = TransitionValues(reason="preempted", is_requeued_at_end=True)
    await store.move(session["id"], Event.STOP_REQUESTED, api.world.clock(), stop)
    # Simulate a Hub that could not read the output: its report contains no log.
    await api.hub.post(f"{path}/exited", {"reason": "stopped", "reason_code": "stopped"})

    async def log_of_both_attempts() -> str:
        text = str((await user.get(f"{path}/logs"))["log"])
        return text if "epoch 1" in text else ""

    text = await wait_until_async(log_of_both_attempts, 60, "the output of the first attempt")
    output, separator = text.splitlines()
    assert output == "epoch 1"
    assert separator.endswith(": preempted -----")
    await wait_for_session(user, session["id"], lambda s: s["status"] == "PREPARED")
    assert not log.exists()


async def test_restarted_agent_terminates_processes_of_ended_session(
    api: Api, agents: Agents, user: Client, children: list[subprocess.Popen[bytes]]
) -> None:
    agent = await agents.start()
    session = await create_prepared(user)
    plan = await plan_of(api, session)
    # The child has removed its environment tags and ignores SIGTERM; its parent exits at SIGTERM.
    script = "env -i /bin/sh -c 'trap \"\" TERM; sleep 300 & sleep 301' & exec sleep 302"
    process = start_as_spawner(plan, ["/bin/sh", "-c", script], children)
    tree = psutil.Process(process.pid)
    wait_until(lambda: len(tree.children(recursive=True)) >= 3, 10, "all processes of the tree")
    members = [tree, *tree.children(recursive=True)]
    folder = agent.home / "sessions" / session["id"]
    await agent.kill()
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "test"})
    await agents.start()

    async def is_gone() -> bool:
        # The Hub has a grace period in which it may remove the session itself.
        await agents.time_passes(AGENT_ID, seconds=15)
        process.poll()
        return not folder.exists() and not any(_is_running(p) for p in members)

    await wait_until_async(is_gone, 60, "the removal of processes and folder")
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_restarted_agent_gets_unfinished_work_again(
    api: Api, agents: Agents, user: Client, agent_home: Path
) -> None:
    agent = await agents.start()
    # A paused agent does not execute its work items.
    os.kill(agent.process.pid, signal.SIGSTOP)
    session = await user.post("/sessions", {"name": "lab1", "resources": {"cpu": "1"}})
    await wait_for_session(user, session["id"], lambda s: s["status"] in ("SCHEDULED", "PREPARING"))
    await agent.kill()
    again = await agents.start()

    async def is_prepared() -> bool:
        await agents.time_passes(AGENT_ID, seconds=15)
        return (await user.get("/sessions/lab1"))["status"] == "PREPARED"

    await wait_until_async(is_prepared, 30, "the second delivery of the work")
    assert await again.stop() == 0
    assert (await (await api.client("admin")).get(f"/agents/{AGENT_ID}"))["status"] == "TERMINATED"


async def test_agent_with_a_wrong_token_logs_the_rejection_but_not_the_token(
    api: Api, agent_home: Path
) -> None:
    (agent_home / "token").write_text("wrong")
    log = agent_home / "log"
    environ = {
        "BAI_MANAGER_URL": api.url,
        "BAI_AGENT_TOKEN_FILE": str(agent_home / "token"),
        "BAI_HOME": str(agent_home),
    }
    process = launch(environ, log)
    try:
        await wait_until_async(
            lambda: "rejects this agent" in log.read_text(), 30, "the rejection in the agent's log"
        )
        assert process.poll() is None
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 15) == 0
    assert "wrong" not in log.read_text()


def test_agent_without_a_token_exits_with_code_2(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "BAI_MANAGER_URL": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-m", "bai_services.agent"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "BAI_AGENT_TOKEN_FILE" in done.stderr


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


async def test_resize_is_refused_while_the_processes_use_more_memory(
    api: Api, agents: Agents, user: Client, children: list[subprocess.Popen[bytes]]
) -> None:
    await agents.start()
    session = await create_prepared(user)
    path = f"/sessions/{session['id']}"
    hold = "x = bytearray(300 << 20); import time; time.sleep(300)"
    start_as_spawner(await plan_of(api, session), [sys.executable, "-c", hold], children)
    await api.hub.post(f"{path}/started", {"container_id": "c1"})
    resized = await user.post(f"{path}/resize", {"resources": {"cpu": 2, "mem": "512m"}})
    assert (resized["requested"], resized["resize"]["state"]) == (
        {"cpu": "2", "mem": "512m"},
        "applied",
    )

    holder = psutil.Process(children[-1].pid)
    await wait_until_async(lambda: holder.memory_info().rss > 300 << 20, 30, "the memory in use")

    async def is_refused() -> bool:
        try:
            await user.post(f"{path}/resize", {"resources": {"mem": "256m"}})
        except Conflict as error:
            return "of memory, more than mem=256m" in error.message
        return False

    await wait_until_async(is_refused, 30, "a refusal with the memory in use")


async def test_agent_with_a_full_disk_keeps_its_sessions_and_refuses_new_ones(
    api: Api,
    agents: Agents,
    user: Client,
    agent_home: Path,
    children: list[subprocess.Popen[bytes]],
) -> None:
    """The disk holds the agent's state and its log."""
    with mounted_disk(agent_home, 16):
        agent = await agents.start()
        session = await create_prepared(user)
        plan = await plan_of(api, session)
        process = start_as_spawner(plan, ["sleep", "300"], children)
        started = {"container_id": f"pid-{process.pid}"}
        await api.hub.post(f"/sessions/{session['id']}/started", started)
        disk = SmallDisk(agent_home, "")
        disk.fill()

        spec = {"name": "lab2", "resources": {"cpu": "1", "mem": "1g"}}
        refused = await user.post("/sessions", spec)
        ended = await wait_for_session(user, refused["id"], lambda s: s["status"] == "ERROR")
        assert "the disk of the chosen agent is full" in str(ended["status_info"])
        assert ended["allocations"] == []
        at = await last_heartbeat(api)
        api.world.clock.advance(seconds=1)

        async def is_alive() -> bool:
            return await last_heartbeat(api) > at

        await wait_until_async(is_alive, 30, "a later heartbeat")
        assert (await user.get("/sessions/lab1"))["status"] == "RUNNING"
        disk.free_space()
        await create_prepared(user, "lab3")
        assert process.poll() is None
        assert await agent.stop() == 0


async def last_heartbeat(api: Api) -> str:
    agent = await (await api.client("admin")).get(f"/agents/{AGENT_ID}")
    return str(agent["last_heartbeat_at"])
