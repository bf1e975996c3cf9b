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

# Maximum wait of the start form for the compilation of the placement code.
WARMUP_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class SlotCapacity:
    """Maximum amount of a slot for one session, in the integer units of ``ResourceSlots``.

    ``largest`` applies if all agents are idle and available.

    The other fields are only set for slots of shares. A device in use may accept only sessions with
    the share that its current sessions have: ``in_force`` lists these shares. ``enforcement`` is
    the weakest enforcement level of the devices (None: no agent offers shares now).
    """

    largest: int
    in_force: Sequence[int]
    enforcement: Level | None


NO_CAPACITY = SlotCapacity(0, (), None)


class AgentCapacity:
    """The capacity of the agents of one resource group; immutable.

    Until the placement code is compiled (``is_compiled``), every request counts as fitting.
    """

    def __init__(self, agents: Sequence[AgentState], is_compiled: bool = True) -> None:
        self.agents = agents
        self.is_compiled = is_compiled
        self._fits: dict[Request, bool] = {}
        self._free: dict[tuple[str, int, Request], int] = {}

    @cached_property
    def amounts(self) -> Mapping[str, SlotCapacity]:
        """Return the capacity of every slot of the agents, always including cpu and mem."""
        usable = [agent for agent in self.agents if agent.is_alive and agent.is_schedulable]
        best = [agent.fully_available() for agent in self.agents]
        slots = {CPU, MEM}
        for agent in self.agents:
            slots |= set(agent.capacity)
            for device in agent.devices:
                slots |= {device.slot} if device.slot else {f"{device.family}.device"}
                slots |= {f"{device.family}.shares"} if device.sharing.most else set()
        return {
            slot: SlotCapacity(
                max((agent.free(slot) for agent in best), default=0),
                sorted(
                    {
                        d.share_in_force
                        for a in usable
                        for d in a.devices
                        if _has_fixed_share(d, slot)
                    }
                ),
                _weakest_enforcement(
                    d for a in usable for d in a.devices if _offers_shares(d, slot)
                ),
            )
            for slot in sorted(slots)
        }

    def free(self, slot: str, limit: int, smallest: Request) -> int:
        """Return the largest amount of a slot, at most ``limit``, for one session now.

        Only agents that can run ``smallest``, a request without devices, are counted. The result
        can be less than ``limit`` although more is free, because a device may accept only some
        shares.
        """
        key = slot, limit, smallest
        if key not in self._free:
            amounts = (
                agent.free(slot, limit) for agent in self.agents if _can_run(agent, smallest)
            )
            self._free[key] = max(amounts, default=0)
        return self._free[key]

    def fits(self, request: Request) -> bool:
        """Return whether the free capacity of the agents is sufficient for a session now."""
        if not self.is_compiled:
            return True
        if request not in self._fits:
            self._fits[request] = self._placer.fits(self._placer.prepare(request))
        return self._fits[request]

    @cached_property
    def _placer(self) -> Placer:
        return Placer(self.agents, Policy.BEST_FIT)


class AgentCapacityCache:
    """Caches the computed capacity of each resource group until its agents change."""

    def __init__(self, jit_warmup: JitWarmup) -> None:
        self._jit_warmup = jit_warmup
        self._by_group: dict[str, AgentCapacity] = {}
        self._reads: SingleFlight[str, Sequence[AgentState]] = SingleFlight()

    async def read(
        self, group: str, read: Callable[[], Coroutine[Any, Any, Sequence[AgentState]]]
    ) -> AgentCapacity:
        """Read the agents of a group; return their capacity.

        Concurrent callers share one read (single-flight). The cached capacity is reused if the
        agents and ``is_compiled`` are unchanged.
        """
        agents = await self._reads(group, read)
        is_compiled = await self._jit_warmup.wait(WARMUP_TIMEOUT_SECONDS)
        known = self._by_group.get(group)
        if known is None or known.agents != agents or known.is_compiled != is_compiled:
            known = self._by_group[group] = AgentCapacity(agents, is_compiled)
        return known


def _can_run(agent: AgentState, request: Request) -> bool:
    """Return whether an agent can run a request for cpu and mem now."""
    return (
        agent.is_alive
        and agent.is_schedulable
        and agent.architecture == request.architecture
        and request.engine in (None, agent.engine)
        and all(agent.free(slot) >= amount for slot, amount in request.slots.items())
    )


def _has_fixed_share(device: Device, slot: str) -> bool:
    """Return whether a device in use offers only shares of one size through ``slot``."""
    return (
        slot == f"{device.family}.{SHARES}"
        and 0 < device.share_in_force <= device.max_session_share
    )


def _offers_shares(device: Device, slot: str) -> bool:
    """Return whether sessions may have shares of a device through ``slot``."""
    is_offered = device.is_healthy and device.sharing.most > 0
    return slot == f"{device.family}.{SHARES}" and is_offered


def _weakest_enforcement(devices: Iterable[Device]) -> Level | None:
    levels = [device.sharing.level for device in devices]
    return Level.weakest(levels) if levels else None
