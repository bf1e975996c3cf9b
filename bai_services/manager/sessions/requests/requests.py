"""Resolution of a request into a session that can be created, or into a refusal with reasons."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from bai_services.core.accounts.roles import Caller, Owner, Role, Target, reaches
from bai_services.core.cluster.image_labels import check_preopen_ports
from bai_services.core.errors import BaiError, Forbidden, InvalidRequest
from bai_services.core.folders.mounts import MountRequest, ResolvedMount
from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.batch import BATCH_FIELDS, check_batch
from bai_services.core.sessions.callbacks import AllowedTargets, check_url
from bai_services.core.sessions.launch_plan import Mount
from bai_services.core.sessions.rules import (
    check_environ,
    check_session_name,
    hub_server_name,
    session_name_from,
)
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.requests import (
    GroupFacts,
    ImageFacts,
    Offer,
    OwnerFacts,
    ProjectFacts,
    RequestStore,
)
from bai_services.db.sessions.session_insert import NewSession

from ...accounts import authorizer
from ...clock import Clock
from ...scheduling.admission_checks import FittingAgents, Where, check_caps, where_of
from .choices import (
    amounts_of,
    checked_priority,
    choose_group,
    choose_image,
    choose_preset,
    choose_project,
    session_type,
)
from .dependency_resolver import DependencyResolver
from .problems import NameSources, add_problems
from .secret_environ import SecretEnviron

# A reserved name, like all that start with BAI_: a request cannot set it as a variable.
PREOPEN_PORTS = "BAI_PREOPEN_PORTS"

T = TypeVar("T")


class Folders(Protocol):
    """Folder operations that sessions need; implemented by ``manager/folders/vfolders.py``."""

    async def resolve_mounts(
        self, caller: Caller, owner_id: str, project_id: str, mounts: Sequence[MountRequest]
    ) -> Sequence[ResolvedMount]:
        """Return the folders with their mount paths, or refuse; nothing is locked yet."""
        ...

    async def mountable(self, owner_id: str, project_id: str) -> list[dict[str, Any]]:
        """Return id, name, owner and permission of every folder that may be mounted."""
        ...

    async def sources(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[Mount]:
        """Return the mounts of a session's row as its launch plan has them."""
        ...

    async def notices(self, owner_id: str, mounts: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return notices for the owner about the mounts of a session's row."""
        ...


class Requests:
    """Resolves names and checks rules and caps; creates nothing."""

    def __init__(
        self,
        store: RequestStore,
        vfolders: Folders,
        clock: Clock,
        callback_reach: AllowedTargets,
        agents: FittingAgents,
        secret_environ: SecretEnviron,
    ) -> None:
        self._secret_environ = secret_environ
        self._callback_reach = callback_reach
        self._store = store
        self._vfolders = vfolders
        self._clock = clock
        self._agents = agents

    async def resolve(self, caller: Caller, request: SessionSpec) -> NewSession:
        """Return the session to create for a request.

        Raises
        ------
        InvalidRequest
            If a name, an amount, the environment, a mount or a batch field is malformed.
        NotFound
            If the owner has no such project, image, preset, resource group, folder or
            dependency.
        Forbidden
            If the caller may not create sessions for that owner.
        QuotaExceeded
            If a cap forbids it even when the cluster is empty.
        InsufficientResources
            If no agent of the group is large enough.
        Conflict
            If a dependency has ended without success.
        """
        return (await self.resolve_all(caller, [request]))[0]

    async def resolve_all(
        self, caller: Caller, requests: Sequence[SessionSpec]
    ) -> list[NewSession]:
        """Return the sessions to create for requests that are sent together.

        They may depend on each other by name. Raises the same errors as ``resolve``; the message
        begins with the number (from 1) and name of the first wrong request.
        """
        known = _Known()
        found: list[NewSession] = []
        for number, request in enumerate(requests, 1):
            try:
                found.append(await self._resolve(caller, request, known))
            except BaiError as error:
                beside = partial(self._beside, caller, request, known)
                refusal = await add_problems(error, request, beside)
                if len(requests) > 1:
                    refusal = _numbered(refusal, number, request.name)
                raise refusal from error
        resolver = DependencyResolver(found, [request.dependencies for request in requests])
        owner_id = found[0].owner_id
        return resolver.resolved(await self._store.own_sessions(owner_id, resolver.outside))

    async def _resolve(self, caller: Caller, request: SessionSpec, known: _Known) -> NewSession:
        owner = await known.once(
            ("owner", request.owner), lambda: self.owner_of(caller, request.owner)
        )
        project = await known.once(
            ("project", request.project), lambda: self._project(caller, owner, request.project)
        )
        access_key = access_key_of(caller, owner)
        image_and_preset = request.image or project.default_image or "", request.preset or ""
        offer = await known.once(
            ("offer", project.id, *image_and_preset),
            lambda: self._store.offer_of(owner, project, access_key, image_and_preset),
        )
        _check_keypair(offer, access_key)
        kind = session_type(request.type)
        asked = {name: getattr(request, name) for name in BATCH_FIELDS}
        batch = check_batch(kind, asked, self._clock())
        group = choose_group(offer.groups, request.resource_group, kind)
        where = where_of(caller, project, owner, request)
        place = _Place(group, (project.domain, project.id, owner.id, access_key), where)
        image, slots, shared_memory = await self._fitting(
            known, request, offer, image_and_preset[0], place
        )
        requested = list(request.mounts)
        mounts = await known.once(
            ("mounts", project.id, str(requested)),
            lambda: self._vfolders.resolve_mounts(caller, owner.id, project.id, requested),
        )
        await self._check_binds(group.name, mounts)
        session_id = str(uuid.uuid4())
        name, hub_server, started_by = _names(caller, request, session_id)
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
            image=image.name,
            architecture=image.architecture,
            priority=checked_priority(request.priority, offer.keypair),
            requested_slots=slots,
            shared_memory_bytes=shared_memory,
            mounts=[mount.as_row() for mount in mounts],
            environ=self._secret_environ.seal(
                check_environ(request.environ), request.secret_environ
            )
            | preopen_environ(request, image),
            options=where,
            request_hash=replace(
                request,
                environ=self._secret_environ.digests(request.environ, request.secret_environ),
            ).digest(project.id, mounts),
            notices=[],
            hub_user=owner.username,
            hub_server=hub_server,
            started_by=started_by,
            startup_command=batch.startup_command,
            starts_at=batch.starts_at,
            batch_timeout_seconds=batch.batch_timeout_seconds,
            callback_url=check_url(request.callback_url, self._callback_reach),
            reuse=request.reuse,
            cluster_mode=request.cluster_mode,
            sub_kernel_ids=tuple(str(uuid.uuid4()) for _ in range(1, request.cluster_size)),
        )

    async def _beside(self, caller: Caller, request: SessionSpec, known: _Known) -> NameSources:
        """Return the sources in which the names of a refused request are looked up."""
        owner = await known.once(
            ("owner", request.owner), lambda: self.owner_of(caller, request.owner)
        )
        project = await self._project(caller, owner, request.project)
        access_key = access_key_of(caller, owner)
        image_and_preset = request.image or project.default_image or "", request.preset or ""
        offer = await self._store.offer_of(owner, project, access_key, image_and_preset)
        _check_keypair(offer, access_key)

        async def resolve_mount(mount: MountRequest) -> None:
            await self._vfolders.resolve_mounts(caller, owner.id, project.id, [mount])

        return NameSources(offer, image_and_preset[0], resolve_mount)

    async def _fitting(
        self,
        known: _Known,
        request: SessionSpec,
        offer: Offer,
        image_name: str,
        place: _Place,
    ) -> tuple[ImageFacts, ResourceSlots, int]:
        """Return image, amounts and shared memory, after a check that they can ever fit in the
        group.
        """
        group, scopes, where = place.group, place.scopes, place.where
        agents = await known.once(("agents", group.name), lambda: self._agents.of(group.name))
        room = await known.once(
            ("room", *scopes, group.name),
            lambda: self._store.room_for(agents.states, scopes, group.name),
        )
        served = {agent.architecture for agent in room.agents}
        image = choose_image(offer.images, image_name, served)
        preset = choose_preset(offer.presets, request.preset, group.name)
        asked = request.resources, request.shared_memory
        slots, shared_memory = amounts_of(*asked, preset, image)
        check_caps(room, slots, request)
        await self._agents.check(agents, slots, (group, image.architecture), request, where)
        return image, slots, shared_memory

    async def _check_binds(self, group: str, mounts: Sequence[ResolvedMount]) -> None:
        has_subpath = any(mount.subpath for mount in mounts)
        if has_subpath and not await self._store.binds_subpaths(group):
            raise InvalidRequest(
                f"no agent of resource group {group} can mount a directory of a folder: its "
                "agents run without root; mount the whole folder, or choose another group",
                field="mounts",
                resource_group=group,
            )

    async def owner_of(self, caller: Caller, owner: str | None) -> OwnerFacts:
        """Return the account that a caller acts for: the caller's own; the Hub names the owner.

        Raises
        ------
        Forbidden
            If a caller other than the Hub names another user.
        """
        if caller.role is Role.HUB:
            if not owner:
                raise InvalidRequest("the Hub must name the owner of the session", field="owner")
            found = await self._store.owner(username=owner)
        elif owner not in (None, "", caller.username):
            raise Forbidden("only the Hub may create sessions for another user", owner=owner)
        else:
            found = await self._store.owner(user_id=caller.user_id or "")
        if not found.is_active:
            raise Forbidden(f"the account {found.username} or its domain is not active")
        return found

    async def check_priority(
        self, caller: Caller, target: Target, access_key: str, priority: int
    ) -> None:
        """Check that a caller may set that priority for a session; see ``checked_priority``."""
        if reaches(caller, "session.prioritize", target):
            keypair = None
        else:
            owner_id = "" if target.owner is None else target.owner.id
            keypair = await self._store.keypair(owner_id, access_key)
        checked_priority(priority, keypair)

    async def _project(self, caller: Caller, owner: OwnerFacts, key: str | None) -> ProjectFacts:
        mine = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        project = choose_project(mine, key)
        target = Target(owner.domain, project.id, Owner(owner.id, owner.role))
        authorizer.require(caller, "session.create", target)
        return project


