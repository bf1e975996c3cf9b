"""Parse and validate the YAML file of `bai apply`; errors name the file and the line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import yaml

from bai_services.core.bounded_yaml import BoundedLoader
from bai_services.core.client_networks import check_networks
from bai_services.core.cluster.model import canonical_image
from bai_services.core.counts import with_article
from bai_services.core.errors import InvalidRequest

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
)
from .fields import Field, FieldKind, validate_value

# Dependency order: a section comes after the sections that it refers to. Aliases of images are
# applied after the images; members of projects and links of resource groups after all sections.
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
# Fields of the file that are not fields of the API object.
FILE_ONLY_FIELDS: Mapping[str, tuple[Field, ...]] = {
    PROJECT.section: (Field("members", "User names.", FieldKind.LIST),),
    IMAGE.section: (Field("aliases", "Short names.", FieldKind.LIST),),
    RESOURCE_GROUP.section: (
        Field("links", "Domains, projects and so on that may use the group.", FieldKind.MAP),
    ),
    USER.section: (
        Field("password_file", "File with the initial password."),
        Field("password_env", "Environment variable with the initial password."),
        Field(
            "generate_password", "Generate an initial password and print it once.", FieldKind.FLAG
        ),
    ),
}
# The domain is required, because the default would be the domain of the user who applies the file.
EXTRA_REQUIRED_FIELDS: Mapping[str, tuple[str, ...]] = {
    PROJECT.section: ("domain",),
    USER.section: ("domain",),
}
# The field that, together with the key, identifies an object of the section.
SCOPE_FIELD: Mapping[str, str] = {
    PROJECT.section: "domain",
    PRESET.section: "resource_group",
    IMAGE.section: "architecture",
}


class PasswordSource(Enum):
    """Placeholder for an initial password that is not generated yet."""

    GENERATED = auto()  # generated when the user is created


@dataclass(frozen=True, slots=True)
class Item:
    """One declared object.

    ``scope`` is the value of the section's ``SCOPE_FIELD``; empty for a section without that field.
    ``extras`` are the values of ``FILE_ONLY_FIELDS``, ``location`` is ``FILE:LINE``. If the file
    declares no initial password, ``password`` is None.
    """

    key: str
    scope: str
    values: Mapping[str, Any]
    extras: Mapping[str, Any]
    location: str
    password: str | PasswordSource | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.key}" if self.scope else self.key


def load_declaration(path: Path, environ: Mapping[str, str] = os.environ) -> dict[str, list[Item]]:
    """Return the declared objects by section.

    Raises
    ------
    InvalidRequest
        If the file cannot be read, or contains invalid YAML, an unknown section or field, an
        invalid value or a duplicate declaration, or lacks a required field or a password. The
        message names the file; if the file could be read, also the line.
    """
    try:
        loader = BoundedLoader(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}", file=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _error_at(f"{path}:1", f"not a YAML text file: {error}") from None
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        found: dict[str, list[Item]] = {}
        for name, location, node in _entries(loader, root, str(path)):
            entity = next((e for e in SECTIONS if e.section == name), None)
            if entity is None:
                known = ", ".join(e.section for e in SECTIONS)
                raise _error_at(location, f"unknown section {name!r}; sections are {known}")
            found[name] = _items(loader, entity, node, path, environ)
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _error_at(f"{path}:{line}", f"invalid YAML: {error.problem}") from None
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
        raise _error_at(_location(path, node), f"{entity.section} must be a list")
    found: dict[tuple[str, str], Item] = {}
    for child in node.value:
        item = _item(loader, entity, child, path, environ)
        other = found.setdefault((item.scope, item.key), item)
        if other is not item:
            text = f"duplicate {entity.noun} {item.name}; the first is at {other.location}"
            raise _error_at(item.location, text)
    return list(found.values())


def _item(
    loader: BoundedLoader,
    entity: Entity,
    node: yaml.Node,
    path: Path,
    environ: Mapping[str, str],
) -> Item:
    location = _location(path, node)
    file_only = FILE_ONLY_FIELDS.get(entity.section, ())
    allowed = {f.name: f for f in (Field(entity.key, ""), *entity.fields, *file_only)}
    values: dict[str, Any] = {}
    for name, entry_location, value in _entries(loader, node, str(path)):
        if name not in allowed:
            noun, fields = with_article(entity.noun), ", ".join(allowed)
            text = f"unknown field {name!r} of {noun}; fields are {fields}"
            raise _error_at(entry_location, text)
        try:
            values[name] = validate_value(allowed[name], loader.construct_object(value, deep=True))
            if name == "allowed_client_ip" and values[name]:
                values[name] = check_networks(values[name])
        except InvalidRequest as error:
            raise _error_at(entry_location, error.message) from None
    scope = SCOPE_FIELD.get(entity.section)
    required = [entity.key, *(f.name for f in entity.fields if f.is_required)]
    required += EXTRA_REQUIRED_FIELDS.get(entity.section, ())
    for name in required:
        if not values.get(name):
            raise _error_at(location, f"required field {name!r} of this {entity.noun} is missing")
    if entity is USER:
        # The hub stores names and e-mail addresses in lower case.
        values |= {name: values[name].lower() for name in ("username", "email")}
    if entity is IMAGE:
        try:
            values["name"] = canonical_image(values["name"])
        except InvalidRequest as error:
            raise _error_at(location, error.message) from None
    if entity is RESOURCE_GROUP:
        _check_links(values.get("links", {}), location)
    extras = {f.name: values.pop(f.name) for f in file_only if f.name in values}
    return Item(
        key=values.pop(entity.key),
        scope=values.get(scope, "") if scope else "",
        extras=extras,
        values=values,
        location=location,
        password=_initial_password(extras, location, path, environ) if entity is USER else None,
    )


def _entries(
    loader: BoundedLoader, node: yaml.Node, path: str
) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield name, location and node of each entry of a mapping; a duplicate key is an error."""
    if not isinstance(node, yaml.MappingNode):
        raise _error_at(f"{path}:{node.start_mark.line + 1}", "expected a mapping")
    loader.flatten_mapping(node)
    seen: set[str] = set()
    for key, value in node.value:
        location = f"{path}:{key.start_mark.line + 1}"
        name = str(loader.construct_object(key, deep=True))
        if name in seen:
            raise _error_at(location, f"duplicate key {name!r}")
        seen.add(name)
        yield name, location, value


