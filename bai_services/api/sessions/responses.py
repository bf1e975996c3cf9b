"""Responses of the session routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..fields import ResponseModel, SlotsOutput


class Allocation(ResponseModel):
    agent: str
    device: str | None
    slot: str
    amount: str
    is_simulated: bool


class Mount(ResponseModel):
    vfolder: str
    vfolder_id: str
    subpath: str
    path: str
    permission: str


class SessionDependency(ResponseModel):
    id: str
    name: str
    status: str
    result: str


class SessionKernel(ResponseModel):
    id: str
    role: str
    hostname: str
    agent: str | None
    container_id: str | None
    progress: dict[str, Any]
    usage: dict[str, Any]


class AllocatedDevice(ResponseModel):
    """A device, or share of one, that is allocated to a kernel. Null means unknown."""

    id: str
    family: str
    model: str
    share: str
    memory_bytes: int | None
    enforcement: str | None
    is_simulated: bool
    kernel: str
    used_memory_bytes: int | None
    utilization_percent: float | None
    processes: int | None
    active_at: datetime | None


class Lifetime(ResponseModel):
    """``seconds``: maximum run time, including extensions.

    ``added_seconds``: extensions so far. ``addable_seconds``: maximum further extension.
    """

    seconds: int
    added_seconds: int
    addable_seconds: int


class Idleness(ResponseModel):
    """``idle_since``: time of the last activity. ``idle_ends_at``: when the session will be stopped
    if it is not used before. Both are null if the session has no idle timeout.
    ``next_report_seconds``: time until the session must report its activity again.
    """

    idle_since: datetime | None
    idle_ends_at: datetime | None
    next_report_seconds: float


class SessionToken(ResponseModel):
    """A Hub token that only gives access to the server of this session."""

    token: str
    expires_in_seconds: int


class SessionCallback(ResponseModel):
    """State of the callbacks of a session.

    ``is_open``: callbacks are still sent. ``delivered``: number of delivered callbacks.
    ``given_up``: number of callbacks that could not be delivered. ``tries``: attempts to send the
    current callback. ``next_at``: time of its next retry.
    """

    url: str
    is_open: bool
    delivered: int
    given_up: int
    tries: int
    next_at: datetime | None
    last_at: datetime | None
    last_error: str


class Session(ResponseModel):
    """``hidden_fields``: fields that are empty because the caller may not read them."""

    id: str
    name: str
    type: str
    owner: str
    owner_id: str
    domain: str
    project: str
    project_id: str
    resource_group: str
    image: str
    architecture: str
    status: str
    status_info: str
    reasons: list[dict[str, Any]]
    notices: list[str]
    cluster_size: int
    cluster_mode: str
    kernels: list[SessionKernel]
    requested: SlotsOutput
    shared_memory: str
    priority: int
    mounts: list[Mount]
    environ: dict[str, str]
    secret_environ: list[str]
    preopen_ports: list[int]
    result: str
    exit_code: int | None
    startup_command: str | None
    starts_at: datetime | None
    batch_timeout: int | None
    lifetime: Lifetime | None
    ends_at: datetime | None
    idle_since: datetime | None
    idle_ends_at: datetime | None
    is_draining: bool
    dependencies: list[SessionDependency]
    callback: SessionCallback | None
    allocations: list[Allocation]
    progress: dict[str, Any]
    usage: dict[str, Any]
    devices: list[AllocatedDevice]
    enforcement: dict[str, str]
    kernel_id: str | None
    agent: str | None
    queue_position: int | None
    estimated_start: dict[str, str] | None
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    terminated_at: datetime | None
    started_by: str
    hub_user: str
    hub_server: str
    url: str
    page: str
    hidden_fields: list[str]


class CreatedSessions(ResponseModel):
    items: list[Session]


class GraphItem(SessionDependency):
    depends_on: list[str]


class DependencyGraph(ResponseModel):
    """``is_complete``: false if the graph is larger than the response."""

    items: list[GraphItem]
    is_complete: bool


class StatusChange(ResponseModel):
    at: datetime
    event: str
    from_status: str
    to_status: str
    reason: str


class History(ResponseModel):
    items: list[StatusChange]


class Usage(ResponseModel):
    session_id: str
    kernels: list[dict[str, Any]]


class UsageOfDevice(ResponseModel):
    """``limit_bytes``: memory that the kernel may use. null in a series: not measured."""

    id: str
    model: str
    limit_bytes: int | None
    utilization_percent: list[float | None]
    memory_bytes: list[float | None]


class UsageSeries(ResponseModel):
    """Usage of one kernel in equal intervals, oldest first; null in a series: not measured.

    ``metrics``: one series for each of cpu_cores, mem_bytes, net_rx_bytes_per_second,
    net_tx_bytes_per_second, io_read_bytes_per_second and io_write_bytes_per_second. ``metrics`` is
    empty if nothing was measured in the period.
    """

    session_id: str
    kernel: str
    start: datetime
    end: datetime
    interval_seconds: int
    cpu_limit_cores: float | None
    mem_limit_bytes: int | None
    metrics: dict[str, list[float | None]]
    devices: list[UsageOfDevice]


class UsageTrend(ResponseModel):
    """Usage in percent of the requested amounts; 15 intervals of a minute, oldest first.

    ``device_percent``: mean utilization of the session's devices. A series is empty if nothing was
    measured.
    """

    session_id: str
    cpu_percent: list[float | None]
    mem_percent: list[float | None]
    device_percent: list[float | None]


class UsageTrends(ResponseModel):
    items: list[UsageTrend]


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
    all agents.
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

    ``mine``: resources of your sessions in the group. ``free`` in ``mine`` is the lower of two
    amounts: what is free in the group, and what your quotas leave.
    """

    projects: list[str]
    project: str | None
    resource_groups: list[str]
    resource_group: str | None
    scopes: list[ScopeQuota]
    resources: list[GroupResource]
    mine: list[GroupResource]


