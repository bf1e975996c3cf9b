"""Fields of administered objects: notation, validation and comparison of their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.storage_hosts import check_hosts
from bai_services.core.resources import Caps, ResourceSlots, parse_amount

from .group_options import normalize

_DECIMAL = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,2})?", re.ASCII)


class FieldKind(Enum):
    """How a value is written on the command line and in YAML, and when two values are equal."""

    TEXT = auto()
    NUMBER = auto()
    DECIMAL = auto()  # number with at most two decimal places
    FLAG = auto()
    SLOTS = auto()  # mapping of slot to amount; an amount of 0 equals a missing slot
    CAPS = auto()  # mapping of slot to limit; 0 forbids the slot, "unlimited" or -1: no limit
    MEMORY = auto()  # amount of memory as a string: 64m
    LIST = auto()  # list of strings
    NUMBERS = auto()  # list of whole numbers
    HOSTS = auto()  # mapping of storage host to list of permissions
    MAP = auto()  # any JSON object
    OPTIONS = auto()  # scheduler options of a resource group


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the REST API. On the command line, ``none`` clears a nullable field."""

    name: str
    help: str
    kind: FieldKind = FieldKind.TEXT
    is_nullable: bool = False
    is_immutable: bool = False  # can be set only at creation
    is_update_only: bool = False  # cannot be set at creation
    is_required: bool = False
    choices: tuple[str, ...] = ()  # the possible values, or the possible items of a list
    # Values that mean "no limit"; texts for users show these words instead of the value.
    unlimited: tuple[int | None, ...] = ()

    @property
    def option(self) -> str:
        """The name of the option: ``active`` for the field ``is_active``."""
        return self.name.removeprefix("is_").replace("_", "-")


def validate_value(field: Field, value: Any) -> Any:
    """Return ``value`` in the form that the REST API expects.

    Raises
    ------
    InvalidRequest
        If ``value`` does not fit the kind of the field.
    """
    if value is None and field.is_nullable:
        return None
    try:
        return _READERS[field.kind](value)
    except (TypeError, ValueError):
        raise InvalidRequest(
            f"{field.name}: {value!r} is not {_NOUNS[field.kind]}", field=field.name
        ) from None


def comparable(field: Field, value: Any) -> Any:
    """Return ``value`` in a canonical form for comparisons: ``1g`` equals ``1024m``."""
    if value is None:
        return None
    if field.kind in (FieldKind.SLOTS, FieldKind.CAPS):
        return (Caps if field.kind is FieldKind.CAPS else ResourceSlots).parse(value)
    if field.kind is FieldKind.DECIMAL:
        return Decimal(str(value))
    if field.kind is FieldKind.MEMORY:
        return parse_amount("mem", value)
    if field.kind in (FieldKind.LIST, FieldKind.NUMBERS):
        return sorted(value)
    if field.kind is FieldKind.HOSTS:
        return check_hosts(value)
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _decimal(value: Any) -> str:
    """Return the number as a text, which JSON does not change."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError
    text = str(value)
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    return text


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _text(value: Any) -> str:
    if isinstance(value, (bool, Mapping, list)) or value is None:
        raise TypeError
    return str(value)


def _slots(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    texts = {_text(slot): _text(amount) for slot, amount in value.items()}
    for slot, amount in texts.items():
        parse_amount(slot, amount)
    return texts


def _cap_texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    texts = {_text(slot): _text(cap) for slot, cap in value.items()}
    Caps.parse(texts)
    return texts


def _memory(value: Any) -> str:
    text = _text(value)
    parse_amount("mem", text)
    return text


def _list(value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [_text(item) for item in value]


def _numbers(value: Any) -> list[int]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [_number(item) for item in value]


def _hosts(value: Any) -> dict[str, list[str]]:
    return check_hosts({_text(host): _list(names) for host, names in _map(value).items()})


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _options(value: Any) -> dict[str, Any]:
    return normalize(_map(value))


_READERS = {
    FieldKind.TEXT: _text,
    FieldKind.NUMBER: _number,
    FieldKind.DECIMAL: _decimal,
    FieldKind.FLAG: _flag,
    FieldKind.SLOTS: _slots,
    FieldKind.CAPS: _cap_texts,
    FieldKind.MEMORY: _memory,
    FieldKind.LIST: _list,
    FieldKind.NUMBERS: _numbers,
    FieldKind.HOSTS: _hosts,
    FieldKind.MAP: _map,
    FieldKind.OPTIONS: _options,
}
_NOUNS = {
    FieldKind.TEXT: "a string",
    FieldKind.NUMBER: "a whole number",
    FieldKind.DECIMAL: "a number with at most two decimal places",
    FieldKind.FLAG: "true or false",
    FieldKind.SLOTS: "a mapping of slot to amount",
    FieldKind.CAPS: "a mapping of slot to limit",
    FieldKind.MEMORY: "an amount of memory",
    FieldKind.LIST: "a list of strings",
    FieldKind.NUMBERS: "a list of whole numbers",
    FieldKind.HOSTS: "a mapping of storage host to permissions",
    FieldKind.MAP: "a mapping",
    FieldKind.OPTIONS: "a mapping",
}