@dataclass(frozen=True, slots=True)
class _Place:
    """The group of a request, the scopes whose caps apply, and facts about the group's agents."""

    group: GroupFacts
    scopes: tuple[str, str, str, str]
    where: Where


class _Known:
    """Names and rows that requests of one call share, each read or checked once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, ...], Any] = {}

    async def once(self, key: tuple[str | None, ...], read: Callable[[], Awaitable[T]]) -> T:
        if key not in self._found:
            self._found[key] = await read()
        found: T = self._found[key]
        return found


def _numbered(error: BaiError, number: int, name: str | None) -> BaiError:
    """Return the same error, with the number and name of the request that it is about."""
    what = f"{number} ({name[:64]})" if name else str(number)
    return type(error)(f"session {what}: {error.message}", **{**error.details, "number": number})


def access_key_of(caller: Caller, owner: OwnerFacts) -> str:
    """Return the keypair that a session counts for: the one that signed the request, else the main
    one.

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
    """Return the requested ports as the environment variable that the session's server reads."""
    ports = check_preopen_ports(request.preopen_ports, image.labels)
    return {PREOPEN_PORTS: ",".join(map(str, ports))} if ports else {}


def _names(caller: Caller, request: SessionSpec, session_id: str) -> tuple[str, str, str]:
    """Return the session's name, the name of its Hub server, and who starts it."""
    if caller.role is Role.HUB and request.hub_server is not None:
        asked = request.name or request.hub_server or "default"
        return session_name_from(asked), request.hub_server, "hub"
    if request.hub_server is not None:
        raise Forbidden("only the Hub may name the server of a session", field="hub_server")
    name = f"session-{secrets.token_hex(4)}" if request.name is None else request.name
    check_session_name(name)
    return name, hub_server_name(name, session_id), "manager"
