"""Exact amounts of resource slots; text such as ``4g`` or ``0.5`` exists only here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from .errors import InvalidRequest

CPU = "cpu"
MEM = "mem"

# A share is scheduled in thousandths and may be asked in hundredths (accelerators' published step).
SHARE_UNIT = 1000
SHARE_STEP = 10
SHARE_MINIMUM = 50

MEM_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MEM = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<suffix>[kmgtp]?)(?:i?b)?", re.IGNORECASE)
_SLOT_NAME = re.compile(r"cpu|mem|[a-z][a-z0-9-]*\.[a-z0-9.-]+(?::[a-z0-9.+-]+)?")

# Large enough for any cluster, small enough for a signed 64-bit column.
MAX_AMOUNT = 2**60


@dataclass(frozen=True, slots=True)
class SlotType:
    """How the amounts of one slot are written: ``unit`` integers make the number 1."""

    unit: int
    step: int
    minimum: int
    label: str


def slot_type(name: str) -> SlotType:
    """Return how amounts of slot ``name`` are counted.

    ``cpu`` is in millicores, ``mem`` in bytes, ``*.shares`` in thousandths of a
    device, every other slot in whole devices.

    Raises
    ------
    InvalidRequest
        If the name is no slot name.
    """
    if not _SLOT_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a resource slot; write for instance cpu, mem or cuda.shares",
            slot=name,
        )
    if name == CPU:
        return SlotType(unit=1000, step=1, minimum=1, label="cores")
    if name == MEM:
        return SlotType(unit=1, step=1, minimum=1, label="bytes")
    if name.endswith(".shares"):
        return SlotType(SHARE_UNIT, SHARE_STEP, SHARE_MINIMUM, label="share of a device")
    return SlotType(unit=1, step=1, minimum=1, label="devices")


def family_of(slot: str) -> str | None:
    """Return the device family of an accelerator slot (``cuda``), or None for cpu and mem."""
    family, dot, _ = slot.partition(".")
    return family if dot else None


def parse_amount(slot: str, text: str | int | float) -> int:
    """Return the integer amount that ``text`` means for ``slot``.

    Examples: ``("mem", "1.5g")`` is 1610612736, ``("cuda.shares", "0.25")`` is
    250, ``("cpu", 2)`` is 2000. Zero is allowed and means "none".

    Raises
    ------
    InvalidRequest
        If the text is no amount, is negative or too large, lies between two
        steps of the slot or below its minimum.
    """
    kind = slot_type(slot)
    amount = _parse_mem(str(text)) if slot == MEM else _parse_count(slot, str(text), kind.unit)
    if amount > MAX_AMOUNT:
        raise InvalidRequest(f"{slot}={text} is more than can be counted", slot=slot)
    if amount % kind.step:
        raise InvalidRequest(
            f"{slot}={text} lies between two steps; amounts of {slot} are multiples of "
            f"{format_amount(slot, kind.step)}",
            slot=slot,
            step=format_amount(slot, kind.step),
        )
    if 0 < amount < kind.minimum:
        raise InvalidRequest(
            f"{slot}={text} is below the smallest amount {format_amount(slot, kind.minimum)}",
            slot=slot,
            minimum=format_amount(slot, kind.minimum),
        )
    return amount


def _parse_count(slot: str, text: str, unit: int) -> int:
    try:
        scaled = Decimal(text.strip()) * unit
        if not scaled.is_finite() or scaled < 0:
            raise InvalidOperation
        exact = int(scaled.to_integral_value())
    except InvalidOperation:
        raise InvalidRequest(f"{slot}={text} is not an amount", slot=slot) from None
    if scaled != exact:
        raise InvalidRequest(
            f"{slot}={text} is finer than {slot} can be divided",
            slot=slot,
            step=format_amount(slot, slot_type(slot).step),
        )
    return exact


def _parse_mem(text: str) -> int:
    match = _MEM.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            f"mem={text} is not an amount of memory; write for instance 512m or 4g", slot=MEM
        )
    return int(Decimal(match["number"]) * MEM_SUFFIXES[match["suffix"].lower()])


def format_amount(slot: str, amount: int) -> str:
    """Return the shortest exact text of an amount; ``parse_amount`` reads it back."""
    if slot == MEM:
        for suffix in reversed(MEM_SUFFIXES):
            size = MEM_SUFFIXES[suffix]
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
        return str(amount)
    text = f"{Decimal(amount) / slot_type(slot).unit:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class ResourceSlots(Mapping[str, int]):
    """An immutable map from slot name to its integer amount; zero amounts are left out."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {slot: n for slot, n in sorted((amounts or {}).items()) if n}

    @classmethod
    def parse(cls, texts: Mapping[str, str | int | float]) -> ResourceSlots:
        """Read a map of texts, as people and the REST API write it."""
        return cls({slot: parse_amount(slot, text) for slot, text in texts.items()})

    def format(self) -> dict[str, str]:
        """Return the map of texts that ``parse`` reads back."""
        return {slot: format_amount(slot, amount) for slot, amount in self.items()}

    def __getitem__(self, slot: str) -> int:
        return self._amounts[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __hash__(self) -> int:
        return hash(tuple(self._amounts.items()))

    def __repr__(self) -> str:
        return f"ResourceSlots({self._amounts})"

    def __str__(self) -> str:
        return " ".join(f"{slot}={text}" for slot, text in self.format().items()) or "nothing"

    def __add__(self, other: Mapping[str, int]) -> ResourceSlots:
        return ResourceSlots(
            {slot: self.get(slot, 0) + other.get(slot, 0) for slot in {*self, *other}}
        )

    def __sub__(self, other: Mapping[str, int]) -> ResourceSlots:
        return ResourceSlots(
            {slot: self.get(slot, 0) - other.get(slot, 0) for slot in {*self, *other}}
        )

    def fits_in(self, free: Mapping[str, int]) -> bool:
        """Return whether every amount is there; a slot that ``free`` lacks counts as 0."""
        return all(need <= free.get(slot, 0) for slot, need in self.items())


class Caps(ResourceSlots):
    """Limits per slot. Unlike amounts they keep their zeros: a cap of 0 forbids the slot."""

    __slots__ = ()

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = dict(sorted((amounts or {}).items()))
