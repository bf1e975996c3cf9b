"""`/sessions/{key}/launch`, `/started`, `/exited`, `/detach`: the operations of the spawner."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import Field

from bai_services.core.sessions import records
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.kernel_group import MAIN_HOST, MAX_KERNELS

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel
from .responses import Session


class LaunchRequest(Body):
    user: NameText
    server: NameText = ""


class LaunchPlan(ResponseModel):
    session_id: str
    kernel_id: str
    name: str
    user: str
    server: str
    engine: str
    endpoint: str
    agent_id: str
    image: str
    command: list[str] | None
    uid: int
    gid: int
    hostname: str
    slots: dict[str, int]
    shared_memory_bytes: int
    mounts: list[dict[str, Any]]
    environ: dict[str, str]
    injection: dict[str, Any]
    labels: dict[str, str]
    is_superadmin: bool
    # Whether the agent has started the session, and the Hub only attaches a server to it.
    is_attached: bool
    # Cluster sessions only: launch plans of the sub kernels in this format, and the SSH key that
    # the kernels share.
    subs: list[dict[str, Any]]
    cluster_key: dict[str, str] | None


class StartReport(Body):
    container_id: str = Field(default="", max_length=128)
    # Container ids of the sub kernels by hostname: sub1, sub2 …
    sub_containers: dict[NameText, NameText] = Field(default={}, max_length=MAX_KERNELS)
    # Scheme, host and port of the server, as the Hub reaches it.
    url: str = Field(default="", max_length=255)


class ExitReport(Body):
    exit_code: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    reason: str = ""
    reason_code: EndReason = EndReason.EXITED
    log: str = ""
    sub_logs: dict[NameText, str] = Field(default={}, max_length=MAX_KERNELS)


class EmptyBody(Body):
    """A body without fields."""


class LaunchHandler(APIHandler):
    @operation(
        "Get the launch plan of a session (Hub only)",
        tag="spawner",
        body=LaunchRequest,
        returns=LaunchPlan,
    )
    async def post(self, key: str, body: LaunchRequest) -> dict[str, Any]:
        launch = self.manager.sessions.launch
        plan = await launch.launch(self.caller, key, body.user, body.server)
        return plan.to_json()


class StartedHandler(APIHandler):
    @operation(
        "Report that the session's server responds (Hub only)",
        tag="spawner",
        body=StartReport,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, key: str, body: StartReport) -> None:
        containers = {MAIN_HOST: body.container_id, **body.sub_containers}
        await self.manager.sessions.launch.started(self.caller, key, containers, body.url)


class ExitedHandler(APIHandler):
    @operation(
        "Report that the session's kernels have ended (Hub only)",
        tag="spawner",
        body=ExitReport,
        returns=Session,
    )
    async def post(self, key: str, body: ExitReport) -> records.Session:
        end = SessionEnd(body.exit_code, body.reason_code, body.reason, body.log, body.sub_logs)
        row = await self.manager.sessions.launch.exited(self.caller, key, end)
        return await self.manager.sessions.sessions.view(self.caller, row)


class DetachHandler(APIHandler):
    @operation(
        "Hand the start of a session over to the manager (Hub only)",
        tag="spawner",
        body=EmptyBody,
        returns=Session,
    )
    async def post(self, key: str, body: EmptyBody) -> records.Session:
        row = await self.manager.sessions.launch.leave_start_to_manager(self.caller, key)
        return await self.manager.sessions.sessions.view(self.caller, row)


_KEY = r"/sessions/(?P<key>[^/]+)"

ROUTES = [
    (_KEY + "/launch", LaunchHandler),
    (_KEY + "/started", StartedHandler),
    (_KEY + "/exited", ExitedHandler),
    (_KEY + "/detach", DetachHandler),
]