def _check_links(links: Mapping[str, Any], location: str) -> None:
    for kind, targets in links.items():
        if kind not in LINK_KINDS or not isinstance(targets, list):
            raise _error_at(location, "links must map domain, project, user or keypair to lists")
        if kind == "project" and not all("/" in str(target) for target in targets):
            raise _error_at(location, "write a linked project as DOMAIN/NAME")


def _initial_password(
    extras: Mapping[str, Any], location: str, path: Path, environ: Mapping[str, str]
) -> str | PasswordSource | None:
    """Return the declared initial password, ``GENERATED``, or None."""
    sources = [name for name, value in extras.items() if value]
    if len(sources) > 1:
        raise _error_at(location, f"{' and '.join(sources)} are mutually exclusive")
    if not sources:
        return None
    if sources == ["generate_password"]:
        return PasswordSource.GENERATED
    if sources == ["password_env"]:
        password = environ.get(extras["password_env"], "")
        source = f"environment variable {extras['password_env']}"
    else:
        # The path is relative to the YAML file, not to the working directory.
        file = path.parent / extras["password_file"]
        source = str(file)
        try:
            password = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise _error_at(location, f"{source}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _error_at(location, f"{source}: not a UTF-8 text file") from None
    if not password:
        raise _error_at(location, f"{source} contains no password")
    return password


def _location(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _error_at(location: str, text: str) -> InvalidRequest:
    file, _, line = location.rpartition(":")
    return InvalidRequest(f"{location}: {text}", file=file, line=int(line))
