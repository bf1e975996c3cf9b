"""`/sessions` and `/bulk-sessions`: create, list, read, change and stop sessions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.user_input import read_decimal, shown

from ..base import APIHandler, invalid_request, operation
from ..fields import ResponseModel, SlotsOutput
from .bodies import (
    LifetimeExtension,
    NewSession,
    NewSessions,
    SessionActivity,
    SessionChange,
    TemplatedSession,
)

DEFAULT_WAIT_SECONDS = 20.0


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
    """A device, or share of one, that is allocated to a kernel. A null value is unknown."""

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
    """Maximum run time.

    ``added_seconds``: extensions so far. ``addable_seconds``: maximum further extension.
    """

    seconds: int
    added_seconds: int
    addable_seconds: int


class Idleness(ResponseModel):
    """``idle_since``: the last activity. ``idle_ends_at``: when the session will be stopped unless
    it is used. Null: the session has no idle timeout.
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

    ``is_open``: callbacks are still sent. ``delivered``, ``given_up``: number of callbacks.
    ``tries``: attempts to send the current one. ``next_at``: time of its next retry.
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


class SlotLimit(ResponseModel):
    """Amounts of a slot that a new session may request.

    ``now``: maximum that can start now. ``in_force``: shares that devices in use currently offer.
    ``enforcement``: enforcement level that is guaranteed for shares.
    """

    min: str
    max: str
    now: str
    step: str
    in_force: list[str] = []
    enforcement: str | None = None


class SessionOptions(ResponseModel):
    projects: list[dict[str, Any]]
    project: str | None
    resource_groups: list[dict[str, Any]]
    resource_group: str | None
    images: list[dict[str, Any]]
    presets: list[dict[str, Any]]
    limits: dict[str, SlotLimit]
    vfolders: list[dict[str, Any]]
    environ_limits: dict[str, Any]
    preopen_limits: dict[str, Any]


