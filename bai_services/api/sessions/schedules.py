"""`/schedules`: times at which sessions of a user start and stop."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.schedules import records
from bai_services.core.sessions.schedules.records import (
    DEFAULT_CATCH_UP_MINUTES,
    MAX_CATCH_UP_MINUTES,
)

from ..base import APIHandler, operation
from ..fields import Body, CodedText, Count, Instant, NameText, ResponseModel, ShortText
from .bodies import SessionRequest

_TAG = "schedules"

CatchUpMinutes = Annotated[int, Field(ge=0, le=MAX_CATCH_UP_MINUTES)]
OverlapName = Literal["skip", "restart"]


class ScheduleChange(Body):
    """``version``: the version that you have read; if there is a newer one, you get a conflict.

    ``start``, ``stop``: rules, that is days and times (mon-fri 08:00, daily 09:30,14:00) or cron
    expressions (0 8 * * 1-5), in ``time_zone``. ``stop`` null: the schedule stops no sessions.
    ``catch_up_minutes``: maximum delay of a missed start. ``overlap``, if the last session is still
    live: ``skip`` the start, or ``restart``: stop that session first.
    """

    version: Count | None = None
    name: NameText | None = None
    template: ShortText | None = None
    request: SessionRequest | None = None
    start: ShortText | None = None
    stop: ShortText | None = None
    time_zone: NameText | None = None
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    is_paused: bool | None = None
    catch_up_minutes: CatchUpMinutes | None = None
    overlap: OverlapName | None = None


class NewSchedule(Body):
    """The fields are described at ``ScheduleChange``.

    ``template`` and ``request``: the session, as in ``POST /sessions``. Without a name in the
    request, the session has the name of the schedule.
    """

    name: NameText
    template: ShortText | None = None
    request: SessionRequest = SessionRequest()
    start: ShortText
    stop: ShortText | None = None
    time_zone: NameText = "UTC"
    valid_from: Instant | None = None
    valid_until: Instant | None = None
    is_paused: bool = False
    catch_up_minutes: CatchUpMinutes = DEFAULT_CATCH_UP_MINUTES
    overlap: OverlapName = "skip"


class SessionSchedule(ResponseModel):
    """``next_starts``: the next starts, empty if the schedule is paused. ``hidden_fields``: fields
    of ``request`` that are left out because the caller may not read them.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    owner: str
    owner_id: str
    domain: str
    template: str | None
    request: dict[str, Any]
    start: str
    stop: str | None
    time_zone: str
    valid_from: datetime | None
    valid_until: datetime | None
    is_paused: bool
    catch_up_minutes: int
    overlap: str
    next_starts: list[datetime]
    last_start_at: datetime | None
    last_status: str | None
    last_reason: str
    hidden_fields: list[str]


class ScheduleRun(ResponseModel):
    """``status``: due, started, skipped (see ``reason``), stopped (by the schedule) or ended
    (before the scheduled stop).
    """

    id: str
    schedule_id: str
    due_at: datetime
    status: str
    reason: str
    coded: CodedText | None
    session_id: str | None
    stops_at: datetime | None


class SchedulesHandler(APIHandler):
    @operation(
        "List the schedules that the caller may see",
        tag=_TAG,
        returns=SessionSchedule,
        is_list=True,
    )
    async def get(self, query: ListQuery) -> Page[records.Schedule]:
        return await self.manager.sessions.schedules.page(self.caller, query)

    @operation(
        "Create a schedule",
        tag=_TAG,
        body=NewSchedule,
        returns=SessionSchedule,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewSchedule) -> records.Schedule:
        return await self.manager.sessions.schedules.create(self.caller, body.given_fields())


class ScheduleHandler(APIHandler):
    @operation("Read a schedule", tag=_TAG, returns=SessionSchedule)
    async def get(self, key: str) -> records.Schedule:
        return await self.manager.sessions.schedules.get(self.caller, key)

    @operation("Change a schedule", tag=_TAG, body=ScheduleChange, returns=SessionSchedule)
    async def patch(self, key: str, body: ScheduleChange) -> records.Schedule:
        return await self.manager.sessions.schedules.update(self.caller, key, body.given_fields())

    @operation("Delete a schedule; its sessions continue", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.sessions.schedules.delete(self.caller, key)


class RunsHandler(APIHandler):
    @operation(
        "List the last starts of a schedule, the newest first",
        tag=_TAG,
        returns=ScheduleRun,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.ScheduleRun]:
        return await self.manager.sessions.schedules.runs(self.caller, key, query)


ROUTES = [
    ("/schedules", SchedulesHandler),
    (r"/schedules/(?P<key>[^/]+)", ScheduleHandler),
    (r"/schedules/(?P<key>[^/]+)/runs", RunsHandler),
]
