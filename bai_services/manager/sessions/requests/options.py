"""List the options of the start form, with the resources that are available now."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster import image_labels
from bai_services.core.cluster.devices import is_device_slot
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import CPU, MEM, ResourceSlots, format_amount, slot_type
from bai_services.core.scheduling import caps as cap_rules
from bai_services.core.scheduling.placement import Mode, Request
from bai_services.core.sessions import rules as session_rules
from bai_services.core.sessions.group_request import request_of
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.options import (
    EnvironLimits,
    OfferedGroup,
    OfferedImage,
    OfferedPreset,
    OfferedProject,
    PreopenLimits,
    SessionOptions,
    SessionQuotas,
    SlotLimit,
)
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.requests import (
    AdmissionFacts,
    GroupFacts,
    ImageFacts,
    Offer,
    OwnerFacts,
    PresetFacts,
    ProjectFacts,
    RequestStore,
)

from ...accounts import authorizer
from ...cluster.agent_capacity import NO_CAPACITY, AgentCapacity, AgentCapacityCache
from ...scheduling.jit_warmup import JitWarmup
from .choices import choose_group, choose_project, choose_resources, find_group, session_type
from .quotas import group_resources, own_resources, scope_quotas
from .requests import Folders, Requests, access_key_of


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Facts that determine which sessions of a user could start now in a resource group.

    ``images``: the images that the user may choose and that an agent of the group can run.
    """

    group: GroupFacts
    admission: AdmissionFacts
    agents: AgentCapacity
    images: Sequence[ImageFacts]
    is_keypair_active: bool = True


class PresentImages(Protocol):
    """Interface that ``ImagePullStore`` implements."""

    async def present(self, group: str) -> Collection[str]:
        """Return the names of the images that an agent of the group has."""
        ...


