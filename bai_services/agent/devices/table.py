"""Table of accelerators: how the devices of each family are found, assigned and monitored.

The built-in table is ``vendors.yaml`` in this folder; an administrator can add or replace rows with
a file of the same format.
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
# Placeholder in a path for the device's PCI address.
PCI = "{pci}"
# Values of ``Row.tried``: the row was tested with a real device, with a stand-in (a fake with the
# documented interface), or not tested.
TRIED = ("device", "stand-in", "no")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Find:
    """How devices are found: by a path pattern, or by the command of a vendor tool.

    The tool prints JSON with a list of devices at the JSON pointer ``items``. If ``columns`` is
    set, the tool instead prints one device per line, as comma-separated values of these columns.
    ``where`` maps keys (see ``TableDevices.value``) to lists of patterns. A device is used only if,
    for every key, the device's value matches one of the patterns.
    """

    path: str = ""
    command: Sequence[str] = ()
    items: str = ""
    columns: Sequence[str] = ()
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """Sources of facts about a device, as keys (see ``TableDevices.value``); "" means no source."""

    id: str = ""
    index: str = ""
    model: str = ""
    memory_bytes: str = ""
    numa_node: str = ""
    pci: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its source as a key (see ``TableDevices.value``), and a factor for the number."""

    path: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Divided:
    """How a part of a divided device is recognized.

    ``mode`` is a key (see ``TableDevices.value``). A device is whole if the value of the key is
    empty or listed in ``whole``. Any other device is a part, and the value names its kind.
    """

    mode: str = ""
    whole: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One family of accelerators.

    ``nodes`` can contain ``{i}``, the device's number on the machine. ``environ`` can contain
    ``{count}`` and the comma-separated lists ``{indices}`` (numbers on the machine), ``{ids}`` and
    ``{local}`` (numbers in the session, from 0).
    """

    family: str
    title: str
    tried: str
    find: Find
    facts: Facts = Facts()
    models: Mapping[str, str] = field(default_factory=dict)
    # Memory in bytes of a device that does not report its memory; 0: unknown.
    memory_bytes: int = 0
    # Bytes per unit of the fact ``memory_bytes``.
    memory_unit: int = 1
    nodes: Sequence[str] = ()
    # Maps paths on the machine to paths in the session, in which ``{local}`` is the device's number
    # in the session, from 0.
    renumbered_nodes: Mapping[str, str] = field(default_factory=dict)
    # Nodes that every session with a device of this family gets.
    shared_nodes: Sequence[str] = ()
    # Maps paths to ``ro`` or ``rw``; paths that do not exist on the machine are not mounted.
    mounts: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    memlock: bool = False
    groups: Sequence[str] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    notices: Sequence[str] = ()
    divided: Divided = Divided()
    # Number of equal parts of each device; set by ``kinds.all_kinds``, not in the table.
    parts: int = 1


def built_in() -> dict[str, Row]:
    """Return the built-in table, by family."""
    text = files(__package__).joinpath("vendors.yaml").read_text()
    return read_table(text, "vendors.yaml")


def load_table(path: str) -> tuple[dict[str, Row], dict[str, str]]:
    """Return the built-in table extended by an administrator's file, and the errors of the file.

    Errors are keyed by family; an error of the whole file has an empty key. An invalid row is
    ignored, so that a built-in row of the family remains. If ``path`` is empty, the table is not
    extended.
    """
    rows = built_in()
    errors: dict[str, str] = {}
    if not path:
        return rows, errors
    try:
        data = _parse_yaml(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        return rows, {"": f"the table of accelerators cannot be read: {error}"}
    except InvalidRequest as error:
        return rows, {"": error.message}
    for family, row in data.items():
        try:
            rows[family] = _row(family, row, f"{path}: {family}")
        except InvalidRequest as error:
            errors[str(family)] = error.message
    return rows, errors


def read_table(text: str, name: str) -> dict[str, Row]:
    """Return the rows of a table by family; ``name`` is its file name for error messages.

    Raises
    ------
    InvalidRequest
        If the text is not a table, or a row is invalid: for example, it has an unknown key, lacks a
        required key, or has a value of the wrong type.
    """
    data = _parse_yaml(text, name)
    return {family: _row(family, row, f"{name}: {family}") for family, row in data.items()}


def _parse_yaml(text: str, name: str) -> dict[Any, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{name} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise InvalidRequest(f"{name} must map the names of families to their rows")
    return data


def _row(family: Any, data: Any, place: str) -> Row:
    if not isinstance(family, str) or not FAMILY.fullmatch(family):
        raise InvalidRequest(
            f"{place}: the name of a family must start with a letter a-z and contain only a-z, 0-9 "
            "and -, at most 32 characters, for example warboy"
        )
    known = _checked_arguments(Row, data, place, excluded=("family", "parts"))
    missing = next((name for name in ("title", "tried", "find") if name not in known), None)
    if missing is not None:
        raise InvalidRequest(f"{place}: {missing} is missing", key=missing)
    row = Row(
        family=family,
        **{
            **known,
            "find": Find(**_checked_arguments(Find, known["find"], f"{place}.find")),
            "facts": Facts(**_checked_arguments(Facts, known.get("facts", {}), f"{place}.facts")),
            "divided": Divided(
                **_checked_arguments(Divided, known.get("divided", {}), f"{place}.divided")
            ),
            "metrics": {
                metric: Metric(**_checked_arguments(Metric, value, f"{place}.metrics.{metric}"))
                for metric, value in (known.get("metrics") or {}).items()
            },
        },
    )
    if bool(row.find.path) == bool(row.find.command):
        raise InvalidRequest(f"{place}.find needs either path or command")
    if row.tried not in TRIED:
        raise InvalidRequest(f"{place}.tried must be one of {', '.join(TRIED)}, not {row.tried!r}")
    if PCI in row.facts.pci:
        raise InvalidRequest(f"{place}.facts.pci defines the PCI address and cannot contain {PCI}")
    for path, mode in row.mounts.items():
        if mode not in ("ro", "rw"):
            raise InvalidRequest(f"{place}.mounts: {path} must be mounted ro or rw, not {mode!r}")
    unknown = sorted(set(row.metrics) - set(METRICS))
    if unknown:
        raise InvalidRequest(
            f"{place}.metrics: unknown metric {unknown[0]}; valid metrics are {', '.join(METRICS)}"
        )
    where = {key: tuple(str(value) for value in row.find.where[key]) for key in row.find.where}
    return replace(row, find=replace(row.find, where=where))


def _checked_arguments(
    kind: type[T], data: Any, place: str, excluded: Sequence[str] = ()
) -> dict[str, Any]:
    """Validate keys and value types of ``data`` and return it as arguments of the dataclass."""
    if not isinstance(data, dict):
        raise InvalidRequest(f"{place} must be a map of settings")
    fields_by_name = {f.name: f for f in fields(kind) if f.name not in excluded}  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in data if key not in fields_by_name)
    if unknown:
        raise InvalidRequest(
            f"{place}: unknown key {unknown[0]}; valid keys are {', '.join(sorted(fields_by_name))}"
        )
    for name, value in data.items():
        expected = _TYPES_BY_ANNOTATION[str(fields_by_name[name].type).partition("[")[0]]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise InvalidRequest(
                f"{place}.{name} must be {_TYPE_NAMES[expected]}, not {value!r}", key=name
            )
        if expected is list and not all(isinstance(item, str) for item in value):
            raise InvalidRequest(
                f"{place}.{name} must be a list of strings, not {value!r}", key=name
            )
    return dict(data)


# Field annotations are strings, because of ``from __future__ import annotations``.
_TYPES_BY_ANNOTATION: Mapping[str, Any] = {
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
_TYPE_NAMES: Mapping[Any, str] = {
    str: "a string",
    int: "a whole number",
    (int, float): "a number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a map",
}
