"""People and projects in the weights of resource groups, by the names that a file would use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bai_services.client import Client

from .declaration import Item
from .group_options import FIELD, renamed, weights_of

Row = Mapping[str, Any]


async def with_names(
    client: Client, items: Sequence[Item], rows: Sequence[Row]
) -> tuple[list[Item], list[Row]]:
    """Return described groups and those that there are with weights under the same names."""
    described = [item for item in items if weights_of(item.values.get(FIELD))]
    if not described:
        return list(items), list(rows)
    names = await _Names.read(client)
    return (
        [replace(item, values=names.in_group(item.values)) for item in items],
        [names.in_group(row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The name by which each person and each project is written, by all that may name them."""

    by_kind: Mapping[str, Mapping[str, str]]

    @classmethod
    async def read(cls, client: Client) -> _Names:
        people = {row["id"]: row["username"] async for row in client.items("/users")}
        projects: dict[str, str] = {}
        found: dict[str, list[str]] = {}
        async for row in client.items("/projects"):
            projects[row["id"]] = f"{row['domain']}/{row['name']}"
            found.setdefault(row["name"], []).append(projects[row["id"]])
        # A bare name means the one project that there is of it.
        projects |= {name: full[0] for name, full in found.items() if len(full) == 1}
        return cls({"user": people, "project": projects})

    def in_group(self, group: Row) -> dict[str, Any]:
        if not weights_of(group.get(FIELD)):
            return dict(group)
        return {**group, FIELD: renamed(group[FIELD], self._name)}

    def _name(self, kind: str, key: str) -> str:
        name = self.by_kind.get(kind, {}).get(key, key)
        return name.lower() if kind == "user" else name
