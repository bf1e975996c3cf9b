"""Sessions with their kernels, allocations and dependencies, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from ..resources import ResourceSlots
from ..scheduling.preemption.records import SessionPreemption
from .dependencies import Dependency
from .idle_checks.records import SessionEndRule, SessionIdleCheck
from .lifecycle import Status
from .resizing import Elasticity, SessionResize


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFields:
    """Fields common to a stored allocation and an allocation returned by the API."""

    id: int
    session_id: str
    session: str
    owner: str
    kernel_id: str
    agent_id: str
    device_id: str | None
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAllocation(AllocationFields):
    """An allocated amount of one slot; ``freed_at`` is None until the release."""

    amount: str
    allocated_at: datetime
    freed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKernel:
    """A kernel with the name, the status and the owner of its session."""

    id: str
    created_at: datetime
    session_id: str
    session: str
    status: str
    owner: str
    role: str
    index: int
    hostname: str
    agent_id: str | None
    container_id: str | None
    usage: Mapping[str, Any] | None
    progress: Mapping[str, Any]
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedDependency:
    """A session and the id of a session on which it depends."""

    session_id: str
    session: str
    status: str
    depends_on: str


@dataclass(frozen=True, slots=True)
class SessionAllocation:
    """An allocated amount of one slot; ``amount`` is a string such as ``1g``."""

    agent: str
    device: str | None
    slot: str
    amount: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class SessionMount:
    vfolder: str
    vfolder_id: str
    subpath: str
    path: str
    permission: str


@dataclass(frozen=True, slots=True)
class SessionKernel:
    id: str
    role: str
    hostname: str
    agent: str | None
    container_id: str | None
    progress: Mapping[str, Any]
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device, or share of one, that is allocated to a kernel.

    None means unknown, for example a metric that the driver does not report. The values come from
    the agent's reports and are not validated.
    """

    id: str | None
    family: str | None
    model: str | None
    share: str | None
    memory_bytes: int | None
    enforcement: str | None
    is_simulated: bool | None
    kernel: str
    used_memory_bytes: int | None
    utilization_percent: float | None
    processes: int | None
    active_at: str | None


@dataclass(frozen=True, slots=True)
class SessionLifetime:
    """The maximum run time: ``seconds``, including the extensions so far (``added_seconds``).

    ``addable_seconds``: maximum further extension.
    """

    seconds: int
    added_seconds: int
    addable_seconds: int


@dataclass(frozen=True, slots=True)
class IdleDeadline:
    """The idle timeout. ``idle_since``: time of the last activity. ``idle_ends_at``: when the
    session will be stopped without activity. Both are None if the session has no idle timeout or is
    not running.
    """

    idle_since: datetime | None
    idle_ends_at: datetime | None
    next_report_seconds: float


@dataclass(frozen=True, slots=True)
class SessionCallback:
    """State of a session's callbacks.

    ``is_open``: false after the last callback. ``delivered``, ``given_up``: number of callbacks.
    ``tries``: attempts to send the current callback. ``next_at``: time of its next retry.
    """

    url: str
    is_open: bool
    delivered: int
    given_up: int
    tries: int
    next_at: datetime | None
    last_at: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as a caller may see it; ``hidden_fields`` names the fields that were cleared."""

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
    status: Status
    status_info: str
    status_coded: Mapping[str, Any] | None
    reasons: Sequence[Mapping[str, Any]]
    notices: Sequence[str]
    cluster_size: int
    cluster_mode: str
    kernels: Sequence[SessionKernel]
    requested: ResourceSlots
    shared_memory: str
    priority: int
    mounts: Sequence[SessionMount]
    environ: Mapping[str, str]
    secret_environ: Sequence[str]
    preopen_ports: Sequence[int]
    result: str
    exit_code: int | None
    startup_command: str | None
    starts_at: datetime | None
    batch_timeout: int | None
    lifetime: SessionLifetime | None
    ends_at: datetime | None
    idle_since: datetime | None
    idle_ends_at: datetime | None
    idle_checks: Sequence[SessionIdleCheck]
    end_rule: SessionEndRule | None
    preemption: SessionPreemption | None
    job_priority: int
    is_preemptible: bool
    restart_count: int
    is_draining: bool
    dependencies: Sequence[Dependency]
    callback: SessionCallback | None
    allocations: Sequence[SessionAllocation]
    progress: Mapping[str, Any]
    usage: Mapping[str, Any]
    devices: Sequence[AllocatedDevice]
    enforcement: Mapping[str, str]
    kernel_id: str | None
    agent: str | None
    queue_position: int | None
    estimated_start: Mapping[str, str] | None
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
    hidden_fields: Sequence[str] = ()

    def without_private(self) -> Session:
        """Return the session without the fields that may contain secrets of the owner."""
        return replace(
            self,
            environ={},
            startup_command=None,
            callback=None,
            hidden_fields=("callback", "environ", "startup_command"),
        )


@dataclass(frozen=True, slots=True)
class GraphItem:
    """A session of a dependency graph; ``depends_on`` are ids."""

    id: str
    name: str
    status: str
    result: str
    depends_on: Sequence[str]


@dataclass(frozen=True, slots=True)
class DependencyGraph:
    """A dependency graph; ``is_complete``: False if the graph is larger than the response."""

    items: Sequence[GraphItem]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """The usage of a kernel, as last reported by its agent."""

    kernel_id: str
    agent: str | None
    at: datetime | None
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SessionUsage:
    session_id: str
    kernels: Sequence[KernelUsage]


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The output of one kernel.

    ``is_live``: the kernel may still write. ``has_ended``: the session has ended. Both are false
    before the kernel starts.
    """

    session_id: str
    kernel: str
    log: str
    is_live: bool
    has_ended: bool


@dataclass(frozen=True, slots=True)
class StatusChange:
    """An entry of a session's history."""

    at: datetime
    event: str
    from_status: str
    to_status: str
    reason: str
    reason_coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SessionToken:
    """A Hub token that only gives access to the server of one session."""

    token: str
    expires_in_seconds: int


@dataclass(frozen=True, slots=True)
class SessionServer:
    """The server of a running session."""

    is_ready: bool


class LogMatch(TypedDict):
    """A line that contains the words of a search; ``number`` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class LogHit:
    """A kernel of an ended session with matching output; ``matches``: the first matching lines."""

    session_id: str
    session: str
    kernel: str
    terminated_at: datetime | None
    match_count: int
    matches: Sequence[LogMatch]


@dataclass(frozen=True, slots=True)
class LogSearch:
    """Result of a search in the logs of ended sessions.

    ``searched``: number of searched logs. ``after``: where the search continues; None: complete.
    """

    items: Sequence[LogHit]
    searched: int
    after: str | None


class LogText(TypedDict):
    """The output of one kernel. Only the result of a search has the optional fields."""

    session_id: str
    kernel: str
    log: str
    is_live: bool
    has_times: bool
    matches: NotRequired[Sequence[LogMatch]]
    match_count: NotRequired[int]
