"""Read the entities in a session request: owner, project, groups, images, presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.cluster.group_options import GroupOptions
from bai_services.core.errors import NotFound
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeCaps, Usage
from bai_services.core.scheduling.placement import ALIVE, AgentState
from bai_services.core.sessions.dependencies import Dependency
from bai_services.core.sessions.lifecycle import OCCUPYING, Status
from bai_services.core.sessions.options import DeviceModel

from ..cluster.image_access import is_image_allowed
from ..database import Database
from ..records import records
from ..scheduling import ledger
from ..scheduling.agent_states import read_agents
from ..scheduling.caps import CHUNK, read_caps, read_pending_usage, read_usage
from ..tables.accounts import domains, keypair_policies, keypairs, memberships, projects, users
from ..tables.cluster import (
    agents,
    custom_images,
    devices,
    image_aliases,
    image_registries,
    image_registry_projects,
    images,
    presets,
    resource_group_links,
    resource_groups,
)
from ..tables.sessions import allocations, sessions


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """The owner of a requested session.

    ``is_active`` is false if the user or the user's domain is not active. ``access_key`` is the
    access key of the main keypair, or None.
    """

    id: str
    username: str
    domain: str
    role: Role
    is_active: bool
    access_key: str | None


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    id: str
    name: str
    domain: str
    is_active: bool
    default_image: str | None
    # Whether the project is a model store.
    is_store: bool = False


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A resource group that the owner may use."""

    name: str
    description: str
    engine: str
    is_default: bool
    allowed_session_types: Sequence[str]
    # Notices for users from the group's agents, for example about missing isolation.
    notices: Sequence[str] = ()
    options: GroupOptions = field(default_factory=GroupOptions)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    name: str
    architecture: str
    min_slots: ResourceSlots
    max_slots: ResourceSlots
    labels: Mapping[str, Any]
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PresetFacts:
    name: str
    resource_group: str
    slots: ResourceSlots
    shared_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class KeypairFacts:
    """A keypair and the maximum priority of its policy (None: no maximum)."""

    access_key: str
    is_active: bool
    max_priority: int | None


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """Caps and usage of a session's scopes, and the agents of its group.

    ``pending``: usage by pending sessions in scopes that limit them; only if requested.
    """

    scopes: tuple[Scope, ...]
    caps: Mapping[Scope, ScopeCaps]
    usage: Usage
    agents: Sequence[AgentState]
    pending: Usage = field(default_factory=dict)

    @property
    def caps_in_order(self) -> list[ScopeCaps]:
        """The caps in the order of the scopes."""
        return [self.caps[scope] for scope in self.scopes if scope in self.caps]


