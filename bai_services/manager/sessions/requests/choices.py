"""Choose the project, resource group, image, preset and resources of a session."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from bai_services.core.cluster import model as cluster
from bai_services.core.cluster.devices import check_exclusive, check_unique
from bai_services.core.cluster.image_labels import preferred_shared_memory
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.resources import CPU, MEM, ResourceSlots, parse_amount
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.rules import DEFAULT_SHARED_MEMORY, check_resources, fill_slots
from bai_services.core.sessions.spec import MAX_PRIORITY
from bai_services.db.sessions.requests import (
    GroupFacts,
    ImageFacts,
    KeypairFacts,
    PresetFacts,
    ProjectFacts,
)

DEFAULT_PRIORITY = 10
CREATABLE_TYPES = (SessionType.INTERACTIVE, SessionType.BATCH)
# Only the manager creates replicas of endpoints.
REPLICA_TYPES = (SessionType.INFERENCE,)


def choose_project(projects: Sequence[ProjectFacts], key: str | None) -> ProjectFacts:
    """Return the project with that id or name.

    Without ``key``, return the only project or the one named ``default``, which is listed first.
    Model stores are considered only if the user has no other project.
    """
    if not projects:
        raise InvalidRequest(
            "you are not in an active project; ask an administrator to add you to one",
            field="project",
        )
    names = ", ".join(p.name for p in projects)
    if not key:
        choices = [p for p in projects if not p.is_store] or projects
        if choices and (len(choices) == 1 or choices[0].name == "default"):
            return choices[0]
        raise InvalidRequest(f"specify a project; yours are: {names}", field="project")
    for project in projects:
        if key in (project.id, project.name):
            return project
    raise NotFound(f"you are not in a project {key!r}; yours are: {names}", project=key)


def find_group(
    groups: Sequence[GroupFacts], name: str | None, kind: SessionType | None
) -> GroupFacts:
    """Return the resource group with that name.

    Without ``name``, return the first (default) group that accepts sessions of ``kind``, else the
    first one.
    """
    names = ", ".join(g.name for g in groups) or "none"
    if name:
        group = next((g for g in groups if g.name == name), None)
        if group is None:
            raise NotFound(
                f"there is no resource group {name!r} that you may use; yours are: {names}",
                resource_group=name,
            )
        return group
    if not groups:
        raise NotFound("you may not use any resource group; ask an administrator")
    return next((g for g in groups if kind in g.allowed_session_types), groups[0])


def choose_group(groups: Sequence[GroupFacts], name: str | None, kind: SessionType) -> GroupFacts:
    """Return the result of ``find_group``; raise if it does not accept sessions of ``kind``."""
    group = find_group(groups, name, kind)
    if kind not in group.allowed_session_types:
        raise InvalidRequest(
            f"resource group {group.name} does not accept {kind} sessions, only "
            f"{', '.join(group.allowed_session_types)}",
            field="resource_group",
        )
    return group


def session_type(text: str, creatable: Collection[SessionType] = CREATABLE_TYPES) -> SessionType:
    """Parse the type of a session; raise for types that are not ``creatable``."""
    if text in creatable:
        return SessionType(text)
    raise InvalidRequest(
        f"sessions of type {text[:40]!r} cannot be created; types: {', '.join(creatable)}",
        field="type",
    )


def choose_image(
    images: Sequence[ImageFacts], name: str, served: Collection[str] = ()
) -> ImageFacts:
    """Return the image with that name or alias, preferably for an architecture in ``served``.

    Raises
    ------
    InvalidRequest
        If ``name`` is empty or not a valid image name.
    NotFound
        If no image has that name.
    """
    if not name:
        raise InvalidRequest("specify an image; the project has no default image", field="image")
    matching = [i for i in images if name in i.aliases or name == i.name]
    if not matching:
        canonical = cluster.canonical_image(name)
        matching = [i for i in images if i.name == canonical]
    if not matching:
        raise NotFound(f"there is no image {name[:255]!r}", image=name[:255])
    return next((i for i in matching if i.architecture in served), matching[0])


def choose_preset(
    presets: Sequence[PresetFacts], name: str | None, group: str
) -> PresetFacts | None:
    """Return the preset with that name for a resource group; None without a name."""
    if not name:
        return None
    fitting = [p for p in presets if p.name == name and p.resource_group in ("", group)]
    if not fitting:
        raise NotFound(f"there is no preset {name!r} in resource group {group}", preset=name)
    # A preset of the group takes precedence over one for all groups.
    return max(fitting, key=lambda p: p.resource_group)


def choose_resources(
    resources: Mapping[str, str],
    shared_memory: str | None,
    preset: PresetFacts | None,
    image: ImageFacts,
) -> tuple[ResourceSlots, int]:
    """Return the resources of a session and its shared memory in bytes.

    Amounts that the request omits come from the preset. If the preset omits them too, cpu and mem
    come from the minimum of the image. Shared memory then is the amount that the image prefers if
    it is less than the memory; otherwise ``DEFAULT_SHARED_MEMORY``.

    Raises
    ------
    InvalidRequest
        If an amount is malformed, zero although it must be positive, or outside the limits of
        the image, or if slots exclude each other.
    """
    for slot in (CPU, MEM):
        if slot in resources and not parse_amount(slot, resources[slot]):
            raise InvalidRequest(f"{slot} must be more than 0", slot=slot)
    requested = ResourceSlots.parse(resources)
    slots = fill_slots(requested, preset.slots if preset else ResourceSlots(), image.min_slots)
    check_exclusive(slots)
    check_unique(slots)
    if shared_memory is not None:
        shared_bytes = parse_amount(MEM, shared_memory)
    elif preset and preset.shared_memory_bytes:
        shared_bytes = preset.shared_memory_bytes
    else:
        preferred = preferred_shared_memory(image.labels) or DEFAULT_SHARED_MEMORY
        shared_bytes = preferred if preferred < slots.get(MEM, 0) else DEFAULT_SHARED_MEMORY
    check_resources(slots, shared_bytes, image.name, (image.min_slots, image.max_slots))
    return slots, shared_bytes


def choose_job_priority(job_priority: int) -> int:
    """Return the job priority; raise ``InvalidRequest`` if it is not between 0 and 100."""
    if not 0 <= job_priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"job_priority must be between 0 and {MAX_PRIORITY}, not {job_priority}",
            field="job_priority",
        )
    return job_priority


def choose_priority(priority: int | None, keypair: KeypairFacts | None) -> int:
    """Return the requested or default priority.

    If ``keypair`` is None, only ``MAX_PRIORITY`` limits the priority.

    Raises
    ------
    InvalidRequest
        If the priority is not between 0 and 100.
    Forbidden
        If the priority exceeds the maximum of the keypair policy.
    """
    limit = keypair.max_priority if keypair else None
    limit = MAX_PRIORITY if limit is None else limit
    if priority is None:
        return min(DEFAULT_PRIORITY, limit)
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be between 0 and {MAX_PRIORITY}, not {priority}", field="priority"
        )
    if priority > limit:
        raise Forbidden(
            f"priority {priority} exceeds {limit}, the maximum of your keypair",
            priority=priority,
            limit=limit,
        )
    return priority
