"""What must change so that the hub is as a file describes it. Pure: nothing is asked or done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..command import segment
from .declaration import SCOPES, Item
from .entities import IMAGE, IMAGE_ALIAS, PROJECT, RESOURCE_GROUP, USER, Entity, comparable

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One request that brings the hub nearer; ``fields`` maps a field to before and after."""

    action: str  # create, update, delete
    kind: str
    name: str
    method: str
    path: str
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    body: Any = None
    # Of a person to be created; goes into the body when the change is made, nowhere else.
    password: Any = field(default=None, repr=False)

    def document(self) -> dict[str, Any]:
        """Return the change as ``--json`` shows it."""
        fields = {name: {"from": old, "to": new} for name, (old, new) in self.fields.items()}
        return {"action": self.action, "kind": self.kind, "name": self.name, "fields": fields}


def of_section(entity: Entity, items: Sequence[Item], rows: Sequence[Row]) -> list[Change]:
    """Return what to create and what to update, in the order of the file."""
    changes = []
    for item in items:
        row = next((row for row in rows if _is_meant(entity, item, row)), None)
        change = _creation(entity, item) if row is None else _update(entity, item, row)
        if change is not None:
            changes.append(change)
    return changes


def surplus(
    entity: Entity, items: Sequence[Item], rows: Sequence[Row], keep: Collection[str]
) -> list[Change]:
    """Return what to delete because the file lacks it; keys in ``keep`` stay."""
    return [
        Change("delete", entity.command, _name(entity, row), "DELETE", _path(entity, row))
        for row in rows
        if row[entity.key] not in keep
        and not _is_gone(entity, row)
        and not any(_is_meant(entity, item, row) for item in items)
    ]


def of_members(
    item: Item, project_id: str | None, current: Iterable[str], *, prunes: bool
) -> list[Change]:
    """Return whom to take into a project and, with ``prunes``, whom to take out."""
    path = f"{PROJECT.path}/{segment(project_id or item.key)}/members"
    return _relations(
        "member", item.name, path, item.extras.get("members", ()), current, prunes=prunes
    )


def of_links(item: Item, current: Iterable[str], *, prunes: bool) -> list[Change]:
    """Return whom to let use a resource group; a link is written ``kind/target``."""
    described = [
        f"{kind}/{segment(str(target))}"
        for kind, targets in item.extras.get("links", {}).items()
        for target in targets
    ]
    path = f"{RESOURCE_GROUP.path}/{segment(item.key)}/links"
    return _relations("link", item.name, path, described, current, prunes=prunes, is_quoted=True)


def of_aliases(item: Item, current: Mapping[str, str], *, prunes: bool) -> list[Change]:
    """Return which aliases to give an image; ``current`` maps every alias to its image."""
    changes = []
    described = item.extras.get("aliases", ())
    for alias in described:
        before = current.get(alias)
        if before == item.key:
            continue
        path = IMAGE_ALIAS.path if before is None else f"{IMAGE_ALIAS.path}/{segment(alias)}"
        action, method = ("create", "POST") if before is None else ("update", "PATCH")
        body = {"image": item.key} | ({"alias": alias} if before is None else {})
        fields = {"image": (before, item.key)}
        changes.append(Change(action, IMAGE_ALIAS.command, alias, method, path, fields, body))
    gone = [alias for alias, image in current.items() if image == item.key]
    for alias in sorted(set(gone) - set(described)) if prunes else ():
        path = f"{IMAGE_ALIAS.path}/{segment(alias)}"
        changes.append(Change("delete", IMAGE_ALIAS.command, alias, "DELETE", path))
    return changes


def _relations(
    kind: str,
    owner: str,
    path: str,
    described: Iterable[str],
    current: Iterable[str],
    *,
    prunes: bool,
    is_quoted: bool = False,
) -> list[Change]:
    wanted, have = dict.fromkeys(described), set(current)

    def change(action: str, method: str, target: str) -> Change:
        end = target if is_quoted else segment(target)
        return Change(action, kind, f"{owner}: {target}", method, f"{path}/{end}")

    added = [change("create", "PUT", target) for target in wanted if target not in have]
    if not prunes:
        return added
    return added + [change("delete", "DELETE", t) for t in sorted(have - set(wanted))]


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
    if _is_gone(entity, row):
        # A deleted account that is described again is to be used again.
        values.setdefault("status", "active")
    fields: dict[str, tuple[Any, Any]] = {}
    for name, value in values.items():
        spec = entity.field(name)
        assert spec is not None
        if spec.is_fixed or comparable(spec, row.get(name)) == comparable(spec, value):
            continue
        fields[name] = (row.get(name), value)
    if not fields:
        return None
    body = {name: new for name, (_, new) in fields.items()}
    path = _path(entity, row)
    return Change("update", entity.command, item.name, "PATCH", path, fields, body)


def _is_gone(entity: Entity, row: Row) -> bool:
    return entity is USER and row.get("status") == "deleted"


def _path(entity: Entity, row: Row) -> str:
    return f"{entity.path}/{segment(str(row[entity.id]))}"


def _is_meant(entity: Entity, item: Item, row: Row) -> bool:
    if row[entity.key] != item.key:
        return False
    # An image that names no architecture means the one that there is.
    is_any = entity is IMAGE and not item.scope
    return is_any or _scope(entity, row) == item.scope


def _scope(entity: Entity, row: Row) -> str:
    name = SCOPES.get(entity.section)
    return str(row.get(name) or "") if name else ""


def _name(entity: Entity, row: Row) -> str:
    return "/".join(part for part in (_scope(entity, row), str(row[entity.key])) if part)
