"""Resource groups, agents, devices, images and presets, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bai_services.core.cluster.protocol import MAX_REPORTS, PROTOCOL
from bai_services.core.cluster.storage_checks import StorageCheck
from bai_services.core.resources import Caps, ResourceSlots


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    name: str
    created_at: datetime
    description: str
    is_active: bool
    is_default: bool
    is_public: bool
    engine: str
    scheduler: str
    scheduler_opts: Mapping[str, Any]
    allowed_session_types: Sequence[str]
    total_resource_slots: Caps
    max_concurrent_sessions: int | None


@dataclass(frozen=True, slots=True)
class GroupLink:
    """Permission to use a resource group.

    ``kind`` is domain, project, user or keypair. ``target`` is the name of a domain, the id of a
    project or user, or an access key.
    """

    kind: str
    target: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFields:
    """Fields common to a stored device and a device returned by the API."""

    id: str
    agent_id: str
    family: str
    index: int
    model: str
    memory_bytes: int | None
    numa_node: int | None
    is_simulated: bool
    is_healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(DeviceFields):
    """A device. ``capacity``, ``used`` and ``share_in_force`` are decimal fractions of the device.

    ``share_in_force``: the share that all sessions on the device must have; None: any.
    """

    capacity: str
    used: str
    facts: Mapping[str, Any]
    share_in_force: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice(Device):
    """A device with the resource group and the status of its agent."""

    resource_group: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFields:
    """Fields common to a stored agent and an agent returned by the API."""

    id: str
    created_at: datetime
    resource_group: str
    status: str
    status_changed_at: datetime
    last_heartbeat_at: datetime
    schedulable: bool
    engine: str
    endpoint: str
    architecture: str
    version: str
    facts: Mapping[str, Any]
    storage_problems: Mapping[str, str]
    is_network_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(AgentFields):
    """An agent, its resources and its devices.

    ``storage_problems``: the problem of each storage host that does not work there
    (``StorageProblem``); no session with folders on such a host is placed on the agent.
    ``is_network_full``: no subnet is free for networks of sessions; no session is placed there.

    ``slots``: the capacity. ``free``: the part of the capacity that is not allocated. ``kernels``:
    the number of kernels of sessions on the agent.
    """

    slots: ResourceSlots
    used: ResourceSlots
    free: ResourceSlots
    devices: Sequence[Device]
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """The fields of an agent that users may see."""

    id: str
    status: str
    architecture: str
    resource_group: str
    schedulable: bool
    slots: ResourceSlots
    used: ResourceSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTotals:
    """Total resources of all live agents, and how many of these agents accept new sessions."""

    agents: int
    schedulable_agents: int
    slots: ResourceSlots
    used: ResourceSlots


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Response to a heartbeat; an agent is lost ``deadline_seconds`` after its last heartbeat."""

    deadline_seconds: int
    interval_seconds: int
    hub_api_url: str
    is_new: bool
    storage: Sequence[StorageCheck]
    protocol: int = PROTOCOL
    max_reports: int = MAX_REPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFields:
    """Fields common to a stored image and an image returned by the API.

    ``registry_problem``: why the image remains although its tag was deleted in the registry.
    """

    id: str
    created_at: datetime
    name: str
    architecture: str
    description: str
    digest: str
    size_bytes: int
    labels: Mapping[str, str]
    min_slots: ResourceSlots
    max_slots: ResourceSlots
    is_active: bool
    registry_digest: str
    registry: str
    registry_problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(ImageFields):
    """The fields after ``aliases`` are read from the labels."""

    aliases: Sequence[str]
    apps: Sequence[str]
    features: Sequence[str]
    role: str
    is_private: bool
    preferred_slots: ResourceSlots
    preferred_shared_memory: str | None


@dataclass(frozen=True, slots=True)
class ImageAlias:
    alias: str
    created_at: datetime
    image_id: str
    image: str
    architecture: str


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of resources.

    ``resource_group`` is None if the preset is valid in every group. ``allocatable``: whether the
    caller could start a session with the preset now; None if the request did not describe a
    session.
    """

    id: str
    created_at: datetime
    name: str
    resource_group: str | None
    resource_slots: ResourceSlots
    shared_memory: str | None
    allocatable: bool | None
