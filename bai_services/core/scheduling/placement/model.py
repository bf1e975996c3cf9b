"""What placement is asked and what it answers: plain values, nothing of how it is worked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from ...cluster.devices import Device, DeviceAmount, Shortage, is_device_slot, most_of
from ...resources import ResourceSlots

ALIVE = "ALIVE"


class Policy(StrEnum):
    """How the agent is chosen among those that fit."""

    PRICED = "priced"
    FGD = "fgd"
    BEST_FIT = "best-fit"
    PACK = "pack"
    SPREAD = "spread"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


class Strategy(StrEnum):
    """How a share above one device is split: in equal parts, or one device after the other."""

    EVENLY = "EVENLY"
    FILL = "FILL"


class Mode(StrEnum):
    """Where the kernels of one session go: all on one agent, or each on its own."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"


class Designation(StrEnum):
    """Whether nothing but the designated agents will do, or they only come first."""

    STRICT = "strict"
    PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class AgentState:
    """An agent as a pass sees it; ``used`` and ``capacity`` hold cpu and mem."""

    id: str
    resource_group: str
    architecture: str
    engine: str
    capacity: Mapping[str, int]
    used: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    is_alive: bool = True
    is_schedulable: bool = True
    # The newest CUDA version that its driver serves, such as "12.4"; empty if it does not tell.
    cuda_driver: str = ""

    def free(self, slot: str) -> int:
        """Return the largest amount of ``slot`` that one session could take here now."""
        if is_device_slot(slot):
            return most_of(self.devices, slot)
        return max(0, self.capacity.get(slot, 0) - self.used.get(slot, 0))

    def emptied(self) -> AgentState:
        """Return the agent as if nothing ran on it."""
        devices = tuple(replace(d, used=0, share_in_force=0) for d in self.devices)
        return replace(self, used={}, devices=devices)

    def at_best(self) -> AgentState:
        """Return the agent as it could be one day: empty, alive, open, all devices healthy."""
        devices = tuple(d.at_best() for d in self.devices)
        return replace(self, used={}, devices=devices, is_alive=True, is_schedulable=True)


@dataclass(frozen=True, slots=True)
class Request:
    """What a session needs; ``resource_group``, ``architecture`` and ``engine`` must match.

    ``slots`` are those of one kernel; every one of the ``kernels`` asks the same.
    """

    slots: ResourceSlots
    resource_group: str
    architecture: str
    engine: str | None = None  # None: whatever the agent has
    kernels: int = 1
    mode: Mode = Mode.SINGLE_NODE
    designated_agents: tuple[str, ...] = ()
    designation: Designation = Designation.STRICT
    # Agents on which this session failed just now: taken only when no other one fits.
    avoid: tuple[str, ...] = ()
    # May a share that would fit on one device be spread, and a larger one be split unevenly?
    allow_fragmentation: bool = False
    strategy: Strategy = Strategy.EVENLY
    # CUDA version that the driver must serve; binding only where cuda devices are asked for.
    min_cuda_driver: str = ""
    # Models of device that will do; empty: any.
    device_models: tuple[str, ...] = ()


class Placement(NamedTuple):
    """One agent and the amounts taken there: cpu and mem as asked, devices one by one."""

    agent_id: str
    slots: ResourceSlots  # cpu and mem
    devices: tuple[DeviceAmount, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no agent can take a request; ``shortages`` name slot, asked and most available."""

    message: str
    shortages: tuple[Shortage, ...] = ()
    agents: int = 0
