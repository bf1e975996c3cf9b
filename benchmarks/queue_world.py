"""A cluster with a queue for the scheduler benchmarks, generated from a fixed seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bai_services.core.cluster.devices import Device
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import AgentState, Policy, Request
from bai_services.core.scheduling.queue import (
    Backfill,
    DailyUsage,
    GroupState,
    Order,
    PendingSession,
    Snapshot,
)

GROUP = "main"
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GIB = 2**30
_DAYS = 28
# 48 distinct requests: combinations of CPU cores, GiB of memory and devices.
_CORES, _GIBS = (1, 2, 4, 8), (4, 8, 16)
_DEVICES: tuple[dict[str, int], ...] = (
    {},
    {"cuda.shares": 250},
    {"cuda.shares": 500},
    {"cuda.device": 1},
)


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """Size of the cluster and its queue, and the scheduling options."""

    agents: int
    pending: int
    order: Order = Order.FAIR_SHARE
    policy: Policy = Policy.PRICED
    backfill: Backfill = Backfill.RESERVING
    cores: int = 96  # CPU cores of each agent


def world(spec: WorldSpec) -> Snapshot:
    """Return a cluster of agents with 8 GPUs each, and its queue.

    The snapshot includes the caps of all scopes, and the usage of 28 days.
    """
    rng = random.Random(7)
    users = max(20, spec.pending // 50)
    user_scopes = [_scopes(user, users) for user in range(users)]
    scopes = sorted({scope for each in user_scopes for scope in each})
    day = (NOW - datetime(1970, 1, 1, tzinfo=UTC)).days
    history = {
        scope: [
            DailyUsage(day - age, {"cpu": rng.randrange(10**9), "mem": rng.randrange(10**15)})
            for age in range(_DAYS)
        ]
        for scope in scopes
        if scope.kind in (ScopeKind.DOMAIN, ScopeKind.PROJECT, ScopeKind.USER)
    }
    return Snapshot(
        pending=[_session(n, rng, user_scopes) for n in range(spec.pending)],
        agents=[_agent(n, spec.cores) for n in range(spec.agents)],
        caps={scope: _caps(scope, spec.pending) for scope in scopes},
        usage={scope: {} for scope in scopes},
        groups={
            GROUP: GroupState(
                GROUP, order=spec.order, placement=spec.policy, backfill=spec.backfill
            )
        },
        now=NOW,
        history={GROUP: history},
    )


def _scopes(user: int, users: int) -> tuple[Scope, ...]:
    project = user * 20 // users
    return (
        Scope(ScopeKind.DOMAIN, f"domain-{project // 5}"),
        Scope(ScopeKind.PROJECT, f"project-{project}"),
        Scope(ScopeKind.USER, f"user-{user}"),
        Scope(ScopeKind.KEYPAIR, f"key-{user}"),
        Scope(ScopeKind.RESOURCE_GROUP, GROUP),
    )


def _caps(scope: Scope, pending: int) -> ScopeCaps:
    """Return the caps of a scope.

    One keypair in ten has a low cap on sessions. All other caps are too high to be reached.
    """
    if scope.kind == ScopeKind.KEYPAIR:
        is_tight = scope.id.endswith("7")
        slots = {"cpu": 10**6, "mem": 10**13, "cuda.device": 10**4, "cuda.shares": 10**6}
        return ScopeCaps(scope, scope.id, slots, True, 10 if is_tight else 200)
    return ScopeCaps(scope, scope.id, {"cpu": 10**9, "mem": 10**16}, max_sessions=pending * 2)


def _agent(n: int, cores: int) -> AgentState:
    name = f"agent-{n:05d}"
    devices = tuple(Device(f"{name}-{j}", "cuda", model="H100") for j in range(8))
    capacity = {"cpu": cores * 1000, "mem": 8 * cores * GIB}
    return AgentState(name, GROUP, "x86_64", "docker", capacity, {}, devices)


def _session(n: int, rng: random.Random, user_scopes: list[tuple[Scope, ...]]) -> PendingSession:
    slots = {"cpu": rng.choice(_CORES) * 1000, "mem": rng.choice(_GIBS) * GIB}
    request = Request(ResourceSlots({**slots, **rng.choice(_DEVICES)}), GROUP, "x86_64")
    return PendingSession(
        f"session-{n:06d}",
        n,
        request,
        rng.choice(user_scopes),
        priority=rng.choice((10, 10, 10, 20)),
        created_at=NOW - timedelta(seconds=n),
        max_run_seconds=rng.choice((None, 3600, 86400)),
        kind="interactive/python",
    )
