"""Data classes for the input and output of placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...cluster.devices import Device, DeviceAmount, Shortage, is_device_slot, max_amount
from ...coded_text import CodedText
from ...resources import MAX_AMOUNT, ResourceSlots
from ..placement_options import Designation, Mode, Strategy

ALIVE = "ALIVE"


@dataclass(frozen=True, slots=True)
class AgentState:
    """State of an agent; ``capacity`` and ``used`` contain cpu (millicores) and mem (bytes)."""

    id: str
    resource_group: str
    architecture: str
    engine: str
    capacity: Mapping[str, int]
    used: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    is_alive: bool = True
    is_schedulable: bool = True
    # The newest CUDA version that the agent's driver supports, such as "12.4"; empty if unknown.
    cuda_driver: str = ""
    # The storage hosts that do not work there; no session with folders on them is placed.
    unusable_hosts: tuple[str, ...] = ()
    # It has no free subnet for networks of sessions, so no session is placed.
    is_network_full: bool = False

    def free(self, slot: str, limit: int = MAX_AMOUNT) -> int:
        """Return the largest amount of ``slot``, at most ``limit``, that one session could have on
        this agent now.
        """
        if is_device_slot(slot):
            return max_amount(self.devices, slot, limit)
        return min(limit, max(0, self.capacity.get(slot, 0) - self.used.get(slot, 0)))

    def emptied(self) -> AgentState:
        """Return the agent without sessions."""
        devices = tuple(replace(d, used=0, share_in_force=0) for d in self.devices)
        return replace(self, used={}, devices=devices)

    def fully_available(self) -> AgentState:
        """Return the agent as if it were empty, alive and schedulable.

        All its devices are healthy, all its storage hosts work and it has a free subnet.
        """
        devices = tuple(d.fully_available() for d in self.devices)
        return replace(
            self,
            used={},
            devices=devices,
            is_alive=True,
            is_schedulable=True,
            unusable_hosts=(),
            is_network_full=False,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """Requested resources of a session, and the agents on which it may run.

    ``slots`` are the resources of each of the ``kernels``. An agent must have the same
    ``resource_group`` and ``architecture``, and the ``engine`` if one is given.
    """

    slots: ResourceSlots
    resource_group: str
    architecture: str
    engine: str | None = None  # None: any engine
    kernels: int = 1
    mode: Mode = Mode.SINGLE_NODE
    designated_agents: tuple[str, ...] = ()
    designation: Designation = Designation.STRICT
    # Agents on which this session has failed; they are used only if no other agent fits.
    avoid: tuple[str, ...] = ()
    # Whether a share of at most one device may be divided over several devices, and a larger share
    # into unequal parts.
    allow_fragmentation: bool = False
    strategy: Strategy = Strategy.EVENLY
    # CUDA version that the driver must support; checked only if cuda devices are requested.
    min_cuda_driver: str = ""
    # Acceptable device models; empty: any.
    device_models: tuple[str, ...] = ()
    # Ids of the advance reservations whose parts of agents must stay free (``Placer.withhold``).
    beside: tuple[str, ...] = ()
    # The storage hosts with the folders of the session; sorted.
    storage_hosts: tuple[str, ...] = ()


class Placement(NamedTuple):
    """The agent of one kernel and the resources allocated there."""

    agent_id: str
    slots: ResourceSlots  # cpu and mem
    devices: tuple[DeviceAmount, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no agent fits a request."""

    text: CodedText
    shortages: tuple[Shortage, ...] = ()
    # Number of agents that could run the request if they were empty; if that number is 0, the
    # number of all agents.
    agents: int = 0
