"""`/preemptions`: sessions that were stopped to make room for others."""

from __future__ import annotations

from datetime import datetime

from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.preemption import records

from ..base import APIHandler, operation
from ..fields import ResponseModel

_TAG = "resource groups"


class PreemptedSession(ResponseModel):
    """``rule``: priority, job-priority or fair-share.

    ``stopped_at``: when the stop was requested; null if no stop has been requested.
    """

    session_id: str
    session: str
    owner: str
    rule: str
    status: str
    stopped_at: datetime | None


class Preemption(ResponseModel):
    """Sessions that are stopped at ``stops_at`` so that the session ``session_id`` can start.

    ``mode``: reschedule or terminate. ``outcome``: started, dropped, or empty until the end. The
    names of sessions of other domains are empty, and ``victims`` leaves these sessions out;
    ``victim_count`` includes them.
    """

    id: str
    created_at: datetime
    session_id: str
    session: str
    owner: str
    domain: str
    resource_group: str
    mode: str
    grace_seconds: int
    stops_at: datetime
    ended_at: datetime | None
    outcome: str
    victims: list[PreemptedSession]
    victim_count: int


class PreemptionsHandler(APIHandler):
    @operation(
        "List the preemptions of the last 30 days", tag=_TAG, returns=Preemption, is_list=True
    )
    async def get(self, query: ListQuery) -> Page[records.ListedPreemption]:
        return await self.manager.scheduling.preemptions.page(self.caller, query)


ROUTES = [("/preemptions", PreemptionsHandler)]
