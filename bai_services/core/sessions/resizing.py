"""Resizing of running sessions: possible changes, and amounts held during a resize."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ..cluster.device_sharing import Level
from ..cluster.devices import SHARES
from ..errors import Conflict, InvalidRequest
from ..resources import (
    CPU,
    MEM,
    SHARE_UNIT,
    ResourceSlots,
    family_of,
    format_amount,
    slot_type,
)

# Prefix of the variables with which MPS limits a program; a limit is fixed at the program's start.
MPS_PREFIX = "CUDA_MPS_"


class ResizeState(StrEnum):
    """State of a resize. ``pending``: not applied yet. ``failed``: the previous size remains."""

    PENDING = "pending"
    APPLIED = "applied"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SessionResize:
    """The last resize of a session. ``by``: the user who requested it, "" for elastic sessions."""

    state: ResizeState
    previous: ResourceSlots
    requested: ResourceSlots
    by: str
    requested_at: datetime
    finished_at: datetime | None
    message: str


@dataclass(frozen=True, slots=True)
class Elasticity:
    """The sizes between which the manager resizes an elastic session."""

    minimum: ResourceSlots
    preferred: ResourceSlots


class HeldAmount(NamedTuple):
    """An amount that a kernel holds; ``device_id`` is None for cpu and mem."""

    device_id: str | None
    slot: str
    amount: int


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """The enforcement of a kernel's limits, and its memory usage (None: unknown).

    ``levels``: the enforcement level of each device family.
    """

    levels: Mapping[str, str]
    has_mps: bool = False
    memory_bytes: int | None = None

    @classmethod
    def of(cls, injection: Mapping[str, Any], usage: Mapping[str, Any]) -> KernelLimits:
        """Return the limits in a kernel's injection and its last reported usage."""
        environ = injection.get("environ") or {}
        memory = usage.get("mem_bytes")
        return cls(
            injection.get("enforcement") or {},
            any(name.startswith(MPS_PREFIX) for name in environ),
            memory if isinstance(memory, int) else None,
        )


def is_resizable(slot: str) -> bool:
    """Return whether the amount of a slot can change while a session runs."""
    return slot in (CPU, MEM) or slot.endswith(f".{SHARES}")


def resized(current: ResourceSlots, changes: Mapping[str, int]) -> ResourceSlots:
    """Return a session's size after changes of some slots.

    Raises
    ------
    InvalidRequest
        If the session does not have a slot, or an amount is zero.
    """
    for slot, amount in changes.items():
        if slot not in current:
            raise InvalidRequest(
                f"the session was started without {slot}, which can be added only by a restart",
                slot=slot,
            )
        if not amount:
            raise InvalidRequest(f"{slot} must be more than 0", slot=slot)
    return ResourceSlots({**current, **changes})


def check_resize(
    current: ResourceSlots,
    wanted: ResourceSlots,
    held: Iterable[HeldAmount],
    limits: KernelLimits,
) -> None:
    """Raise an error if the size of a running kernel cannot change in this way.

    Raises
    ------
    Conflict
        If the change needs a restart, or the kernel uses more memory than the new amount.
    """
    held = list(held)
    for slot in sorted({*current, *wanted}):
        before, after = current.get(slot, 0), wanted.get(slot, 0)
        if before != after and not is_resizable(slot):
            raise Conflict(
                f"{slot} cannot be changed while the session runs; start a new session", slot=slot
            )
        if before != after and slot not in (CPU, MEM):
            _check_share(slot, after, held, limits)
    used = limits.memory_bytes
    if wanted.get(MEM, 0) < current.get(MEM, 0) and used is not None and used > wanted.get(MEM, 0):
        raise memory_in_use(used, wanted.get(MEM, 0))


def _check_share(slot: str, after: int, held: Iterable[HeldAmount], limits: KernelLimits) -> None:
    on = [amount for amount in held if amount.slot == slot]
    if len(on) != 1:
        raise Conflict(
            f"{slot} is divided among {len(on)} devices; such a share cannot be changed while "
            "the session runs",
            slot=slot,
        )
    if after > SHARE_UNIT:
        raise Conflict(
            f"{slot}={format_amount(slot, after)} needs a second device, which a running session "
            "cannot get; start a new session",
            slot=slot,
        )
    level = limits.levels.get(family_of(slot) or "", Level.NONE)
    if level not in (Level.NONE, Level.SOFT) or limits.has_mps:
        raise Conflict(
            f"the share of the device is enforced (level {level}) by a limit that is set when a "
            "program starts; start a new session to change it",
            slot=slot,
            enforcement=str(level),
        )


def memory_in_use(used: int, wanted: int) -> Conflict:
    """Return the error for a new amount of memory below the session's usage."""
    used_text = f"{used / 2**20:.0f}m"
    return Conflict(
        f"the session uses {used_text} of memory, more than mem={format_amount(MEM, wanted)}; "
        "free memory in the session first",
        slot=MEM,
        used=used_text,
    )


def larger_of(one: ResourceSlots, other: ResourceSlots) -> ResourceSlots:
    """Return the larger amount of each slot, which a session holds during a resize."""
    return ResourceSlots({s: max(one.get(s, 0), other.get(s, 0)) for s in {*one, *other}})


def amounts_of(held: Iterable[HeldAmount], size: ResourceSlots) -> list[HeldAmount]:
    """Return the amounts that a kernel holds after a resize to ``size``, on the same devices."""
    held = list(held)
    count = Counter(amount.slot for amount in held)
    return [
        one._replace(amount=size[one.slot])
        if is_resizable(one.slot) and count[one.slot] == 1
        else one
        for one in held
    ]


def check_elasticity(minimum: ResourceSlots, preferred: ResourceSlots, kernels: int) -> None:
    """Raise ``InvalidRequest`` if a session cannot be resized between two sizes."""
    if kernels > 1 and minimum != preferred:
        raise InvalidRequest(
            "a cluster session is not resized, so its minimum must equal the requested resources",
            field="minimum_resources",
        )
    for slot in sorted({*minimum, *preferred}):
        low, high = minimum.get(slot, 0), preferred.get(slot, 0)
        if low == high:
            continue
        if not is_resizable(slot) or high > SHARE_UNIT and slot not in (CPU, MEM):
            raise InvalidRequest(
                f"{slot} cannot be changed while a session runs, so its minimum must equal the "
                "requested amount",
                field="minimum_resources",
                slot=slot,
            )
        if low > high:
            raise InvalidRequest(
                f"the minimum {slot}={format_amount(slot, low)} is more than the requested "
                f"{slot}={format_amount(slot, high)}",
                field="minimum_resources",
                slot=slot,
            )


def check_minimum(minimum: ResourceSlots, wanted: ResourceSlots) -> None:
    """Raise ``InvalidRequest`` if a size is below the minimum of an elastic session."""
    for slot, least in sorted(minimum.items()):
        amount = wanted.get(slot, 0)
        if amount < least:
            raise InvalidRequest(
                f"{slot}={format_amount(slot, amount)} is less than the minimum of this elastic "
                f"session, {slot}={format_amount(slot, least)}",
                field="resources",
                slot=slot,
                minimum=format_amount(slot, least),
            )


def step_of(slot: str) -> int:
    """Return the step in which elastic sessions are resized: a whole core, 256 MiB, or the step of
    shares.
    """
    if slot == MEM:
        return 2**28
    return slot_type(slot).unit if slot == CPU else slot_type(slot).step
