"""Table of accelerators: how the devices of each vendor are found, assigned and monitored.

The built-in table is ``vendors.yaml`` beside this file; an administrator can add or change rows
with a file of the same format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bai_services.core.errors import InvalidRequest

FAMILY = re.compile(r"[a-z][a-z0-9-]{0,31}")
METRICS = ("utilization_percent", "memory_used_bytes", "temperature_celsius", "power_watts")
# In a path: the device's PCI address.
PCI = "{pci}"
# What was tested: the real device, a stand-in with its interface, or nothing.
TRIED = ("device", "stand-in", "no")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Find:
    """How devices are found: a path with ``{i}``, or a vendor's tool.

    A tool prints JSON with its list at the pointer ``items``, or, with ``columns``, lines of
    comma-separated values. ``where`` selects devices: a file below the path (or a pointer into the
    tool's item) and patterns of accepted values.
    """

    path: str = ""
    command: Sequence[str] = ()
    items: str = ""
    columns: Sequence[str] = ()
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """Files below the path, or pointers into the item, with facts about a device."""

    id: str = ""
    index: str = ""
    model: str = ""
    memory_bytes: str = ""
    numa_node: str = ""
    pci: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a file or a pointer, and the factor for its number."""

    path: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Divided:
    """How a part of a device is recognized: a file or pointer, and its value for whole devices."""

    mode: str = ""
    whole: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One family of accelerators. Words in braces are filled in for each session or device.

    ``nodes`` and ``environ`` know ``{i}`` (the device's number on the machine); ``environ`` also
    ``{indices}``, ``{ids}``, ``{count}`` and ``{local}`` (0, 1 …).
    """

    family: str
    title: str
    tried: str
    find: Find
    facts: Facts = Facts()
    models: Mapping[str, str] = field(default_factory=dict)
    # For devices that do not report their memory; 0 is unknown.
    memory_bytes: int = 0
    # Bytes per unit of the fact ``memory_bytes``.
    memory_unit: int = 1
    nodes: Sequence[str] = ()
    # Inside the session the first device has number 0, whatever its number on the machine.
    renumbered_nodes: Mapping[str, str] = field(default_factory=dict)
    shared_nodes: Sequence[str] = ()
    # Path and ro or rw; paths that the machine does not have are left out.
    mounts: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    memlock: bool = False
    groups: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    notices: Sequence[str] = ()
    divided: Divided = Divided()
    # Number of equal parts into which a setting divides each device, where code supports it.
    parts: int = 1


def built_in() -> dict[str, Row]:
    """Return the built-in table, by family."""
    text = files(__package__).joinpath("vendors.yaml").read_text()
    return read_table(text, "vendors.yaml")


def with_file(rows: Mapping[str, Row], path: str) -> tuple[dict[str, Row], dict[str, str]]:
    """Return the table extended by an administrator's file, and the errors of the file.

    Errors are listed by family; errors of the whole file under an empty name. An invalid row is
    ignored, and a built-in row of that family remains.
    """
    found = dict(rows)
    wrong: dict[str, str] = {}
    if not path:
        return found, wrong
    try:
        data = _parsed(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        return found, {"": f"the table of accelerators cannot be read: {error}"}
    except InvalidRequest as error:
        return found, {"": error.message}
    for family, row in data.items():
        try:
            found[family] = _row(family, row, f"{path}: {family}")
        except InvalidRequest as error:
            wrong[str(family)] = error.message
    return found, wrong


def read_table(text: str, name: str) -> dict[str, Row]:
    """Read a table; ``name`` is used in messages.

    Raises
    ------
    InvalidRequest
        For a text that is not a table, an unknown key or a value of the wrong type.
    """
    data = _parsed(text, name)
    return {family: _row(family, row, f"{name}: {family}") for family, row in data.items()}


def _parsed(text: str, name: str) -> dict[Any, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{name} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise InvalidRequest(f"{name} must map the names of families to their rows")
    return data


def _row(family: Any, data: Any, place: str) -> Row:
    if not isinstance(family, str) or not FAMILY.fullmatch(family):
        raise InvalidRequest(f"{place}: a family's name consists of a-z, 0-9 and -, like warboy")
    known = _checked(Row, data, place, without=("family", "parts"))
    missing = next((name for name in ("title", "tried", "find") if name not in known), None)
    if missing is not None:
        raise InvalidRequest(f"{place}: {missing} is missing", key=missing)
    row = Row(
        family=family,
        **{
            **known,
            "find": Find(**_checked(Find, known["find"], f"{place}.find")),
            "facts": Facts(**_checked(Facts, known.get("facts", {}), f"{place}.facts")),
            "divided": Divided(**_checked(Divided, known.get("divided", {}), f"{place}.divided")),
            "metrics": {
                metric: Metric(**_checked(Metric, value, f"{place}.metrics.{metric}"))
                for metric, value in (known.get("metrics") or {}).items()
            },
        },
    )
    if bool(row.find.path) == bool(row.find.command):
        raise InvalidRequest(f"{place}.find needs either path or command")
    if row.tried not in TRIED:
        raise InvalidRequest(f"{place}.tried must be one of {', '.join(TRIED)}, not {row.tried!r}")
    if PCI in row.facts.pci:
        raise InvalidRequest(f"{place}.facts.pci is the PCI address itself: {PCI} cannot be used")
    for path, mode in row.mounts.items():
        if mode not in ("ro", "rw"):
            raise InvalidRequest(f"{place}.mounts: {path} must be mounted ro or rw, not {mode!r}")
    unknown = sorted(set(row.metrics) - set(METRICS))
    if unknown:
        raise InvalidRequest(
            f"{place}.metrics: {unknown[0]} is unknown; there are {', '.join(METRICS)}"
        )
    where = {key: tuple(str(value) for value in row.find.where[key]) for key in row.find.where}
    return replace(row, find=replace(row.find, where=where))


def _checked(kind: type[T], data: Any, place: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return ``data`` as arguments of a dataclass, after checking its keys and values."""
    if not isinstance(data, dict):
        raise InvalidRequest(f"{place} must be a map of settings")
    of_kind = {f.name: f for f in fields(kind) if f.name not in without}  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in data if key not in of_kind)
    if unknown:
        raise InvalidRequest(
            f"{place}: {unknown[0]} is unknown; there are {', '.join(sorted(of_kind))}"
        )
    for name, value in data.items():
        wanted = _KINDS[str(of_kind[name].type).partition("[")[0]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise InvalidRequest(
                f"{place}.{name} must be {_NAMES[wanted]}, not {value!r}", key=name
            )
        if wanted is list and not all(isinstance(item, str) for item in value):
            raise InvalidRequest(f"{place}.{name} must be a list of texts, not {value!r}", key=name)
    return dict(data)


# Annotations are texts, because of ``from __future__ import annotations``.
_KINDS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "Sequence": list,
    "Mapping": dict,
    "Find": dict,
    "Facts": dict,
    "Divided": dict,
}
_NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    (int, float): "a number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a map",
}
