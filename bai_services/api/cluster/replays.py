"""`/resource-groups/{key}/replays`: replay the history of a group under other policies."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from bai_services.manager.cluster import replays
from bai_services.manager.cluster.replays import MAX_POLICIES, ReplayStatus

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

_TAG = "resource groups"


class TriedPolicy(Body):
    """A policy to try, given as changes to the group's current policy."""

    scheduler: NameText | None = None
    scheduler_opts: dict[NameText, Any] = {}


class NewReplay(Body):
    """``until``: now, if omitted. The current policy is always included."""

    since: AwareDatetime
    until: AwareDatetime | None = None
    policies: Annotated[list[TriedPolicy], Field(max_length=MAX_POLICIES)] = []


class Replay(ResponseModel):
    """``status``: running, done, failed or cancelled. ``progress``: the finished part, 0 to 1.

    ``username`` is empty if you may not see the user who started the replay. ``policies``: names of
    the tried policies. A name consists of the scheduler, placement and backfill of the policy.
    """

    id: str
    resource_group: str
    status: ReplayStatus
    progress: float
    created_at: datetime
    ended_at: datetime | None
    username: str
    since: datetime
    until: datetime
    policies: list[str]
    error: str


class Replays(ResponseModel):
    """The newest replay is first. A manager keeps up to 20 ended replays, for at most a day."""

    replays: list[Replay]


class Waits(ResponseModel):
    """Waiting times of started sessions in seconds."""

    mean: float
    median: float
    p95: float
    max: float


class GroupWaits(ResponseModel):
    """Waiting times of the sessions of a project, a user or a priority.

    An empty name stands for all projects or users of other domains whose names you may not see.
    """

    domain: str
    name: str
    sessions: int
    started: int
    wait_seconds: Waits


class Utilization(ResponseModel):
    """Use of a resource in percent of its capacity per interval; null: no capacity."""

    resource: str
    mean_percent: float
    percents: list[float | None]


class Shifts(ResponseModel):
    """How many sessions start earlier, later, or (within 5 s) at the same time."""

    earlier: int
    later: int
    same: int


class PolicyReport(ResponseModel):
    """Waiting times and utilization in the history or under a policy.

    ``name`` is ``history``, ``current`` for the replay under the current policy, or the name of a
    tried policy. The difference between ``history`` and ``current`` shows the inaccuracy of the
    replay. ``by_project`` and ``by_user`` list, for each domain, the 50 with the longest total
    waiting time. ``preemptions``: how often a session was preempted. ``lost_seconds``: run time of
    the sessions before they were preempted, which is lost. Both are 0 in ``history``.
    """

    name: str
    scheduler: str
    placement: str
    backfill: str
    sessions: int
    started: int
    preemptions: int
    lost_seconds: int
    wait_seconds: Waits
    makespan_seconds: int
    fragmentation_percent: float
    utilization: list[Utilization]
    than_history: Shifts | None
    than_current: Shifts | None
    by_project: list[GroupWaits]
    by_user: list[GroupWaits]
    by_priority: list[GroupWaits]


class CountedGap(ResponseModel):
    """A fact that is missing in the replayed data; ``count``: number of affected sessions, agents
    or quotas.
    """

    kind: str
    count: int
    message: str


class Comparison(ResponseModel):
    """``running_before`` sessions were already running at ``since`` and are not compared.

    ``times`` are the starts of the intervals for which utilization is reported.
    """

    since: datetime
    until: datetime
    sessions: int
    running_before: int
    agents: int
    interval_seconds: int
    times: list[datetime]
    gaps: list[CountedGap]
    reports: list[PolicyReport]


class ReplayResult(ResponseModel):
    """``comparison`` is null unless the replay is done."""

    replay: Replay
    comparison: Comparison | None


class ReplaysHandler(APIHandler):
    @operation("List the latest replays of a resource group", tag=_TAG, returns=Replays)
    async def get(self, key: str) -> replays.Replays:
        return await self.manager.cluster.replays.page(self.caller, key)

    @operation(
        "Replay the history of a resource group under other policies",
        tag=_TAG,
        body=NewReplay,
        returns=Replay,
        status=HTTPStatus.ACCEPTED,
        is_expensive=True,
    )
    async def post(self, key: str, body: NewReplay) -> replays.Replay:
        return await self.manager.cluster.replays.create(self.caller, key, body.model_dump())


class ReplayHandler(APIHandler):
    @operation("Read a replay and its comparison of the policies", tag=_TAG, returns=ReplayResult)
    async def get(self, key: str, replay: str) -> replays.ReplayResult:
        return await self.manager.cluster.replays.get(self.caller, key, replay)

    @operation("Cancel a replay", tag=_TAG, returns=Replay)
    async def delete(self, key: str, replay: str) -> replays.Replay:
        return await self.manager.cluster.replays.cancel(self.caller, key, replay)


_ALL = r"/resource-groups/(?P<key>[^/]+)/replays"
ROUTES = [(_ALL, ReplaysHandler), (_ALL + r"/(?P<replay>[^/]+)", ReplayHandler)]
