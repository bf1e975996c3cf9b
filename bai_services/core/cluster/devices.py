"""Devices of agents: slots, free capacity, and splitting of shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..coded_text import CodedText
from ..errors import InvalidRequest
from ..resources import (
    MAX_AMOUNT,
    SHARE_MINIMUM,
    SHARE_STEP,
    SHARE_UNIT,
    family_of,
    is_slot_name,
)
from .device_sharing import ANY_SHARE, Sharing

SHARES = "shares"
DEVICE = "device"
INVALID = "invalid"
# Part of the slot names of MIG instances: cuda.mig-1g.10gb.
MIG = ".mig-"


@dataclass(frozen=True, slots=True)
class Device:
    """One device of an agent; ``capacity`` and ``used`` are in thousandths of the device."""

    id: str
    family: str
    used: int = 0
    capacity: int = SHARE_UNIT
    is_healthy: bool = True
    is_simulated: bool = False
    model: str = ""
    numa_node: int | None = None  # None or -1: unknown
    # Group of devices connected by a direct link (NVLink), or else by the same PCI switches; None:
    # unknown.
    links: tuple[str, ...] | None = None
    # Slot of a device part, such as a MIG instance; empty for a device that is allocated whole or
    # in shares.
    slot: str = ""
    sharing: Sharing = field(default_factory=Sharing)
    # The share that every session on the device must have; 0: any.
    share_in_force: int = 0

    @property
    def pool(self) -> str:
        """The pool of the device (see ``pool_of``)."""
        return self.slot or self.family

    def fully_available(self) -> Device:
        """Return the device as if it were empty, healthy and not paused."""
        sharing = replace(self.sharing, is_paused=False)
        return replace(self, used=0, is_healthy=True, sharing=sharing, share_in_force=0)

    @property
    def free(self) -> int:
        """Free thousandths; 0 if the device is not healthy."""
        return self.capacity - self.used if self.is_healthy else 0

    @property
    def max_session_share(self) -> int:
        """The largest share of this device that can be allocated to one session now."""
        return self.max_share_within(self.capacity)

    def max_share_within(self, limit: int) -> int:
        """Return the largest share, at most ``limit``, that can be allocated to one session now.

        If the minimum was raised later, the share in force can be below the minimum. The device
        then accepts no session until it is empty.
        """
        most = min(self.free, self.sharing.max_share_now, limit)
        if self.share_in_force:
            most = self.share_in_force if self.share_in_force <= most else 0
        return most if most >= self.sharing.least else 0


class DeviceAmount(NamedTuple):
    """An amount of a slot on one device, in the unit of ``resources.slot_type``."""

    device_id: str
    slot: str
    amount: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request does not fit: requested and largest available amount of a slot."""

    slot: str
    asked: int
    available: int
    text: CodedText
    # The message that replaces ``text`` if no session uses the agents; empty: ``text`` is used.
    message_when_unused: str = ""


def is_device_slot(slot: str) -> bool:
    return family_of(slot) is not None


def pool_of(slot: str) -> str:
    """Return the name of the pool of devices from which a slot is allocated.

    Shares and whole devices of a family have the same pool (``cuda``); each slot for parts of
    devices (``cuda.mig-1g.10gb``) has its own.
    """
    family, _, kind = slot.partition(".")
    return family if kind in (SHARES, DEVICE) else slot


def part_slot(family: str, facts: Mapping[str, Any]) -> str:
    """Return the slot of a device part in the facts of its agent; empty for a whole device.

    Agents may report any value. A slot that is not valid becomes ``family.invalid``, so that no
    session is placed on the device.
    """
    slot = facts.get("slot")
    if not slot:
        return ""
    is_valid = isinstance(slot, str) and is_slot_name(slot) and family_of(slot) == family
    return str(slot) if is_valid else f"{family}.{INVALID}"


def thousandths(slot: str, amount: int) -> int:
    """Convert an amount of a device slot to thousandths of a device."""
    return amount if slot.endswith(f".{SHARES}") else amount * SHARE_UNIT


def check_exclusive(slots: Mapping[str, int]) -> None:
    """Check that at most one slot of each device family is requested.

    Raises
    ------
    InvalidRequest
        If two slots of a family are requested, such as ``cuda.shares`` and ``cuda.device``.
    """
    slot_of: dict[str, str] = {}
    for slot in sorted(slots):
        family = family_of(slot)
        if family is None:
            continue
        if family in slot_of:
            raise InvalidRequest(
                f"{slot_of[family]} and {slot} are mutually exclusive; request one of them",
                slots=[slot_of[family], slot],
            )
        slot_of[family] = slot


def check_unique(slots: Mapping[str, int]) -> None:
    """Check that at most one MIG instance of each profile is requested.

    Raises
    ------
    InvalidRequest
        If more than one is requested: a program can use only one MIG instance at a time.
    """
    for slot, amount in slots.items():
        if MIG in slot and amount > 1:
            raise InvalidRequest(
                f"{slot}={amount} was requested, but a program can use only one MIG instance at a "
                "time; request 1, or a larger profile",
                slot=slot,
            )


def split_shares(amount: int) -> list[int]:
    """Split a share, in thousandths, over the fewest devices; return the parts, largest first.

    A share of at most one device is not split. The parts of a larger share are multiples of
    ``SHARE_STEP`` and differ by at most one step.
    """
    count = -(-amount // SHARE_UNIT)
    if count <= 1:
        return [amount]
    steps, rest = divmod(amount, SHARE_STEP)
    base, more = divmod(steps, count)
    parts = [(base + (i < more)) * SHARE_STEP for i in range(count)]
    parts[-1] += rest
    return sorted(parts, reverse=True)


def max_share(free: Iterable[int]) -> int:
    """Return the largest share, in thousandths, that fits on devices.

    ``free`` holds the free thousandths of each device. A share of at most one device must fit on
    one device; ``split_shares`` divides a larger share.
    """
    capacities = sorted(
        (min(amount, SHARE_UNIT) // SHARE_STEP * SHARE_STEP for amount in free), reverse=True
    )
    best = max(capacities[:1], default=0)
    for count, smallest in enumerate(capacities[1:], start=2):
        # With ``count`` devices, each part is at most the smallest capacity; parts on devices with
        # more capacity may be one step larger.
        larger = sum(other > smallest for other in capacities[:count])
        total = smallest * count + SHARE_STEP * larger
        # ``split_shares`` divides only a share of more than one device. No part may be below the
        # minimum.
        if total > SHARE_UNIT and smallest >= SHARE_MINIMUM:
            best = max(best, total)
    return best


def max_amount(devices: Iterable[Device], slot: str, limit: int = MAX_AMOUNT) -> int:
    """Return the largest amount of ``slot``, at most ``limit``, that can be allocated on
    ``devices`` now.
    """
    in_pool = [d for d in devices if d.pool == pool_of(slot)]
    if not slot.endswith(f".{SHARES}"):
        return min(limit, sum(d.is_healthy and d.used == 0 for d in in_pool))
    limit -= limit % SHARE_STEP
    on_one_device = [
        d.max_share_within(limit) for d in in_pool if d.sharing.max_share_now < ANY_SHARE
    ]
    parts = [d.max_share_within(limit) for d in in_pool if d.sharing.max_share_now >= ANY_SHARE]
    # A share of at most one device is not split.
    splittable = min(max_share(parts), limit) if limit > SHARE_UNIT else max(parts, default=0)
    return max([splittable, *on_one_device])
