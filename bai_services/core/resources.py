"""Exact quantities of resource slots; the only place that parses text such as ``4g`` or ``0.5``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .errors import InvalidRequest
from .user_input import MAX_NUMBER_CHARACTERS, number_text, read_decimal, shown

CPU = "cpu"
MEM = "mem"

# A share is scheduled in thousandths and can be requested in hundredths (the accelerators'
# published step).
SHARE_UNIT = 1000
SHARE_STEP = 10
SHARE_MINIMUM = 50

MEM_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MEM = re.compile(
    r"(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?) ?(?:(?P<suffix>[kmgtp])i?)?b?", re.IGNORECASE
)
_SLOT_NAME = re.compile(r"cpu|mem|[a-z][a-z0-9-]*\.[a-z0-9.-]+(?::[a-z0-9.+-]+)?")

# A cap without limit; quantities themselves are never negative.
UNLIMITED = -1
UNLIMITED_TEXT = "unlimited"
MAX_SLOT_NAME = 64
# Large enough for any cluster, and fits a signed 64-bit column.
MAX_AMOUNT = 2**60


@dataclass(frozen=True, slots=True)
class SlotType:
    """Notation of a slot's quantities: ``unit`` integers make the number 1."""

    unit: int
    step: int
    minimum: int
    label: str


def slot_type(name: str) -> SlotType:
    """Return the type of slot ``name``.

    ``cpu`` is in millicores, ``mem`` in bytes, ``*.shares`` in thousandths of a device, every other
    slot in whole devices.

    Raises
    ------
    InvalidRequest
        If the name is not a slot name.
    """
    if len(name) > MAX_SLOT_NAME or not _SLOT_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} is not a resource slot; write for instance cpu, mem or cuda.shares "
            f"(at most {MAX_SLOT_NAME} characters)",
            slot=shown(name),
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
    """Return the integer quantity in ``text`` for ``slot``.

    Examples: ``("mem", "1.5g")`` is 1610612736, ``("cuda.shares", "0.25")`` is 250, ``("cpu", 2)``
    is 2000. Zero is allowed and means "none". A text has at most 40 ASCII characters and an
    exponent of at most two digits; no sign.

    Raises
    ------
    InvalidRequest
        If the text is not a quantity, is negative or too large, lies between two
        steps of the slot, is not a whole number of bytes, or is below its minimum.
    """
    kind = slot_type(slot)
    given = number_text(text)
    if given is None or len(given.strip()) > MAX_NUMBER_CHARACTERS or not given.isascii():
        raise InvalidRequest(
            f"{slot}={shown(text)!r} is not an amount; write a number of at most "
            f"{MAX_NUMBER_CHARACTERS} ASCII characters",
            slot=slot,
        )
    given = given.strip()
    exact = _read_mem(given) if slot == MEM else _read_count(slot, given, kind.unit)
    if exact > MAX_AMOUNT:
        most = format_amount(slot, MAX_AMOUNT)
        raise InvalidRequest(
            f"{slot}={given} is more than can be counted; the most is {most}", slot=slot
        )
    if exact.denominator != 1:
        raise _too_fine(slot, given, exact)
    amount = exact.numerator
    if amount % kind.step:
        raise InvalidRequest(
            f"{slot}={given} lies between two steps; amounts of {slot} are multiples of "
            f"{format_amount(slot, kind.step)}",
            slot=slot,
            step=format_amount(slot, kind.step),
        )
    if 0 < amount < kind.minimum:
        raise InvalidRequest(
            f"{slot}={given} is below the smallest amount {format_amount(slot, kind.minimum)}",
            slot=slot,
            minimum=format_amount(slot, kind.minimum),
        )
    return amount


def _read_count(slot: str, text: str, unit: int) -> Fraction:
    number = read_decimal(text)
    if number is None:
        raise InvalidRequest(
            f"{slot}={text} is not an amount; write a number of 0 or more, such as 1 or 0.5",
            slot=slot,
        )
    return Fraction(number) * unit


def _read_mem(text: str) -> Fraction:
    match = _MEM.fullmatch(text)
    number = read_decimal(match["number"]) if match else None
    if match is None or number is None:
        raise InvalidRequest(
            f"mem={text} is not an amount of memory; write for instance 512m, 4g or 4 GiB",
            slot=MEM,
        )
    return Fraction(number) * MEM_SUFFIXES[(match["suffix"] or "").lower()]


def _too_fine(slot: str, text: str, exact: Fraction) -> InvalidRequest:
    if slot == MEM:
        below = next((n for n in (2**20, 2**10) if exact >= n), 1)
        near = format_amount(MEM, exact // below * below)
        return InvalidRequest(
            f"mem={text} is not a whole number of bytes; write for instance mem={near}", slot=MEM
        )
    return InvalidRequest(
        f"{slot}={text} is finer than {slot} can be divided",
        slot=slot,
        step=format_amount(slot, slot_type(slot).step),
    )


def format_amount(slot: str, amount: int) -> str:
    """Return the shortest exact text of a quantity; ``parse_amount`` reads it back."""
    if slot == MEM:
        for suffix in reversed(MEM_SUFFIXES):
            size = MEM_SUFFIXES[suffix]
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
        return str(amount)
    text = f"{Decimal(amount) / slot_type(slot).unit:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_cap(slot: str, text: str | int | float) -> int:
    """Return the limit in ``text``: a quantity, or ``UNLIMITED`` for ``unlimited`` and -1.

    Raises
    ------
    InvalidRequest
        As ``parse_amount``.
    """
    given = text.strip().lower() if isinstance(text, str) else text
    if given in (UNLIMITED_TEXT, "-1") or (given == UNLIMITED and not isinstance(given, bool)):
        slot_type(slot)
        return UNLIMITED
    return parse_amount(slot, text)


def format_cap(slot: str, cap: int) -> str:
    return UNLIMITED_TEXT if cap == UNLIMITED else format_amount(slot, cap)


class ResourceSlots(Mapping[str, int]):
    """An immutable map from slot name to integer quantity; zero quantities are left out."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {slot: n for slot, n in sorted((amounts or {}).items()) if n}

    @classmethod
    def parse(cls, texts: Mapping[str, str | int | float]) -> ResourceSlots:
        """Parse a map of texts, as written by users and the REST API."""
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

    # Equivalent to that of a mapping, but faster.
    def get(self, slot: str, default: Any = None, /) -> Any:
        return self._amounts.get(slot, default)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResourceSlots):
            return self._amounts == other._amounts
        return super().__eq__(other)

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
        """Return whether ``free`` covers every quantity; a slot missing from ``free`` counts as
        0.
        """
        return all(need <= free.get(slot, 0) for slot, need in self.items())


class Caps(ResourceSlots):
    """Limits per slot. Unlike quantities they keep their zeros: a cap of 0 forbids the slot.

    ``UNLIMITED`` (-1, as text ``unlimited``) lifts the limit of one slot.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, texts: Mapping[str, str | int | float]) -> Caps:
        """Parse a map of texts; -1 is ``unlimited`` too."""
        return cls({slot: parse_cap(slot, text) for slot, text in texts.items()})

    def format(self) -> dict[str, str]:
        return {slot: format_cap(slot, cap) for slot, cap in self.items()}

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = dict(sorted((amounts or {}).items()))
