"""Replace the ids of users and projects in fair-share weights by names, as in declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services.client import Client

from .declaration import Item
from .group_options import FIELD, rename_weight_keys, weights_of

Row = Mapping[str, Any]


async def with_names(
    client: Client, items: Sequence[Item], rows: Sequence[Row]
) -> tuple[list[Item], list[Row]]:
    """Return the declared and the existing resource groups, both with names in their weights.

    If no declared group has weights, both are returned unchanged.
    """
    has_weights = any(weights_of(item.values.get(FIELD)) for item in items)
    if not has_weights:
        return list(items), list(rows)
    names = await _Names.read(client)
    return (
        [replace(item, values=names.in_group(item.values)) for item in items],
        [names.in_group(row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """Canonical names of users and projects: by kind, then by id.

    Projects are also found by a name without domain, if it is unambiguous.
    """

    by_kind: Mapping[str, Mapping[str, str]]

    @classmethod
    async def read(cls, client: Client) -> _Names:
        users = {row["id"]: row["username"] async for row in client.items("/users")}
        projects: dict[str, str] = {}
        full_names: dict[str, list[str]] = {}
        async for row in client.items("/projects"):
            projects[row["id"]] = f"{row['domain']}/{row['name']}"
            full_names.setdefault(row["name"], []).append(projects[row["id"]])
        # A name without a domain is unambiguous if only one project has it.
        projects |= {name: full[0] for name, full in full_names.items() if len(full) == 1}
        return cls({"user": users, "project": projects})

    def in_group(self, group: Row) -> dict[str, Any]:
        if not weights_of(group.get(FIELD)):
            return dict(group)
        return {**group, FIELD: rename_weight_keys(group[FIELD], self._name)}

    def _name(self, kind: str, key: str) -> str:
        name = self.by_kind.get(kind, {}).get(key, key)
        return name.lower() if kind == "user" else name