class SlotQuota(ResponseModel):
    """``limit``, ``left`` and ``percent`` are null if the scope does not limit the slot.

    ``is_limiting``: no other scope has less left.
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
    """Amounts of all schedulable agents of a resource group together."""

    slot: str
    total: str
    used: str
    free: str
    percent: int


class SessionQuotas(ResponseModel):
    projects: list[str]
    project: str | None
    resource_groups: list[str]
    resource_group: str | None
    scopes: list[ScopeQuota]
    resources: list[GroupResource]


class StartEstimate(ResponseModel):
    starts_at: datetime | None
    certainty: str


class Remedy(ResponseModel):
    kind: str
    message: str
    facts: dict[str, Any]


class PendingExplanation(ResponseModel):
    """``position``: position in the queue. ``ahead``: number of sessions before it.

    ``sooner``: changes that would let the session start earlier. ``is_complete``: false if no
    explanation could be computed; ``checks`` are then the last stored reasons.
    """

    session_id: str
    name: str
    status: str
    resource_group: str
    priority: int
    is_complete: bool
    position: int | None
    ahead: int | None
    checks: list[dict[str, Any]]
    estimate: StartEstimate
    sooner: list[Remedy]


class SessionsHandler(APIHandler):
    @operation(
        "List sessions",
        tag="sessions",
        returns=Session,
        is_list=True,
        is_for_sessions=True,
        parameters={"viewer": "Hub only: list the sessions that this user may see"},
    )
    async def get(self, query: ListQuery) -> Any:
        caller, filters = self.caller, dict(query.filters)
        if (viewer := filters.pop("viewer", None)) is not None:
            caller = await self.manager.accounts.callers.viewer(caller, viewer)
        return await self.manager.sessions.sessions.page(caller, replace(query, filters=filters))

    @operation(
        "Create a session; 200 with the live session if it has the same name and content",
        tag="sessions",
        body=NewSession,
        returns=Session,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSession) -> Any:
        if body.enqueue_only and body.max_wait_seconds:
            raise InvalidRequest(
                "enqueue_only and max_wait_seconds are mutually exclusive",
                field="max_wait_seconds",
            )
        request = await apply_template(self, body)
        row, is_new = await self.manager.sessions.sessions.create(self.caller, request.to_spec())
        if body.max_wait_seconds:
            row = await self.manager.sessions.sessions.wait(
                self.caller, row["id"], Status.RUNNING, body.max_wait_seconds
            )
        return await finish_creation(self, row, is_new)


class BulkHandler(APIHandler):
    @operation(
        "Create several sessions, all or none; 200 if all of them already exist",
        tag="sessions",
        body=NewSessions,
        returns=CreatedSessions,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSessions) -> Any:
        specs = [(await apply_template(self, request)).to_spec() for request in body.sessions]
        results = await self.manager.sessions.sessions.create_all(self.caller, specs)
        content = {"items": [row for row, _ in results]}
        return await finish_creation(self, content, any(is_new for _, is_new in results))


class SessionHandler(APIHandler):
    @operation(
        "Read a session, optionally after it has reached a status",
        tag="sessions",
        returns=Session,
        is_for_sessions=True,
        parameters={
            "wait": "status to wait for (long poll); default: respond at once",
            "timeout": f"maximum wait in seconds; default: {DEFAULT_WAIT_SECONDS:g}",
        },
    )
    async def get(self, key: str) -> Any:
        until = self.get_query_argument("wait", "")
        if not until:
            return await self.manager.sessions.sessions.get(self.caller, key)
        timeout = read_seconds(self.get_query_argument("timeout", str(DEFAULT_WAIT_SECONDS)))
        return await self.manager.sessions.sessions.wait(self.caller, key, until, timeout)

    @operation(
        "Rename a session, or change the priority of a pending session",
        tag="sessions",
        body=SessionChange,
        returns=Session,
        is_for_sessions=True,
    )
    async def patch(self, key: str, body: SessionChange) -> Any:
        return await self.manager.sessions.sessions.change(self.caller, key, body.given_fields())

    @operation(
        "Stop a session, or cancel a pending session",
        tag="sessions",
        returns=Session,
        status=HTTPStatus.ACCEPTED,
        is_for_sessions=True,
        parameters={"force": "true: remove the kernels at once, without a regular shutdown"},
    )
    async def delete(self, key: str) -> Any:
        force = self.get_query_argument("force", "false").lower() == "true"
        return await self.manager.sessions.sessions.stop(self.caller, key, force)


class LifetimeHandler(APIHandler):
    @operation(
        "Extend the lifetime of a session, within the limits of its keypair's policy",
        tag="sessions",
        body=LifetimeExtension,
        returns=Session,
        is_for_sessions=True,
    )
    async def post(self, key: str, body: LifetimeExtension) -> Any:
        return await self.manager.sessions.lifetimes.extend(self.caller, key, body.seconds)


class ActivityHandler(APIHandler):
    @operation(
        "Report activity in a session, which resets its idle timeout",
        tag="sessions",
        body=SessionActivity,
        returns=Idleness,
        is_for_sessions=True,
    )
    async def post(self, key: str, body: SessionActivity) -> Any:
        return await self.manager.sessions.activity.record_use(self.caller, key, body.idle_seconds)


class TokenHandler(APIHandler):
    @operation(
        "Create a short-lived Hub token for your own running session (keypairs only)",
        tag="sessions",
        returns=SessionToken,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str) -> Any:
        self.settings["sign_in"].require_signature(self)
        return await self.manager.servers.session_tokens.create(self.caller, key)


class HistoryHandler(APIHandler):
    @operation("Read the status changes of a session", tag="sessions", returns=History)
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.sessions.history(self.caller, key)


class UsageHandler(APIHandler):
    @operation(
        "Read the current resource usage of a session",
        tag="sessions",
        returns=Usage,
        is_for_sessions=True,
    )
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.sessions.usage(self.caller, key)


class WhyHandler(APIHandler):
    @operation(
        "Explain why a session is pending, when it may start and how to start it sooner",
        tag="sessions",
        returns=PendingExplanation,
    )
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.explanations.get(self.caller, key)


class GraphHandler(APIHandler):
    @operation(
        "Read all direct and indirect dependencies and dependents of a session",
        tag="sessions",
        returns=DependencyGraph,
    )
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.sessions.graph(self.caller, key)


class OptionsHandler(APIHandler):
    @operation(
        "Read the options for a new session: projects, images, limits, folders",
        tag="sessions",
        returns=SessionOptions,
        parameters={
            "owner": "Hub only: the user who will own the session",
            "project": "project for which to compute the options",
            "resource_group": "resource group for which to compute the options",
        },
    )
    async def get(self) -> Any:
        names = ("owner", "project", "resource_group")
        target = [self.get_query_argument(name, None) for name in names]
        return await self.manager.sessions.options.get(self.caller, *target)


class QuotasHandler(APIHandler):
    @operation(
        "Read your quotas in every scope, and the total and used resources of a resource group",
        tag="sessions",
        returns=SessionQuotas,
        parameters={
            "project": "project for which to compute the quotas",
            "resource_group": "resource group for which to compute the quotas",
        },
    )
    async def get(self) -> Any:
        target = [self.get_query_argument(name, None) for name in ("project", "resource_group")]
        return await self.manager.sessions.options.quotas(self.caller, *target)


async def apply_template(handler: APIHandler, body: TemplatedSession) -> TemplatedSession:
    """Return the body completed by its template, or unchanged if it has no template.

    Raises
    ------
    InvalidRequest
        If the template contains a request that this version rejects.
    """
    given = body.given_fields()
    name = given.pop("template", None)
    if name is None:
        return body
    applied = await handler.manager.sessions.templates.apply(handler.caller, str(name), given)
    try:
        return type(body).model_validate(applied)
    except ValidationError as error:
        prefix = f"template {name!r} contains a request that is no longer valid; change it"
        raise invalid_request(error, prefix) from None


async def finish_creation(handler: APIHandler, content: Any, is_new: bool) -> Any:
    """Return the content if sessions were created (status 201); otherwise send it with 200."""
    if is_new:
        return content
    handler.write_json(content)
    await handler.finish()
    return None


def read_seconds(text: str) -> float:
    """Parse the query parameter ``timeout``.

    Raises
    ------
    InvalidRequest
        If it is not a number.
    """
    number = read_decimal(text)
    if number is None:
        raise InvalidRequest(
            f"timeout={shown(text)!r} must be a number of seconds", field="timeout"
        )
    return float(number)


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    ("/sessions", SessionsHandler),
    ("/sessions/options", OptionsHandler),
    ("/sessions/quotas", QuotasHandler),
    ("/bulk-sessions", BulkHandler),
    (_KEY, SessionHandler),
    (_KEY + "/lifetime", LifetimeHandler),
    (_KEY + "/activity", ActivityHandler),
    (_KEY + "/token", TokenHandler),
    (_KEY + "/history", HistoryHandler),
    (_KEY + "/usage", UsageHandler),
    (_KEY + "/why", WhyHandler),
    (_KEY + "/dependency-graph", GraphHandler),
]
