"""Agent capacity per resource group, cached until the agents change."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.cluster.devices import SHARES, Device
from bai_services.core.resources import CPU, MEM
from bai_services.core.scheduling.placement import AgentState, Placer, Policy, Request
from bai_services.single_flight import SingleFlight

from ..scheduling.jit_warmup import JitWarmup

# The longest that the start form waits for the compiled placement code.
PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of one slot: the most that one session could ever have, and the most now.

    For shares also the values that devices in use are limited to, and the enforcement level; None:
    no agent offers shares now.
    """

    largest: int
    free: int
    in_force: Sequence[int]
    enforcement: Level | None


class AgentCapacity:
    """Agents of one resource group as last read; immutable.

    Until the placement code is compiled (``can_tell``), every request counts as fitting.
    """

    def __init__(self, agents: Sequence[AgentState], can_tell: bool = True) -> None:
        self.agents = agents
        self.can_tell = can_tell
        self._fits: dict[Request, bool] = {}

    @cached_property
    def amounts(self) -> Mapping[str, Amounts]:
        """Return the amounts of each slot that an agent has, and of cpu and mem."""
        able = [agent for agent in self.agents if agent.is_alive and agent.is_schedulable]
        best = [agent.at_best() for agent in self.agents]
        slots = {CPU, MEM}
        for agent in self.agents:
            slots |= set(agent.capacity)
            for device in agent.devices:
                slots |= {device.slot} if device.slot else {f"{device.family}.device"}
                slots |= {f"{device.family}.shares"} if device.sharing.most else set()
        return {
            slot: Amounts(
                max((agent.free(slot) for agent in best), default=0),
                max((agent.free(slot) for agent in able), default=0),
                sorted({d.share_in_force for a in able for d in a.devices if _is_alike(d, slot)}),
                _weakest_enforcement(d for a in able for d in a.devices if _gives(d, slot)),
            )
            for slot in sorted(slots)
        }

    def fits(self, request: Request) -> bool:
        """Return whether the agents have room for a session now."""
        if not self.can_tell:
            return True
        if request not in self._fits:
            self._fits[request] = self._placer.fits(self._placer.prepare(request))
        return self._fits[request]

    @cached_property
    def _placer(self) -> Placer:
        return Placer(self.agents, Policy.BEST_FIT)


class AgentCapacityCache:
    """Agents of each resource group as last read, with the capacity computed from them."""

    def __init__(self, jit_warmup: JitWarmup) -> None:
        self._jit_warmup = jit_warmup
        self._of_group: dict[str, AgentCapacity] = {}
        self._reads: SingleFlight[str, Sequence[AgentState]] = SingleFlight()

    async def read(
        self, group: str, read: Callable[[], Coroutine[Any, Any, Sequence[AgentState]]]
    ) -> AgentCapacity:
        """Return the agents; concurrent callers share one read (single-flight).

        The computed capacity is discarded as soon as anything differs.
        """
        agents = await self._reads(group, read)
        can_tell = await self._jit_warmup.is_over(PATIENCE_SECONDS)
        known = self._of_group.get(group)
        if known is None or known.agents != agents or known.can_tell != can_tell:
            known = self._of_group[group] = AgentCapacity(agents, can_tell)
        return known


def _is_alike(device: Device, slot: str) -> bool:
    """Return whether a device in use only offers shares of the size that is in force there."""
    return slot == f"{device.family}.{SHARES}" and 0 < device.share_in_force <= device.most_alone


def _gives(device: Device, slot: str) -> bool:
    """Return whether sessions may have shares of a device by that slot."""
    is_offered = device.is_healthy and device.sharing.most > 0
    return slot == f"{device.family}.{SHARES}" and is_offered


def _weakest_enforcement(devices: Iterable[Device]) -> Level | None:
    levels = (device.sharing.level for device in devices)
    return Level.weakest(levels) if levels else None