class Options:
    """Lists options for a new session; chooses the project and the group if none is given."""

    def __init__(
        self,
        store: RequestStore,
        requests: Requests,
        vfolders: Folders,
        jit_warmup: JitWarmup,
        present_images: PresentImages | None = None,
    ) -> None:
        """``present_images``: if given, images that no agent has are not offered."""
        self._present_images = present_images
        self._store = store
        self._requests = requests
        self._vfolders = vfolders
        self._capacity = AgentCapacityCache(jit_warmup)

    async def get(
        self, caller: Caller, owner_name: str | None, project_key: str | None, group: str | None
    ) -> SessionOptions:
        """Return projects, groups, images, presets, limits and folders for a new session.

        If no project is given, and there is no default, the first project is used.
        """
        authorizer.require(caller, "session.create")
        owner = await self._requests.owner_of(caller, owner_name)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        options = SessionOptions(
            projects=[_project(p) for p in projects],
            project=None,
            resource_group=None,
            resource_groups=(),
            images=(),
            presets=(),
            limits={},
            device_models=(),
            vfolders=(),
            environ_limits=environ_limits(),
            preopen_limits=preopen_limits(),
        )
        if not projects:
            return options
        try:
            project = choose_project(projects, project_key)
        except InvalidRequest:
            project = projects[0]
        return await self._of_project(caller, owner, project, group, options)

    async def quotas(
        self, caller: Caller, project_key: str | None, group: str | None
    ) -> SessionQuotas:
        """Return quotas of the caller, and total and used resources of a resource group.

        The quotas are those for sessions of the project in that group. If no project is given, the
        first project is used. If no group is given, the default group of a new session is used.
        """
        authorizer.require(caller, "session.create")
        owner = await self._requests.owner_of(caller, None)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        result = SessionQuotas(
            projects=[p.name for p in projects],
            project=None,
            resource_groups=(),
            resource_group=None,
            scopes=(),
            resources=(),
            mine=(),
        )
        if not projects:
            return result
        project = choose_project(projects, project_key) if project_key else projects[0]
        access_key = access_key_of(caller, owner)
        offer = await self._store.offer(owner, project, access_key)
        result = replace(
            result, project=project.name, resource_groups=[g.name for g in offer.groups]
        )
        if not offer.groups:
            return result
        chosen = choose_group(offer.groups, group, SessionType.INTERACTIVE)
        key = (project.domain, project.id, owner.id, access_key)
        found = await self._start_facts(offer, key, chosen)
        agents = found.agents.agents
        used = await self._store.used_in_group(owner.id, chosen.name)
        return replace(
            result,
            resource_group=chosen.name,
            scopes=scope_quotas(found.admission),
            resources=group_resources(agents),
            mine=own_resources(agents, used, found.admission),
        )

    async def project_id(self, caller: Caller, key: str) -> str:
        """Return the id of the caller's project with that id or name."""
        owner = await self._requests.owner_of(caller, None)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        return choose_project(projects, key).id

    async def project_of(self, caller: Caller, project_key: str | None) -> ProjectFacts:
        """Return the project for new sessions of the caller; see ``choose_project``."""
        owner = await self._requests.owner_of(caller, None)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        return choose_project(projects, project_key)

    async def check_target(self, caller: Caller, spec: SessionSpec) -> None:
        """Raise unless the owner of ``spec`` may start sessions in its project and group."""
        owner = await self._requests.owner_of(caller, spec.owner)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        project = choose_project(projects, spec.project)
        offer = await self._store.offer(owner, project, access_key_of(caller, owner))
        choose_group(offer.groups, spec.resource_group, session_type(spec.type))

    async def start_facts(
        self,
        caller: Caller,
        project_key: str | None,
        group_name: str | None,
        kind: SessionType | None = None,
    ) -> StartFacts:
        """Return the facts about new sessions of the caller in a resource group.

        Without a group name, ``find_group`` chooses the group.
        """
        owner = await self._requests.owner_of(caller, None)
        projects = [p for p in await self._store.projects_of(owner.id) if p.is_active]
        project = choose_project(projects, project_key)
        access_key = access_key_of(caller, owner)
        offer = await self._store.offer(owner, project, access_key)
        group = find_group(offer.groups, group_name, kind)
        key = (project.domain, project.id, owner.id, access_key)
        return await self._start_facts(offer, key, group)

    async def _start_facts(
        self, offer: Offer, key: tuple[str, str, str, str], group: GroupFacts
    ) -> StartFacts:
        agents = await self._capacity.read(group.name, lambda: self._store.agents(group.name))
        facts = await self._store.admission_facts(agents.agents, key, group.name, with_pending=True)
        is_active = offer.keypair is not None and offer.keypair.is_active
        images = _usable(offer.images, facts)
        if self._present_images is not None and group.engine == "docker":
            present = await self._present_images.present(group.name)
            images = [image for image in images if image.name in present]
        return StartFacts(group, facts, agents, images, is_active)

    async def _of_project(
        self,
        caller: Caller,
        owner: OwnerFacts,
        project: ProjectFacts,
        group_name: str | None,
        options: SessionOptions,
    ) -> SessionOptions:
        """Return ``options`` completed for a project and a resource group."""
        access_key = access_key_of(caller, owner)
        offer, folders = await asyncio.gather(
            self._store.offer(owner, project, access_key),
            self._vfolders.mountable(caller, owner.id, project.id),
        )
        options = replace(
            options,
            project=project.id,
            resource_groups=[_group(g) for g in offer.groups],
            vfolders=folders,
        )
        if not offer.groups:
            return options
        group = choose_group(offer.groups, group_name, SessionType.INTERACTIVE)
        key = (project.domain, project.id, owner.id, access_key)
        found = await self._start_facts(offer, key, group)
        return replace(
            options,
            resource_group=group.name,
            images=[_image(image) for image in found.images],
            presets=[
                _preset(preset, is_allocatable(preset, found))
                for preset in offer.presets
                if preset.resource_group in ("", group.name)
            ],
            limits=limits(found),
            device_models=await self._store.device_models(group.name),
        )


def limits(found: StartFacts) -> dict[str, SlotLimit]:
    """Return the minimum and maximum of each slot, and the maximum that can start now (``now``).

    The maximum is bounded by the caller's limits (``allowed``; None: no limit), and by the largest
    agent or machine that provisioning can start (``largest``). ``now`` is also bounded by the
    current usage of the caller's quotas, by the limits of pending sessions (every session is
    pending at first), and by the free capacity of one agent. ``now`` is 0 if even the smallest
    session would be rejected or would not start now.
    """
    facts, agents = found.admission, found.agents
    caps = facts.caps_in_order
    smallest = [one for one in _smallest_requests(found) if _is_accepted(found, one.slots)]
    result = {}
    provisioning = found.group.options.provisioning
    machine = provisioning.machine if provisioning.maximum else ResourceSlots()
    for slot in sorted({*agents.amounts, *machine}):
        amounts = agents.amounts.get(slot, NO_CAPACITY)
        largest = max(amounts.largest, machine.get(slot, 0))
        kind = slot_type(slot)
        highest = cap_rules.highest(caps, slot)
        maximum = largest if highest is None else min(highest, largest)
        left = cap_rules.left(caps, slot, facts.usage)
        pending_left = cap_rules.pending_left(caps, slot, facts.pending)
        bound = min(n for n in (maximum, left, pending_left) if n is not None)
        now = max((agents.free(slot, bound, request) for request in smallest), default=0)
        maximum, now = maximum - maximum % kind.step, now - now % kind.step
        minimum = 0 if is_device_slot(slot) else kind.minimum
        result[slot] = SlotLimit(
            min=format_amount(slot, minimum),
            max=format_amount(slot, maximum),
            now=format_amount(slot, now if now >= kind.minimum else 0),
            allowed=None if highest is None else format_amount(slot, highest),
            largest=format_amount(slot, largest),
            step=format_amount(slot, kind.step),
            in_force=[format_amount(slot, share) for share in amounts.in_force],
            enforcement=amounts.enforcement,
        )
    return result


