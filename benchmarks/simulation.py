"""A simulated large cluster: `python -m benchmarks.cluster --simulate` prints its figures.

A manager with thousands of agents, tens of thousands of running sessions, and a queue. The
scheduler places the sessions, which are then marked as running; the benchmark sends the heartbeats
with their kernels, and a fake Hub in a thread of its own lists their servers.

``loops``: for one step of each background loop of the manager, the duration (``seconds``), the CPU
time of the event loop's thread (``cpu_seconds``), the longest time for which the event loop was
blocked (``blocked_seconds``), and the load of one core at the interval of the loop
(``core_percent``).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bai_services.api.cluster.agents import Heartbeat
from bai_services.client import Client, Keypair
from bai_services.core.sessions.lifecycle import SESSION_ID_OPTION
from bai_services.db.tables.sessions import kernels, sessions
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling.idle_scheduling import new_loop
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.testbed.fake_hub import FakeHub, serve_fake_hub
from tests.testbed.manager import AGENT, MovableClock, World, make_world, manager_on, serving

from .heartbeats import devices_of
from .served import Commands

Figures = dict[str, Any]

# Agents that send their heartbeats at the same time.
_BATCH = 250
_HEARTBEAT_SECONDS = 10.0
_USAGE = {"cpu_seconds": 100.0, "cpu_cores": 0.5, "mem_bytes": 2**28, "mem_limit_bytes": 2**30}
_PROBE_SECONDS = 0.002
_LISTS = (
    ("sessions", "/sessions", {"limit": "20", "sort": "-created_at"}),
    ("pending", "/sessions", {"limit": "20", "status": "PENDING"}),
    ("agents", "/agents", {"limit": "20"}),
    ("allocations", "/allocations", {"limit": "20"}),
    ("dashboard", "/dashboard", {}),
)


def run(agents: int, running: int, pending: int, database_url: str = "") -> Figures:
    """Return the figures; ``database_url`` is the URL of an empty database, "" for SQLite."""
    with (
        asyncio.Runner(loop_factory=new_loop) as runner,
        tempfile.TemporaryDirectory(prefix="bai-simulation-") as folder,
        _hub_in_a_thread() as hub,
    ):
        url = database_url or f"sqlite+aiosqlite:///{folder}/bai.sqlite"
        return runner.run(_simulate(url, Path(folder), hub, agents, running, pending))


async def _simulate(
    url: str, home: Path, hub: FakeHub, agents: int, running: int, pending: int
) -> Figures:
    options = {"hub_api_url": hub.url, "hub_api_token": "t"}
    # The clock stands still. With a real clock, agents with late heartbeats would count as lost.
    clock = MovableClock()
    async with manager_on(url, home, clock, **options) as manager:
        world = await make_world(manager, clock)
        cluster = _Cluster(world, hub, agents)
        figures: Figures = {"agents": agents, "running": running, "pending": pending}
        for name, part in (
            ("first_pass", cluster.fill(running)),
            ("heartbeats", cluster.heartbeats()),
            ("passes", cluster.passes(pending)),
            ("loops", cluster.loops()),
            ("lists", cluster.lists()),
        ):
            figures[name] = await part
            print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
        figures["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if manager.database.is_sqlite:
            figures["database_mib"] = _size(home) // 2**20
        figures["load_average"] = round(os.getloadavg()[0], 1)
        return figures


def _size(home: Path) -> int:
    return sum(file.stat().st_size for file in home.glob("bai.sqlite*"))


class _Cluster:
    """The manager with its simulated agents and sessions."""

    def __init__(self, world: World, hub: FakeHub, agents: int) -> None:
        self._world = world
        self._manager: Manager = world.manager
        self._hub = hub
        self._commands = Commands(world)
        self._kernels: dict[str, list[Figures]] = {f"sim-{n}": [] for n in range(agents)}
        self._beats = 0

    async def fill(self, running: int) -> Figures:
        """Register the agents, and place and start the sessions."""
        await warm_up()
        await self._beat_all(self._bodies())
        await self._commands.queue(running, 0)
        self._manager.scheduling.scheduler.capacity_changed()
        figures = await _measured(self._manager.scheduling.scheduler.run_pass)
        async with self._manager.database.write() as tx:
            now, is_placed = self._manager.clock(), sessions.c.status == "SCHEDULED"
            await tx.execute(
                sa.update(sessions)
                .where(is_placed)
                .values(status="RUNNING", started_at=now, status_changed_at=now)
            )
            columns = (sessions.c.id, sessions.c.hub_user, sessions.c.hub_server)
            found = await tx.execute(
                sa.select(*columns, kernels.c.id, kernels.c.agent_id)
                .join(kernels, kernels.c.session_id == sessions.c.id)
                .where(sessions.c.status == "RUNNING")
            )
        for session_id, user, server, kernel_id, agent_id in found.all():
            self._hub.add(user, server, {SESSION_ID_OPTION: session_id}, ready=True)
            ids = {"kernel_id": kernel_id, "session_id": session_id, "container_id": "c"}
            self._kernels[agent_id].append({**ids, "is_running": True, "usage": _USAGE})
        placed = sum(map(len, self._kernels.values()))
        return {"placed": placed, **figures}

    async def heartbeats(self) -> Figures:
        """Measure the heartbeats of all agents, with changed measurements."""
        await self._beat_all(self._bodies())
        bodies = self._bodies()
        figures = await _measured(lambda: self._beat_all(bodies))
        return {**figures, "core_percent": _percent(figures, _HEARTBEAT_SECONDS)}

    async def passes(self, pending: int) -> Figures:
        """Measure a pass with new pending sessions, one without changes, and one that reads the
        whole queue again.
        """
        await self._commands.queue(pending, 0)
        scheduler = self._manager.scheduling.scheduler
        scheduler.capacity_changed()
        figures = {"new_sessions": await _measured(scheduler.run_pass)}
        figures["unchanged"] = await _measured(scheduler.step)
        figures["full_read"] = await _measured(scheduler.run_pass)
        return figures

    async def loops(self) -> Figures:
        manager, figures = self._manager, {}
        steps: tuple[tuple[str, float, Callable[[], Awaitable[Any]]], ...] = (
            ("agent deadlines", 10.0, manager.cluster.agents.check_deadlines),
            ("lost agents", 1.0, manager.servers.lost_agents.step),
            ("starter", 2.0, manager.servers.starter.step),
            ("reconciler", 5.0, manager.servers.reconciler.step),
            ("deadlines", 1.0, manager.sessions.deadlines.step),
            ("suspensions", 1.0, manager.sessions.suspensions.step),
            ("usage samples", 15.0, manager.sessions.usage_sampling.step),
            ("idle checks", 15.0, manager.sessions.idle_judging.step),
            ("elastic sessions", 5.0, manager.sessions.elastic.step),
            ("overflow", 5.0, manager.sessions.overflow.step),
            ("reservations", 30.0, manager.reservations.step),
            ("preemption", 1.0, manager.scheduling.preemptions.step),
            ("budgets", 60.0, manager.usage.budget_watch.step),
        )
        for name, interval, step in steps:
            self._world.clock.advance(seconds=1)
            await step()  # the first step reads more than later ones
            measured = await _measured(step)
            figures[name] = {**measured, "core_percent": _percent(measured, interval)}
        return figures

    async def lists(self) -> Figures:
        """Measure requests of an administrator for lists, each after one request as a warm-up."""
        figures = {}
        async with serving(self._world) as api:
            keys = self._world.keys["admin"]
            client = Client(api.url, Keypair(keys.access_key, keys.secret_key))
            for name, path, query in _LISTS:
                await client.get(path, **query)
                begun = time.perf_counter()
                await client.get(path, **query)
                figures[name] = round(time.perf_counter() - begun, 3)
            await client.close()
        return figures

    def _bodies(self) -> dict[str, bytes]:
        """Return the bodies of the next heartbeats: the measurements of all devices change."""
        self._beats += 1
        return {
            name: json.dumps(
                {
                    "resource_group": "default",
                    "engine": "process",
                    "architecture": "x86_64",
                    "version": "1",
                    "slots": {"cpu": "64", "mem": "256g"},
                    "devices": devices_of(number, 40 + self._beats),
                    "kernels": self._kernels[name],
                }
            ).encode()
            for number, name in enumerate(self._kernels)
        }

    async def _beat_all(self, bodies: dict[str, bytes]) -> None:
        names = list(bodies)
        for first in range(0, len(names), _BATCH):
            await asyncio.gather(
                *(self._beat(name, bodies[name]) for name in names[first : first + _BATCH])
            )

    async def _beat(self, name: str, body: bytes) -> None:
        beat = Heartbeat.model_validate_json(body)
        listed = [one.model_dump() for one in beat.kernels or ()]
        await self._manager.cluster.agents.heartbeat(AGENT, name, beat.to_heartbeat(), listed)


async def _measured(step: Callable[[], Awaitable[Any]]) -> Figures:
    """Run a step; return its duration, its CPU time, and how long it blocked the event loop."""
    blocked, last = 0.0, time.perf_counter()

    async def probe() -> None:
        nonlocal blocked, last
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            now = time.perf_counter()
            blocked, last = max(blocked, now - last - _PROBE_SECONDS), now

    task = asyncio.create_task(probe())
    begun, cpu = time.perf_counter(), time.thread_time()
    await step()
    seconds, cpu_seconds = time.perf_counter() - begun, time.thread_time() - cpu
    blocked = max(blocked, time.perf_counter() - last - _PROBE_SECONDS)
    task.cancel()
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "blocked_seconds": round(max(blocked, 0.0), 3),
    }


def _percent(figures: Figures, interval_seconds: float) -> float:
    """Return the load of one core in percent.

    A step starts every ``interval_seconds``; if it takes longer, the next one starts at its end.
    """
    cycle = max(interval_seconds, figures["seconds"])
    return round(100 * figures["cpu_seconds"] / cycle, 1)


@contextmanager
def _hub_in_a_thread() -> Iterator[FakeHub]:
    """Serve a fake Hub in its own thread, so that its CPU time is not that of the manager."""
    ready, stop = Future[tuple[FakeHub, asyncio.AbstractEventLoop]](), asyncio.Event()

    async def serve() -> None:
        try:
            async with serve_fake_hub() as hub:
                ready.set_result((hub, asyncio.get_running_loop()))
                await stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    hub, loop = ready.result()
    try:
        yield hub
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
