"""Resource slots: parse, format and compute exact amounts such as ``4g`` or ``0.5``."""

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
_GPU_FAMILIES = frozenset({"cuda", "rocm"})

# Shares of devices are stored in thousandths and requested in steps of hundredths.
SHARE_UNIT = 1000
SHARE_STEP = 10
SHARE_MINIMUM = 50

MEM_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MIB = 2**20
_MEM = re.compile(
    r"(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?) ?(?:(?P<suffix>[kmgtp])i?)?b?", re.IGNORECASE
)
_SLOT_NAME = re.compile(r"cpu|mem|[a-z][a-z0-9-]*\.[a-z0-9.-]+(?::[a-z0-9.+-]+)?")

# Cap that means no limit. ``parse_amount`` never returns this value.
UNLIMITED = -1
UNLIMITED_TEXT = "unlimited"
MAX_SLOT_NAME = 64
# Large enough for any cluster; fits a signed 64-bit column.
MAX_AMOUNT = 2**60


@dataclass(frozen=True, slots=True)
class SlotType:
    """How amounts of a slot are stored: the text ``1`` is stored as the integer ``unit``.

    ``step`` and ``minimum`` are stored amounts.
    """

    unit: int
    step: int
    minimum: int
    label: str


def slot_type(name: str) -> SlotType:
    """Return the type of slot ``name``.

    Amounts of ``cpu`` are stored in millicores, of ``mem`` in bytes, of ``*.shares`` in thousandths
    of a device, of every other slot in whole devices.

    Raises
    ------
    InvalidRequest
        If ``name`` is not a valid slot name.
    """
    if not is_slot_name(name):
        raise InvalidRequest(
            f"{shown(name)!r} is not a resource slot; use a name such as cpu, mem or cuda.shares "
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


def is_slot_name(name: str) -> bool:
    return len(name) <= MAX_SLOT_NAME and _SLOT_NAME.fullmatch(name) is not None


def family_name(family: str) -> str:
    """Return the name of a device family for users: ``GPU``, ``RNGD``."""
    return "GPU" if family in _GPU_FAMILIES else family.upper()


def family_of(slot: str) -> str | None:
    """Return the device family of a slot (``cuda`` of ``cuda.shares``); None for cpu and mem."""
    family, dot, _ = slot.partition(".")
    return family if dot else None


def parse_amount(slot: str, text: str | int | float) -> int:
    """Parse an amount of ``slot`` and return it as an integer.

    Examples: ``("mem", "1.5g")`` is 1610612736, ``("cuda.shares", "0.25")`` is 250, ``("cpu", 2)``
    is 2000. Zero is allowed. A text may have at most 40 ASCII characters, an exponent of at most
    two digits, and no leading sign.

    Raises
    ------
    InvalidRequest
        If the text is not an amount, or the amount is negative, too large, below the minimum of the
        slot, not a multiple of its step, or not a whole number of bytes.
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
        maximum = format_amount(slot, MAX_AMOUNT)
        raise InvalidRequest(f"{slot}={given} is too large; the maximum is {maximum}", slot=slot)
    if exact.denominator != 1:
        raise _too_fine(slot, given, exact)
    amount = exact.numerator
    if amount % kind.step:
        raise InvalidRequest(
            f"{slot}={given} is not a multiple of {format_amount(slot, kind.step)}, the step of "
            f"{slot}",
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
            f"mem={text} is not an amount of memory; write an amount such as 512m, 4g or 4 GiB",
            slot=MEM,
        )
    return Fraction(number) * MEM_SUFFIXES[(match["suffix"] or "").lower()]


def _too_fine(slot: str, text: str, exact: Fraction) -> InvalidRequest:
    if slot == MEM:
        below = next((n for n in (2**20, 2**10) if exact >= n), 1)
        near = format_amount(MEM, max(1, exact // below) * below)
        return InvalidRequest(
            f"mem={text} is not a whole number of bytes; use an amount such as mem={near}",
            slot=MEM,
        )
    return InvalidRequest(
        f"{slot}={text} is too precise; the step of {slot} is "
        f"{format_amount(slot, slot_type(slot).step)}",
        slot=slot,
        step=format_amount(slot, slot_type(slot).step),
    )


def format_amount(slot: str, amount: int) -> str:
    """Return the exact amount as text; ``parse_amount`` is the inverse."""
    if slot == MEM:
        for suffix in reversed(MEM_SUFFIXES):
            size = MEM_SUFFIXES[suffix]
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
        return str(amount)
    text = f"{Decimal(amount) / slot_type(slot).unit:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def readable_amount(slot: str, amount: int) -> int:
    """Round an amount down so that its text is short: memory of 64 MiB or more to whole MiB."""
    return amount // _MIB * _MIB if slot == MEM and amount >= 64 * _MIB else amount


def parse_cap(slot: str, text: str | int | float) -> int:
    """Parse a cap: an amount, or ``UNLIMITED`` for ``unlimited`` and -1.

    Raises
    ------
    InvalidRequest
        If the text is neither unlimited nor a valid amount of the slot.
    """
    given = text.strip().lower() if isinstance(text, str) else text
    if given in (UNLIMITED_TEXT, "-1") or (given == UNLIMITED and not isinstance(given, bool)):
        slot_type(slot)
        return UNLIMITED
    return parse_amount(slot, text)


def format_cap(slot: str, cap: int) -> str:
    return UNLIMITED_TEXT if cap == UNLIMITED else format_amount(slot, cap)


class ResourceSlots(Mapping[str, int]):
    """An immutable map from slot name to integer amount, without zero amounts."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {slot: n for slot, n in sorted((amounts or {}).items()) if n}

    @classmethod
    def parse(cls, texts: Mapping[str, str | int | float]) -> ResourceSlots:
        """Parse the amounts of a map from slot to text."""
        return cls({slot: parse_amount(slot, text) for slot, text in texts.items()})

    def format(self) -> dict[str, str]:
        """Return a map of texts; ``parse`` is the inverse."""
        return {slot: format_amount(slot, amount) for slot, amount in self.items()}

    def __getitem__(self, slot: str) -> int:
        return self._amounts[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    # Same result as ``Mapping.get``, but faster.
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
        """Return whether each amount is at most the amount in ``free`` (0 for a missing slot)."""
        return all(need <= free.get(slot, 0) for slot, need in self.items())


class Caps(ResourceSlots):
    """Limits per slot. Zeros are kept, unlike in ``ResourceSlots``: a cap of 0 forbids the slot.

    ``UNLIMITED`` (-1, as text ``unlimited``) means that the slot has no limit.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, texts: Mapping[str, str | int | float]) -> Caps:
        """Parse a map of texts; -1 also means unlimited."""
        return cls({slot: parse_cap(slot, text) for slot, text in texts.items()})

    def format(self) -> dict[str, str]:
        return {slot: format_cap(slot, cap) for slot, cap in self.items()}

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = dict(sorted((amounts or {}).items()))


def percent_of(used: int, total: int) -> int:
    """Return ``used`` in percent of ``total``, rounded down; 100 if the total is 0."""
    return 100 if total <= 0 else 100 * used // total
