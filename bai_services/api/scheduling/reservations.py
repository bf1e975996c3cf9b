"""`/reservations`: parts of agents, or whole agents, that a project reserves for a period."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.functional_validators import AfterValidator

from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling import advance_reservations as records
from bai_services.core.scheduling.advance_reservations import (
    DEFAULT_GRACE_SECONDS,
    MAX_GRACE_SECONDS,
    MAX_MEMBERS,
    MAX_NODES,
)
from bai_services.core.scheduling.reservation_states import ReservationState
from bai_services.manager.scheduling import reservation_delays as forecasts

from ..base import APIHandler, operation
from ..cluster.resource_groups import SessionName
from ..fields import (
    Body,
    Instant,
    NameText,
    ResponseModel,
    ShortText,
    SlotsInput,
    SlotsOutput,
    readable,
)

_TAG = "reservations"
NoteText = Annotated[
    str,
    StringConstraints(max_length=255, strip_whitespace=True),
    AfterValidator(readable),
]


class NewReservation(Body):
    """``nodes``: number of agents. ``resources``: the amounts that are reserved on each agent;
    others may use the rest. ``whole_machines``: reserve whole agents, with at least these
    resources. ``users``: members of the project who may use the reservation; all members if empty.
    ``grace_seconds``: time from the start after which an unused reservation expires.
    """

    name: NameText
    project: ShortText
    resource_group: NameText
    nodes: int = Field(default=1, ge=1, le=MAX_NODES)
    resources: SlotsInput = Field(min_length=1)
    whole_machines: bool = False
    users: list[NameText] = Field(default=[], max_length=MAX_MEMBERS)
    starts_at: Instant
    ends_at: Instant
    grace_seconds: int = Field(default=DEFAULT_GRACE_SECONDS, ge=60, le=MAX_GRACE_SECONDS)
    note: NoteText = ""


class ReservationChange(Body):
    """``state``: approved or rejected (administrators), or cancelled (also the author)."""

    state: Literal["approved", "rejected", "cancelled"]


class Reservation(ResponseModel):
    """``state``: requested (waits for approval by an administrator, and reserves nothing yet),
    approved, rejected, cancelled or expired (because it was not used). ``agents``: the reserved
    agents; for a requested reservation, those that an approval would reserve now. ``used_at``: when
    the first use of the reservation by a session was detected.
    """

    id: str
    created_at: datetime
    name: str
    project_id: str
    project: str
    domain: str
    resource_group: str
    nodes: int
    resources: SlotsOutput
    whole_machines: bool
    agents: list[str]
    users: list[str]
    starts_at: datetime
    ends_at: datetime
    grace_seconds: int
    state: str
    note: str
    author: str
    decided_by: str
    used_at: datetime | None


class DelayedSession(ResponseModel):
    """A pending session that starts later if the reservation is approved.

    ``session``: null if the caller may not see the session. ``starts_at``: the estimated start
    without the reservation. ``delayed_until``: the estimated start with it; null: no start can be
    estimated.
    """

    session: SessionName | None
    starts_at: datetime
    delayed_until: datetime | None


class ReservationDelays(ResponseModel):
    """``sessions``: the longest delays first, at most 50. ``count``: all delayed sessions.
    ``is_complete``: false if the manager cannot estimate starts now; repeat the request later.
    """

    is_complete: bool
    count: int
    sessions: list[DelayedSession]


class ConflictingSession(ResponseModel):
    """A running session that may hold reserved resources when the reservation starts.

    ``session``: null if the caller may not see the session. ``agents``: the reserved agents on
    which it runs. ``ends_at``: its enforced end; null: it has no time limit.
    """

    session: SessionName | None
    agents: list[str]
    ends_at: datetime | None


class ReservationConflicts(ResponseModel):
    """``sessions``: sessions without a time limit first, at most 50. ``count``: all conflicting
    sessions. ``is_complete``: false if the manager does not know the running sessions now.
    """

    is_complete: bool
    count: int
    sessions: list[ConflictingSession]


class ReservationsHandler(APIHandler):
    @operation("List reservations", tag=_TAG, returns=Reservation, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.AdvanceReservation]:
        return await self.manager.reservations.page(self.caller, query)

    @operation(
        "Request a reservation; one that an administrator requests is approved at once",
        tag=_TAG,
        body=NewReservation,
        returns=Reservation,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewReservation) -> records.AdvanceReservation:
        spec = body.given_fields()
        spec["resources"] = {slot: str(amount) for slot, amount in body.resources.items()}
        return await self.manager.reservations.create(self.caller, spec)


class ReservationHandler(APIHandler):
    @operation("Read a reservation", tag=_TAG, returns=Reservation)
    async def get(self, key: str) -> records.AdvanceReservation:
        return await self.manager.reservations.get(self.caller, key)

    @operation(
        "Approve, reject or cancel a reservation",
        tag=_TAG,
        body=ReservationChange,
        returns=Reservation,
    )
    async def patch(self, key: str, body: ReservationChange) -> records.AdvanceReservation:
        state = ReservationState(body.state)
        return await self.manager.reservations.decide(self.caller, key, state)


class ReservationDelaysHandler(APIHandler):
    @operation(
        "List the pending sessions that start later if a requested reservation is approved",
        tag=_TAG,
        returns=ReservationDelays,
    )
    async def get(self, key: str) -> forecasts.ReservationDelays:
        return await self.manager.reservation_forecast.delays(self.caller, key)


class ReservationConflictsHandler(APIHandler):
    @operation(
        "List the running sessions that can delay a reservation, because they are not certain to "
        "end before its start",
        tag=_TAG,
        returns=ReservationConflicts,
    )
    async def get(self, key: str) -> forecasts.ReservationConflicts:
        return await self.manager.reservation_forecast.conflicts(self.caller, key)


ROUTES = [
    ("/reservations", ReservationsHandler),
    (r"/reservations/(?P<key>[^/]+)", ReservationHandler),
    (r"/reservations/(?P<key>[^/]+)/delays", ReservationDelaysHandler),
    (r"/reservations/(?P<key>[^/]+)/conflicts", ReservationConflictsHandler),
]