def is_allocatable(preset: PresetFacts, found: StartFacts, kind: SessionType | None = None) -> bool:
    """Return whether a session with that preset (and of ``kind``, if given) could start now."""
    group = found.group
    if kind is not None and kind not in group.allowed_session_types:
        return False
    # Check images with the same bounds only once, because there can be many.
    images = {(i.architecture, i.min_slots, i.max_slots): i for i in found.images}
    for image in images.values():
        try:
            slots, _ = choose_resources({}, None, preset, image)
        except InvalidRequest:
            continue
        single = Request(slots, group.name, image.architecture, group.engine)
        request = request_of(single, group.options, 1, Mode.SINGLE_NODE, {})
        if _is_accepted(found, slots) and found.agents.fits(request):
            return True
    return False


def _smallest_requests(found: StartFacts) -> set[Request]:
    """Return the smallest requests for cpu and mem that the images allow."""
    group = found.group
    requests = set()
    for image in found.images:
        slots = {s: image.min_slots.get(s) or slot_type(s).minimum for s in (CPU, MEM)}
        requests.add(Request(ResourceSlots(slots), group.name, image.architecture, group.engine))
    return requests


def _is_accepted(found: StartFacts, slots: ResourceSlots) -> bool:
    """Return whether a session with one kernel could be created without a delay by a quota."""
    facts = found.admission
    caps = facts.caps_in_order
    return found.is_keypair_active and not (
        cap_rules.violations(caps, slots, facts.usage)
        or cap_rules.pending_violations(caps, slots, facts.pending)
        or cap_rules.container_violations(caps, 1)
    )


def environ_limits() -> EnvironLimits:
    """Return the limits of environment variables, for the form."""
    return EnvironLimits(
        count=session_rules.MAX_ENVIRON_VARIABLES,
        name_length=session_rules.MAX_ENVIRON_NAME,
        value_bytes=session_rules.MAX_ENVIRON_VALUE_BYTES,
        total_bytes=session_rules.MAX_ENVIRON_TOTAL_BYTES,
        reserved=session_rules.RESERVED_ENVIRON,
    )


def preopen_limits() -> PreopenLimits:
    """Return the limits of preopened ports, for the form."""
    return PreopenLimits(
        count=image_labels.MAX_PREOPEN_PORTS,
        lowest=image_labels.LOWEST_PORT,
        highest=image_labels.HIGHEST_PORT,
        reserved=sorted({*image_labels.RESERVED_PORTS, image_labels.SERVER_PORT}),
    )


def _usable(images: Sequence[ImageFacts], facts: AdmissionFacts) -> list[ImageFacts]:
    """Return the images that users may choose and that an agent's architecture can run.

    If there are no agents, include images of every architecture.
    """
    served = {agent.architecture for agent in facts.agents}
    runnable = [i for i in images if not served or i.architecture in served]
    return [i for i in runnable if not image_labels.parse_labels(dict(i.labels)).is_private]


def _project(project: ProjectFacts) -> OfferedProject:
    return OfferedProject(
        id=project.id,
        name=project.name,
        domain=project.domain,
        default_image=project.default_image,
    )


def _group(group: GroupFacts) -> OfferedGroup:
    return OfferedGroup(
        name=group.name,
        description=group.description,
        engine=group.engine,
        is_default=group.is_default,
        notices=group.notices,
    )


def _image(image: ImageFacts) -> OfferedImage:
    labels = image_labels.parse_labels(dict(image.labels))
    return OfferedImage(
        name=image.name,
        architecture=image.architecture,
        aliases=image.aliases,
        runtime_type=labels.runtime_type,
        min=image.min_slots,
        max=image.max_slots,
        apps=labels.apps,
    )


def _preset(preset: PresetFacts, allocatable: bool) -> OfferedPreset:
    shared_memory = preset.shared_memory_bytes
    return OfferedPreset(
        name=preset.name,
        resources=preset.slots,
        shared_memory=None if shared_memory is None else format_amount(MEM, shared_memory),
        allocatable=allocatable,
    )
