"""`/sessions/{key}/suspend` and `/resume`; notices to sessions that must prepare for a stop."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.sessions import records, suspensions
from bai_services.core.sessions.suspensions import (
    DEFAULT_SECONDS,
    MAX_REPORT_CHARACTERS,
    MAX_REPORT_ENTRIES,
    MAX_SECONDS,
)
from bai_services.manager.sessions.suspensions import MAX_WAIT_SECONDS

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel
from .responses import Session
from .sessions import DEFAULT_WAIT_SECONDS, read_seconds

_TAG = "sessions"
_Entry = Annotated[str, Field(max_length=MAX_REPORT_CHARACTERS)]
_Entries = Annotated[list[_Entry], Field(max_length=MAX_REPORT_ENTRIES)]


class SuspensionRequest(Body):
    """``seconds``: time to save the session before it is stopped. The stop is earlier if everything
    is saved. ``requeue``: the session returns to the queue, and starts when its resources are free.
    ``keep_variables``: save the variables of notebook kernels.
    """

    seconds: int = Field(default=DEFAULT_SECONDS, ge=0, le=MAX_SECONDS)
    requeue: bool = False
    keep_variables: bool = True


class SessionReport(Body):
    """What a session has saved before its stop. ``hook_exit_code``: null if there is no hook, or
    the hook did not end in time.
    """

    saved_documents: _Entries = []
    unsaved_documents: _Entries = []
    saved_variables: _Entries = []
    unsaved_variables: _Entries = []
    pages: int = Field(default=0, ge=0, le=1000)
    has_hook: bool = False
    hook_exit_code: int | None = Field(default=None, ge=-255, le=255)
    hook_message: _Entry = ""


class PreparationReport(ResponseModel):
    saved_documents: list[str]
    unsaved_documents: list[str]
    saved_variables: list[str]
    unsaved_variables: list[str]
    pages: int
    has_hook: bool
    hook_exit_code: int | None
    hook_message: str


class Suspension(ResponseModel):
    """``phase``: preparing, stopping, suspended or resumed. ``purpose``: suspend, requeue or stop.
    ``expires_at``: when a suspended session ends and its home is deleted. ``report`` is null until
    the session has reported what it saved.
    """

    session_id: str
    phase: str
    purpose: str
    requested_at: datetime
    requested_by: str
    deadline: datetime
    keeps_variables: bool
    suspended_at: datetime | None
    expires_at: datetime | None
    resumed_at: datetime | None
    report: PreparationReport | None


class StopNotice(ResponseModel):
    purpose: str
    requested_by: str
    deadline: datetime
    seconds_left: float
    keeps_variables: bool


class PendingNotice(ResponseModel):
    """``notice`` is null if the session does not have to prepare for a stop."""

    notice: StopNotice | None


class SuspendHandler(APIHandler):
    @operation(
        "Save a running session, stop it and keep its home; its resources are freed",
        tag=_TAG,
        body=SuspensionRequest,
        returns=Session,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: SuspensionRequest) -> records.Session:
        return await self.manager.sessions.suspensions.suspend(
            self.caller,
            key,
            seconds=body.seconds,
            is_requeue=body.requeue,
            keeps_variables=body.keep_variables,
        )


class ResumeHandler(APIHandler):
    @operation(
        "Let a suspended session wait for resources again",
        tag=_TAG,
        returns=Session,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str) -> records.Session:
        return await self.manager.sessions.suspensions.resume(self.caller, key)


class SuspensionHandler(APIHandler):
    @operation("Read the last suspension of a session", tag=_TAG, returns=Suspension)
    async def get(self, key: str) -> suspensions.Suspension:
        return await self.manager.sessions.suspensions.get(self.caller, key)


class StopNoticeHandler(APIHandler):
    @operation(
        "For sessions: wait for the notice to prepare for a stop",
        tag=_TAG,
        returns=PendingNotice,
        is_for_sessions=True,
        parameters={
            "timeout": f"maximum wait in seconds, at most {MAX_WAIT_SECONDS:g}; default: "
            f"{DEFAULT_WAIT_SECONDS:g}"
        },
    )
    async def get(self, key: str) -> suspensions.PendingNotice:
        self.is_timed = False
        text = self.get_query_argument("timeout", str(DEFAULT_WAIT_SECONDS))
        seconds = read_seconds("timeout", text)
        return await self.manager.sessions.suspensions.notice(
            self.caller, key, seconds, self.recheck_caller
        )

    @operation(
        "For sessions: report what was saved; the session is then stopped",
        tag=_TAG,
        body=SessionReport,
        status=HTTPStatus.NO_CONTENT,
        is_for_sessions=True,
        works_when_read_only=True,
    )
    async def post(self, key: str, body: SessionReport) -> None:
        await self.manager.sessions.suspensions.report(self.caller, key, body.model_dump())


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    (_KEY + "/suspend", SuspendHandler),
    (_KEY + "/resume", ResumeHandler),
    (_KEY + "/suspension", SuspensionHandler),
    (_KEY + "/stop-notice", StopNoticeHandler),
]