@dataclass(frozen=True, slots=True)
class UsedAmount:
    """The amount of a slot that is allocated on one device; ``device_id`` is None for cpu and mem.

    The amounts of cpu and mem are sums over all agents.
    """

    device_id: str | None
    slot: str
    amount: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The choices for a session, given its user, project and keypair.

    ``groups`` are the groups that the user may use. ``presets`` are not restricted to these groups.
    ``keypair`` is None if the user has no such keypair.
    """

    keypair: KeypairFacts | None
    groups: Sequence[GroupFacts] = field(default_factory=tuple)
    images: Sequence[ImageFacts] = field(default_factory=tuple)
    presets: Sequence[PresetFacts] = field(default_factory=tuple)


class RequestStore:
    """Reads the data that session requests need. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def owner(self, *, user_id: str | None = None, username: str | None = None) -> OwnerFacts:
        """Return a user by id or by user name.

        Raises
        ------
        NotFound
            If the user does not exist.
        """
        select, key = (_OWNER_BY_ID, user_id) if username is None else (_OWNER_BY_NAME, username)
        async with self._db.read() as tx:
            row = (await tx.execute(select, {"key": key})).one_or_none()
        if row is None:
            raise NotFound(f"there is no user {username or user_id!r}", user=username or user_id)
        return OwnerFacts(
            id=row.id,
            username=row.username,
            domain=row.domain,
            role=Role(row.role),
            is_active=row.status == "active" and row.is_domain_active,
            access_key=row.main_access_key,
        )

    async def binds_subpaths(self, group: str) -> bool:
        """Return whether a live agent of a group can mount subdirectories of folders.

        Return True for a group without live agents.
        """
        async with self._db.read() as tx:
            values = (await tx.scalars(_BINDS_SUBPATHS, {"of_group": group})).all()
        # NULL counts as true: an agent that does not report this fact can mount subdirectories.
        return not values or any(value is not False for value in values)

    async def device_models(self, group: str) -> list[DeviceModel]:
        """Return the device models of the live agents of a resource group."""
        async with self._db.read() as tx:
            rows = await tx.execute(_DEVICE_MODELS, {"of_group": group})
            return records(DeviceModel, rows)

    async def projects_of(self, user_id: str) -> list[ProjectFacts]:
        """Return the projects of a user, the project named ``default`` first."""
        async with self._db.read() as tx:
            rows = await tx.execute(_PROJECTS_OF, {"user_id": user_id})
            return [
                ProjectFacts(
                    **{
                        **row,
                        "is_active": bool(row["is_active"]),
                        "is_store": bool(row["is_store"]),
                    }
                )
                for row in rows.mappings()
            ]

    async def offer(self, owner: OwnerFacts, project: ProjectFacts, access_key: str) -> Offer:
        """Return the groups that a user may use in a project with a keypair, all active images, and
        all presets.
        """
        async with self._db.read() as tx:
            return Offer(
                keypair=await _keypair(tx, owner.id, access_key),
                groups=await _groups(tx, _links(owner, project, access_key), await _notices(tx)),
                images=await _images(tx, owner.id, project.id),
                presets=await _presets(tx),
            )

    async def offer_of(
        self,
        owner: OwnerFacts,
        project: ProjectFacts,
        access_key: str,
        image_and_preset: tuple[str, str],
    ) -> Offer:
        """Like ``offer``, but return only the named image, and no notices.

        ``image_and_preset`` holds the image's name or alias and the preset's name. Without an image
        name, no images are returned. Without a preset name, no presets are returned; otherwise, all
        presets are returned.
        """
        image, preset = image_and_preset
        async with self._db.read() as tx:
            return Offer(
                keypair=await _keypair(tx, owner.id, access_key),
                groups=await _groups(tx, _links(owner, project, access_key), {}),
                images=await _images_named(tx, image, owner.id, project.id) if image else (),
                presets=await _presets(tx) if preset else (),
            )

    async def keypair(self, user_id: str, access_key: str) -> KeypairFacts | None:
        """Return a keypair of a user; None if the user has no such keypair."""
        async with self._db.read() as tx:
            return await _keypair(tx, user_id, access_key)

    async def own_sessions(self, owner_id: str, keys: Sequence[str]) -> dict[str, Dependency]:
        """Return the owner's session for each key (an id or a name) with a match.

        If several sessions have the name, return the live one, else the newest.
        """
        by_key: dict[str, Dependency] = {}
        live: set[str] = set()
        if not keys:
            return by_key
        unique_keys = list(dict.fromkeys(keys))
        async with self._db.read() as tx:
            for start in range(0, len(unique_keys), CHUNK):
                part = unique_keys[start : start + CHUNK]
                names = set(part)
                rows = await tx.execute(
                    sa.select(
                        sessions.c.id,
                        sessions.c.name,
                        sessions.c.status,
                        sessions.c.result,
                        sessions.c.live_name,
                    )
                    .where(
                        sessions.c.owner_id == owner_id,
                        sessions.c.id.in_(part) | sessions.c.name.in_(part),
                    )
                    .order_by(sessions.c.sequence)
                )
                for row in rows:
                    item = Dependency(row.id, row.name, Status(row.status), row.result)
                    by_key[row.id] = item
                    # Only the query for the chunk with this name reads all sessions of the name.
                    if row.name not in names:
                        continue
                    # Rows are sorted from old to new: a newer session replaces an older one that is
                    # not live.
                    if row.name not in live:
                        by_key[row.name] = item
                    if row.live_name is not None:
                        live.add(row.name)
                        by_key[row.name] = item
        return by_key

    async def admission_facts(
        self,
        agents: Sequence[AgentState],
        key: tuple[str, str, str, str],
        group: str,
        *,
        with_pending: bool = False,
    ) -> AdmissionFacts:
        """Return the facts for the admission of a session in a group.

        ``agents`` are the agents of the group. ``key`` is (domain, project id, owner id, access
        key) of the session.
        """
        scopes = ledger.scopes_of(*key, group)
        async with self._db.read() as tx:
            caps = await read_caps(tx, scopes)
            usage = await read_usage(tx, scopes)
            pending = await read_pending_usage(tx, caps.values()) if with_pending else {}
        return AdmissionFacts(scopes, caps, usage, agents, pending)

    async def used_in_group(self, owner_id: str, group: str) -> list[UsedAmount]:
        """Return the amounts that are allocated to a user's sessions in a resource group."""
        async with self._db.read() as tx:
            rows = await tx.execute(_USED_IN_GROUP, {"owner_id": owner_id, "group": group})
            return [UsedAmount(device_id, slot, int(amount)) for device_id, slot, amount in rows]

    async def agents(self, group: str) -> Sequence[AgentState]:
        """Return the agents of a resource group."""
        async with self._db.read() as tx:
            return await read_agents(tx, [group])


