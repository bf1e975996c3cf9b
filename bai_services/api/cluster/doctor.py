"""`/cluster-checks`: check all nodes of the installation."""

from __future__ import annotations

from datetime import datetime

from bai_services.core.cluster import doctor as records

from ..base import APIHandler, operation
from ..fields import ResponseModel


class Finding(ResponseModel):
    """``level``: ok, warning or error. ``remedy``: empty if the level is ok."""

    check: str
    level: str
    message: str
    remedy: str


class NodeReport(ResponseModel):
    """``level``: the worst of the findings."""

    agent_id: str
    resource_group: str
    status: str
    level: str
    findings: list[Finding]


class ClusterReport(ResponseModel):
    """``findings``: about the machine of the manager. ``level``: the worst of all findings."""

    checked_at: datetime
    level: str
    findings: list[Finding]
    nodes: list[NodeReport]


class ClusterChecksHandler(APIHandler):
    @operation(
        "Check all nodes; takes at most 10 seconds",
        tag="agents",
        returns=ClusterReport,
        is_expensive=True,
    )
    async def post(self) -> records.ClusterReport:
        return await self.manager.cluster.doctor.check(self.caller)


ROUTES = [("/cluster-checks", ClusterChecksHandler)]
