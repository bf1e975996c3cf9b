"""Compute how many further empty machines the pending sessions of a resource group need."""

from __future__ import annotations

from datetime import datetime

from ..cluster.devices import DEVICE, SHARES, Device
from ..cluster.provisioning import ProvisioningOptions
from ..resources import SHARE_UNIT, ResourceSlots, family_of
from .placement import AgentState
from .queue.model import Changes
from .queue.run import Queue

# Prefix of the ids of the machines that exist only in the simulation; agent ids begin with a letter
# or digit.
_PREFIX = "+"


def machines_needed(
    queue: Queue,
    group: str,
    machine: ResourceSlots,
    engine: str,
    architecture: str,
    limit: int,
    now: datetime,
) -> int:
    """Return the number of empty machines on which further sessions would start, at most ``limit``.

    The machines are added one after the other to a copy of the queue, so quotas, dependencies and
    the order of the queue apply. ``queue`` is not changed.
    """
    copy = queue.fork_to_run()
    # First run a pass without new machines.
    copy.run(now, explains=False)
    needed = 0
    for number in range(1, limit + 1):
        if not copy.group_queue(group).pending_ids():
            break
        added = new_agent(f"{_PREFIX}{number}", group, machine, engine, architecture)
        copy.apply(Changes(agents=(added,)))
        decisions = copy.run(now, explains=False).decisions
        if any(
            place.agent_id.startswith(_PREFIX)
            for decision in decisions
            for place in decision.placements
        ):
            needed = number
    return needed


def provisionable_agents(
    options: ProvisioningOptions, group: str, engine: str, count: int
) -> list[AgentState]:
    """Return up to ``count`` empty agents that provisioning can start in a resource group."""
    return [
        new_agent(f"{_PREFIX}{number}", group, options.machine, engine, options.architecture)
        for number in range(min(count, options.maximum))
    ]


def new_agent(
    agent_id: str, group: str, machine: ResourceSlots, engine: str, architecture: str
) -> AgentState:
    """Return an empty agent with the slots of a machine."""
    devices = []
    for slot, amount in sorted(machine.items()):
        family = family_of(slot)
        if family is None:
            continue
        kind = slot.partition(".")[2]
        unit = SHARE_UNIT if kind == SHARES else 1
        own = "" if kind in (SHARES, DEVICE) else slot
        devices += [
            Device(f"{agent_id}-{slot}-{number}", family, slot=own)
            for number in range(amount // unit)
        ]
    capacity = {slot: amount for slot, amount in machine.items() if family_of(slot) is None}
    return AgentState(agent_id, group, architecture, engine, capacity, devices=tuple(devices))