# Built once, at import, because these queries run for each new session.
_OWNERS = sa.select(users, domains.c.is_active.label("is_domain_active")).join_from(
    users, domains, users.c.domain == domains.c.name
)
_OWNER_BY_ID = _OWNERS.where(users.c.id == sa.bindparam("key"))
_OWNER_BY_NAME = _OWNERS.where(users.c.username == sa.bindparam("key"))
_PROJECTS_OF = (
    sa.select(
        projects.c.id,
        projects.c.name,
        projects.c.domain,
        (projects.c.is_active & domains.c.is_active).label("is_active"),
        projects.c.default_image,
        (projects.c.type == "model-store").label("is_store"),
    )
    .join_from(projects, memberships, projects.c.id == memberships.c.project_id)
    .join(domains, projects.c.domain == domains.c.name)
    .where(memberships.c.user_id == sa.bindparam("user_id"))
    .order_by(projects.c.name != "default", projects.c.name)
)
_KEYPAIR = (
    sa.select(keypairs.c.access_key, keypairs.c.is_active, keypair_policies.c.max_priority)
    .join_from(keypairs, keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .where(
        keypairs.c.access_key == sa.bindparam("access_key"),
        keypairs.c.user_id == sa.bindparam("user_id"),
    )
)
_USED_IN_GROUP = (
    sa.select(allocations.c.device_id, allocations.c.slot, sa.func.sum(allocations.c.amount))
    .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
    .where(
        allocations.c.freed_at.is_(None),
        sessions.c.owner_id == sa.bindparam("owner_id"),
        sessions.c.resource_group == sa.bindparam("group"),
        # Redundant, so that an index can be used: sessions in other statuses have no current
        # allocations.
        sessions.c.status.in_(OCCUPYING),
    )
    .group_by(allocations.c.device_id, allocations.c.slot)
)
_LINKED = sa.select(resource_group_links.c.resource_group).where(
    sa.tuple_(resource_group_links.c.kind, resource_group_links.c.target).in_(
        sa.bindparam("links", expanding=True)
    )
)
_GROUPS = (
    sa.select(
        resource_groups.c.name,
        resource_groups.c.description,
        resource_groups.c.engine,
        resource_groups.c.is_default,
        resource_groups.c.allowed_session_types,
        resource_groups.c.scheduler_opts.label("options"),
    )
    .where(
        resource_groups.c.is_active,
        resource_groups.c.is_public | resource_groups.c.name.in_(_LINKED),
    )
    .order_by(resource_groups.c.is_default.desc(), resource_groups.c.name)
)
# DISTINCT returns at most three rows (true, false, NULL) for any number of agents.
_BINDS_SUBPATHS = (
    sa.select(agents.c.facts["binds_subpaths"].as_boolean())
    .where(agents.c.status == ALIVE, agents.c.resource_group == sa.bindparam("of_group"))
    .distinct()
)
_DEVICE_MODELS = (
    sa.select(
        devices.c.family, devices.c.model, devices.c.memory_bytes, sa.func.count().label("count")
    )
    .join_from(devices, agents, devices.c.agent_id == agents.c.id)
    .where(agents.c.status == ALIVE, agents.c.resource_group == sa.bindparam("of_group"))
    .group_by(devices.c.family, devices.c.model, devices.c.memory_bytes)
    .order_by(devices.c.family, devices.c.model, devices.c.memory_bytes)
)
# Read only the notices, because the column ``facts`` is large; most agents have no notices.
_NOTICES_OF = agents.c.facts["notices"]
_NOTICES = (
    sa.select(agents.c.resource_group, _NOTICES_OF.label("texts"))
    .where(agents.c.status == ALIVE, sa.func.coalesce(_NOTICES_OF.as_string(), "[]") != "[]")
    .order_by(agents.c.id)
)
_ALIASES = sa.select(image_aliases).order_by(image_aliases.c.alias)
_IS_ALLOWED_REGISTRY = sa.or_(
    image_registries.c.is_global,
    sa.exists().where(
        image_registry_projects.c.registry_id == image_registries.c.id,
        image_registry_projects.c.project_id == sa.bindparam("of_project"),
    ),
)
# Images of a registry are offered only to its projects and while the registry is enabled.
_IS_OFFERED = images.c.is_active & ~sa.exists().where(
    image_registries.c.host == images.c.registry,
    ~(image_registries.c.is_enabled & _IS_ALLOWED_REGISTRY),
)
# Custom images are offered to those who may use them.
_IS_OFFERED &= is_image_allowed(
    sa.bindparam("of_owner"), custom_images.c.project_id == sa.bindparam("of_project")
)
_IMAGES = sa.select(images).where(_IS_OFFERED).order_by(images.c.name, images.c.architecture)
_IS_ALIASED = (
    sa.exists()
    .where(image_aliases.c.image_id == images.c.id, image_aliases.c.alias == sa.bindparam("asked"))
    .label("is_aliased")
)
_IMAGES_NAMED = (
    sa.select(images, _IS_ALIASED)
    .where(_IS_OFFERED, _IS_ALIASED | images.c.name.in_(sa.bindparam("names", expanding=True)))
    .order_by(images.c.name, images.c.architecture)
)
_PRESETS = sa.select(presets).order_by(presets.c.name, presets.c.resource_group)


async def _keypair(tx: AsyncConnection, user_id: str, access_key: str) -> KeypairFacts | None:
    row = (await tx.execute(_KEYPAIR, {"user_id": user_id, "access_key": access_key})).one_or_none()
    return None if row is None else KeypairFacts(row.access_key, row.is_active, row.max_priority)


def _links(owner: OwnerFacts, project: ProjectFacts, access_key: str) -> Sequence[tuple[str, str]]:
    """Return the links (kind, target) that grant access to a resource group."""
    return (
        ("domain", owner.domain),
        ("domain", project.domain),
        ("project", project.id),
        ("user", owner.id),
        ("keypair", access_key),
    )


async def _groups(
    tx: AsyncConnection, links: Sequence[tuple[str, str]], notices: Mapping[str, Sequence[str]]
) -> list[GroupFacts]:
    rows = await tx.execute(_GROUPS, {"links": links})
    return [
        GroupFacts(
            **{**row, "options": GroupOptions.of(row["options"] or {})},
            notices=tuple(notices.get(row["name"], ())),
        )
        for row in rows.mappings()
    ]


async def _notices(tx: AsyncConnection) -> dict[str, list[str]]:
    """Return the distinct notices of the agents of each resource group."""
    rows = await tx.execute(_NOTICES)
    by_group: dict[str, list[str]] = {}
    for row in rows:
        texts = by_group.setdefault(row.resource_group, [])
        texts += [str(text) for text in row.texts if text not in texts]
    return by_group


async def _images(tx: AsyncConnection, owner_id: str, project_id: str) -> list[ImageFacts]:
    aliases: dict[str, list[str]] = {}
    for row in await tx.execute(_ALIASES):
        aliases.setdefault(row.image_id, []).append(row.alias)
    rows = await tx.execute(_IMAGES, {"of_owner": owner_id, "of_project": project_id})
    return [_image(row, aliases.get(row.id, ())) for row in rows]


async def _images_named(
    tx: AsyncConnection, name: str, owner_id: str, project_id: str
) -> list[ImageFacts]:
    """Return the images with this name (the tag ``latest`` may be omitted) or alias."""
    names = [name, f"{name}:latest"]
    of_request = {"of_owner": owner_id, "of_project": project_id}
    rows = await tx.execute(_IMAGES_NAMED, {"asked": name, "names": names, **of_request})
    return [_image(row, (name,) if row.is_aliased else ()) for row in rows]


def _image(row: Any, aliases: Sequence[str]) -> ImageFacts:
    return ImageFacts(
        name=row.name,
        architecture=row.architecture,
        min_slots=row.min_slots,
        max_slots=row.max_slots,
        labels=row.labels or {},
        aliases=tuple(aliases),
    )


async def _presets(tx: AsyncConnection) -> list[PresetFacts]:
    rows = await tx.execute(_PRESETS)
    return [
        PresetFacts(row.name, row.resource_group, row.resource_slots, row.shared_memory_bytes)
        for row in rows
    ]
