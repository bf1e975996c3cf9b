"""Session starts per second with a no-op engine, compared with a Hub without bai-hub.

The two Hubs are measured alternately. They have the same number of clients, users and servers, and
use the same proxy program. One HTTP server responds for the sessions of both Hubs. Therefore the
ratio of the two rates shows the overhead of bai-hub and hardly depends on the machine.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from tests.hub import ROOT, Component, RunningHub

from .bare_hub import BareHub, bare_hub
from .noop_engine import URL_VARIABLE, serve_empty_responses

USERS = ("user", "user2")
CALLERS = 16
ROUNDS = 3
POLL_INTERVAL_SECONDS = 0.1
TIMEOUT_SECONDS = 300
PARTS: tuple[Component, ...] = ("hub", "manager", "agent", "proxy")


def rates(starts: int) -> dict[str, Any]:
    """Measure both Hubs alternately.

    Return the median starts per second of each, and bai-hub's CPU milliseconds per start.
    """
    # The number of cores, and of GiB of memory, for the sessions of all rounds at the same time.
    capacity = (ROUNDS + 1) * starts
    with serve_empty_responses() as url, tempfile.TemporaryDirectory(prefix="bai-bench-") as name:
        folder = Path(name)
        config = folder / "noop.py"
        config.write_text(
            "c.BaiSpawner.engine_classes = {'process': 'benchmarks.noop_engine.NoopEngine'}\n"
        )
        environment = {URL_VARIABLE: url, "PYTHONPATH": str(ROOT)}
        ours = {
            "BAI_CONFIG": str(config),
            "BAI_AGENT_CPU": str(capacity),
            "BAI_AGENT_MEM": f"{capacity}g",
            **environment,
        }
        hub = RunningHub(folder / "home", "process", ours)
        try:
            with bare_hub(folder, ROOT, environment) as bare:
                return _in_turns(_Sessions(hub.start()), _Servers(bare), starts)
        finally:
            hub.stop()


def _in_turns(ours: _Sessions, bare: _Servers, starts: int) -> dict[str, Any]:
    own, peers, costs = [], [], []
    for number in range(ROUNDS + 1):
        before = ours.cpu_seconds()
        rate = ours.start(number, starts)
        after = ours.cpu_seconds()
        peer = bare.start(number, starts)
        if number:  # Round 0 is a warm-up.
            own.append(rate)
            peers.append(peer)
            costs.append({part: (after[part] - before[part]) / starts for part in PARTS})
    return {
        "starts_per_second": round(statistics.median(own), 1),
        "bare_starts_per_second": round(statistics.median(peers), 1),
        "cpu_ms_per_start": {
            part: round(statistics.median(cost[part] for cost in costs) * 1000, 1) for part in PARTS
        },
    }


class _Sessions:
    """Measures bai-hub's demo with a no-op engine."""

    def __init__(self, hub: RunningHub) -> None:
        self._processes = {part: psutil.Process(hub.process_of(part).pid) for part in PARTS}
        self._callers = [hub.rest(name) for name in USERS]
        self._admin = hub.rest("admin")
        policy = {"max_concurrent_sessions": None}
        self._admin.patch("/keypair-policies/default", json=policy).raise_for_status()

    def cpu_seconds(self) -> dict[str, float]:
        times = {part: process.cpu_times() for part, process in self._processes.items()}
        return {part: spent.user + spent.system for part, spent in times.items()}

    def start(self, round_number: int, starts: int) -> float:
        """Start ``starts`` sessions; return the starts per second until all are running."""

        def post(index: int) -> None:
            body = {
                "name": f"bench-{round_number}-{index}",
                "resources": {"cpu": "1", "mem": "256m"},
            }
            caller = self._callers[index % len(self._callers)]
            caller.post("/sessions", json=body).raise_for_status()

        began = time.time()
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(post, range(starts)))
        return starts / (self._last_start(round_number, starts) - began)

    def _last_start(self, round_number: int, starts: int) -> float:
        """Wait until all sessions of a round run; return the Unix time of the last start."""
        query: dict[str, str | int] = {
            "status": "RUNNING",
            "name__contains": f"bench-{round_number}-",
            "limit": 1,
        }
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            page = self._admin.get("/sessions", params=query)
            if page.raise_for_status().json()["total"] == starts:
                last = {**query, "sort": "-started_at"}
                items = self._admin.get("/sessions", params=last).json()["items"]
                return datetime.fromisoformat(items[0]["started_at"]).timestamp()
            time.sleep(POLL_INTERVAL_SECONDS)
        raise RuntimeError(f"not all sessions of a round are running after {TIMEOUT_SECONDS} s")


class _Servers:
    """Measures the baseline: a Hub with the same number of servers for the same users."""

    def __init__(self, hub: BareHub) -> None:
        self._hub = hub
        hub.add(USERS)

    def start(self, round_number: int, starts: int) -> float:
        began = time.perf_counter()
        self._hub.start_servers(USERS, round_number * starts, starts, CALLERS)
        return starts / (time.perf_counter() - began)
