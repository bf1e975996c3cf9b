"""The options for a new session, and the quotas that limit it, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..resources import ResourceSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimit:
    """Amounts of a slot that a new session may request.

    ``now``: the largest amount with which a session could start now; 0 if none. ``allowed``: the
    lowest limit of the user's scopes; None: no limit. ``largest``: the capacity of the largest
    agent. ``max``: the lower of ``allowed`` and ``largest``. ``in_force``: the shares in use on
    devices that require equal shares. ``enforcement``: guaranteed enforcement level for shares;
    None: no shares are offered now.
    """

    min: str
    max: str
    now: str
    allowed: str | None
    largest: str
    step: str
    in_force: Sequence[str] = ()
    enforcement: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedProject:
    id: str
    name: str
    domain: str
    default_image: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedGroup:
    """A resource group of the form; ``notices``: notices for users about the group's agents."""

    name: str
    description: str
    engine: str
    is_default: bool
    notices: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedImage:
    """An image of the form; ``runtime_type``: language or framework from its label, or empty."""

    name: str
    architecture: str
    aliases: Sequence[str]
    runtime_type: str
    min: ResourceSlots
    max: ResourceSlots
    apps: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPreset:
    """A preset of the form; ``allocatable``: a session with this preset could start now."""

    name: str
    resources: ResourceSlots
    shared_memory: str | None
    allocatable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedFolder:
    """A folder of the form; ``owner``: name of the user or project that owns the folder."""

    id: str
    name: str
    owner: str
    permission: str
    is_auto_mounted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironLimits:
    """Limits of environments; ``reserved``: variables and prefixes that users cannot set."""

    count: int
    name_length: int
    value_bytes: int
    total_bytes: int
    reserved: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreopenLimits:
    count: int
    lowest: int
    highest: int
    reserved: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """A device model of the resource group's live agents.

    ``memory_bytes``: memory of one device; None: unknown. ``count``: number of devices.
    """

    family: str
    model: str
    memory_bytes: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    projects: Sequence[OfferedProject]
    project: str | None
    resource_groups: Sequence[OfferedGroup]
    resource_group: str | None
    images: Sequence[OfferedImage]
    presets: Sequence[OfferedPreset]
    limits: Mapping[str, SlotLimit]
    device_models: Sequence[DeviceModel]
    vfolders: Sequence[OfferedFolder]
    environ_limits: EnvironLimits
    preopen_limits: PreopenLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuota:
    """The quota of a slot; ``limit``, ``left`` and ``percent`` are None without a limit.

    ``is_limiting``: the scope limits the slot, and its remaining amount is the smallest of all
    scopes.
    """

    slot: str
    used: str
    limit: str | None
    left: str | None
    percent: int | None
    is_limiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeQuota:
    """The quotas of a scope; ``kind``: domain, project, user, keypair or resource-group."""

    kind: str
    name: str
    slots: Sequence[SlotQuota]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResource:
    """Amounts of a slot on the live, schedulable agents of a resource group."""

    slot: str
    total: str
    used: str
    free: str
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuotas:
    """Quotas of the caller's scopes, and resources of the selected resource group.

    ``mine``: resources of the caller's sessions in the group. Its ``free`` is the smaller of the
    free amount in the group and the caller's remaining quota.
    """

    projects: Sequence[str]
    project: str | None
    resource_groups: Sequence[str]
    resource_group: str | None
    scopes: Sequence[ScopeQuota]
    resources: Sequence[GroupResource]
    mine: Sequence[GroupResource]
