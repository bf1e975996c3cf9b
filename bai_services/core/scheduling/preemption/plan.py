"""A preemption plan: the victims of a pending session, and the resources held until it starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...cluster.devices import SHARES, DeviceAmount, thousandths
from ...resources import ResourceSlots
from ..placement import Placement
from .rules import Rule

# Assumed time between the stop of the victims and the start of the pending session.
STOP_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a pending session, the beneficiary.

    ``victims`` are ids of running sessions, with the rule by which each is preempted. The
    beneficiary fits on ``placements`` when all victims have ended.
    """

    victims: tuple[tuple[str, Rule], ...]
    placements: tuple[Placement, ...]
    stops_at: datetime

    @property
    def victim_ids(self) -> tuple[str, ...]:
        return tuple(session_id for session_id, _ in self.victims)

    @property
    def starts_at(self) -> datetime:
        """Expected start of the beneficiary."""
        return self.stops_at + timedelta(seconds=STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class Preemption:
    """A new plan for a pending session, decided by a pass."""

    session_id: str
    group: str
    plan: Plan


def to_hold(wanted: Iterable[Placement], still_used: Iterable[Placement]) -> tuple[Placement, ...]:
    """Return the part of ``wanted`` that does not overlap ``still_used``.

    While this part is allocated, no other session can take it. All of ``wanted`` becomes available
    when the sessions that occupy ``still_used`` have ended.
    """
    amounts, used = _amounts(wanted), _amounts(still_used)
    held = []
    for agent_id, of_agent in sorted(amounts.items()):
        in_use = used.get(agent_id, {})
        left = {key: n - in_use.get(key, 0) for key, n in of_agent.items()}
        left = {key: n for key, n in sorted(left.items()) if n > 0}
        devices = tuple(
            DeviceAmount(key[1], _HELD_SLOT, n) for key, n in left.items() if key[0] == _DEVICE
        )
        slots = {key[1]: n for key, n in left.items() if key[0] == _SLOT}
        if slots or devices:
            held.append(Placement(agent_id, ResourceSlots(slots), devices))
    return tuple(held)


_SLOT, _DEVICE = "slot", "device"
_Key = tuple[str, str]  # (_SLOT, name of the slot) or (_DEVICE, id of the device)
# Slot of held devices; amounts are in thousandths.
_HELD_SLOT = f"held.{SHARES}"


def _amounts(placements: Iterable[Placement]) -> Mapping[str, Mapping[_Key, int]]:
    """Return the amounts of placements by agent; devices are in thousandths."""
    amounts: dict[str, dict[_Key, int]] = defaultdict(lambda: defaultdict(int))
    for placement in placements:
        of_agent = amounts[placement.agent_id]
        for slot, amount in placement.slots.items():
            of_agent[_SLOT, slot] += amount
        for device in placement.devices:
            of_agent[_DEVICE, device.device_id] += thousandths(device.slot, device.amount)
    return amounts
