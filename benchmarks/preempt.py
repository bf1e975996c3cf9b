"""Measure preemption: `python -m benchmarks.preempt` prints a JSON object.

``decision_ms``: the time to choose the victims of a gang of 8 kernels with 8 GPUs each, among
10,000 running sessions. ``elastic_ms``: the longest time to decide which of 1,000 elastic sessions
on 500 agents shrink for 20 waiting sessions.

``requested_to_placed_seconds``: the time from the moment when a pending session needs the
preemption of another one until it is placed, including the grace of 5 s. It is measured on a
manager with a database, without a Hub. ``requested_to_started_seconds``: the time until the pending
session is running, in a demo with the process engine, with the same grace;
``freed_to_started_seconds``: the part of it after the end of the other session.

Python's garbage collector is configured as in the manager.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import sqlalchemy as sa

from bai_services.core.cluster.devices import Device, DeviceAmount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.elastic.decision import MAX_WAITING, decide
from bai_services.core.scheduling.elastic.sessions import (
    ElasticSession,
    FreeAgent,
    WaitingSession,
)
from bai_services.core.scheduling.placement import AgentState, Mode, Placement, Request
from bai_services.core.scheduling.preemption.options import PreemptionOptions
from bai_services.core.scheduling.queue import (
    Changes,
    GroupState,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
)
from bai_services.core.scheduling.queue.preemption.group_plans import GroupPlans
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.tables.cluster import resource_groups
from bai_services.db.tables.sessions import sessions
from bai_services.manager.clock import utcnow
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling.idle_scheduling import freeze_objects, new_loop
from bai_services.manager.scheduling.jit_warmup import warm_up
from tests.testbed.manager import make_world, manager_on

from .queue_world import GIB, GROUP, NOW
from .served import Commands
from .start import demo, wait_for_status

_GPUS = 8
_CORES = 64  # cores of an agent of ``Commands.queue``; each session uses one core
_GRACE_SECONDS = 5


def main() -> None:
    arguments = _parser().parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:  # the event loop of the manager
        decisions = runner.run(_decisions(arguments.running, arguments.rounds))
    result = {
        "running": arguments.running,
        "decision_ms": round(statistics.median(wall for wall, _ in decisions), 2),
        "decision_cpu_ms": round(statistics.median(cpu for _, cpu in decisions), 2),
        "elastic_ms": _elastic_ms(arguments.rounds),
        "requested_to_placed_seconds": round(asyncio.run(_seconds_until_placed()), 2),
        **_seconds_until_started(),
    }
    print(json.dumps(result))


def _elastic_ms(rounds: int, *, sessions: int = 1000, agents: int = 500) -> float:
    """Return the longest time to decide which elastic sessions shrink, in milliseconds."""
    times = []
    for seed in range(rounds):
        world = _elastic_world(random.Random(seed), sessions, agents)
        start = time.perf_counter()
        changes = decide(*world)
        times.append(time.perf_counter() - start)
        assert changes
    return round(max(times) * 1000, 1)


def _elastic_world(
    rng: random.Random, count: int, agents: int
) -> tuple[
    list[ElasticSession],
    list[FreeAgent],
    dict[Scope, dict[str, int]],
    list[WaitingSession],
]:
    """Return a group without free GPUs, in which waiting sessions also lack quota."""
    names = [f"agent-{n:03d}" for n in range(agents)]
    sessions = []
    for n in range(count):
        agent, cores, share = names[n % agents], rng.randint(4, 32), rng.randint(30, 50) * 10
        size = ResourceSlots({"cpu": cores * 1000, "mem": cores * GIB, "cuda.shares": share})
        minimum = {"cpu": 2000, "mem": 2 * GIB, "cuda.shares": rng.randint(10, 30) * 10}
        sessions.append(
            ElasticSession(
                f"session-{n:04d}",
                agent,
                _scopes(f"user-{rng.randrange(100)}"),
                size,
                ResourceSlots(minimum),
                size,
                {"cuda.shares": f"{agent}-gpu"},
            )
        )
    free = [
        FreeAgent(
            name,
            {"cpu": rng.randint(0, 4) * 1000, "mem": rng.randint(0, 4) * GIB},
            {f"{name}-gpu": rng.randint(0, 10) * 10},
            {f"{name}-gpu": "cuda"},
        )
        for name in names
    ]
    group = Scope(ScopeKind.RESOURCE_GROUP, GROUP)
    headroom = {group: {"cpu": 8000, "cuda.shares": 200}}
    headroom |= {Scope(ScopeKind.USER, f"user-{n}"): {"cpu": 8000} for n in range(50)}
    waiting = [
        WaitingSession(
            f"waiting-{n}",
            _scopes(f"user-{rng.randrange(100)}"),
            ResourceSlots({"cpu": rng.randint(1, 12) * 1000, "mem": GIB, "cuda.shares": 300}),
            frozenset(names),
            "cuda.shares",
        )
        for n in range(MAX_WAITING)
    ]
    return sessions, free, headroom, waiting


async def _decisions(count: int, rounds: int) -> list[tuple[float, float]]:
    freeze_objects()  # as in the manager
    return [_decision(count, seed) for seed in range(rounds)]


def _decision(count: int, seed: int) -> tuple[float, float]:
    """Return the wall time and the CPU time to choose victims for a gang, in milliseconds.

    The group has no free GPU. A first plan fills the table of candidates, as earlier passes do.
    """
    queue = Queue(_world(count, seed))
    queue.apply(Changes(pending=[_gang(7), _gang(8)]))
    group_queue = queue.group_queue(GROUP)
    gang = group_queue.shape_of.pop("gang-8")
    del group_queue.shapes[gang.key]
    assert GroupPlans(group_queue, NOW).new_plan(None) is not None  # the plan for the gang of 7
    group_queue.shapes = {gang.key: gang}
    start, cpu_start = time.perf_counter(), time.process_time()
    preemption = GroupPlans(group_queue, NOW).new_plan(None)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    assert preemption is not None
    assert len(preemption.plan.placements) == 8
    return wall * 1000, cpu * 1000


def _gang(kernels: int) -> PendingSession:
    request = Request(
        ResourceSlots({"cpu": 32_000, "mem": 64 * GIB, "cuda.device": _GPUS}),
        GROUP,
        "x86_64",
        kernels=kernels,
        mode=Mode.MULTI_NODE,
    )
    name = f"gang-{kernels}"
    return PendingSession(name, 10**6 + kernels, request, _scopes("boss"), priority=50)


async def _seconds_until_placed() -> float:
    """Return the seconds until the placement of a session for which another is preempted."""
    await warm_up()
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        url = f"sqlite+aiosqlite:///{home}/bai.sqlite"
        async with manager_on(url, Path(home), utcnow) as manager:  # type: ignore[arg-type]
            return await _preempt_once(manager)


async def _preempt_once(manager: Manager) -> float:
    commands = Commands(await make_world(manager, manager.clock))  # type: ignore[arg-type]
    await commands.queue(pending=_CORES + 1, agents=1)
    async with manager.database.write() as tx:
        options = {"preemption": {"enabled": True, "grace": _GRACE_SECONDS}}
        await tx.execute(sa.update(resource_groups).values(scheduler_opts=options))
        await tx.execute(sa.update(sessions).values(priority=1))
    await manager.scheduling.scheduler.run_pass()
    store = SessionStore(manager.database)
    for row in await store.in_status(Status.SCHEDULED):
        for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
            await manager.lifecycle.apply(row.id, event)
    (waiting,) = await store.in_status(Status.PENDING)
    placed = asyncio.Event()
    ends: list[asyncio.Task[object]] = []

    def listen(row: SessionRow) -> None:
        if row.status is Status.TERMINATING:  # its server stops immediately
            apply = manager.lifecycle.try_apply(row.id, Event.EXITED)
            ends.append(asyncio.create_task(apply))
        if row.id == waiting.id and row.status is Status.SCHEDULED:
            placed.set()

    manager.lifecycle.listen(listen)
    manager.scheduling.scheduler.start()
    manager.scheduling.preemptions.start()
    start = time.perf_counter()
    manager.lifecycle.notify(await store.set_priority(waiting.id, 50))
    await asyncio.wait_for(placed.wait(), 120)
    seconds = time.perf_counter() - start
    await asyncio.gather(*ends)
    await manager.scheduling.preemptions.stop()
    await manager.scheduling.scheduler.stop()
    return seconds


def _seconds_until_started() -> dict[str, float]:
    """Preempt a batch session in a demo with one CPU core; wait for the session that needs it."""
    body = {"project": "default", "resources": {"cpu": "1", "mem": "512m"}}
    low = {**body, "name": "victim", "type": "batch", "startup_command": "sleep 600", "priority": 1}
    with (
        demo("process", {"BAI_AGENT_CPU": "1", "BAI_AGENT_MEM": "2g"}) as hub,
        hub.rest("admin") as admin,
        hub.rest("user") as rest,
    ):
        group = admin.get("/resource-groups").raise_for_status().json()["items"][0]["name"]
        options = {"preemption": {"enabled": True, "grace": f"{_GRACE_SECONDS}s"}}
        admin.patch(
            f"/resource-groups/{group}", json={"scheduler_opts": options}
        ).raise_for_status()
        victim = rest.post("/sessions", json=low).raise_for_status().json()["id"]
        wait_for_status(rest, f"/sessions/{victim}", "RUNNING")
        urgent = rest.post("/sessions", json={**body, "name": "urgent", "priority": 10})
        session = urgent.raise_for_status().json()
        wait_for_status(rest, f"/sessions/{session['id']}", "RUNNING")
        started = _time_of(rest, session["id"], Event.STARTED)
        requested = datetime.fromisoformat(session["created_at"])
        return {
            "requested_to_started_seconds": round((started - requested).total_seconds(), 2),
            "freed_to_started_seconds": round(
                (started - _time_of(rest, victim, Event.REQUEUED)).total_seconds(), 2
            ),
        }


def _time_of(rest: httpx.Client, session_id: str, event: Event) -> datetime:
    """Return the time of an event in the history of a session."""
    changes = rest.get(f"/sessions/{session_id}/history").raise_for_status().json()["items"]
    return next(datetime.fromisoformat(each["at"]) for each in changes if each["event"] == event)


def _world(count: int, seed: int) -> Snapshot:
    """Return a group in which sessions of low priority use all GPUs."""
    rng = random.Random(seed)
    agents, sessions = [], []
    for n in range(-(-count // _GPUS)):
        name = f"agent-{n:05d}"
        devices = []
        for j in range(_GPUS):
            number = n * _GPUS + j
            is_used = number < count
            devices.append(Device(f"{name}-{j}", "cuda", model="H100", used=1000 if is_used else 0))
            if is_used:
                sessions.append(_running(number, name, devices[-1].id, rng))
        used = {"cpu": 4000 * _GPUS, "mem": 8 * GIB * _GPUS}
        capacity = {"cpu": 96_000, "mem": 768 * GIB}
        agents.append(AgentState(name, GROUP, "x86_64", "docker", capacity, used, tuple(devices)))
    options = PreemptionOptions(enabled=True, preemptible_priority=10, grace_seconds=5)
    small = Request(ResourceSlots({"cpu": 4000, "mem": GIB, "cuda.device": 1}), GROUP, "x86_64")
    waiting = [
        PendingSession(f"waiting-{n}", count + n, small, _scopes(f"user-{n}"), priority=1)
        for n in range(100)
    ]
    groups = {GROUP: GroupState(GROUP, preemption=options)}
    return Snapshot(waiting, agents, groups=groups, running=sessions, now=NOW)


def _running(number: int, agent: str, device: str, rng: random.Random) -> RunningSession:
    slots = ResourceSlots({"cpu": 4000, "mem": 8 * GIB})
    return RunningSession(
        f"session-{number:06d}",
        GROUP,
        _scopes(f"user-{rng.randrange(200)}"),
        (Placement(agent, slots, (DeviceAmount(device, "cuda.device", 1),)),),
        ResourceSlots({**slots, "cuda.device": 1}),
        NOW - timedelta(seconds=rng.randrange(100_000)),
        priority=rng.choice((3, 5, 10)),
        kind="interactive/python",
    )


def _scopes(user: str) -> tuple[Scope, ...]:
    return (Scope(ScopeKind.USER, user), Scope(ScopeKind.RESOURCE_GROUP, GROUP))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preempt", description=__doc__)
    parser.add_argument(
        "--running", type=int, default=10_000, help="number of running sessions (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="number of measured decisions (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
