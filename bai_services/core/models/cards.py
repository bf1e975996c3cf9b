"""Model cards: fields from a model definition and a README, and their rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..display_text import text_problem
from ..errors import BaiError, InvalidRequest
from ..resources import CPU, MEM, SHARE_UNIT, ResourceSlots
from ..serving.definition import FILE_NAME, parse_definition
from ..user_input import number_text, shown

README_NAMES = ("README.md", "readme.md")
MAX_README_BYTES = 128 * 1024
MAX_TITLE = 255
MAX_DESCRIPTION = 2000
MAX_TAGS = 32
MAX_TAG = 64
MAX_PROBLEM = 500
_PART = re.compile(r"(\d+)|([^\W\d_]+)")
_MAX_VERSION_PARTS = 16
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?\r?\n---\r?\n", re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardContent:
    """The content of a card, read from the files of its folder.

    ``created``, ``last_modified``: texts from the metadata. ``min_resources``: minimum resources of
    a replica, as in a session request. ``has_command``: the definition has a command for the
    server. ``problem``: why the definition is not valid, "" if it is valid; ``problem_line``: line
    of the problem.
    """

    name: str = ""
    title: str = ""
    version: str = ""
    author: str = ""
    description: str = ""
    task: str = ""
    category: str = ""
    architecture: str = ""
    license: str = ""
    created: str = ""
    last_modified: str = ""
    frameworks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    min_resources: Mapping[str, str] | None = None
    has_command: bool = False
    readme: str = ""
    problem: str = ""
    problem_line: int | None = None


def card_content(definition: str | None, readme: str) -> CardContent:
    """Return the card of a folder; ``definition`` is None if the folder has no definition.

    The run time grows with the size of the texts, so call this function outside the event loop.
    """
    text = _without_front_matter(readme)
    if definition is None:
        return CardContent(readme=text, problem=f"the folder has no {FILE_NAME}")
    try:
        parsed = parse_definition(definition)
        fields = _metadata_fields(parsed.metadata)
        name = _line("name", parsed.name, MAX_TITLE)
    except BaiError as error:
        line = error.details.get("line")
        return CardContent(
            readme=text,
            problem=error.message[:MAX_PROBLEM],
            problem_line=line if isinstance(line, int) else None,
        )
    return CardContent(name=name, has_command=bool(parsed.command), readme=text, **fields)


def _without_front_matter(readme: str) -> str:
    """Remove the YAML block (metadata of other sites) at the beginning of a README."""
    return _FRONT_MATTER.sub("", readme, count=1)


def _metadata_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        field: _line(field, metadata.get(field), MAX_TITLE)
        for field in (
            "title", "version", "author", "task", "category", "architecture", "license", "created",
            "last_modified",
        )
    }  # fmt: skip
    fields["description"] = _line("description", metadata.get("description"), MAX_DESCRIPTION, True)
    fields["frameworks"] = _tags("framework", metadata.get("framework"))
    fields["labels"] = _tags("label", metadata.get("label"))
    fields["min_resources"] = _resources(metadata.get("min_resource"))
    return fields


def _line(field: str, value: object, limit: int, is_multiline: bool = False) -> str:
    if value is None:
        return ""
    given = number_text(value)
    if given is None:
        raise InvalidRequest(f"{FILE_NAME}: {field} must be a string", field=field)
    text = given.strip()
    if len(text) > limit:
        raise InvalidRequest(f"{FILE_NAME}: {field} has more than {limit} characters", field=field)
    if problem := text_problem(text, is_multiline=is_multiline):
        raise InvalidRequest(f"{FILE_NAME}: {field}: {problem}", field=field)
    return text


def _tags(field: str, value: object) -> tuple[str, ...]:
    """Return a list of tags, sorted because filters compare the stored texts."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if len(values) > MAX_TAGS:
        raise InvalidRequest(f"{FILE_NAME}: {field} has more than {MAX_TAGS} values", field=field)
    tags = {_line(field, each, MAX_TAG).replace(",", " ") for each in values}
    return tuple(sorted(tag for tag in tags if tag))


def _resources(value: object) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_TAGS:
        raise InvalidRequest(
            f"{FILE_NAME}: min_resource must be a mapping such as {{cpu: 1, mem: 2g}}",
            field="min_resource",
        )
    amounts: dict[str, str | int | float] = {}
    for slot, amount in value.items():
        if not isinstance(amount, str | int | float) or isinstance(amount, bool):
            raise InvalidRequest(
                f"{FILE_NAME}: min_resource: {shown(slot)!r} must be an amount",
                field="min_resource",
            )
        amounts[slot] = amount
    return ResourceSlots.parse(amounts).format()


def resources_text(resources: Mapping[str, str] | None) -> str:
    """Return resources in their stored form: JSON with sorted keys, so that equal resources have
    equal texts.
    """
    return json.dumps(dict(resources or {}), sort_keys=True)


def version_key(version: str) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a version: ``1.9`` comes before ``1.10``, ``1.0rc`` before ``1.0``.

    The empty version comes first.
    """
    parts: list[tuple[int, str]] = []
    for number, word in _PART.findall(version)[:_MAX_VERSION_PARTS]:
        # Sort order: a word, the end of the version, a number. Numbers are compared by their number
        # of digits first; ``int`` would be slow for a long text.
        digits = number.lstrip("0")
        parts.append((2 + len(digits), digits) if number else (0, word.lower()))
    is_empty = not parts
    return ((-1, ""),) if is_empty else (*parts, (1, ""))


def latest(versions: Mapping[str, str]) -> str | None:
    """Return the key of the highest version; of equal versions, the highest key. None if empty."""
    return max(versions, key=lambda key: (version_key(versions[key]), key), default=None)


def satisfies(slots: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    """Return whether ``slots`` satisfy ``needs``; whole devices also satisfy a need for shares."""
    return all(_available(slots, slot) >= amount for slot, amount in needs.items())


def _available(slots: Mapping[str, int], slot: str) -> int:
    family, dot, unit = slot.partition(".")
    devices = slots.get(f"{family}.device", 0) if dot and unit == "shares" else 0
    return max(slots.get(slot, 0), devices * SHARE_UNIT)


def fitting(needs: Iterable[str], maxima: Mapping[str, int]) -> list[str]:
    """Return those ``resources_text`` values in ``needs`` that ``maxima`` satisfy."""
    return [text for text in needs if satisfies(maxima, ResourceSlots.parse(json.loads(text)))]


def smallest(offers: Sequence[tuple[T, Mapping[str, int]]], needs: Mapping[str, int]) -> T | None:
    """Return the smallest offer that satisfies ``needs``; None if no offer is large enough.

    Offers are compared by their devices, then memory, then cores. The first of equal offers is
    returned.
    """
    suitable = [offer for offer in offers if satisfies(offer[1], needs)]
    return min(suitable, key=lambda offer: _size(offer[1]), default=(None, {}))[0]


def _size(slots: Mapping[str, int]) -> tuple[int, int, int]:
    devices = sum(
        amount if slot.endswith(".shares") else amount * SHARE_UNIT
        for slot, amount in slots.items()
        if slot not in (CPU, MEM)
    )
    return devices, slots.get(MEM, 0), slots.get(CPU, 0)
