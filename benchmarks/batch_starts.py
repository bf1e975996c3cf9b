"""Batch sessions per second that agents start and end without a Hub server, with a no-op engine.

The installation is complete (Hub, manager with its database, agents), and each agent is a process
of its own. Only the engine does nothing: the command of a session ends as soon as it has started.
All sessions are in the queue with the same start time, so their creation is not measured.
``batch_starts_per_second`` counts from that time to the last start; meanwhile sessions also end,
and release their resources. ``batch_ends_per_second`` counts to
the last end. ``manager_cpu_ms_per_batch`` is the CPU time of the manager for all steps of one
session, without its creation; ``agent_cpu_ms_per_batch`` is that of its agent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil

from bai_services.core.sessions.launch_plan import LaunchPlan
from bai_services.engines.base import Exit, Running
from tests.hub import ROOT, RunningHub
from tests.testbed.wait import wait_until

from .noop_engine import NoopEngine

BULK = 50
TIMEOUT_SECONDS = 300
WARM_UP_SESSIONS = 20
# Time reserved for the creation of one session.
CREATION_SECONDS = 0.1
CONFIG = """
c.AgentApp.runs_batch = True
c.AgentApp.engine_classes = {"process": "benchmarks.batch_starts.EndedEngine"}
"""


class EndedEngine(NoopEngine):
    """Runs commands that end with exit code 0 as soon as their kernel has started."""

    async def start(
        self, plan: LaunchPlan, environ: Mapping[str, str], command: Sequence[str]
    ) -> Running:
        return Running.named(plan)

    async def poll(self, running: Running) -> Exit | None:
        return Exit(0)


def rates(sessions: int, agents: int) -> dict[str, Any]:
    """Measure ``sessions`` batch sessions on ``agents`` agents."""
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        hub = RunningHub(folder / "home")
        stack.callback(hub.stop)
        admin = hub.start().rest("admin")
        policy = {"max_concurrent_sessions": None, "max_pending_sessions": None}
        admin.patch("/keypair-policies/default", json=policy).raise_for_status()
        # Only the agents of the benchmark run sessions.
        for agent in admin.get("/agents").json()["items"]:
            body = {"schedulable": False}
            admin.patch(f"/agents/{agent['id']}", json=body).raise_for_status()
        ids = [f"bench-{number}" for number in range(agents)]
        processes = {
            "agent": [
                stack.enter_context(_agent(hub, folder, key, capacity=sessions)) for key in ids
            ],
            "manager": [hub.process_of("manager")],
        }
        wait_until(lambda: _alive(admin) > agents, 60, "the agents")
        _measure(admin, processes, "warm", WARM_UP_SESSIONS)
        return {
            **_measure(admin, processes, "bench", sessions),
            "batch_sessions": sessions,
            "batch_agents": agents,
        }


def _measure(
    admin: httpx.Client, processes: Mapping[str, Sequence[psutil.Process]], name: str, count: int
) -> dict[str, Any]:
    # All sessions become eligible at the same time, when all of them are in the queue.
    starts_at = datetime.now(UTC) + timedelta(seconds=5 + count * CREATION_SECONDS)
    spec = {
        "project": "default",
        "type": "batch",
        "startup_command": "true",
        "resources": {"cpu": "1", "mem": "256m"},
        "starts_at": starts_at.isoformat(),
    }
    for start in range(0, count, BULK):
        numbers = range(start, min(start + BULK, count))
        body = {"sessions": [{**spec, "name": f"{name}-{number:05}"} for number in numbers]}
        response = admin.post("/bulk-sessions", json=body)
        if response.is_error:
            raise RuntimeError(response.text)
    began = starts_at.timestamp()
    if time.time() > began:
        raise RuntimeError("the creation of the sessions took too long")
    time.sleep(began - time.time())
    query: dict[str, Any] = {"name__contains": f"{name}-", "limit": 1}

    def count_in(status: str) -> int:
        page = admin.get("/sessions", params={**query, "status": status})
        return int(page.raise_for_status().json()["total"])

    def have_ended() -> bool:
        time.sleep(0.5)
        return count_in("TERMINATED") == count

    before = {part: _cpu_seconds(of) for part, of in processes.items()}
    wait_until(have_ended, TIMEOUT_SECONDS, "the end of all sessions")

    def rate(field: str) -> float:
        page = admin.get("/sessions", params={**query, "sort": f"-{field}"}).raise_for_status()
        last = datetime.fromisoformat(page.json()["items"][0][field]).timestamp()
        return round(count / (last - began), 1)

    return {
        "batch_starts_per_second": rate("started_at"),
        "batch_ends_per_second": rate("terminated_at"),
        **{
            f"{part}_cpu_ms_per_batch": round((_cpu_seconds(of) - before[part]) / count * 1000, 1)
            for part, of in processes.items()
        },
    }


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    spent = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in spent))


def _alive(admin: httpx.Client) -> int:
    return int(admin.get("/agents", params={"status": "ALIVE"}).json()["total"])


@contextmanager
def _agent(hub: RunningHub, folder: Path, key: str, capacity: int) -> Iterator[psutil.Process]:
    home = folder / key
    home.mkdir()
    config = home / "agent.py"
    config.write_text(CONFIG)
    manager = hub.process_of("manager").environ()["BAI_MANAGER_URL"]
    environ = {
        **{name: text for name, text in os.environ.items() if not name.startswith("BAI_")},
        "BAI_MANAGER_URL": manager,
        "BAI_AGENT_TOKEN_FILE": str(hub.home / "secrets" / "agent-token"),
        "BAI_AGENT_ID": key,
        "BAI_AGENT_CPU": str(capacity),
        "BAI_AGENT_MEM": f"{capacity}g",
        "BAI_HOME": str(home),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "bai_services.agent", "--config", str(config)]
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)
