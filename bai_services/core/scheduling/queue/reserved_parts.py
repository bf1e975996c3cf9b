"""Compute the parts of agents that advance reservations keep free.

A reservation of parts books amounts on its agents. The part that the members of the reservation do
not use is placed on each agent like a session: in the current state of the agent, and in its
expected state at each later start of a reservation. Another session that may still run at these
times must fit beside these placements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from ...cluster.devices import SHARES, Device, DeviceAmount, is_device_slot, thousandths
from ...resources import CPU, MEM, ResourceSlots
from ..advance_reservations import (
    Booking,
    HeldAgents,
    overlapping_bookings,
    raise_if_too_few,
    suits,
)
from ..placement import AgentState, Placement, Policy, Request
from ..placement.placer import Placer
from .model import RunningSession


def withheld_on(
    agent: AgentState,
    parts: Sequence[HeldAgents],
    running: Collection[RunningSession],
    now: datetime,
    beside: Collection[str],
) -> Placement | None:
    """Return the placement that sessions must leave free on an agent now for some reservations, or
    None.

    ``agent`` includes the usage of ``running``, its sessions. ``parts`` are the reservations of
    parts of the agent. ``beside`` are the ids of other projects' reservations during which the
    sessions may run.
    """
    met = [one for one in parts if one.id in beside and one.ends_at > now]
    times = {max(now, one.starts_at) for one in met}
    most = [0, 0]
    by_device: dict[str, tuple[int, int]] = {}
    states: list[tuple[AgentState, list[ResourceSlots]]] = []
    for at in sorted(times):
        over = [r for r in running if at > now and r.ends_at is not None and r.ends_at <= at]
        active = [one for one in parts if one.starts_at <= at < one.ends_at]
        staying = [r for r in running if r not in over]
        remaining = remaining_parts(agent.id, active, staying)
        before = _release_all(agent, [p for session in over for p in session.placements])
        states.append((before, [remaining[one.id] for one in active if one.id in beside]))
    # Place the largest amounts first, because the smaller ones then fit on the same devices.
    for before, amounts in sorted(states, key=lambda state: -_on_devices(state[1])):
        withheld_before = {key: withheld for key, (withheld, _) in by_device.items()}
        after = _with_parts(agent, before, amounts, withheld_before)
        for index, slot in enumerate((CPU, MEM)):
            withheld = after.used.get(slot, 0) - agent.used.get(slot, 0)
            most[index] = max(most[index], withheld)
        for device, then, booked in zip(agent.devices, before.devices, after.devices, strict=True):
            withheld, share = _withheld_of(device, then, booked)
            if withheld > by_device.get(device.id, (0, 0))[0]:
                by_device[device.id] = withheld, share
    if not any(most) and not by_device:
        return None
    slots = ResourceSlots({slot: n for slot, n in zip((CPU, MEM), most, strict=True) if n})
    devices = [
        amount
        for device in agent.devices
        for amount in _amounts(device, *by_device.get(device.id, (0, 0)))
    ]
    return Placement(agent.id, slots, tuple(devices))


def choose_agents_for_parts(
    agents: Iterable[AgentState],
    booked: Sequence[Booking],
    ended_in_time: Mapping[str, Sequence[Placement]],
    *,
    nodes: int,
    resources: ResourceSlots,
    period: tuple[datetime, datetime],
) -> tuple[str, ...]:
    """Return the agents on which a reservation books ``resources`` each.

    ``ended_in_time``: by agent, the placements of the sessions that end before the period. Agents
    that certainly have the resources at the start are preferred, then agents with the least free
    device capacity beside the bookings.

    Raises
    ------
    Conflict
        If too few agents are suitable and have the resources beside the other reservations.
    """
    overlapping = overlapping_bookings(booked, period)
    suitable = [agent for agent in agents if suits(agent, resources)]
    rank: dict[str, tuple[bool, int, str]] = {}
    for agent in suitable:
        others = [b for b in overlapping if agent.id in b.agents]
        empty = agent.fully_available()
        with_all = _booked_together(empty, others, resources, period)
        if with_all is None:
            continue
        at_start = _release_all(agent, ended_in_time.get(agent.id, ()))
        is_certain = _booked_together(at_start, others, resources, period) is not None
        rank[agent.id] = not is_certain, sum(d.free for d in with_all.devices), agent.id
    free = [agent for agent in suitable if agent.id in rank]
    raise_if_too_few(free, suitable, overlapping, nodes, resources)
    return tuple(sorted(agent.id for agent in sorted(free, key=lambda a: rank[a.id])[:nodes]))


def _booked_together(
    agent: AgentState,
    others: Sequence[Booking],
    resources: ResourceSlots,
    period: tuple[datetime, datetime],
) -> AgentState | None:
    """Return the fullest state of an agent with all bookings; None if they do not fit at all times
    of the period.
    """
    if any(not b.booked for b in others):
        return None
    states = []
    for at in sorted({period[0], *(b.starts_at for b in others if b.starts_at > period[0])}):
        state: AgentState | None = agent
        together = [b.booked for b in others if b.starts_at <= at < b.ends_at]
        for slots in (*together, resources):
            state = None if state is None else _placed(agent, state, slots, {})
        if state is None:
            return None
        states.append(state)
    return min(states, key=lambda state: sum(d.free for d in state.devices))


def remaining_parts(
    agent_id: str, parts: Sequence[HeldAgents], running: Iterable[RunningSession]
) -> dict[str, ResourceSlots]:
    """Return the booked amounts that the members of each reservation do not use on an agent.

    The usage of a session that may use several reservations is charged to the first until its
    amounts are used up, then to the next.
    """
    remaining = {one.id: dict(one.booked) for one in parts}
    for session in sorted(running, key=lambda r: (r.started_at, r.id)):
        admitting = [one for one in parts if one.admits(session.scopes)]
        if not admitting:
            continue
        left = _slots_on(agent_id, session.placements)
        for one in admitting:
            amounts = remaining[one.id]
            for slot, amount in amounts.items():
                used = min(amount, left.get(slot, 0))
                amounts[slot] -= used
                left[slot] = left.get(slot, 0) - used
    return {key: ResourceSlots({s: n for s, n in of.items() if n}) for key, of in remaining.items()}


def lacking_slots(
    agent: AgentState, ended: Sequence[Placement], slots: ResourceSlots
) -> tuple[str, ...]:
    """Return the slots of which an agent has too little after some placements have ended.

    If each of the amounts fits, but not all of them together, all slots are returned.
    """
    state = _release_all(agent, ended)
    if not slots or _placed(agent, state, slots, {}) is not None:
        return ()
    lacking = tuple(slot for slot, amount in slots.items() if state.free(slot, amount) < amount)
    return lacking or tuple(slots)


def _slots_on(agent_id: str, placements: Iterable[Placement]) -> dict[str, int]:
    """Return the amounts of all slots that placements have on an agent."""
    total: dict[str, int] = {}
    for placement in placements:
        if placement.agent_id == agent_id:
            for slot, amount in placement.slots.items():
                total[slot] = total.get(slot, 0) + amount
            for device in placement.devices:
                total[device.slot] = total.get(device.slot, 0) + device.amount
    return total


def _on_devices(amounts: Iterable[ResourceSlots]) -> int:
    """Return the sum of the amounts on devices, in thousandths of a device."""
    return sum(
        thousandths(slot, amount)
        for slots in amounts
        for slot, amount in slots.items()
        if is_device_slot(slot)
    )


def _release_all(agent: AgentState, placements: Sequence[Placement]) -> AgentState:
    if not placements:
        return agent
    placer = Placer([agent], Policy.BEST_FIT)
    placer.release(placements)
    return placer.agents()[0]


def _with_parts(
    agent: AgentState,
    later: AgentState,
    booked: Iterable[ResourceSlots],
    withheld: Mapping[str, int],
) -> AgentState:
    """Return the state ``later`` of an agent after the placement of booked amounts.

    Devices are preferred if a part of them is withheld for another time (``withheld``, in
    thousandths), or if they are in use in the current state of the agent (``agent``). If the
    amounts do not fit, each slot is placed as far as possible.
    """
    for slots in booked:
        if slots:
            placed = _placed(agent, later, slots, withheld)
            if placed is not None:
                later = placed
                continue
            for slot, amount in slots.items():
                available = later.free(slot, amount)
                if available > 0:
                    part = ResourceSlots({slot: available})
                    later = _placed(agent, later, part, withheld) or later
    return later


def _placed(
    agent: AgentState, later: AgentState, slots: ResourceSlots, withheld: Mapping[str, int]
) -> AgentState | None:
    """Return the state after the placement of amounts; None if they do not fit."""
    placer = Placer([later], Policy.BEST_FIT)
    handle = placer.prepare(Request(slots, later.resource_group, later.architecture))
    if not placer.fits(handle):
        return None
    # Block the capacity of each device that is free now and not withheld. Then unblock one device
    # after the other until the amounts fit, beginning with devices that are partly in use. The
    # order is the same at all times, so that reservations with different periods use the same
    # devices.
    free_now = {
        d.id: min(d.free - withheld.get(d.id, 0), then.free)
        for d, then in zip(agent.devices, later.devices, strict=True)
    }
    order = sorted(later.devices, key=lambda d: free_now[d.id] < d.capacity)
    blocked = [
        Placement(later.id, ResourceSlots({}), tuple(_amounts(d, max(0, free_now[d.id]), 0)))
        for d in order
    ]
    placer.allocate(blocked)
    while blocked and not placer.fits(handle):
        placer.release([blocked.pop()])
    placer.place(handle)
    placer.release(blocked)
    return placer.agents()[0]


def _withheld_of(device: Device, then: Device, booked: Device) -> tuple[int, int]:
    """Return the withheld thousandths of a device, and their share if its shares must be equal."""
    taken = booked.used - then.used
    if not taken:
        return max(0, booked.used - device.used), 0
    share = booked.share_in_force
    if device.sharing.is_uniform and device.share_in_force not in (0, share):
        # All shares of the device must be equal, so a session with the present share could not run
        # beside the booked share.
        return device.free, 0
    return max(0, booked.used - device.used), share


def _amounts(device: Device, withheld: int, share: int) -> list[DeviceAmount]:
    """Return amounts of a device; if ``share`` is not 0, in parts of at most this share."""
    slot = f"{device.pool}.{SHARES}"
    step = share or max(withheld, 1)
    return [
        DeviceAmount(device.id, slot, min(step, withheld - at)) for at in range(0, withheld, step)
    ]


class ReservedParts:
    """The withheld parts of the agents of a group, updated when an agent changes."""

    def __init__(self) -> None:
        self._parts: dict[str, list[HeldAgents]] = {}  # by agent
        self.is_used = False  # whether any reservation books a part of an agent
        self._held: tuple[HeldAgents, ...] = ()
        self._running: dict[str, dict[str, RunningSession]] = {}  # by agent
        # By agent: the inputs of the last computation, and its results by ``Request.beside``.
        self._known: dict[str, tuple[object, dict[tuple[str, ...], Placement | None]]] = {}

    def copy(self) -> ReservedParts:
        other = ReservedParts()
        other._parts, other._held, other._known = self._parts, self._held, dict(self._known)
        other.is_used = self.is_used
        other._running = {key: dict(of) for key, of in self._running.items()}
        return other

    def set_held(self, held: tuple[HeldAgents, ...], running: Iterable[RunningSession]) -> None:
        """Set the approved reservations of the group, and its running sessions."""
        if held == self._held:
            return
        self._held, self._parts, self._known = held, {}, {}
        # The first reservation is charged first, and its devices stay the same when the next
        # reservation starts.
        for one in sorted(held, key=lambda one: (one.starts_at, one.id)):
            for agent_id in one.agents if one.booked else ():
                self._parts.setdefault(agent_id, []).append(one)
        self.is_used = bool(self._parts)
        self._running = {agent_id: {} for agent_id in self._parts}
        for session in running if self.is_used else ():
            self.track(session)

    def track(self, session: RunningSession) -> None:
        for placement in session.placements:
            if placement.agent_id in self._running:
                self._running[placement.agent_id][session.id] = session

    def untrack(self, session: RunningSession) -> None:
        for placement in session.placements:
            if placement.agent_id in self._running:
                self._running[placement.agent_id].pop(session.id, None)

    def admit(self, session: RunningSession) -> bool:
        """Return whether a session may use a reserved part of one of its agents."""
        return any(
            one.admits(session.scopes)
            for placement in session.placements
            for one in self._parts.get(placement.agent_id, ())
        )

    def apply(self, placer: Placer, sets: Iterable[tuple[str, ...]], now: datetime) -> None:
        """Withhold the parts in a placer, for requests with these values of ``Request.beside``."""
        wanted = {ids for ids in sets if ids}
        found: dict[tuple[str, ...], list[Placement]] = {ids: [] for ids in wanted}
        for agent_id, parts in self._parts.items():
            agent = placer.agent(agent_id)
            if agent is None:
                continue
            running = self._running[agent_id]
            inputs = (agent, tuple(running.values()), _phase(parts, now))
            if agent_id not in self._known or self._known[agent_id][0] != inputs:
                self._known[agent_id] = inputs, {}
            results = self._known[agent_id][1]
            for ids in wanted:
                if ids not in results:
                    results[ids] = withheld_on(agent, parts, running.values(), now, ids)
                placement = results[ids]
                if placement is not None:
                    found[ids].append(placement)
        for ids in {*wanted, *placer.withheld_sets()}:
            placer.withhold(ids, tuple(found.get(ids, ())))


def _phase(parts: Sequence[HeldAgents], now: datetime) -> tuple[tuple[bool, bool], ...]:
    """Return whether each reservation has started and ended. This result is the only way in which
    the computation depends on the time.
    """
    return tuple((now >= one.starts_at, now >= one.ends_at) for one in parts)
