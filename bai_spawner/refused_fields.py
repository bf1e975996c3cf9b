"""Mapping of the manager's validation errors to fields of the start form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bai_services.core import errors
from bai_services.i18n.catalogue import Translator

# Request field → (message key of its label, id of its form element).
FIELDS: Mapping[str, tuple[str, str]] = {
    "name": ("name", "bai-name"),
    "project": ("project", "bai-project"),
    "resource_group": ("resource-group", "bai-group"),
    "image": ("image", "bai-image"),
    "preset": ("preset", "bai-preset"),
    "shared_memory": ("shared-memory", "bai-shm"),
    "preopen_ports": ("ports", "bai-ports"),
}
# Column of a mount row → message key of its label.
MOUNT_COLUMNS: Mapping[str, str] = {
    "vfolder": "folder",
    "subpath": "mount-subpath",
    "path": "mount-path",
    "permission": "permission",
}
# Request field → (message key of its label, id of the list); the page's script creates the rows.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "resources": ("resources", "bai-amounts"),
    "mounts": ("folders", "bai-mounts"),
    "environ": ("environment", "bai-environ"),
    "secret_environ": ("environment", "bai-environ"),
}
# Ids of the elements in the collapsible section "More settings".
ADVANCED = ("bai-name", "bai-shm", "bai-ports", "bai-environ")


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A refused field of a request, the problem, and where the form shows it.

    ``element`` is the id of the form element, empty if the form has none. ``section`` is the id of
    the list to which the field belongs, empty if it belongs to none. For a row of a list, ``key``
    is the slot, variable name or row number. ``part`` is the column of a mount.
    """

    field: str
    problem: str
    label: str
    element: str
    section: str = ""
    key: str = ""
    part: str = ""

    @property
    def is_in_advanced_section(self) -> bool:
        return (self.section or self.element) in ADVANCED

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def problems_of(error: errors.BaiError) -> tuple[tuple[str, str], ...]:
    """Return the (field, problem) pairs of a validation error; empty if it names no field."""
    given = error.details.get("problems")
    if isinstance(given, list):
        problems = [each for each in given if isinstance(each, Mapping)]
        return tuple((str(p.get("field", "")), str(p.get("problem", ""))) for p in problems)
    field = error.details.get("field")
    return ((str(field), error.message),) if field else ()


def refused_fields(
    problems: Sequence[tuple[str, str]], translate: Translator, label_of: Callable[[str], str]
) -> list[RefusedField]:
    """Return where the form shows each problem; ``label_of`` returns the label of a slot."""
    return [_refused_field(field, problem, translate, label_of) for field, problem in problems]


def _refused_field(
    field: str, problem: str, translate: Translator, label_of: Callable[[str], str]
) -> RefusedField:
    name, _, rest = field.partition(".")
    if name in FIELDS:
        key, element = FIELDS[name]
        return RefusedField(field, problem, translate(f"spawn.{key}"), element)
    if name not in SECTIONS:
        return RefusedField(field, problem, field, "")
    key, section = SECTIONS[name]
    label = translate(f"spawn.{key}")
    if not rest:
        return RefusedField(field, problem, label, section, section)
    if name == "resources":
        return RefusedField(field, problem, label_of(rest), _id("bai-amount", rest), section, rest)
    if name == "mounts":
        row, _, column = rest.partition(".")
        label = translate(f"spawn.{MOUNT_COLUMNS.get(column, 'folder')}")
        if row.isascii() and row.isdigit():
            label += f" {int(row) + 1}"
        element = _id("bai-mount", rest)
        return RefusedField(field, problem, label, element, section, row, column or "vfolder")
    return RefusedField(field, problem, rest, _id("bai-variable", rest), section, rest)


def _id(prefix: str, rest: str) -> str:
    return f"{prefix}-{re.sub(r'[^A-Za-z0-9_]', '-', rest)}"
