"""Compute the changes that make the hub match a file. Pure functions: no requests are sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..command import segment
from .declaration import SCOPE_FIELD, Item, PasswordSource
from .entities import IMAGE, IMAGE_ALIAS, PROJECT, RESOURCE_GROUP, USER, Entity
from .fields import comparable

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One request to the hub; ``fields`` maps each changed field to its old and new value."""

    action: str  # create, update, delete
    kind: str
    name: str
    method: str
    path: str
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    body: Any = None
    # Initial password of a new user; added to the body only when the request is sent.
    password: str | PasswordSource | None = field(default=None, repr=False)

    def document(self) -> dict[str, Any]:
        """Return the change as ``--json`` prints it."""
        fields = {name: {"from": old, "to": new} for name, (old, new) in self.fields.items()}
        return {"action": self.action, "kind": self.kind, "name": self.name, "fields": fields}


def section_changes(entity: Entity, items: Sequence[Item], rows: Sequence[Row]) -> list[Change]:
    """Return the changes that create or update objects, in the order of the file."""
    changes = []
    for item in items:
        row = next((row for row in rows if _is_match(entity, item, row)), None)
        change = _creation(entity, item) if row is None else _update(entity, item, row)
        if change is not None:
            changes.append(change)
    return changes


def deletions(
    entity: Entity, items: Sequence[Item], rows: Sequence[Row], keep: Collection[str]
) -> list[Change]:
    """Return the changes that delete undeclared objects.

    Objects with a key in ``keep`` and users that are already deleted are left out.
    """
    return [
        Change("delete", entity.command, _name(entity, row), "DELETE", _path(entity, row))
        for row in rows
        if row[entity.key] not in keep
        and not _is_deleted_user(entity, row)
        and not any(_is_match(entity, item, row) for item in items)
    ]


def member_changes(
    item: Item, project_id: str | None, current: Iterable[str], *, prunes: bool
) -> list[Change]:
    """Return the changes that add members to a project and, with ``prunes``, remove members."""
    path = f"{PROJECT.path}/{segment(project_id or item.key)}/members"
    return _relation_changes(
        "member", item.name, path, item.extras.get("members", ()), current, prunes=prunes
    )


def link_changes(item: Item, current: Iterable[str], *, prunes: bool) -> list[Change]:
    """Return the changes that add links to a resource group and, with ``prunes``, remove links.

    ``current`` contains the existing links in the form ``kind/target``, with the target
    URL-encoded.
    """
    declared = [
        f"{kind}/{segment(str(target))}"
        for kind, targets in item.extras.get("links", {}).items()
        for target in targets
    ]
    path = f"{RESOURCE_GROUP.path}/{segment(item.key)}/links"
    return _relation_changes(
        "link", item.name, path, declared, current, prunes=prunes, is_quoted=True
    )


def alias_changes(item: Item, current: Mapping[str, str], *, prunes: bool) -> list[Change]:
    """Return the changes that create or move aliases of an image and, with ``prunes``, delete them.

    ``current`` maps every alias to its image.
    """
    changes = []
    declared = item.extras.get("aliases", ())
    for alias in declared:
        before = current.get(alias)
        if before == item.key:
            continue
        path, body = IMAGE_ALIAS.path, {"image": item.key}
        if before is None:
            action, method = "create", "POST"
            body["alias"] = alias
        else:
            action, method = "update", "PATCH"
            path += f"/{segment(alias)}"
        fields = {"image": (before, item.key)}
        changes.append(Change(action, IMAGE_ALIAS.command, alias, method, path, fields, body))
    existing = {alias for alias, image in current.items() if image == item.key}
    for alias in sorted(existing - set(declared)) if prunes else ():
        path = f"{IMAGE_ALIAS.path}/{segment(alias)}"
        changes.append(Change("delete", IMAGE_ALIAS.command, alias, "DELETE", path))
    return changes


def _relation_changes(
    kind: str,
    owner: str,
    path: str,
    declared: Iterable[str],
    current: Iterable[str],
    *,
    prunes: bool,
    is_quoted: bool = False,
) -> list[Change]:
    """Return the changes that create relations and, with ``prunes``, delete undeclared ones.

    ``is_quoted``: the targets are already URL-encoded.
    """
    targets, existing = dict.fromkeys(declared), set(current)

    def change(action: str, method: str, target: str) -> Change:
        end = target if is_quoted else segment(target)
        return Change(action, kind, f"{owner}: {target}", method, f"{path}/{end}")

    added = [change("create", "PUT", target) for target in targets if target not in existing]
    if not prunes:
        return added
    return added + [change("delete", "DELETE", t) for t in sorted(existing - set(targets))]


def _creation(entity: Entity, item: Item) -> Change:
    body = {entity.key: item.key, **item.values}
    fields = {name: (None, value) for name, value in item.values.items()}
    return Change(
        "create",
        entity.command,
        item.name,
        "POST",
        entity.path,
        fields,
        body,
        item.password,
    )


def _update(entity: Entity, item: Item, row: Row) -> Change | None:
    values = dict(item.values)
    if _is_deleted_user(entity, row):
        # If a deleted account is declared again, reactivate it.
        values.setdefault("status", "active")
    fields: dict[str, tuple[Any, Any]] = {}
    for name, value in values.items():
        spec = entity.field(name)
        assert spec is not None
        if spec.is_immutable or comparable(spec, row.get(name)) == comparable(spec, value):
            continue
        fields[name] = (row.get(name), value)
    if not fields:
        return None
    body = {name: new for name, (_, new) in fields.items()}
    path = _path(entity, row)
    return Change("update", entity.command, item.name, "PATCH", path, fields, body)


def _is_deleted_user(entity: Entity, row: Row) -> bool:
    return entity is USER and row.get("status") == "deleted"


def _path(entity: Entity, row: Row) -> str:
    return f"{entity.path}/{segment(str(row[entity.id]))}"


def _is_match(entity: Entity, item: Item, row: Row) -> bool:
    """Return whether the item declares the object ``row``."""
    if row[entity.key] != item.key:
        return False
    # A declared image without an architecture matches any architecture.
    is_any = entity is IMAGE and not item.scope
    return is_any or _scope(entity, row) == item.scope


def _scope(entity: Entity, row: Row) -> str:
    name = SCOPE_FIELD.get(entity.section)
    return str(row.get(name) or "") if name else ""


def _name(entity: Entity, row: Row) -> str:
    return "/".join(part for part in (_scope(entity, row), str(row[entity.key])) if part)
