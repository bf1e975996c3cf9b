"""`/sessions`: create, read, list, wait, rename, stop, logs, history, usage, start options."""

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

from ..base import APIHandler, invalid, operation
from ..fields import Shown, SlotTexts
from .bodies import (
    LifetimeExtension,
    NewSession,
    NewSessions,
    SessionChange,
    SessionUse,
    TemplatedSession,
)

DEFAULT_WAIT_SECONDS = 20.0


class Allocation(Shown):
    agent: str
    device: str | None
    slot: str
    amount: str
    is_simulated: bool


class Mount(Shown):
    vfolder: str
    vfolder_id: str
    subpath: str
    path: str
    permission: str


class SessionDependency(Shown):
    id: str
    name: str
    status: str
    result: str


class SessionKernel(Shown):
    id: str
    role: str
    hostname: str
    agent: str | None
    container_id: str | None
    progress: dict[str, Any]
    usage: dict[str, Any]


class GivenDevice(Shown):
    """A device, or part of one, that a kernel has; null: unknown."""

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


class Lifetime(Shown):
    """The maximum run time, with what its owner has added and may still add."""

    seconds: int
    added_seconds: int
    addable_seconds: int


class Idleness(Shown):
    """Since when a session is unused, and when that ends it; null: no limit applies."""

    idle_since: datetime | None
    idle_ends_at: datetime | None
    next_report_seconds: float


class SessionToken(Shown):
    """Opens the session itself and nothing else."""

    token: str
    expires_in_seconds: int


class SessionCallback(Shown):
    """Receiver and progress of the callbacks; ``next_at`` is the next retry of a failed call."""

    url: str
    is_open: bool
    delivered: int
    given_up: int
    tries: int
    next_at: datetime | None
    last_at: datetime | None
    last_error: str


class Session(Shown):
    """``hidden_fields`` are empty here because the caller may not read them."""

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
    requested: SlotTexts
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
    devices: list[GivenDevice]
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


class CreatedSessions(Shown):
    items: list[Session]


class GraphItem(SessionDependency):
    depends_on: list[str]


class DependencyGraph(Shown):
    items: list[GraphItem]
    is_complete: bool


class Step(Shown):
    at: datetime
    event: str
    from_status: str
    to_status: str
    reason: str


class History(Shown):
    items: list[Step]


class Usage(Shown):
    session_id: str
    kernels: list[dict[str, Any]]


class SlotLimit(Shown):
    """What a session may have of a slot; for shares also their enforcement.

    ``in_force`` are the shares that devices in use are limited to, ``enforcement`` is the
    enforcement level that a session can count on.
    """

    min: str
    max: str
    now: str
    step: str
    in_force: list[str] = []
    enforcement: str | None = None


class Options(Shown):
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


class StartEstimate(Shown):
    starts_at: datetime | None
    certainty: str


class Remedy(Shown):
    kind: str
    message: str
    facts: dict[str, Any]


class WhyWaiting(Shown):
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
        parameters={"viewer": "the Hub only: list what this user may see"},
    )
    async def get(self, query: ListQuery) -> Any:
        caller, filters = self.caller, dict(query.filters)
        if (viewer := filters.pop("viewer", None)) is not None:
            caller = await self.manager.accounts.callers.viewer(caller, viewer)
        return await self.manager.sessions.sessions.page(caller, replace(query, filters=filters))

    @operation(
        "Create a session; 200 with the live one if name and content are equal",
        tag="sessions",
        body=NewSession,
        returns=Session,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSession) -> Any:
        if body.enqueue_only and body.max_wait_seconds:
            raise InvalidRequest(
                "enqueue_only and max_wait_seconds exclude each other", field="max_wait_seconds"
            )
        wanted = await with_template(self, body)
        row, is_new = await self.manager.sessions.sessions.create(self.caller, wanted.as_spec())
        if body.max_wait_seconds:
            row = await self.manager.sessions.sessions.wait(
                self.caller, row["id"], Status.RUNNING, body.max_wait_seconds
            )
        return await answered(self, row, is_new)


class BulkHandler(APIHandler):
    @operation(
        "Create sessions together, all or none; 200 if all of them exist already",
        tag="sessions",
        body=NewSessions,
        returns=CreatedSessions,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSessions) -> Any:
        requests = [(await with_template(self, one)).as_spec() for one in body.sessions]
        created = await self.manager.sessions.sessions.create_all(self.caller, requests)
        answer = {"items": [row for row, _ in created]}
        return await answered(self, answer, any(is_new for _, is_new in created))


