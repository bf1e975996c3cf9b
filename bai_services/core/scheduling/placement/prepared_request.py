"""Prepare requests for repeated searches; convert search results into placements."""

from __future__ import annotations

from dataclasses import dataclass

from ...cluster.devices import DeviceAmount, is_device_slot, thousandths
from ...resources import ResourceSlots
from ..placement_options import Mode
from .compiled import columns as c
from .compiled.columns import Ints, SearchResult
from .encode import NameTable, encode_request
from .model import AgentState, Placement, Request


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request and the inputs of its searches, computed once."""

    request: Request
    row: Ints  # the request as encoded by ``encode_request``
    searches: int  # one if all kernels are placed together, else one per kernel
    cpu_and_mem: ResourceSlots  # of one kernel
    kernels_per_search: int
    device_slots: tuple[str, ...]  # in the order of the needs in ``row``
    slot_thousandths: tuple[int, ...]  # thousandths of a device per unit of each device slot
    has_agent_lists: bool  # whether the request names designated agents or agents to avoid

    @classmethod
    def of(cls, request: Request, names: NameTable) -> PreparedRequest:
        """Prepare a request.

        Raises
        ------
        InvalidRequest
            If the request has more than ``MAX_NEEDS`` device slots.
        """
        row = encode_request(request, names)
        device_slots = tuple(slot for slot in request.slots if is_device_slot(slot))
        others = {slot: n for slot, n in request.slots.items() if not is_device_slot(slot)}
        return cls(
            request,
            row,
            searches=request.kernels if request.mode == Mode.MULTI_NODE else 1,
            cpu_and_mem=ResourceSlots(others),
            kernels_per_search=int(row[c.KERNELS]),
            device_slots=device_slots,
            slot_thousandths=tuple(thousandths(slot, 1) for slot in device_slots),
            has_agent_lists=bool(request.designated_agents or request.avoid),
        )

    @property
    def is_single_search(self) -> bool:
        """Whether one search among all agents is enough."""
        return self.searches == 1 and not self.has_agent_lists

    def placements(
        self, agent: AgentState, result: SearchResult, picks: Ints
    ) -> tuple[Placement, ...]:
        """Return the placements that a search has allocated on an agent, one per kernel.

        ``picks`` is the score cache's buffer of picks; the next search overwrites it.
        """
        _, count, need, j, amount = result
        if not count:
            return (Placement(agent.id, self.cpu_and_mem),) * self.kernels_per_search
        devices = agent.devices
        if count == 1:  # the common case: the result names the only pick
            units = amount // self.slot_thousandths[need]
            only = DeviceAmount(devices[j].id, self.device_slots[need], units)
            return (Placement(agent.id, self.cpu_and_mem, (only,)),)
        by_kernel: list[list[DeviceAmount]] = [[] for _ in range(self.kernels_per_search)]
        for kernel, need, j, amount in picks[:count].tolist():
            units = amount // self.slot_thousandths[need]
            by_kernel[kernel].append(DeviceAmount(devices[j].id, self.device_slots[need], units))
        return tuple([Placement(agent.id, self.cpu_and_mem, tuple(part)) for part in by_kernel])
