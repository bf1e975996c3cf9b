"""Random clusters and workloads: whole devices, shares, multi-kernel sessions."""

from __future__ import annotations

import random

from bai_services.core.cluster.devices import Device
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import AgentState, Mode
from bai_services.core.scheduling.replay.workload import ARCHITECTURE, ENGINE, GROUP, Job


def agent(name: str, cores: int, devices: int) -> AgentState:
    return AgentState(
        name,
        GROUP,
        ARCHITECTURE,
        ENGINE,
        {"cpu": cores * 1000, "mem": 64 * 2**30},
        devices=tuple(Device(f"{name}/{i}", "cuda") for i in range(devices)),
    )


def random_agents(rng: random.Random) -> list[AgentState]:
    return [
        agent(f"a{n}", rng.choice([4, 8]), rng.choice([0, 1, 2, 4]))
        for n in range(rng.randint(1, 4))
    ]


def random_jobs(rng: random.Random, count: int, *, is_exact: bool) -> list[Job]:
    """Return jobs with time limits. With ``is_exact``, each job runs until its limit."""
    at, found = 0, []
    for number in range(count):
        at += rng.choice([0, 0, 1, 5, 20])
        seconds = rng.choice([1, 5, 10, 30, 100])
        limit = seconds if is_exact else seconds * rng.choice([1, 2, 4])
        kernels = rng.choice([1, 1, 1, 2, 3])
        found.append(
            Job(
                f"j{number}",
                at,
                seconds,
                _random_slots(rng),
                user=rng.choice("abc"),
                kernels=kernels,
                mode=rng.choice([Mode.SINGLE_NODE, Mode.MULTI_NODE]),
                limit=limit,
            )
        )
    return found


def _random_slots(rng: random.Random) -> ResourceSlots:
    slots = {"cpu": rng.choice([500, 1000, 2000, 4000]), "mem": 2**30}
    slots |= rng.choice(
        [{}, {"cuda.device": 1}, {"cuda.device": 2}, {"cuda.shares": 300}, {"cuda.shares": 600}]
    )
    return ResourceSlots(slots)
