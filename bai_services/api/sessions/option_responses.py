"""Responses with the options and quotas for a new session."""

from __future__ import annotations

from ..fields import ResponseModel, SlotsOutput


class SlotLimit(ResponseModel):
    """Amounts of a slot that a new session may request.

    ``now``: the largest amount with which a session could start now; 0 if it cannot. ``allowed``:
    the lowest limit of your scopes, null without a limit. ``largest``: the most that one agent has.
    ``max``: the lower of ``allowed`` and ``largest``. ``in_force``: the shares in use on devices
    on which all sessions must have the same share. ``enforcement``: enforcement level that is
    guaranteed for shares.
    """

    min: str
    max: str
    now: str
    allowed: str | None
    largest: str
    step: str
    in_force: list[str] = []
    enforcement: str | None = None


class DeviceModel(ResponseModel):
    """``memory_bytes``: memory of one device; null: unknown. ``count``: number of such devices on
    the live agents of the group.
    """

    family: str
    model: str
    memory_bytes: int | None
    count: int


class OfferedProject(ResponseModel):
    id: str
    name: str
    domain: str
    default_image: str | None


class OfferedGroup(ResponseModel):
    """``notices``: notices for users about the group's agents."""

    name: str
    description: str
    engine: str
    is_default: bool
    notices: list[str]


class OfferedImage(ResponseModel):
    """``runtime_type``: the language or framework of the image, from its label; may be empty."""

    name: str
    architecture: str
    aliases: list[str]
    runtime_type: str
    min: SlotsOutput
    max: SlotsOutput
    apps: list[str]


class OfferedPreset(ResponseModel):
    """``allocatable``: a session with this preset could start now."""

    name: str
    resources: SlotsOutput
    shared_memory: str | None
    allocatable: bool


class OfferedFolder(ResponseModel):
    """``owner``: user name, or project of a project folder."""

    id: str
    name: str
    owner: str
    permission: str
    is_auto_mounted: bool


class EnvironLimits(ResponseModel):
    """``reserved``: variables, and prefixes of variables, that users cannot set."""

    count: int
    name_length: int
    value_bytes: int
    total_bytes: int
    reserved: list[str]


class PreopenLimits(ResponseModel):
    count: int
    lowest: int
    highest: int
    reserved: list[int]


class SessionOptions(ResponseModel):
    projects: list[OfferedProject]
    project: str | None
    resource_groups: list[OfferedGroup]
    resource_group: str | None
    images: list[OfferedImage]
    presets: list[OfferedPreset]
    limits: dict[str, SlotLimit]
    device_models: list[DeviceModel]
    vfolders: list[OfferedFolder]
    environ_limits: EnvironLimits
    preopen_limits: PreopenLimits


class SlotQuota(ResponseModel):
    """``limit``, ``left`` and ``percent`` are null if the scope does not limit the slot.

    ``is_limiting``: the scope limits the slot, and no other scope has less of the slot left.
    """

    slot: str
    used: str
    limit: str | None
    left: str | None
    percent: int | None
    is_limiting: bool


class ScopeQuota(ResponseModel):
    """``kind``: domain, project, user, keypair or resource-group."""

    kind: str
    name: str
    slots: list[SlotQuota]


class GroupResource(ResponseModel):
    """Amounts of a slot on the live, schedulable agents of a resource group."""

    slot: str
    total: str
    used: str
    free: str
    percent: int


class SessionQuotas(ResponseModel):
    """Quotas of your scopes, and resources of the selected resource group.

    ``mine``: resources of your sessions in the group. ``free`` in ``mine`` is the smaller of
    the free amount in the group and your remaining quota.
    """

    projects: list[str]
    project: str | None
    resource_groups: list[str]
    resource_group: str | None
    scopes: list[ScopeQuota]
    resources: list[GroupResource]
    mine: list[GroupResource]
