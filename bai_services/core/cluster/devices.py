"""Devices of agents, and quantities allocated on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import InvalidRequest
from ..resources import SHARE_MINIMUM, SHARE_STEP, SHARE_UNIT, family_of
from .device_sharing import ANY_SHARE, Sharing

SHARES = "shares"
DEVICE = "device"
# The slot of a MIG instance is the family followed by this: cuda.mig-1g.10gb.
MIG = ".mig-"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of an agent; ``capacity`` and ``used`` are in thousandths of it."""

    id: str
    family: str
    used: int = 0
    capacity: int = SHARE_UNIT
    is_healthy: bool = True
    is_simulated: bool = False
    model: str = ""
    numa_node: int | None = None  # None or -1: unknown
    # Devices connected by a direct link (NVLink); None: unknown.
    links: tuple[str, ...] | None = None
    # The slot of a part of a device, such as a MIG instance; empty for a device that is allocated
    # as a whole or in shares.
    slot: str = ""
    sharing: Sharing = field(default_factory=Sharing)
    # The share that all sessions on it must have; 0: any.
    share_in_force: int = 0

    @property
    def pool(self) -> str:
        """The pool of devices from which one request may be served: see ``pool_of``."""
        return self.slot or self.family

    def at_best(self) -> Device:
        """Return the device in its best possible state: empty, healthy, its shares available."""
        sharing = replace(self.sharing, is_paused=False)
        return replace(self, used=0, is_healthy=True, sharing=sharing, share_in_force=0)

    @property
    def free(self) -> int:
        """Free thousandths; 0 if the device is not healthy."""
        return self.capacity - self.used if self.is_healthy else 0

    @property
    def most_alone(self) -> int:
        """The largest share of this device that one session could have now."""
        most = min(self.free, self.sharing.most_now)
        if self.share_in_force:
            return self.share_in_force if self.share_in_force <= most else 0
        return most if most >= self.sharing.least else 0


class DeviceAmount(NamedTuple):
    """``amount`` of ``slot`` on one device, in the slot's own unit."""

    device_id: str
    slot: str
    amount: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request does not fit: the requested quantity of ``slot`` and the most available."""

    slot: str
    asked: int
    available: int
    message: str


def is_device_slot(slot: str) -> bool:
    return family_of(slot) is not None


def pool_of(slot: str) -> str:
    """Return the pool of devices that serves a slot.

    Shares and whole devices of a family are served from the same pool (``cuda``); a slot for parts
    of devices (``cuda.mig-1g.10gb``) has its own.
    """
    family, _, kind = slot.partition(".")
    return family if kind in (SHARES, DEVICE) else slot


def thousandths(slot: str, amount: int) -> int:
    """Return how much of a device's capacity ``amount`` of ``slot`` takes."""
    return amount if slot.endswith(f".{SHARES}") else amount * SHARE_UNIT


def check_exclusive(slots: Mapping[str, int]) -> None:
    """Refuse two kinds of slots of the same family.

    Raises
    ------
    InvalidRequest
        If two slots of one family (``cuda.shares`` and ``cuda.device``) are requested.
    """
    slot_of: dict[str, str] = {}
    for slot in sorted(slots):
        family = family_of(slot)
        if family is None:
            continue
        if family in slot_of:
            raise InvalidRequest(
                f"{slot_of[family]} and {slot} exclude each other; request one of them",
                slots=[slot_of[family], slot],
            )
        slot_of[family] = slot


def check_unique(slots: Mapping[str, int]) -> None:
    """Refuse several parts of divided devices: a program can use only one of them.

    Raises
    ------
    InvalidRequest
        If more than one MIG instance is requested.
    """
    for slot, amount in slots.items():
        if MIG in slot and amount > 1:
            raise InvalidRequest(
                f"{slot}={amount} asked, but a program uses MIG instances one at a time; ask for "
                "1, or for a larger profile",
                slot=slot,
            )


def split_shares(amount: int) -> list[int]:
    """Return the parts of a share on the fewest possible devices, largest first.

    Up to one device the share stays whole. Above, it is split evenly over ceil(amount) devices in
    steps of 0.01; parts differ by at most one step.
    """
    count = -(-amount // SHARE_UNIT)
    if count <= 1:
        return [amount]
    steps, rest = divmod(amount, SHARE_STEP)
    base, more = divmod(steps, count)
    parts = [(base + (i < more)) * SHARE_STEP for i in range(count)]
    parts[-1] += rest
    return sorted(parts, reverse=True)


def most_shares(free: Iterable[int]) -> int:
    """Return the largest share that devices with that much free could hold.

    Up to one device it is on one; above, it is split into equal parts (within one step) on any
    number of devices.
    """
    rooms = sorted(
        (min(room, SHARE_UNIT) // SHARE_STEP * SHARE_STEP for room in free), reverse=True
    )
    best = max(rooms[:1], default=0)
    for count, room in enumerate(rooms[1:], start=2):
        # The n-th largest room bounds the smaller parts; devices with more room may hold one step
        # more.
        roomier = sum(other > room for other in rooms[:count])
        held = room * count + SHARE_STEP * roomier
        # A share that fits on one device is never split, and no part is below the smallest share.
        if held > SHARE_UNIT and room >= SHARE_MINIMUM:
            best = max(best, held)
    return best


def most_of(devices: Iterable[Device], slot: str) -> int:
    """Return the largest quantity of ``slot`` available on ``devices`` now."""
    mine = [d for d in devices if d.pool == pool_of(slot)]
    if not slot.endswith(f".{SHARES}"):
        return sum(d.is_healthy and d.used == 0 for d in mine)
    alone = [d.most_alone for d in mine if d.sharing.most_now < ANY_SHARE]
    anyhow = most_shares(d.most_alone for d in mine if d.sharing.most_now >= ANY_SHARE)
    return max([anyhow, *alone])
