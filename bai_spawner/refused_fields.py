"""Mapping of a refusal by the manager to fields of the start form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bai_services.core import errors
from bai_services.i18n.catalogue import Translator

# Fields of a request: the key of the label's text and the id of the form element.
FIELDS: Mapping[str, tuple[str, str]] = {
    "name": ("name", "bai-name"),
    "project": ("project", "bai-project"),
    "resource_group": ("resource-group", "bai-group"),
    "image": ("image", "bai-image"),
    "preset": ("preset", "bai-preset"),
    "shared_memory": ("shared-memory", "bai-shm"),
    "preopen_ports": ("ports", "bai-ports"),
}
PARTS_OF_MOUNTS: Mapping[str, str] = {
    "vfolder": "folder",
    "subpath": "mount-subpath",
    "path": "mount-path",
    "permission": "permission",
}
# Sections whose rows are created by the page's script.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "resources": ("resources", "bai-amounts"),
    "mounts": ("folders", "bai-mounts"),
    "environ": ("environment", "bai-environ"),
    "secret_environ": ("environment", "bai-environ"),
}
IN_DETAILS = ("bai-name", "bai-shm", "bai-ports", "bai-environ")


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A refused field of a request, the problem, and where the form shows it.

    ``element`` is the id of the form element, empty where the form has none; ``section`` the id of
    the element that contains the rows, if it is a row; ``key`` the slot, variable or row.
    """

    field: str
    text: str
    label: str
    element: str
    section: str = ""
    key: str = ""
    part: str = ""

    @property
    def is_in_details(self) -> bool:
        return (self.section or self.element) in IN_DETAILS

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def problems_of(error: errors.BaiError) -> tuple[tuple[str, str], ...]:
    """Return field and problem for everything that a refusal reports by field."""
    given = error.details.get("problems")
    if isinstance(given, list):
        found = [each for each in given if isinstance(each, Mapping)]
        return tuple((str(each.get("field", "")), str(each.get("problem", ""))) for each in found)
    field = error.details.get("field")
    return ((str(field), error.message),) if field else ()


def refused_fields(
    problems: Sequence[tuple[str, str]], translate: Translator, label_of: Any
) -> list[RefusedField]:
    """Return where the form shows each problem; ``label_of`` returns the label of a slot."""
    return [_placed(field, text, translate, label_of) for field, text in problems]


def _placed(field: str, text: str, translate: Translator, label_of: Any) -> RefusedField:
    name, _, rest = field.partition(".")
    if name in FIELDS:
        key, element = FIELDS[name]
        return RefusedField(field, text, translate(f"spawn.{key}"), element)
    if name not in SECTIONS:
        return RefusedField(field, text, field, "")
    key, section = SECTIONS[name]
    label = translate(f"spawn.{key}")
    if not rest:
        return RefusedField(field, text, label, section, section)
    if name == "resources":
        return RefusedField(field, text, label_of(rest), _id("bai-amount", rest), section, rest)
    if name == "mounts":
        row, _, part = rest.partition(".")
        named = translate(f"spawn.{PARTS_OF_MOUNTS.get(part, 'folder')}")
        number = f" {int(row) + 1}" if row.isascii() and row.isdigit() else ""
        element = _id("bai-mount", rest)
        return RefusedField(field, text, named + number, element, section, row, part or "vfolder")
    return RefusedField(field, text, rest, _id("bai-variable", rest), section, rest)


def _id(prefix: str, rest: str) -> str:
    return f"{prefix}-{re.sub(r'[^A-Za-z0-9_]', '-', rest)}"