class StartEstimate(ResponseModel):
    starts_at: datetime | None
    certainty: str


class Remedy(ResponseModel):
    kind: str
    message: str
    facts: dict[str, Any]


class Explanation(ResponseModel):
    """``position``: position in the queue. ``ahead``: number of sessions before this session.

    ``sooner``: changes that would let the session start earlier. ``is_complete``: false if no
    explanation could be computed.
    """

    is_complete: bool
    position: int | None
    ahead: int | None
    checks: list[dict[str, Any]]
    estimate: StartEstimate
    sooner: list[Remedy]


class PendingExplanation(Explanation):
    """If ``is_complete`` is false, ``checks`` are the reasons that were stored last."""

    session_id: str
    name: str
    status: str
    resource_group: str
    priority: int


class FieldProblem(ResponseModel):
    """``field``: path of the field in the request, such as ``mounts.0.path``; may be empty."""

    field: str
    problem: str


class PreviewedSession(ResponseModel):
    """A session as it would be created, defaults included.

    ``requested``: for each kernel. ``total``: for all kernels together.
    """

    name: str
    type: str
    project: str
    resource_group: str
    image: str
    architecture: str
    priority: int
    requested: SlotsOutput
    total: SlotsOutput
    shared_memory: str
    cluster_size: int
    cluster_mode: str
    mounts: list[Mount]
    starts_at: datetime | None
    batch_timeout: int | None


class CapUse(ResponseModel):
    """A cap that applies to the session.

    ``asked``: amount that the session requests. ``used`` and ``left``: used and free amounts before
    the session is created. ``used_percent``: used percentage of the limit before the session is
    created. ``total_percent``: used percentage with the session. Both are rounded down, and 100 if
    the limit is 0. ``is_exceeded``: whether the session would exceed the limit; ``total_percent``
    does not show this, because it can be 100 even if the limit is exceeded.
    """

    scope: str
    scope_id: str
    slot: str
    asked: str
    limit: str
    used: str
    left: str
    used_percent: int
    total_percent: int
    is_exceeded: bool
    message: str


class SessionPreview(Explanation):
    """Result of a session request without creating the session.

    ``problems``: why the session cannot be created; if there are any, the other fields are empty.
    ``existing_session``: id of the live session that the request would return instead of creating
    one. ``is_complete``: false if the start could not be computed.
    """

    problems: list[FieldProblem]
    existing_session: str | None
    session: PreviewedSession | None
    notices: list[str]
    starts_now: bool
    caps: list[CapUse]
