"""Selection of project, group, image and preset among those open to the owner, and of resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bai_services.core.cluster import model as cluster
from bai_services.core.cluster.devices import check_exclusive, check_unique
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.resources import CPU, MEM, ResourceSlots, parse_amount
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.rules import DEFAULT_SHARED_MEMORY, check_resources, fill_slots
from bai_services.db.sessions.requests import (
    GroupFacts,
    ImageFacts,
    KeypairFacts,
    PresetFacts,
    ProjectFacts,
)

DEFAULT_PRIORITY = 10
MAX_PRIORITY = 100
CREATABLE_TYPES = (SessionType.INTERACTIVE, SessionType.BATCH)


def choose_project(mine: Sequence[ProjectFacts], key: str | None) -> ProjectFacts:
    """Return the project of that id or name; without one the default, or the only one."""
    names = ", ".join(p.name for p in mine) or "none"
    if not key:
        if mine and (len(mine) == 1 or mine[0].name == "default"):
            return mine[0]
        raise InvalidRequest(f"name a project; yours are: {names}", field="project")
    for project in mine:
        if key in (project.id, project.name):
            return project
    raise NotFound(f"you are not in a project {key!r}; yours are: {names}", project=key)


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
        raise NotFound("you may not use any resource group; ask an administrator")
    return next((g for g in groups if kind in g.allowed_session_types), groups[0])


def choose_group(groups: Sequence[GroupFacts], name: str | None, kind: SessionType) -> GroupFacts:
    """Do as ``find_group``, but refuse a group that takes no sessions of that kind."""
    found = find_group(groups, name, kind)
    if kind not in found.allowed_session_types:
        raise InvalidRequest(
            f"resource group {found.name} takes no {kind} sessions, only "
            f"{', '.join(found.allowed_session_types)}",
            field="resource_group",
        )
    return found


def session_type(text: str) -> SessionType:
    """Return the type of a session that can be created by a request."""
    if text in CREATABLE_TYPES:
        return SessionType(text)
    raise InvalidRequest(
        f"sessions of type {text[:40]!r} cannot be created; types: {', '.join(CREATABLE_TYPES)}",
        field="type",
    )


def choose_image(
    images: Sequence[ImageFacts], name: str, served: Collection[str] = ()
) -> ImageFacts:
    """Return the image of that name or alias, preferably of an architecture that agents have.

    Raises
    ------
    InvalidRequest
        If there is no name.
    NotFound
        If no image has that name.
    """
    if not name:
        raise InvalidRequest("name an image; the project has no default image", field="image")
    aliased = [i for i in images if name in i.aliases or name == i.name]
    if not aliased:
        canonical = cluster.canonical_image(name)
        aliased = [i for i in images if i.name == canonical]
    if not aliased:
        raise NotFound(f"there is no image {name[:255]!r}", image=name[:255])
    return next((i for i in aliased if i.architecture in served), aliased[0])


def choose_preset(
    presets: Sequence[PresetFacts], name: str | None, group: str
) -> PresetFacts | None:
    """Return the preset of that name for a resource group, None without a name."""
    if not name:
        return None
    fitting = [p for p in presets if p.name == name and p.resource_group in ("", group)]
    if not fitting:
        raise NotFound(f"there is no preset {name!r} in resource group {group}", preset=name)
    # A preset of the group takes precedence over one for all groups.
    return max(fitting, key=lambda p: p.resource_group)


def amounts_of(
    resources: Mapping[str, str],
    shared_memory: str | None,
    preset: PresetFacts | None,
    image: ImageFacts,
) -> tuple[ResourceSlots, int]:
    """Return the resources and the bytes of shared memory of a session.

    Raises
    ------
    InvalidRequest
        If an amount is malformed, is 0 where it must not be, or is not allowed by the image.
    """
    for slot in (CPU, MEM):
        if slot in resources and not parse_amount(slot, resources[slot]):
            raise InvalidRequest(f"{slot} must be more than 0", slot=slot)
    asked = ResourceSlots.parse(resources)
    slots = fill_slots(asked, preset.slots if preset else ResourceSlots(), image.min_slots)
    check_exclusive(slots)
    check_unique(slots)
    if shared_memory is not None:
        shared_bytes = parse_amount(MEM, shared_memory)
    else:
        shared_bytes = (preset.shared_memory_bytes if preset else None) or DEFAULT_SHARED_MEMORY
    check_resources(slots, shared_bytes, image.name, (image.min_slots, image.max_slots))
    return slots, shared_bytes


def checked_priority(priority: int | None, keypair: KeypairFacts | None) -> int:
    """Return the requested or default priority; ``keypair`` None means without a limit.

    Raises
    ------
    InvalidRequest
        If it is not within 0 to 100.
    Forbidden
        If it is above what the keypair's policy allows.
    """
    most = keypair.max_priority if keypair else None
    most = MAX_PRIORITY if most is None else most
    if priority is None:
        return min(DEFAULT_PRIORITY, most)
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority {priority} is not within 0 to {MAX_PRIORITY}", field="priority"
        )
    if priority > most:
        raise Forbidden(
            f"priority {priority} is above {most}, the highest that your keypair allows",
            priority=priority,
            limit=most,
        )
    return priority
