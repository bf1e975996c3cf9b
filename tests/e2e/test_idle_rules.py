# ruff: noqa: ASYNC212  # Blocking calls are short, and only the typist runs beside them.
"""Each type of idle checker judges sessions with real load on Docker.

All sessions start at once, so that the tests take as long as one window.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tornado.websocket import WebSocketClientConnection

from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.websocket import open_websocket

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

WINDOW_SECONDS = 60
# Time limit for a stop: covers the window, the storage of its samples, two steps of the manager,
# and the stop.
STOP_SECONDS = 240
# This load is busy for a tenth of the time, so that the test needs little CPU time.
BUSY = """
import time
while True:
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    time.sleep(0.45)
"""
# Downloads the API document of the manager, several hundred KB, twice per second.
DOWNLOAD = """
import os, time, urllib.request
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
while True:
    open_url(os.environ["BAI_MANAGER_URL"] + "/api/v1/openapi.json").read()
    time.sleep(0.5)
"""
# Settings of the checkers by name.
UTILIZATION = {"type": "utilization", "session_types": ["batch"]}
CHECKERS: dict[str, JSON] = {
    "load": {**UTILIZATION, "thresholds": {"cpu_util": 5, "net": 20_000}},
    "only-cpu": {**UTILIZATION, "thresholds": {"cpu_util": 5}},
    "network": {"type": "network"},
    "lifetime": {"type": "session-lifetime", "session_types": ["batch"]},
}
# The account whose sessions each checker judges.
ACCOUNTS = {"load": "user", "only-cpu": "user", "network": "user", "lifetime": "user2"}
DRY_RUNS = {"only-cpu"}
# Decisions: checker, session, and whether the binding is a dry run.
DECISIONS = {
    ("network", "open-tab", False),
    ("load", "silent-loop", False),
    ("lifetime", "lived", False),
    # As a dry run: this rule does not measure the network, so it would also stop the download.
    ("only-cpu", "silent-loop", True),
    ("only-cpu", "download", True),
}
# The requests of JupyterLab in an open browser tab.
POLLS = ("api/contents?content=1", "api/kernels", "api/sessions", "api/terminals", "bai/api/poll")


@pytest.fixture
def admin(docker_hub: RunningHub) -> Iterator[httpx.Client]:
    """Create and bind the checkers; yield a client of the administrator."""
    with docker_hub.rest("admin") as admin:
        try:
            for name, fields in CHECKERS.items():
                rule = {"name": name, "max_seconds": WINDOW_SECONDS, "warnings_seconds": []}
                checked(admin.post("/idle-checkers", json={**rule, **fields}), 201)
                binding: JSON = {"checker": name, "scope": "user", "scope_key": ACCOUNTS[name]}
                binding["is_dry_run"] = name in DRY_RUNS
                checked(admin.post("/idle-checker-bindings", json=binding), 201)
            yield admin
        finally:
            for name in CHECKERS:
                admin.delete(f"/idle-checkers/{name}")


def spec_of(name: str, command: str = "", **fields: Any) -> JSON:
    """Return a session to create: a batch session, or an interactive one without a command."""
    spec = {"name": name, "project": "default", "resources": {"cpu": "1", "mem": "512m"}, **fields}
    return {**spec, "type": "batch", "startup_command": command} if command else spec


async def open_terminal(
    stack: AsyncExitStack, hub: RunningHub, jupyter: httpx.Client, session: JSON
) -> WebSocketClientConnection:
    """Open a terminal as JupyterLab does."""
    response = await asyncio.to_thread(jupyter.post, "api/terminals")
    terminal = checked(response, 200, 201)["name"]
    address = f"{hub.url}{session['url']}terminals/websocket/{terminal}"
    return await stack.enter_async_context(
        open_websocket(address, jupyter.headers["Authorization"])
    )


async def use(terminal: WebSocketClientConnection, tab: httpx.Client) -> None:
    """For 10 s, press keys in one session, and poll another session as an open tab does."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(10))
        await terminal.write_message(json.dumps(["stdin", "x"]))
        for path in POLLS:
            await asyncio.to_thread(tab.get, path)


async def test_each_rule_stops_the_sessions_that_it_describes_and_no_others(
    docker_hub: RunningHub, admin: httpx.Client
) -> None:
    rest, other = docker_hub.rest("user"), docker_hub.rest("user2")
    async with AsyncExitStack() as stack:
        specs = [
            spec_of("busy-loop", f"python3 -c '{BUSY}'"),
            spec_of("silent-loop", "while sleep 3600; do :; done"),
            spec_of("download", f"python3 -c '{DOWNLOAD}'"),
            spec_of("open-tab"),
            spec_of("typing"),
        ]
        made = checked(rest.post("/bulk-sessions", json={"sessions": specs}), 201)["items"]
        lived = checked(other.post("/sessions", json=spec_of("lived", "sleep 3600")), 201)
        busy, silent, download, tab, typing = [
            await asyncio.to_thread(wait_for, rest, session["id"], "RUNNING") for session in made
        ]
        pages = {one["id"]: docker_hub.jupyter(rest, one["url"]) for one in (tab, typing)}
        sockets = [
            await open_terminal(stack, docker_hub, pages[one["id"]], one) for one in (typing, tab)
        ]
        stopped = [tab, silent, lived]
        decisions: set[tuple[str, str, bool]] = set()
        async with asyncio.timeout(STOP_SECONDS):
            while not (decisions >= DECISIONS and all(one["terminated_at"] for one in stopped)):
                await use(sockets[0], pages[tab["id"]])
                stopped = [checked(admin.get(f"/sessions/{one['id']}"), 200) for one in stopped]
                rows = checked(admin.get("/idle-decisions"), 200)["items"]
                decisions = {(row["checker"], row["session"], row["is_dry_run"]) for row in rows}
        # Read all results before a session is stopped, because the sessions without input become
        # idle.
        kept = [
            checked(rest.get(f"/sessions/{one['id']}"), 200) for one in (busy, download, typing)
        ]
        for found in kept:
            log = rest.get(f"/sessions/{found['id']}/logs").text
            assert found["status"] == "RUNNING", f"{found}\n{log}"
            # The session has run for longer than the window.
            started = datetime.fromisoformat(found["started_at"])
            assert datetime.now(UTC) - started > timedelta(seconds=WINDOW_SECONDS), found
            # The network checker announces the end of the session some seconds after the last key.
            ends = {check["checker"]: check["ends_at"] for check in found["idle_checks"]}
            assert ends.get("load") is None, found
        for found in kept:
            stop(rest, found["id"])
    reasons = [
        "idle timeout: at most 1min without use, the limit of idle checker network",
        r"low utilization: CPU utilization [0-9.]+% \(threshold 5%\), network traffic [0-9.]+ "
        r"(KiB|B)/s \(threshold 19.5 KiB/s\) in 90% of the samples of 1min; idle checker load",
        "lifetime: at most 1min, the limit of idle checker lifetime",
    ]
    for session, reason in zip(stopped, reasons, strict=True):
        assert re.fullmatch(reason, session["status_info"]), session["status_info"]
    assert not {name for _, name, _ in decisions} & {"busy-loop", "typing"}
