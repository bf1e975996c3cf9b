"""Resolve a request into a session to create, or raise an error that lists its problems."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from bai_services.core.accounts.roles import Caller, Owner, Reach, Role, Target, reach, reaches
from bai_services.core.cluster.image_labels import check_preopen_ports
from bai_services.core.errors import BaiError, Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.mounts import MountRequest, ResolvedMount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.advance_reservations import AdvanceReservation
from bai_services.core.sessions.batch import BATCH_FIELDS, check_batch
from bai_services.core.sessions.callbacks import AllowedTargets, check_url
from bai_services.core.sessions.launch_plan import Mount
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.options import OfferedFolder
from bai_services.core.sessions.resizing import Elasticity, check_elasticity
from bai_services.core.sessions.rules import (
    check_environ,
    check_session_name,
    hub_server_name,
    session_name_from,
)
from bai_services.core.sessions.spec import SessionSpec
from bai_services.core.user_input import shown
from bai_services.db.scheduling.advance_reservations import AdvanceReservationStore
from bai_services.db.sessions.requests import (
    AdmissionFacts,
    GroupFacts,
    ImageFacts,
    Offer,
    OwnerFacts,
    ProjectFacts,
    RequestStore,
)
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.session_insert import NewSession

from ...accounts import authorizer
from ...clock import Clock
from ...scheduling.admission_checks import (
    FittingAgents,
    GroupAgents,
    PlacementOptions,
    check_caps,
    placement_options,
)
from .. import session_spans
from .choices import (
    CREATABLE_TYPES,
    choose_group,
    choose_image,
    choose_job_priority,
    choose_preset,
    choose_priority,
    choose_project,
    choose_resources,
    session_type,
)
from .dependency_resolver import DependencyResolver
from .problems import NameSources, with_all_problems
from .secret_environ import SecretEnviron

# Requests cannot set this variable directly: names that start with BAI_ are reserved.
PREOPEN_PORTS = "BAI_PREOPEN_PORTS"
# A bulk creation yields to other tasks of the event loop after checking this many requests.
YIELD_EVERY = 20

T = TypeVar("T")


class Folders(Protocol):
    """Folder operations that sessions need; implemented by ``manager/folders/mounts.py``."""

    async def resolve_mounts(
        self, caller: Caller, owner_id: str, project_id: str, mounts: Sequence[MountRequest]
    ) -> Sequence[ResolvedMount]:
        """Return the folders with their mount paths; raise if one cannot be mounted."""
        ...

    async def mountable(
        self, caller: Caller, owner_id: str, project_id: str
    ) -> list[OfferedFolder]:
        """Return the id, name, owner and permission of every folder that can be mounted."""
        ...

    async def sources(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
        """Convert the mounts of a session's row to the mounts of its launch plan."""
        ...

    async def notices(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return notices for the owner about the mounts of a session's row."""
        ...


class DotfileCheck(Protocol):
    """Interface that ``manager/sessions/setups.py`` implements."""

    async def check_mounts(
        self, owner_id: str, project_id: str, mount_paths: Sequence[str]
    ) -> None:
        """Raise if a mount of a new session collides with a dotfile."""
        ...


class Requests:
    """Resolves names, applies defaults and checks rules and limits; does not create sessions."""

    def __init__(
        self,
        store: RequestStore,
        vfolders: Folders,
        clock: Clock,
        callback_targets: AllowedTargets,
        agents: FittingAgents,
        secret_environ: SecretEnviron,
        reservations: AdvanceReservationStore,
        setups: DotfileCheck,
    ) -> None:
        self._reservations = reservations
        self._secret_environ = secret_environ
        self._setups = setups
        self._callback_targets = callback_targets
        self._store = store
        self._vfolders = vfolders
        self._clock = clock
        self._agents = agents

    async def resolve(
        self,
        caller: Caller,
        request: SessionSpec,
        session_id: str | None = None,
        creatable: Collection[SessionType] = CREATABLE_TYPES,
    ) -> NewSession:
        """Return the session to create for a request, with a new id unless one is given.

        ``creatable``: types that the session may have.

        Raises
        ------
        InvalidRequest
            If a field of the request is invalid.
        NotFound
            If a project, image, preset, resource group, folder or dependency does not exist for the
            owner.
        Forbidden
            If the request is not permitted, for example because the owner's account or keypair is
            not active.
        QuotaExceeded
            If a limit would exclude the request even on an empty cluster.
        InsufficientResources
            If the agents of the group could never run the session.
        Conflict
            If a dependency has ended without success.
        """
        return (await self.resolve_all(caller, [request], session_id, creatable))[0]

    async def resolve_all(
        self,
        caller: Caller,
        requests: Sequence[SessionSpec],
        session_id: str | None = None,
        creatable: Collection[SessionType] = CREATABLE_TYPES,
    ) -> list[NewSession]:
        """Return the sessions to create for several requests.

        The sessions may depend on each other by name. Raises the same errors as ``resolve``. If one
        of several requests is invalid by itself, the message contains the number (from 1) and the
        name of the first invalid request. ``session_id`` can be given only with a single request;
        it becomes the id of the session.
        """
        cache = _RequestCache()
        sessions: list[NewSession] = []
        for number, request in enumerate(requests, 1):
            if number % YIELD_EVERY == 0:
                # Let other tasks run: if all results are cached, no other await suspends this loop.
                await asyncio.sleep(0)
            try:
                sessions.append(await self._resolve(caller, request, cache, session_id, creatable))
            except BaiError as error:
                sources = partial(self._name_sources, caller, request, cache)
                extended = await with_all_problems(error, request, creatable, sources)
                if len(requests) > 1:
                    extended = _numbered(extended, number, request.name)
                raise extended from error
        resolver = DependencyResolver(sessions, [request.dependencies for request in requests])
        existing = await self._store.own_sessions(sessions[0].owner_id, resolver.existing_keys)
        return resolver.resolve(existing)

    async def _resolve(
        self,
        caller: Caller,
        request: SessionSpec,
        cache: _RequestCache,
        session_id: str | None,
        creatable: Collection[SessionType],
    ) -> NewSession:
        owner = await cache.get_or_read(
            ("owner", request.owner), lambda: self.owner_of(caller, request.owner)
        )
        project = await cache.get_or_read(
            ("project", request.project), lambda: self._project(caller, owner, request.project)
        )
        access_key = access_key_of(caller, owner)
        image_and_preset = request.image or project.default_image or "", request.preset or ""
        offer = await cache.get_or_read(
            ("offer", project.id, *image_and_preset),
            lambda: self._store.offer_of(owner, project, access_key, image_and_preset),
        )
        _check_keypair(offer, access_key)
        kind = session_type(request.type, creatable)
        batch_fields = {name: getattr(request, name) for name in BATCH_FIELDS}
        batch = check_batch(kind, batch_fields, self._clock())
        group = choose_group(offer.groups, request.resource_group, kind)
        options = placement_options(caller, project, owner, request)
        starts_at = batch.starts_at
        if request.reservation:
            reserved = await self._reserved(request.reservation, project.id, owner.id, group.name)
            options["reservation"] = reserved.id
            starts_at = max(starts_at or reserved.starts_at, reserved.starts_at)
        scopes = (project.domain, project.id, owner.id, access_key)
        target = _Target(group, scopes, options)
        resources = await self._choose_resources(cache, request, offer, image_and_preset[0], target)
        requested = list(request.mounts)
        mounts = await cache.get_or_read(
            ("mounts", project.id, str(requested)),
            lambda: self._vfolders.resolve_mounts(caller, owner.id, project.id, requested),
        )
        await self._check_subpaths(group.name, mounts)
        session_id = session_id or str(uuid.uuid4())
        # Collisions of auto-mounted folders with dotfiles are ignored: an error would block all
        # sessions of the owner.
        paths = [mount.path for mount in mounts if not mount.is_auto]
        await cache.get_or_read(
            ("dotfiles", owner.id, project.id, *paths),
            lambda: self._setups.check_mounts(owner.id, project.id, paths),
        )
        name, hub_server, started_by = _session_names(caller, request, session_id)
        return NewSession(
            id=session_id,
            kernel_id=str(uuid.uuid4()),
            name=name,
            type=kind,
            owner_id=owner.id,
            access_key=access_key,
            domain=project.domain,
            project_id=project.id,
            resource_group=group.name,
            image=resources.image.name,
            architecture=resources.image.architecture,
            priority=choose_priority(request.priority, offer.keypair),
            requested_slots=resources.slots,
            elasticity=resources.elasticity,
            shared_memory_bytes=resources.shared_memory_bytes,
            mounts=[mount.as_row() for mount in mounts],
            environ=self._environ(request, resources.image),
            options=options,
            request_hash=self._digest(request, project.id, mounts),
            notices=[],
            hub_user=owner.username,
            hub_server=hub_server,
            started_by=started_by,
            startup_command=batch.startup_command,
            starts_at=starts_at,
            batch_timeout_seconds=batch.batch_timeout_seconds,
            callback_url=check_url(request.callback_url, self._callback_targets),
            job_priority=choose_job_priority(request.job_priority),
            is_preemptible=request.is_preemptible,
            reuse=request.reuse,
            cluster_mode=request.cluster_mode,
            sub_kernel_ids=tuple(str(uuid.uuid4()) for _ in range(1, request.cluster_size)),
            trace=session_spans.new_trace(),
        )

    async def _reserved(
        self, reservation: str, project_id: str, owner_id: str, group: str
    ) -> AdvanceReservation:
        """Return a reservation in which a session of the project may run."""
        reserved = await self._reservations.usable(reservation, project_id, owner_id, self._clock())
        if reserved.resource_group != group:
            raise InvalidRequest(
                f"the reservation {reserved.name} is in resource group {reserved.resource_group}, "
                f"not in {group}",
                field="reservation",
            )
        return reserved

    def _environ(self, request: SessionSpec, image: ImageFacts) -> dict[str, str]:
        """Return the environment to store, with secret values encrypted."""
        environ = check_environ(request.environ)
        encrypted = self._secret_environ.encrypt(environ, request.secret_environ)
        return encrypted | preopen_environ(request, image)

    def _digest(
        self, request: SessionSpec, project_id: str, mounts: Sequence[ResolvedMount]
    ) -> str:
        """Return the digest that identifies a repeated request."""
        environ = self._secret_environ.digests(request.environ, request.secret_environ)
        return replace(request, environ=environ).digest(project_id, mounts)

    async def _name_sources(
        self, caller: Caller, request: SessionSpec, cache: _RequestCache
    ) -> NameSources:
        """Return the data and functions to check the other fields of a rejected request."""
        owner = await cache.get_or_read(
            ("owner", request.owner), lambda: self.owner_of(caller, request.owner)
        )
        project = await self._project(caller, owner, request.project)
        access_key = access_key_of(caller, owner)
        image_and_preset = request.image or project.default_image or "", request.preset or ""
        offer = await self._store.offer_of(owner, project, access_key, image_and_preset)
        _check_keypair(offer, access_key)

        async def resolve_mount(mount: MountRequest) -> None:
            await self._vfolders.resolve_mounts(caller, owner.id, project.id, [mount])

        async def check_fit(group: GroupFacts, image: ImageFacts, slots: ResourceSlots) -> None:
            options = placement_options(caller, project, owner, request)
            scopes = (project.domain, project.id, owner.id, access_key)
            await self._check_fit(cache, request, _Target(group, scopes, options), image, slots)

        return NameSources(offer, image_and_preset[0], resolve_mount, check_fit)

    async def _choose_resources(
        self,
        cache: _RequestCache,
        request: SessionSpec,
        offer: Offer,
        image_name: str,
        target: _Target,
    ) -> _Resources:
        """Return the image and resources; raise if they could never fit in the group."""
        group = target.group
        agents, facts = await self._admission(cache, target)
        served = {agent.architecture for agent in facts.agents}
        image = choose_image(offer.images, image_name, served)
        preset = choose_preset(offer.presets, request.preset, group.name)
        slots, shared_memory_bytes = choose_resources(
            request.resources, request.shared_memory, preset, image
        )
        elasticity = None
        if request.minimum_resources:
            preferred = slots
            slots, shared_memory_bytes = choose_resources(
                {**request.resources, **request.minimum_resources},
                request.shared_memory,
                preset,
                image,
            )
            check_elasticity(slots, preferred, request.cluster_size)
            if slots != preferred:
                elasticity = Elasticity(slots, preferred)
        await self._check_fit(cache, request, target, image, slots)
        return _Resources(image, slots, shared_memory_bytes, elasticity)

    async def _admission(
        self, cache: _RequestCache, target: _Target
    ) -> tuple[GroupAgents, AdmissionFacts]:
        """Return the agents of the group, and the limits that apply to the scopes in it."""
        group, scopes = target.group.name, target.scopes
        agents = await cache.get_or_read(("agents", group), lambda: self._agents.of(group))
        facts = await cache.get_or_read(
            ("admission", *scopes, group),
            lambda: self._store.admission_facts(agents.states, scopes, group),
        )
        return agents, facts

    async def _check_fit(
        self,
        cache: _RequestCache,
        request: SessionSpec,
        target: _Target,
        image: ImageFacts,
        slots: ResourceSlots,
    ) -> None:
        """Raise if the resources exceed a quota, or could never fit in the group."""
        agents, facts = await self._admission(cache, target)
        check_caps(facts, slots, request)
        served_by = (target.group, image.architecture)
        await self._agents.check(agents, slots, served_by, request, target.options)

    async def _check_subpaths(self, group: str, mounts: Sequence[ResolvedMount]) -> None:
        has_subpath = any(mount.subpath for mount in mounts)
        if has_subpath and not await self._store.binds_subpaths(group):
            raise InvalidRequest(
                f"the agents of resource group {group} cannot mount a directory of a folder, "
                "because they do not run as root; mount the whole folder or choose another group",
                field="mounts",
                resource_group=group,
            )

    async def owner_of(self, caller: Caller, owner: str | None) -> OwnerFacts:
        """Return the owner: the caller, or the user that the Hub or an administrator specifies.

        Raises
        ------
        InvalidRequest
            If the Hub specifies no owner.
        NotFound
            If the user does not exist, or the caller may not see the user.
        Forbidden
            If the caller may not create sessions for that user, or the account or its domain is not
            active.
        """
        if caller.role is Role.HUB:
            if not owner:
                raise InvalidRequest("the Hub must specify the owner of the session", field="owner")
            facts = await self._store.owner(username=owner)
        elif owner and owner != caller.username:
            facts = await self._other_owner(caller, owner)
        else:
            facts = await self._store.owner(user_id=caller.user_id or "")
        if not facts.is_active:
            raise Forbidden(f"the account {facts.username} or its domain is not active")
        return facts

    async def _other_owner(self, caller: Caller, name: str) -> OwnerFacts:
        """Return the user for whom an administrator creates a session."""
        if reach(caller.role, "session.create-for") is Reach.NONE:
            raise Forbidden("only administrators may create sessions for another user", owner=name)
        missing = NotFound(f"there is no user {shown(name)!r}, or you may not see it", owner=name)
        try:
            facts = await self._store.owner(username=name)
        except NotFound:
            raise missing from None
        target = Target(facts.domain, owner=Owner(facts.id, facts.role))
        if not reaches(caller, "user.read", target):
            raise missing
        may_own = reach(facts.role, "session.create") is not Reach.NONE
        if not may_own or not reaches(caller, "session.create-for", target):
            raise Forbidden(
                f"you may not create sessions for {facts.username}, who has the role {facts.role}",
                owner=name,
                action="session.create-for",
            )
        return facts

    async def require_member(self, row: SessionRow) -> None:
        """Raise ``Forbidden`` if the owner of a session has left the session's project."""
        if row.project_id not in {each.id for each in await self._store.projects_of(row.owner_id)}:
            raise Forbidden(
                f"{row.owner} is no longer a member of the project of session {row.name}",
                session=row.id,
            )

    async def check_priority(
        self, caller: Caller, target: Target, access_key: str, priority: int
    ) -> None:
        """Raise an error if the caller may not give a session that priority.

        See ``choose_priority``.
        """
        if reaches(caller, "session.prioritize", target):
            keypair = None
        else:
            owner_id = "" if target.owner is None else target.owner.id
            keypair = await self._store.keypair(owner_id, access_key)
        choose_priority(priority, keypair)

    async def _project(self, caller: Caller, owner: OwnerFacts, key: str | None) -> ProjectFacts:
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        project = choose_project(projects, key)
        if caller.role is Role.HUB or caller.user_id == owner.id:
            target = Target(owner.domain, project.id, Owner(owner.id, owner.role))
            authorizer.require(caller, "session.create", target)
        else:
            # Check the permission in the project's domain, which can differ from the owner's: the
            # session is charged to it.
            target = Target(project.domain, project.id, Owner(owner.id, owner.role))
            authorizer.require(caller, "session.create-for", target)
        return project


@dataclass(frozen=True, slots=True)
class _Target:
    """The resource group of a session, the scopes that it is charged to, and placement options.

    ``scopes``: ids of the domain, project, user and keypair.
    """

    group: GroupFacts
    scopes: tuple[str, str, str, str]
    options: PlacementOptions


@dataclass(frozen=True, slots=True)
class _Resources:
    """Image and resources of a session, after defaults and checks."""

    image: ImageFacts
    slots: ResourceSlots
    shared_memory_bytes: int
    elasticity: Elasticity | None


class _RequestCache:
    """Results that the requests of one call share; each is read or checked once."""

    def __init__(self) -> None:
        self._results: dict[tuple[str | None, ...], Any] = {}

    async def get_or_read(self, key: tuple[str | None, ...], read: Callable[[], Awaitable[T]]) -> T:
        if key not in self._results:
            self._results[key] = await read()
        result: T = self._results[key]
        return result


def _numbered(error: BaiError, number: int, name: str | None) -> BaiError:
    """Return the error with the number and name of the request in its message."""
    label = f"{number} ({name[:64]})" if name else str(number)
    return type(error)(f"session {label}: {error.message}", **{**error.details, "number": number})


def access_key_of(caller: Caller, owner: OwnerFacts) -> str:
    """Return the keypair that a session is charged to: the caller's, else the owner's main one.

    Raises
    ------
    Forbidden
        If the owner has no keypair.
    """
    key = caller.access_key if caller.user_id == owner.id else None
    key = key or owner.access_key
    if key is None:
        raise Forbidden(f"{owner.username} has no keypair; an administrator can create one")
    return key


def _check_keypair(offer: Offer, access_key: str) -> None:
    if offer.keypair is None or not offer.keypair.is_active:
        raise Forbidden(f"keypair {access_key} is not active")


def preopen_environ(request: SessionSpec, image: ImageFacts) -> dict[str, str]:
    """Return the variable with the requested ports, which the session's server reads."""
    ports = check_preopen_ports(request.preopen_ports, image.labels)
    return {PREOPEN_PORTS: ",".join(map(str, ports))} if ports else {}


def _session_names(caller: Caller, request: SessionSpec, session_id: str) -> tuple[str, str, str]:
    """Return the session's name, its Hub server's name, and ``started_by`` (hub or manager)."""
    if caller.role is Role.HUB and request.hub_server is not None:
        if request.name is None:
            name = session_name_from(request.hub_server or "default")
        else:
            name = check_session_name(request.name)
        return name, request.hub_server, "hub"
    if request.hub_server is not None:
        raise Forbidden("only the Hub may specify the server of a session", field="hub_server")
    name = f"session-{secrets.token_hex(4)}" if request.name is None else request.name
    check_session_name(name)
    return name, hub_server_name(name, session_id), "manager"
