"""`/dashboard`: everything that the cards of the web UI's dashboard show."""

from __future__ import annotations

from bai_services.manager import dashboard

from .base import APIHandler, operation
from .cluster.agents import Agent, AgentTotals
from .fields import ResponseModel
from .folders.storage_hosts import QuotaScope
from .sessions.option_responses import SessionQuotas
from .sessions.responses import Session


class SessionCounts(ResponseModel):
    """``interactive``, ``batch``: running sessions of the type. ``starting``, ``pending``: sessions
    of all types. 1001 means more than 1,000.
    """

    interactive: int
    batch: int
    starting: int
    pending: int


class Dashboard(ResponseModel):
    """Your sessions, quotas, resources and queue.

    ``counts`` and ``recent`` (live sessions, the newest first) contain the sessions of all users if
    ``is_of_all`` is true. ``queued`` and ``running`` contain your newest pending and running
    sessions.
    ``quotas`` is null if you may not create sessions; ``agent_totals`` and ``agents`` are null
    unless ``is_of_all`` is true.
    """

    is_of_all: bool
    counts: SessionCounts
    recent: list[Session]
    queued: list[Session]
    running: list[Session]
    quotas: SessionQuotas | None
    storage: list[QuotaScope]
    agent_totals: AgentTotals | None
    agents: list[Agent] | None


class DashboardHandler(APIHandler):
    @operation(
        "Read your dashboard: sessions, quotas, resources of a resource group, storage and queue",
        tag="me",
        returns=Dashboard,
        parameters={
            "project": "project of the quotas and of the recently created sessions",
            "resource_group": "resource group for which to compute the quotas",
        },
        is_expensive=True,
    )
    async def get(self) -> dashboard.Dashboard:
        target = [self.get_query_argument(name, None) for name in ("project", "resource_group")]
        return await self.manager.dashboards.get(self.caller, *target)


ROUTES = [("/dashboard", DashboardHandler)]
