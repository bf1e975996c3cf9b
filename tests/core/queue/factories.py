"""Factories of agents, sessions and snapshots for queue tests."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bai_services.core.cluster.devices import Device
from bai_services.core.coded_text import TextTemplate
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.placement import AgentState, Placement, Policy, Request
from bai_services.core.scheduling.queue import (
    GroupState,
    PassResult,
    PendingSession,
    RunningSession,
    Snapshot,
)

# The number of random queues of each property test. `make soak` sets a larger one.
QUEUE_EXAMPLES = int(os.environ.get("BAI_QUEUE_EXAMPLES", "50"))
GIB = 2**30
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ANN, BOB, CARL = (Scope(ScopeKind.USER, name) for name in ("ann", "bob", "carl"))
WAITS_FOR_S0 = TextTemplate.DEPENDENCIES_UNMET.text(
    TextTemplate.SESSION_IN_STATUS.text(name="s0", status="RUNNING")
)
MAIN = Scope(ScopeKind.RESOURCE_GROUP, "main")


def agent(name: str = "a", cpu: int = 8, mem: int = 64, gpus: int = 0, **facts: Any) -> AgentState:
    values: dict[str, Any] = {
        "resource_group": "main",
        "architecture": "x86_64",
        "engine": "process",
        "capacity": {"cpu": cpu * 1000, "mem": mem * GIB},
        "devices": tuple(Device(f"{name}-g{i}", "cuda") for i in range(gpus)),
    }
    return AgentState(id=name, **{**values, **facts})


def slots(**texts: str) -> ResourceSlots:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    return ResourceSlots.parse({"cpu": "1", "mem": "1g", **named})


def request(group: str = "main", **texts: str) -> Request:
    return Request(slots(**texts), group, "x86_64")


def pending_session(
    n: int, user: Scope = ANN, wanted: Request | None = None, **facts: Any
) -> PendingSession:
    """Return a pending session with the id ``s<n>`` and the sequence number n."""
    scopes = facts.pop("scopes", (user,))
    return PendingSession(f"s{n}", n, wanted or request(), scopes, created_at=NOW, **facts)


def running(
    name: str, user: Scope, agent_id: str, amounts: ResourceSlots, **facts: Any
) -> RunningSession:
    values: dict[str, Any] = {
        "group": "main",
        "scopes": (user,),
        "placements": (Placement(agent_id, amounts),),
        "slots": amounts,
        "started_at": NOW - timedelta(hours=1),
    }
    return RunningSession(id=name, **{**values, **facts})


def snapshot(pending: list[PendingSession], agents: list[AgentState], **facts: Any) -> Snapshot:
    """Return a snapshot of the group main; ``group`` sets the group's options."""
    options = {"placement": Policy.PACK, **facts.pop("group", {})}
    groups = {"main": GroupState("main", **options), **facts.pop("groups", {})}
    return Snapshot(pending, agents, groups=groups, **{"now": NOW, **facts})


def started_sessions(result: PassResult) -> list[str]:
    return [decision.session_id for decision in result.decisions]


def with_usage(before: AgentState, amounts: ResourceSlots) -> AgentState:
    """Return a copy of the agent on which additional amounts are in use."""
    return replace(before, used={s: before.used.get(s, 0) + n for s, n in amounts.items()})
