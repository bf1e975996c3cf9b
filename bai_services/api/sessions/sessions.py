"""`/sessions` and `/bulk-sessions`: create, list, read, change and stop sessions."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TypeVar

from pydantic import ValidationError

from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions import options, previews, records, usage_history
from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.user_input import read_decimal, shown

from ..base import APIHandler, invalid_request, operation
from .bodies import (
    LifetimeExtension,
    NewSession,
    NewSessions,
    OwnedSession,
    SessionActivity,
    SessionChange,
    SessionSize,
    TemplatedSession,
)
from .option_responses import SessionOptions, SessionQuotas
from .responses import (
    CreatedSessions,
    DependencyGraph,
    History,
    Idleness,
    Session,
    SessionServer,
    SessionToken,
    Usage,
    UsageSeries,
    UsageTrends,
)
from .start_responses import PendingExplanation, SessionPreview

DEFAULT_WAIT_SECONDS = 20.0

T = TypeVar("T")


class SessionsHandler(APIHandler):
    @operation(
        "List sessions",
        tag="sessions",
        returns=Session,
        is_list=True,
        is_for_sessions=True,
        parameters={"viewer": "Hub only: list the sessions that this user may see"},
    )
    async def get(self, query: ListQuery) -> Page[records.Session]:
        caller, filters = self.caller, dict(query.filters)
        if (viewer := filters.pop("viewer", None)) is not None:
            caller = await self.manager.accounts.callers.viewer(caller, viewer)
        return await self.manager.sessions.sessions.page(caller, replace(query, filters=filters))

    @operation(
        "Create a session, or return the live session of the same name and spec with status 200",
        tag="sessions",
        body=NewSession,
        returns=Session,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSession) -> records.Session | None:
        if body.enqueue_only and body.max_wait_seconds:
            raise InvalidRequest(
                "enqueue_only and max_wait_seconds are mutually exclusive",
                field="max_wait_seconds",
            )
        request = await apply_template(self, body)
        row, is_new = await self.manager.sessions.sessions.create(self.caller, request.to_spec())
        if body.max_wait_seconds:
            self.is_timed = False
            row = await self.manager.sessions.sessions.wait(
                self.caller, row.id, Status.RUNNING, body.max_wait_seconds, self.recheck_caller
            )
        return await finish_creation(self, row, is_new)


class PreviewHandler(APIHandler):
    @operation(
        "Check a session request; return the expected start and the resources of the session",
        tag="sessions",
        body=OwnedSession,
        works_when_read_only=True,
        returns=SessionPreview,
        is_expensive=True,
    )
    async def post(self, body: OwnedSession) -> previews.SessionPreview:
        request = await apply_template(self, body)
        return await self.manager.sessions.previews.get(self.caller, request.to_spec())


class BulkHandler(APIHandler):
    @operation(
        "Create several sessions, all or none; 200 if all of them already exist",
        tag="sessions",
        body=NewSessions,
        returns=CreatedSessions,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: NewSessions) -> dict[str, list[records.Session]] | None:
        requests = [await apply_template(self, request) for request in body.sessions]
        specs = [replace(request.to_spec(), owner=body.owner) for request in requests]
        results = await self.manager.sessions.sessions.create_all(self.caller, specs)
        content = {"items": [row for row, _ in results]}
        return await finish_creation(self, content, any(is_new for _, is_new in results))


class SessionHandler(APIHandler):
    @operation(
        "Read a session; optionally, wait for a status before the response",
        tag="sessions",
        returns=Session,
        is_for_sessions=True,
        parameters={
            "wait": "status that the session must have reached or passed (long poll); default: "
            "respond immediately",
            "timeout": f"maximum wait in seconds; default: {DEFAULT_WAIT_SECONDS:g}",
        },
    )
    async def get(self, key: str) -> records.Session:
        until = self.get_query_argument("wait", "")
        if not until:
            return await self.manager.sessions.sessions.get(self.caller, key)
        self.is_timed = False
        timeout = read_seconds(
            "timeout", self.get_query_argument("timeout", str(DEFAULT_WAIT_SECONDS))
        )
        return await self.manager.sessions.sessions.wait(
            self.caller, key, until, timeout, self.recheck_caller
        )

    @operation(
        "Rename a session, or change the priority of a pending session",
        tag="sessions",
        body=SessionChange,
        returns=Session,
        is_for_sessions=True,
    )
    async def patch(self, key: str, body: SessionChange) -> records.Session:
        return await self.manager.sessions.sessions.change(self.caller, key, body.given_fields())

    @operation(
        "Stop a session, or cancel a pending session",
        tag="sessions",
        returns=Session,
        status=HTTPStatus.ACCEPTED,
        works_when_read_only=True,
        is_for_sessions=True,
        parameters={"force": "true: remove the kernels now, without waiting for the Hub"},
    )
    async def delete(self, key: str) -> records.Session:
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
    async def post(self, key: str, body: LifetimeExtension) -> records.Session:
        return await self.manager.sessions.lifetimes.extend(self.caller, key, body.seconds)


class SizeHandler(APIHandler):
    @operation(
        "Change the resources of a running session; wait up to 10 s for its agent",
        tag="sessions",
        body=SessionSize,
        returns=Session,
    )
    async def post(self, key: str, body: SessionSize) -> records.Session:
        self.is_timed = False
        resources = {slot: str(amount) for slot, amount in body.resources.items()}
        return await self.manager.sessions.resizes.resize(self.caller, key, resources)


class ActivityHandler(APIHandler):
    @operation(
        "Report activity in a session, to reset the session's idle timeout",
        tag="sessions",
        body=SessionActivity,
        returns=Idleness,
        is_for_sessions=True,
        works_when_read_only=True,
    )
    async def post(self, key: str, body: SessionActivity) -> records.IdleDeadline:
        return await self.manager.sessions.activity.record_use(self.caller, key, body.idle_seconds)


class TokenHandler(APIHandler):
    @operation(
        "Create a short-lived Hub token for your own running session (keypairs only)",
        tag="sessions",
        returns=SessionToken,
        status=HTTPStatus.CREATED,
    )
    async def post(self, key: str) -> records.SessionToken:
        self.settings["sign_in"].require_signature(self)
        return await self.manager.servers.session_tokens.create(self.caller, key)


class ServerHandler(APIHandler):
    @operation(
        "Start a server in your own running batch session, for SSH, terminal and apps",
        tag="sessions",
        returns=SessionServer,
    )
    async def post(self, key: str) -> records.SessionServer:
        self.is_timed = False
        return await self.manager.servers.opened_sessions.open(self.caller, key)


class HistoryHandler(APIHandler):
    @operation("Read the status changes of a session", tag="sessions", returns=History)
    async def get(self, key: str) -> dict[str, list[records.StatusChange]]:
        return {"items": await self.manager.sessions.sessions.history(self.caller, key)}


class UsageHandler(APIHandler):
    @operation(
        "Read the current resource usage of a session",
        tag="sessions",
        returns=Usage,
        is_for_sessions=True,
    )
    async def get(self, key: str) -> records.SessionUsage:
        return await self.manager.sessions.sessions.usage(self.caller, key)


class UsageHistoryHandler(APIHandler):
    @operation(
        "Read the resource usage of one kernel over time",
        tag="sessions",
        returns=UsageSeries,
        parameters={
            "kernel": "host name of the kernel; default: main1",
            "period": "length in seconds (default: 3600); the period ends now, or "
            "when the session ended",
        },
    )
    async def get(self, key: str) -> usage_history.UsageHistory:
        period = read_seconds("period", self.get_query_argument("period", "3600"))
        hostname = self.get_query_argument("kernel", MAIN_HOST)
        return await self.manager.sessions.usage_histories.get(
            self.caller, key, hostname, int(period)
        )


class UsageTrendsHandler(APIHandler):
    @operation(
        "Read the resource usage of several sessions in the last 15 minutes",
        tag="sessions",
        returns=UsageTrends,
        is_expensive=True,
        parameters={"session": "session id, may be repeated; default: your running sessions"},
        repeated=("session",),
    )
    async def get(self) -> dict[str, list[usage_history.UsageTrend]]:
        keys = self.get_query_arguments("session")
        return {"items": await self.manager.sessions.usage_histories.trends(self.caller, keys)}


class WhyHandler(APIHandler):
    @operation(
        "Explain why a session is pending, when it may start and how to start it sooner",
        tag="sessions",
        returns=PendingExplanation,
    )
    async def get(self, key: str) -> previews.PendingExplanation:
        return await self.manager.sessions.explanations.get(self.caller, key)


class GraphHandler(APIHandler):
    @operation(
        "Read the direct and indirect dependencies and dependents of a session",
        tag="sessions",
        returns=DependencyGraph,
        is_expensive=True,
    )
    async def get(self, key: str) -> records.DependencyGraph:
        return await self.manager.sessions.sessions.graph(self.caller, key)


class OptionsHandler(APIHandler):
    @operation(
        "Read the options for a new session: projects, images, limits, folders",
        is_expensive=True,
        tag="sessions",
        returns=SessionOptions,
        parameters={
            "owner": "the user who will own the session (administrators and Hub only); default: "
            "the caller",
            "project": "project for which to compute the options",
            "resource_group": "resource group for which to compute the options",
        },
    )
    async def get(self) -> options.SessionOptions:
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
    async def get(self) -> options.SessionQuotas:
        target = [self.get_query_argument(name, None) for name in ("project", "resource_group")]
        return await self.manager.sessions.options.quotas(self.caller, *target)


async def apply_template(handler: APIHandler, body: TemplatedSession) -> TemplatedSession:
    """Return the body completed by its template, or unchanged if it has no template.

    Raises
    ------
    NotFound
        If the template does not exist.
    InvalidRequest
        If the completed body is not valid.
    """
    given = body.given_fields()
    name = given.pop("template", None)
    if name is None:
        return body
    applied = await handler.manager.sessions.templates.apply(handler.caller, str(name), given)
    try:
        return type(body).model_validate(applied)
    except ValidationError as error:
        fields = {each["loc"][0] for each in error.errors() if each["loc"]}
        # The request's own fields were validated before, but the merged request may be invalid: for
        # example, the ``environ`` of request and template together can exceed ``MAX_VARIABLES``.
        raise invalid_request(
            error,
            f"the request does not fit template {name!r}"
            if fields & given.keys()
            else f"template {name!r} has fields that are no longer valid; correct the template",
        ) from None


async def finish_creation(handler: APIHandler, content: T, is_new: bool) -> T | None:
    """Return the content if sessions were created; the response then has the status 201.

    Otherwise, send the content with the status 200 and return None.
    """
    if is_new:
        return content
    handler.write_json(content)
    await handler.finish()
    return None


def read_seconds(field: str, text: str) -> float:
    """Parse ``text``, the value of the query parameter ``field``, as a number of seconds.

    Raises
    ------
    InvalidRequest
        If ``text`` is not a number.
    """
    number = read_decimal(text)
    if number is None:
        raise InvalidRequest(f"{field}={shown(text)!r} must be a number of seconds", field=field)
    return float(number)


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    ("/sessions", SessionsHandler),
    ("/usage-trends", UsageTrendsHandler),
    ("/sessions/options", OptionsHandler),
    ("/sessions/quotas", QuotasHandler),
    ("/sessions/preview", PreviewHandler),
    ("/bulk-sessions", BulkHandler),
    (_KEY, SessionHandler),
    (_KEY + "/lifetime", LifetimeHandler),
    (_KEY + "/resize", SizeHandler),
    (_KEY + "/activity", ActivityHandler),
    (_KEY + "/token", TokenHandler),
    (_KEY + "/server", ServerHandler),
    (_KEY + "/server", ServerHandler),
    (_KEY + "/history", HistoryHandler),
    (_KEY + "/usage", UsageHandler),
    (_KEY + "/usage-history", UsageHistoryHandler),
    (_KEY + "/why", WhyHandler),
    (_KEY + "/dependency-graph", GraphHandler),
]
