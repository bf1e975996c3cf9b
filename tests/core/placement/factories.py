"""Factories of agents and requests for placement tests."""

from __future__ import annotations

from typing import Any

from bai_services.core.cluster.devices import Device
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import AgentState, Placer, Request

GIB = 2**30


def agent(
    name: str, used: tuple[int | None, ...] = (), cpu: int = 16, mem: int = 64, **facts: Any
) -> AgentState:
    """Return an agent with one cuda device per entry of ``used``.

    An entry is the used amount of the device in thousandths, or None if the device is unhealthy.
    """
    numa = facts.pop("numa", (None,) * len(used))
    links = facts.pop("links", (None,) * len(used))
    devices = tuple(
        Device(
            f"{name}-g{i}",
            facts.get("family", "cuda"),
            used=n or 0,
            is_healthy=n is not None,
            model=facts.get("model", ""),
            numa_node=numa[i],
            links=links[i] if links[i] is None else tuple(f"{name}-g{j}" for j in links[i]),
        )
        for i, n in enumerate(used)
    )
    facts.pop("family", None)
    facts.pop("model", None)
    values: dict[str, Any] = {
        "resource_group": "main",
        "architecture": "x86_64",
        "engine": "docker",
        "capacity": {"cpu": cpu * 1000, "mem": mem * GIB},
        "devices": devices,
    }
    return AgentState(id=name, **{**values, **facts})


def request(cpu: str = "1", mem: str = "1g", **spec: Any) -> Request:
    """Return a request; ``shares`` and ``device`` are amounts of ``family`` (default: cuda)."""
    family = spec.pop("family", "cuda")
    texts = {f"{family}.{k}": str(spec.pop(k)) for k in ("shares", "device") if k in spec}
    slots = ResourceSlots.parse({"cpu": cpu, "mem": mem, **texts})
    return Request(slots, "main", "x86_64", **spec)


def place_request(placer: Placer, wanted: Request) -> list[tuple[str, dict[str, int]]] | None:
    """Place a request; return agent and amounts by device for each kernel; None if not all fit.

    The keys of the amounts are the last two characters of the device ids.
    """
    placements = placer.place(placer.prepare(wanted))
    if placements is None:
        return None
    return [(p.agent_id, {d.device_id[-2:]: d.amount for d in p.devices}) for p in placements]
