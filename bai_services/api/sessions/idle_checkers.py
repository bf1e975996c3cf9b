"""`/idle-checkers`: rules that stop idle sessions, their bindings, decisions and replays."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions import records as session_records
from bai_services.core.sessions.idle_checks import records, replay
from bai_services.core.sessions.idle_checks.checkers import MAX_THRESHOLDS, MAX_WARNINGS

from ..base import APIHandler, operation
from ..fields import Body, CodedText, Count, Description, NameText, ResponseModel
from .responses import Session

_TAG = "idle checkers"
_DAY_SECONDS = 86400

Seconds = Count
_Limit = Annotated[int, Field(ge=0, le=2**60)]
Thresholds = Annotated[dict[NameText, _Limit], Field(max_length=MAX_THRESHOLDS)]


class IdleCheckerSettings(Body):
    """``max_seconds``: maximum inactivity or lifetime, or the length of the window.

    ``thresholds``: by metric (``cpu_util``, ``mem``, ``FAMILY_util``, ``FAMILY_mem`` in percent;
    ``net``, ``io`` in bytes per second). ``idle_percent``: part of the samples in the window that
    must be idle. ``min_seconds_under_pressure``: shortest window while other sessions wait for the
    same resources; 0: the window does not shrink.
    """

    max_seconds: Seconds = 3600
    session_types: Annotated[list[NameText], Field(max_length=8)] = ["interactive"]
    initial_grace_seconds: Seconds = 0
    thresholds: Thresholds = {}
    operator: NameText = "and"
    idle_percent: Count = 90
    min_seconds_under_pressure: Seconds = 0
    only_under_pressure: bool = False
    warnings_seconds: Annotated[list[Seconds], Field(max_length=MAX_WARNINGS)] = [600, 120]
    max_keep_alives: Count = 3
    allows_exclusion: bool = False


class IdleCheckerFields(IdleCheckerSettings):
    name: NameText = ""
    description: Description = ""


class IdleCheckerChange(IdleCheckerFields):
    """``version``: the version that you have read; if there is a newer one, you get a conflict."""

    version: Count | None = None


class NewIdleChecker(IdleCheckerFields):
    name: NameText
    type: NameText
    max_seconds: Seconds


class IdleChecker(ResponseModel):
    """``bindings``: the number of scopes to which the checker is bound."""

    id: str
    created_at: datetime
    version: int
    name: str
    description: str
    type: str
    max_seconds: int
    session_types: list[str]
    initial_grace_seconds: int
    thresholds: dict[str, int]
    operator: str
    idle_percent: int
    min_seconds_under_pressure: int
    only_under_pressure: bool
    warnings_seconds: list[int]
    max_keep_alives: int
    allows_exclusion: bool
    bindings: int


class IdleBindingChange(Body):
    is_enabled: bool = True
    is_dry_run: bool = False


class NewIdleBinding(IdleBindingChange):
    """``scope``: domain, project, resource-group, user or keypair-policy.

    ``scope_key``: name, or the id of a user or project.
    """

    checker: NameText
    scope: NameText
    scope_key: Annotated[str, Field(max_length=130, pattern=r"^[^\x00]*$")]


class IdleCheckerBinding(ResponseModel):
    id: str
    created_at: datetime
    checker_id: str
    checker: str
    scope: str
    scope_id: str
    scope_name: str
    domain: str | None
    is_enabled: bool
    is_dry_run: bool
    changed_by_role: str


class IdleDecision(ResponseModel):
    """A session that a checker stopped, or would have stopped (``is_dry_run``)."""

    id: int
    at: datetime
    checker_id: str
    checker: str
    session_id: str
    session: str
    owner: str
    domain: str
    is_dry_run: bool
    reason: str
    coded: CodedText | None


class IdleReplayRequest(IdleCheckerSettings):
    """``checker``: a checker; settings in the request override the checker's settings.

    ``reuse_seconds``: a stop is wrong (a false positive) if the session was used again within this
    time.
    """

    checker: NameText | None = None
    period_seconds: Seconds = _DAY_SECONDS
    reuse_seconds: Annotated[int, Field(ge=0, le=30 * _DAY_SECONDS)] = 3600


class IdleReplayedStop(ResponseModel):
    """``used_again_at``: null if the session was not used again soon after the stop."""

    session_id: str
    session: str
    owner: str
    project: str
    stopped_at: datetime
    ended_at: datetime
    device_hours: float
    core_hours: float
    used_again_at: datetime | None


class IdleReplay(ResponseModel):
    """``device_hours_freed`` and ``core_hours_freed`` exclude wrong stops.

    ``stops``: those with the most device hours, then with the most core hours.
    """

    start: datetime
    end: datetime
    interval_seconds: int
    judged: int
    judged_device_hours: float
    judged_core_hours: float
    stopped: int
    stopped_wrongly: int
    device_hours_freed: float
    core_hours_freed: float
    is_complete: bool
    stops: list[IdleReplayedStop]


class IdleExclusion(Body):
    is_excluded: bool = True


class IdleCheckersHandler(APIHandler):
    @operation("List idle checkers", tag=_TAG, returns=IdleChecker, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.IdleChecker]:
        return await self.manager.sessions.idle_checkers.page(self.caller, query)

    @operation(
        "Create an idle checker",
        tag=_TAG,
        body=NewIdleChecker,
        returns=IdleChecker,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewIdleChecker) -> records.IdleChecker:
        return await self.manager.sessions.idle_checkers.create(self.caller, body.given_fields())


class IdleCheckerHandler(APIHandler):
    @operation("Read an idle checker", tag=_TAG, returns=IdleChecker)
    async def get(self, key: str) -> records.IdleChecker:
        return await self.manager.sessions.idle_checkers.get(self.caller, key)

    @operation("Change an idle checker", tag=_TAG, body=IdleCheckerChange, returns=IdleChecker)
    async def patch(self, key: str, body: IdleCheckerChange) -> records.IdleChecker:
        return await self.manager.sessions.idle_checkers.update(
            self.caller, key, body.given_fields()
        )

    @operation("Delete an idle checker and its bindings", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.sessions.idle_checkers.delete(self.caller, key)


class IdleBindingsHandler(APIHandler):
    @operation(
        "List the bindings of idle checkers", tag=_TAG, returns=IdleCheckerBinding, is_list=True
    )
    async def get(self, query: ListQuery) -> Page[records.IdleCheckerBinding]:
        return await self.manager.sessions.idle_checkers.bindings(self.caller, query)

    @operation(
        "Bind an idle checker to a scope",
        tag=_TAG,
        body=NewIdleBinding,
        returns=IdleCheckerBinding,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewIdleBinding) -> records.IdleCheckerBinding:
        options = {"is_enabled": body.is_enabled, "is_dry_run": body.is_dry_run}
        return await self.manager.sessions.idle_checkers.bind(
            self.caller, body.checker, body.scope, body.scope_key, options
        )


class IdleBindingHandler(APIHandler):
    @operation(
        "Enable or disable a binding, or make it a dry run",
        tag=_TAG,
        body=IdleBindingChange,
        returns=IdleCheckerBinding,
    )
    async def patch(self, key: str, body: IdleBindingChange) -> records.IdleCheckerBinding:
        changes: dict[str, bool] = body.model_dump(exclude_unset=True)
        return await self.manager.sessions.idle_checkers.change_binding(self.caller, key, changes)

    @operation("Delete a binding of an idle checker", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.sessions.idle_checkers.unbind(self.caller, key)


class IdleDecisionsHandler(APIHandler):
    @operation(
        "List the sessions that idle checkers stopped, or would have stopped in a dry run",
        tag=_TAG,
        returns=IdleDecision,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.IdleDecision]:
        return await self.manager.sessions.idle_checkers.decisions(self.caller, query)


class IdleReplayHandler(APIHandler):
    @operation(
        "Replay the recorded usage of sessions under a utilization checker",
        tag=_TAG,
        body=IdleReplayRequest,
        returns=IdleReplay,
        is_expensive=True,
    )
    async def post(self, body: IdleReplayRequest) -> replay.Replay:
        changes = body.given_fields()
        for name in ("checker", "period_seconds", "reuse_seconds"):
            changes.pop(name, None)
        return await self.manager.sessions.idle_replays.run(
            self.caller, body.checker, changes, body.period_seconds, body.reuse_seconds
        )


class KeepAliveHandler(APIHandler):
    @operation(
        "Keep a session alive: restart the time windows of its idle checkers",
        tag="sessions",
        returns=Session,
        is_for_sessions=True,
        works_when_read_only=True,
    )
    async def post(self, key: str) -> session_records.Session:
        return await self.manager.sessions.idle_requests.keep_alive(self.caller, key)


class ExclusionHandler(APIHandler):
    @operation(
        "Exclude a session from the idle checkers that allow it, or include it again",
        tag="sessions",
        body=IdleExclusion,
        returns=Session,
        works_when_read_only=True,
    )
    async def put(self, key: str, body: IdleExclusion) -> session_records.Session:
        return await self.manager.sessions.idle_requests.exclude(self.caller, key, body.is_excluded)


_SESSION = r"/sessions/(?P<key>[^/]+)"
ROUTES = [
    ("/idle-checkers", IdleCheckersHandler),
    (r"/idle-checkers/(?P<key>[^/]+)", IdleCheckerHandler),
    ("/idle-checker-bindings", IdleBindingsHandler),
    (r"/idle-checker-bindings/(?P<key>[^/]+)", IdleBindingHandler),
    ("/idle-decisions", IdleDecisionsHandler),
    ("/idle-replays", IdleReplayHandler),
    (_SESSION + "/idle-checks/keep-alive", KeepAliveHandler),
    (_SESSION + "/idle-checks/exclusion", ExclusionHandler),
]
