"""Responses with sessions, their history and their usage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict

from ..fields import CodedText, ResponseModel, SlotsOutput


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
    if it is not used before. Both are null if the session has no idle timeout or is not running.
    ``next_report_seconds``: time until the session must report its activity again.
    """

    idle_since: datetime | None
    idle_ends_at: datetime | None
    next_report_seconds: float


class SessionToken(ResponseModel):
    """A Hub token that only gives access to the server of this session."""

    token: str
    expires_in_seconds: int


class SessionServer(ResponseModel):
    """The server of a running session, at the session's ``url``.

    ``is_ready``: the server responds. If it is false, the server is still starting: repeat the
    request.
    """

    is_ready: bool


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


class Check(ResponseModel):
    """Result of one check of the scheduler, with facts that depend on ``check``.

    ``check``: account, budget, resource-group, dependencies, not-before, maintenance, policy,
    resources, order or reservation. ``message`` is in English. ``coded``: the same text as a code
    with values.
    """

    model_config = ConfigDict(extra="allow")

    check: str
    passed: bool
    message: str
    coded: CodedText


class SessionIdleCheck(ResponseModel):
    """The last result of an idle checker for a session.

    ``status``: not-checked (activity is unknown), active, idle (the end approaches) or excluded.
    ``ends_at``: when the checker stops the session unless it is used; a dry run stops nothing.
    ``warning_seconds``: the latest due warning, in seconds before the end. ``earliest_end_at`` and
    ``earliest_warning_at``: the end and the first warning if the session is not used from now on;
    null if unknown. ``judged_from``: when the checker first judges the session after its start or
    its last keep-alive (``kept_alive_at``); null if it already does. ``reason``: the rule, with the
    measured values if the session is idle.
    """

    checker_id: str
    checker: str
    type: str
    status: str
    is_dry_run: bool
    ends_at: datetime | None
    warning_seconds: int | None
    earliest_end_at: datetime | None
    earliest_warning_at: datetime | None
    judged_from: datetime | None
    kept_alive_at: datetime | None
    reason: str
    coded: CodedText | None
    keep_alives_left: int
    allows_exclusion: bool
    is_excluded: bool


class SessionResize(ResponseModel):
    """The last resize of a session.

    ``state``: pending (its agent has not applied it yet), applied or failed (the previous size
    remains; see ``message``). ``by``: user who requested it, empty if the manager resized an
    elastic session.
    """

    state: str
    previous: SlotsOutput
    requested: SlotsOutput
    by: str
    requested_at: datetime
    finished_at: datetime | None
    message: str


class Elasticity(ResponseModel):
    """The sizes between which the manager resizes a session."""

    minimum: SlotsOutput
    preferred: SlotsOutput


class SessionEndRule(ResponseModel):
    """The limit that will end a running session first, and a text about it."""

    ends_at: datetime
    reason: str
    coded: CodedText


class SessionPreemption(ResponseModel):
    """The session is stopped at ``stops_at`` to make room for another session.

    ``mode``: reschedule (it returns to the queue) or terminate.
    """

    stops_at: datetime
    mode: str
    reason: str
    coded: CodedText


class Session(ResponseModel):
    """``status_info``: the reason for the status in English. ``status_coded``: the same text as a
    code with values, if it has a code. ``hidden_fields``: fields that are empty because the caller
    may not read them.
    """

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
    status_coded: CodedText | None
    reasons: list[Check]
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
    idle_checks: list[SessionIdleCheck]
    end_rule: SessionEndRule | None
    preemption: SessionPreemption | None
    job_priority: int
    is_preemptible: bool
    restart_count: int
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
    resize: SessionResize | None
    elasticity: Elasticity | None
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
    reason_coded: CodedText | None


class History(ResponseModel):
    items: list[StatusChange]


class Usage(ResponseModel):
    session_id: str
    kernels: list[dict[str, Any]]


class UsageOfDevice(ResponseModel):
    """``limit_bytes``: memory that the kernel may use. Null in a series means: not measured."""

    id: str
    model: str
    limit_bytes: int | None
    utilization_percent: list[float | None]
    memory_bytes: list[float | None]


class UsageSeries(ResponseModel):
    """Usage of one kernel in equal intervals, oldest first. Null in a series means: not measured.

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
