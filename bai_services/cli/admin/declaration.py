"""The YAML of `bai apply`: read, checked, with the line of everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bai_services.core.cluster.model import canonical_image
from bai_services.core.errors import InvalidRequest
from bai_services.core.names import check_networks

from .bounded_yaml import BoundedLoader
from .entities import (
    DOMAIN,
    IMAGE,
    KEYPAIR_POLICY,
    PRESET,
    PROJECT,
    PROJECT_POLICY,
    RESOURCE_GROUP,
    USER,
    USER_POLICY,
    Entity,
    Field,
    FieldKind,
    checked,
)

# What refers to others comes after them.
SECTIONS = (
    KEYPAIR_POLICY,
    USER_POLICY,
    PROJECT_POLICY,
    IMAGE,
    DOMAIN,
    PROJECT,
    USER,
    RESOURCE_GROUP,
    PRESET,
)

LINK_KINDS = ("domain", "project", "user", "keypair")
# Fields of the file that are no fields of the thing itself.
EXTRAS: Mapping[str, tuple[Field, ...]] = {
    PROJECT.section: (Field("members", "User names.", FieldKind.LIST),),
    IMAGE.section: (Field("aliases", "Short names.", FieldKind.LIST),),
    RESOURCE_GROUP.section: (Field("links", "Who may use it, by kind.", FieldKind.MAP),),
    USER.section: (
        Field("password_file", "File with the first password."),
        Field("password_env", "Environment variable with the first password."),
        Field("generate_password", "Make a first password and show it once.", FieldKind.FLAG),
    ),
}
# A file means the same whoever applies it: it names the domain.
REQUIRED: Mapping[str, tuple[str, ...]] = {PROJECT.section: ("domain",), USER.section: ("domain",)}
# What tells two things of a section apart, beside the key.
SCOPES: Mapping[str, str] = {
    PROJECT.section: "domain",
    PRESET.section: "resource_group",
    IMAGE.section: "architecture",
}
GENERATED = object()


@dataclass(frozen=True, slots=True)
class Item:
    """One thing as the file describes it; ``password`` is kept out of sight."""

    key: str
    scope: str
    values: Mapping[str, Any]
    extras: Mapping[str, Any]
    place: str
    password: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.key}" if self.scope else self.key


def read(path: Path, environ: Mapping[str, str] = os.environ) -> dict[str, list[Item]]:
    """Return the things that the file describes, by section.

    Raises
    ------
    InvalidRequest
        With file and line, if it is no YAML, if it has a key that nobody knows
        or a value of the wrong kind, or if something is described twice.
    """
    try:
        loader = BoundedLoader(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(f"{path}:1", f"this cannot be read as YAML text: {error}") from None
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        found: dict[str, list[Item]] = {}
        for name, place, node in _entries(loader, root, str(path)):
            entity = next((e for e in SECTIONS if e.section == name), None)
            if entity is None:
                known = ", ".join(e.section for e in SECTIONS)
                raise _wrong(place, f"there is no section {name!r}; sections are {known}")
            found[name] = _items(loader, entity, node, path, environ)
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _wrong(f"{path}:{line}", f"this is no YAML: {error.problem}") from None
    finally:
        loader.dispose()


def _items(
    loader: BoundedLoader,
    entity: Entity,
    node: yaml.Node,
    path: Path,
    environ: Mapping[str, str],
) -> list[Item]:
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(_place(path, node), f"{entity.section} is not a list")
    found: dict[tuple[str, str], Item] = {}
    for child in node.value:
        item = _item(loader, entity, child, path, environ)
        other = found.setdefault((item.scope, item.key), item)
        if other is not item:
            text = f"{entity.command} {item.name} is described at {other.place} already"
            raise _wrong(item.place, text)
    return list(found.values())


def _item(
    loader: BoundedLoader,
    entity: Entity,
    node: yaml.Node,
    path: Path,
    environ: Mapping[str, str],
) -> Item:
    place = _place(path, node)
    extras = EXTRAS.get(entity.section, ())
    allowed = {f.name: f for f in (Field(entity.key, ""), *entity.fields, *extras)}
    values: dict[str, Any] = {}
    for name, where, value in _entries(loader, node, str(path)):
        if name not in allowed:
            text = f"a {entity.command} has no {name!r}; it has {', '.join(allowed)}"
            raise _wrong(where, text)
        try:
            values[name] = checked(allowed[name], loader.construct_object(value, deep=True))
            if name == "allowed_client_ip" and values[name]:
                values[name] = check_networks(values[name])
        except InvalidRequest as error:
            raise _wrong(where, error.message) from None
    scope = SCOPES.get(entity.section)
    needed = [entity.key, *(f.name for f in entity.fields if f.is_required)]
    needed += REQUIRED.get(entity.section, ())
    for name in needed:
        if not values.get(name):
            raise _wrong(place, f"this {entity.command} lacks {name!r}")
    if entity is USER:
        # Names and addresses are kept in lower case.
        values |= {name: values[name].lower() for name in ("username", "email")}
    if entity is IMAGE:
        try:
            values["name"] = canonical_image(values["name"])
        except InvalidRequest as error:
            raise _wrong(place, error.message) from None
    if entity is RESOURCE_GROUP:
        _check_links(values.get("links", {}), place)
    beside = {f.name: values.pop(f.name) for f in extras if f.name in values}
    return Item(
        key=values.pop(entity.key),
        scope=values.get(scope, "") if scope else "",
        extras=beside,
        values=values,
        place=place,
        password=_password(beside, place, path, environ) if entity is USER else None,
    )


def _entries(
    loader: BoundedLoader, node: yaml.Node, path: str
) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield name, place and node of each entry of a map; a name twice is an error."""
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(f"{path}:{node.start_mark.line + 1}", "this is not a map of names to values")
    loader.flatten_mapping(node)
    seen: set[str] = set()
    for key, value in node.value:
        place = f"{path}:{key.start_mark.line + 1}"
        name = str(loader.construct_object(key, deep=True))
        if name in seen:
            raise _wrong(place, f"{name!r} stands here twice")
        seen.add(name)
        yield name, place, value


def _check_links(links: Mapping[str, Any], place: str) -> None:
    for kind, targets in links.items():
        if kind not in LINK_KINDS or not isinstance(targets, list):
            raise _wrong(place, f"links are lists under {', '.join(LINK_KINDS)}")
        if kind == "project" and not all("/" in str(target) for target in targets):
            raise _wrong(place, "a project is linked as DOMAIN/NAME")


def _password(beside: Mapping[str, Any], place: str, path: Path, environ: Mapping[str, str]) -> Any:
    """Return the first password that is referred to, ``GENERATED``, or None."""
    ways = [name for name, value in beside.items() if value]
    if len(ways) > 1:
        raise _wrong(place, f"{' and '.join(ways)} exclude each other")
    if not ways:
        return None
    if ways == ["generate_password"]:
        return GENERATED
    if ways == ["password_env"]:
        password = environ.get(beside["password_env"], "")
        source = f"the environment variable {beside['password_env']}"
    else:
        # Beside the description, wherever the command is called from.
        file = path.parent / beside["password_file"]
        source = str(file)
        try:
            password = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise _wrong(place, f"{source}: {error.strerror}") from None
    if not password:
        raise _wrong(place, f"{source} holds no password")
    return password


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _wrong(place: str, text: str) -> InvalidRequest:
    file, _, line = place.rpartition(":")
    return InvalidRequest(f"{place}: {text}", file=file, line=int(line))
