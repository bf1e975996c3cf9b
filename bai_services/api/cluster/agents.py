"""`/agents`: administration of agents, and the protocol between agents and manager."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from bai_services.core.cluster import records
from bai_services.core.cluster.model import EngineName, check_device
from bai_services.core.cluster.protocol import FIRST_PROTOCOL, MAX_REPORTS
from bai_services.core.cluster.reported_facts import kernel_facts, storable_facts
from bai_services.core.cluster.sbom import MAX_PACKED_CHARACTERS
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.end_reason import EndReason
from bai_services.core.user_input import read_decimal, shown
from bai_services.manager.cluster.agents import AgentHeartbeat, NewDevice

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, ShortText, SlotsInput, SlotsOutput
from ..operations.component_settings import ReportedSettings
from .devices import Device

_TAG = "agents"
# Maximum duration of a long poll for work.
MAX_WAIT_SECONDS = 25.0


class AgentChange(Body):
    """``endpoint``: URL at which the Hub reaches the Docker engine of an agent that has joined with
    an invitation; other agents report it with each heartbeat.
    """

    schedulable: bool = True
    resource_group: NameText = ""
    endpoint: Annotated[
        str, Field(max_length=255, pattern=r"^(?:(?:unix|ssh|tcp)://[!-~]{1,248})?$")
    ] = ""


class Agent(ResponseModel):
    id: str
    created_at: datetime
    resource_group: str
    status: str
    status_changed_at: datetime
    last_heartbeat_at: datetime
    schedulable: bool
    engine: str
    endpoint: str
    architecture: str
    version: str
    facts: dict[str, Any]
    storage_problems: dict[str, str]
    is_network_full: bool
    slots: SlotsOutput
    used: SlotsOutput
    free: SlotsOutput
    devices: list[Device]
    kernels: int


class AgentSummary(ResponseModel):
    """The facts about an agent that users may read."""

    id: str
    status: str
    architecture: str
    resource_group: str
    schedulable: bool
    slots: SlotsOutput
    used: SlotsOutput


class AgentTotals(ResponseModel):
    """Total resources of all agents that are alive, and how many of them accept new sessions."""

    agents: int
    schedulable_agents: int
    slots: SlotsOutput
    used: SlotsOutput


class _AgentBody(Body):
    """A body sent by agents. Unknown fields are ignored, because newer agents may send them."""

    model_config = ConfigDict(extra="ignore")


# Values from agents are stored and sent to browsers, so they must be valid JSON.
Facts = Annotated[dict[str, Any], AfterValidator(storable_facts)]
KernelFacts = Annotated[dict[str, Any], AfterValidator(kernel_facts)]


class DeviceReport(_AgentBody):
    id: ShortText
    family: NameText
    index: Annotated[int, Field(ge=0, le=65535)]
    model: ShortText = ""
    memory_bytes: Annotated[int, Field(ge=0, le=2**62)] | None = None
    numa_node: Annotated[int, Field(ge=-1, le=65535)] | None = None
    is_simulated: bool = False
    is_healthy: bool = True
    facts: Facts = {}

    def to_device(self) -> NewDevice:
        """Return the device as the manager's data class.

        Raises
        ------
        InvalidRequest
            If the id or the family is invalid.
        """
        check_device(self.id, self.family)
        return NewDevice(**{**self.model_dump(), "model": self.model[:128]})


class KernelReport(_AgentBody):
    kernel_id: NameText
    session_id: NameText
    container_id: ShortText = ""
    is_running: bool
    exit_code: int | None = None
    is_out_of_memory: bool = False
    usage: KernelFacts | None = None
    is_kept: bool = False
    # The attempt in which the agent has stopped the kernel, because it could not reach the manager.
    fenced_attempt: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class Heartbeat(_AgentBody):
    resource_group: NameText
    engine: EngineName
    endpoint: ShortText = ""
    architecture: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_]{1,32}$")]
    version: NameText
    # Version of the agent protocol.
    protocol: Annotated[int, Field(ge=0, le=2**31 - 1)] = FIRST_PROTOCOL
    facts: Facts = {}
    slots: SlotsInput
    devices: Annotated[list[DeviceReport], Field(max_length=1024)] = []
    # null: the agent's engine is unavailable, so the state of its kernels is unknown.
    kernels: Annotated[list[KernelReport], Field(max_length=10_000)] | None
    images: Annotated[list[ShortText], Field(max_length=10_000)] = []
    # The agent is shutting down normally.
    is_leaving: bool = False
    # null: unchanged since an earlier heartbeat.
    settings: ReportedSettings | None = None
    # The problem of each checked storage host, "" if it works; null if the agent checks no hosts.
    storage: Annotated[dict[NameText, ShortText], Field(max_length=1000)] | None = None
    # No subnet is free for networks of sessions.
    is_network_full: bool = False

    def to_heartbeat(self) -> AgentHeartbeat:
        """Return the heartbeat as the manager's data class.

        Raises
        ------
        InvalidRequest
            If a slot or a device is invalid.
        """
        facts = {**self.facts, "protocol": self.protocol}
        if not isinstance(notices := facts.get("notices", []), list):
            del facts["notices"]
        elif notices:
            facts["notices"] = [str(notice) for notice in notices]
        if self.images:
            facts["images"] = self.images
        return AgentHeartbeat(
            resource_group=self.resource_group,
            engine=self.engine,
            endpoint=self.endpoint,
            architecture=self.architecture,
            version=self.version,
            protocol=self.protocol,
            facts=facts,
            slots=ResourceSlots.parse(self.slots),
            devices=[device.to_device() for device in self.devices],
            is_leaving=self.is_leaving,
            is_network_full=self.is_network_full,
            settings=None
            if self.settings is None
            else [each.to_record() for each in self.settings],
        )


class StorageCheck(ResponseModel):
    """A storage host that the agent checks: its directory, and the content of the file
    ``.bai-storage-host`` there; "" if there is no such file.
    """

    name: str
    path: str
    marker: str


class HeartbeatResponse(ResponseModel):
    """The agent counts as lost ``deadline_seconds`` after its last heartbeat.

    ``hub_api_url``: URL of the Hub's API for sessions; agents that restrict the network of sessions
    must allow it. ``is_new``: the agent was unknown, and must send its settings with the next
    heartbeat. ``protocol``: the manager's version of the agent protocol. ``max_reports``: maximum
    number of reports in one request.
    """

    deadline_seconds: int
    interval_seconds: int
    hub_api_url: str
    is_new: bool
    storage: list[StorageCheck]
    protocol: int
    max_reports: int


class KernelEnd(_AgentBody):
    """How a kernel without a Hub server has ended."""

    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None
    reason_code: EndReason
    reason: str = ""


class EarlierLog(_AgentBody):
    """The output of an earlier attempt of a kernel that was found on the machine."""

    attempt: Annotated[int, Field(ge=0, le=2**31 - 1)]
    log: str


class WorkReport(_AgentBody):
    work_id: ShortText = ""
    kind: Literal[
        "prepare",
        "launch",
        "terminate",
        "exit",
        "resize",
        "remove",
        "stop",
        "logs",
        "pull",
        "prune",
        "sbom",
        "commit",
        "check",
    ]
    session_id: NameText = ""
    kernel_id: NameText = ""
    state: Literal["progress", "done", "failed"]
    progress: Facts = {}
    injection: KernelFacts | None = None
    log: str | None = None
    error: Facts | None = None
    # Result of a check.
    check: Facts | None = None
    # Result of a pull.
    image: Facts | None = None
    # Images that a request to prune has selected.
    pruned: Annotated[list[Facts], Field(max_length=10_000)] = []
    # The SBOM of an image, compressed.
    sbom: Annotated[str, StringConstraints(max_length=MAX_PACKED_CHARACTERS)] = ""
    devices: list[Facts] | None = None
    # Result of a preparation: whether the agent can start the session without a Hub server.
    can_launch: bool = False
    # The age of the agent's lease at which the agent stops the kernel.
    fence_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    # The attempt to start the session that a launch, terminate or exit report belongs to.
    attempt: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    container_id: ShortText = ""
    end: KernelEnd | None = None
    earlier_log: EarlierLog | None = None


class WorkReported(ResponseModel):
    """``is_removable``: the session has ended, and the agent may remove its kernel."""

    is_removable: bool


class WorkReports(_AgentBody):
    reports: Annotated[list[WorkReport], Field(min_length=1, max_length=MAX_REPORTS)]


class ReportError(ResponseModel):
    error: str
    message: str
    details: dict[str, Any]


class ReportResult(ResponseModel):
    """Result of one report; ``error`` is null unless this report was rejected."""

    is_removable: bool
    error: ReportError | None


class ReportResults(ResponseModel):
    """The results in the order of the reports."""

    results: list[ReportResult]


class WorkList(ResponseModel):
    items: list[dict[str, Any]]


class AgentsHandler(APIHandler):
    @operation("List agents", tag=_TAG, returns=Agent, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Agent]:
        return await self.manager.cluster.agents.page(self.caller, query)


class AgentHandler(APIHandler):
    @operation("Read an agent", tag=_TAG, returns=Agent)
    async def get(self, key: str) -> records.Agent:
        return await self.manager.cluster.agents.get(self.caller, key)

    @operation("Change an agent", tag=_TAG, body=AgentChange, returns=Agent)
    async def patch(self, key: str, body: AgentChange) -> records.Agent:
        return await self.manager.cluster.agents.update(self.caller, key, body.given_fields())

    @operation("Delete a lost or terminated agent", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.agents.delete(self.caller, key)


class SummariesHandler(APIHandler):
    @operation(
        "List the agents of your resource groups, if the installation shows them to users",
        tag=_TAG,
        returns=AgentSummary,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.AgentSummary]:
        return await self.manager.cluster.agents.summaries(self.caller, query)


class TotalsHandler(APIHandler):
    @operation(
        "Read total and used resources of all live agents",
        tag=_TAG,
        returns=AgentTotals,
        is_expensive=True,
    )
    async def get(self) -> records.AgentTotals:
        return await self.manager.cluster.agents.totals(self.caller)


class HeartbeatHandler(APIHandler):
    @operation("Send a heartbeat", tag=_TAG, body=Heartbeat, returns=HeartbeatResponse)
    async def post(self, key: str, body: Heartbeat) -> records.HeartbeatResponse:
        kernels = None if body.kernels is None else [one.model_dump() for one in body.kernels]
        return await self.manager.cluster.agents.heartbeat(
            self.caller, key, body.to_heartbeat(), kernels, body.storage
        )


class WorkHandler(APIHandler):
    """Serves the long poll of an agent for work items."""

    is_timed = False

    _poll: asyncio.Task[Sequence[Mapping[str, Any]]] | None = None

    @operation("Wait for work", tag=_TAG, returns=WorkList)
    async def get(self, key: str) -> dict[str, list[Mapping[str, Any]]] | None:
        wait = _wait_seconds(self.get_query_argument("wait", str(MAX_WAIT_SECONDS)))
        self._poll = asyncio.ensure_future(self.manager.cluster.agents.work(self.caller, key, wait))
        try:
            return {"items": list(await self._poll)}
        except asyncio.CancelledError:
            if not self._poll.cancelled() or self.running_requests.is_ending:
                raise
            return None

    def on_connection_close(self) -> None:
        # A restarted agent begins a new poll. The abandoned poll must not receive the work items.
        if self._poll is not None:
            self._poll.cancel()


class ReportsHandler(APIHandler):
    @operation(
        "Report progress or result of work",
        tag=_TAG,
        body=WorkReport,
        returns=WorkReported,
    )
    async def post(self, key: str, body: WorkReport) -> dict[str, bool]:
        agents = self.manager.cluster.agents
        (result,) = await agents.report(self.caller, key, [body.model_dump()])
        if isinstance(result, BaiError):
            raise result
        return {"is_removable": result}


class BulkReportsHandler(APIHandler):
    @operation(
        "Report on several work items",
        tag=_TAG,
        body=WorkReports,
        returns=ReportResults,
    )
    async def post(self, key: str, body: WorkReports) -> dict[str, list[dict[str, Any]]]:
        reports = [report.model_dump() for report in body.reports]
        results = await self.manager.cluster.agents.report(self.caller, key, reports)
        return {"results": [_result(result) for result in results]}


def _result(result: bool | BaiError) -> dict[str, Any]:
    if isinstance(result, BaiError):
        error = {"error": result.code, "message": result.message, "details": result.details}
        return {"is_removable": False, "error": error}
    return {"is_removable": result, "error": None}


def _wait_seconds(text: str) -> float:
    number = read_decimal(text)
    seconds = -1.0 if number is None else float(number)
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidRequest(
            f"wait={shown(text)!r} must be a number of seconds from 0 to {MAX_WAIT_SECONDS:g}"
        )
    return seconds


_ONE = r"/agents/(?P<key>[^/]+)"
ROUTES = [
    ("/agents", AgentsHandler),
    ("/agent-summaries", SummariesHandler),
    ("/agent-totals", TotalsHandler),
    (_ONE, AgentHandler),
    (_ONE + "/heartbeat", HeartbeatHandler),
    (_ONE + "/work", WorkHandler),
    (_ONE + "/reports", ReportsHandler),
    (_ONE + "/bulk-reports", BulkReportsHandler),
]
