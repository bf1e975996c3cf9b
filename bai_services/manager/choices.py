"""What somebody names, chosen among what is open to them: project, resource group, type."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.session import SessionType
from bai_services.db.requests import GroupFacts, ProjectFacts

FILED_TYPES = (SessionType.INTERACTIVE, SessionType.BATCH)


def choose_project(mine: Sequence[ProjectFacts], key: str | None) -> ProjectFacts:
    """Return the project of that id or name; without one the default, or the only one."""
    names = ", ".join(p.name for p in mine) or "none"
    if not key:
        if mine and (len(mine) == 1 or mine[0].name == "default"):
            return mine[0]
        raise InvalidRequest(f"say in which project; yours are: {names}", field="project")
    for project in mine:
        if key in (project.id, project.name):
            return project
    raise NotFound(f"you are in no project {key!r}; yours are: {names}", project=key)


def find_group(
    groups: Sequence[GroupFacts], name: str | None, kind: SessionType | None
) -> GroupFacts:
    """Return the resource group of that name; without one the default, or the first allowed."""
    names = ", ".join(g.name for g in groups) or "none"
    if name:
        found = next((g for g in groups if g.name == name), None)
        if found is None:
            raise NotFound(
                f"there is no resource group {name!r} that you may use; yours are: {names}",
                resource_group=name,
            )
        return found
    if not groups:
        raise NotFound("no resource group is open to you; ask an administrator")
    return next((g for g in groups if kind in g.allowed_session_types), groups[0])


def choose_group(groups: Sequence[GroupFacts], name: str | None, kind: SessionType) -> GroupFacts:
    """Return what ``find_group`` does; refuse one that takes no sessions of that kind."""
    found = find_group(groups, name, kind)
    if kind not in found.allowed_session_types:
        raise InvalidRequest(
            f"resource group {found.name} takes no {kind} sessions, only "
            f"{', '.join(found.allowed_session_types)}",
            field="resource_group",
        )
    return found


def session_type(text: str) -> SessionType:
    """Return a type that sessions can be filed with."""
    if text in FILED_TYPES:
        return SessionType(text)
    raise InvalidRequest(
        f"sessions of type {text[:40]!r} cannot be filed; there are {', '.join(FILED_TYPES)}",
        field="type",
    )
