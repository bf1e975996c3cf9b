"""Measure preemption: `python -m benchmarks.preempt` prints a JSON object.

``decision_ms``: the time to choose the victims of a gang of 8 kernels with 8 GPUs each, among
10,000 running sessions. ``freed_to_started_seconds``: the time from the warning of a victim, with a
grace of 5 s, until the session that waits for its resources is placed; through a manager with a
database, without a Hub.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from datetime import timedelta

from bai_services.core.cluster.devices import Device, DeviceAmount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeKind
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

from .queue_world import GIB, GROUP, NOW

_GPUS = 8


def main() -> None:
    arguments = _parser().parse_args()
    decisions = [_decision(arguments.running, seed) for seed in range(arguments.rounds)]
    result = {
        "running": arguments.running,
        "decision_ms": round(statistics.median(wall for wall, _ in decisions), 2),
        "decision_cpu_ms": round(statistics.median(cpu for _, cpu in decisions), 2),
        "freed_to_started_seconds": None,
    }
    print(json.dumps(result))


def _decision(count: int, seed: int) -> tuple[float, float]:
    """Return the time to choose victims for a gang, and its CPU time, in milliseconds.

    The group has no free GPU. The columns of the running sessions exist, as after earlier passes.
    """
    queue = Queue(_world(count, seed))
    queue.apply(Changes(pending=[_gang(7), _gang(8)]))
    group_queue = queue.group_queue(GROUP)
    gang = group_queue.shape_of.pop("gang-8")
    del group_queue.shapes[gang.key]
    assert GroupPlans(group_queue, NOW).new_plan(None) is not None  # for the gang of 7
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


def _world(count: int, seed: int) -> Snapshot:
    """Return a group in which each GPU is used by a session of low priority."""
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
    parser.add_argument("--running", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())