class SessionHandler(APIHandler):
    @operation(
        "Read a session, at once or after it has reached a status",
        tag="sessions",
        returns=Session,
        is_for_sessions=True,
    )
    async def get(self, key: str) -> Any:
        until = self.get_query_argument("wait", "")
        if not until:
            return await self.manager.sessions.sessions.get(self.caller, key)
        timeout = seconds(self.get_query_argument("timeout", str(DEFAULT_WAIT_SECONDS)))
        return await self.manager.sessions.sessions.wait(self.caller, key, until, timeout)

    @operation(
        "Rename a session; change the priority of a pending one",
        tag="sessions",
        body=SessionChange,
        returns=Session,
        is_for_sessions=True,
    )
    async def patch(self, key: str, body: SessionChange) -> Any:
        return await self.manager.sessions.sessions.change(self.caller, key, body.given())

    @operation(
        "Stop a session",
        tag="sessions",
        returns=Session,
        status=HTTPStatus.ACCEPTED,
        is_for_sessions=True,
    )
    async def delete(self, key: str) -> Any:
        force = self.get_query_argument("force", "false").lower() == "true"
        return await self.manager.sessions.sessions.stop(self.caller, key, force)


class LifetimeHandler(APIHandler):
    @operation(
        "Extend the lifetime of a session, as far as its keypair's policy allows",
        tag="sessions",
        body=LifetimeExtension,
        returns=Session,
        is_for_sessions=True,
    )
    async def post(self, key: str, body: LifetimeExtension) -> Any:
        return await self.manager.sessions.lifetimes.extend(self.caller, key, body.seconds)


class ActivityHandler(APIHandler):
    @operation(
        "Keep a session alive; a session reports how long ago it was used",
        tag="sessions",
        body=SessionUse,
        returns=Idleness,
        is_for_sessions=True,
    )
    async def post(self, key: str, body: SessionUse) -> Any:
        return await self.manager.sessions.activity.note(self.caller, key, body.idle_seconds)


class TokenHandler(APIHandler):
    @operation(
        "Get a short-lived Hub token for one's own running session; for keypairs only",
        tag="sessions",
        returns=SessionToken,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str) -> Any:
        self.settings["sign_in"].require_signature(self)
        return await self.manager.servers.session_tokens.create(self.caller, key)


class HistoryHandler(APIHandler):
    @operation("Read a session's steps", tag="sessions", returns=History)
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.sessions.history(self.caller, key)


class UsageHandler(APIHandler):
    @operation("Read what a session uses now", tag="sessions", returns=Usage, is_for_sessions=True)
    async def get(self, key: str) -> Any:
        return await self.manager.sessions.sessions.usage(self.caller, key)


class WhyHandler(APIHandler):
    @operation(
        "Read why a session is pending, when it may start, what would start it sooner",
        tag="sessions",
        returns=WhyWaiting,
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
    @operation("Read the choices for a new session", tag="sessions", returns=Options)
    async def get(self) -> Any:
        asked = [self.get_query_argument(n, None) for n in ("owner", "project", "resource_group")]
        return await self.manager.sessions.options.get(self.caller, *asked)


async def with_template(handler: APIHandler, body: TemplatedSession) -> TemplatedSession:
    """Return the body completed by its template, or unchanged if it names none.

    Raises
    ------
    InvalidRequest
        If the template was stored by a version that accepted other requests.
    """
    given = body.given()
    name = given.pop("template", None)
    if name is None:
        return body
    applied = await handler.manager.sessions.templates.applied(handler.caller, str(name), given)
    try:
        return type(body).model_validate(applied)
    except ValidationError as error:
        said = f"template {name!r} contains a request that is no longer valid; change it"
        raise invalid(error, said) from None


async def answered(handler: APIHandler, answer: Any, is_new: bool) -> Any:
    """Return an answer with status 201; with status 200 where nothing was created."""
    if is_new:
        return answer
    handler.write_json(answer)
    await handler.finish()
    return None


def seconds(text: str) -> float:
    """Read a number of seconds from a query string.

    Raises
    ------
    InvalidRequest
        If it is not a number.
    """
    number = read_decimal(text)
    if number is None:
        raise InvalidRequest(f"timeout={shown(text)!r} is not a number of seconds", field="timeout")
    return float(number)


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    ("/sessions", SessionsHandler),
    ("/sessions/options", OptionsHandler),
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
