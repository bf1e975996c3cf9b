"""`/pipeline-schedules`: times at which pipelines run."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines import records
from bai_services.core.pipelines.schedules import MAX_EVERY_MINUTES, MIN_EVERY_MINUTES

from ..base import APIHandler, operation
from ..fields import Body, Count, NameText, ResponseModel, ShortText
from .pipelines import ParameterValue
from .runs import Parameters

_TAG = "pipelines"
EveryMinutes = Annotated[int, Field(ge=MIN_EVERY_MINUTES, le=MAX_EVERY_MINUTES)]
CatchUpName = Literal["skip", "last", "all"]


class PipelineScheduleChange(Body):
    """``version``: the version that you have read; if there is a newer one, you get a conflict.

    Either ``start``, a rule such as mon-fri 08:00 or a cron expression (0 8 * * 1-5) in
    ``time_zone``, or ``every_minutes``, an interval that begins with the change. ``catch_up``: what
    to do about starts that were missed while no manager was running: ``skip`` them, run once for
    the ``last`` one, or run for ``all``.
    """

    version: Count | None = None
    name: NameText | None = None
    start: ShortText | None = None
    every_minutes: EveryMinutes | None = None
    time_zone: NameText | None = None
    parameters: Parameters | None = None
    catch_up: CatchUpName | None = None
    is_paused: bool | None = None


class NewPipelineSchedule(Body):
    """``pipeline``: id or name. The other fields are described at ``PipelineScheduleChange``."""

    pipeline: ShortText
    name: NameText
    start: ShortText | None = None
    every_minutes: EveryMinutes | None = None
    time_zone: NameText = "UTC"
    parameters: Parameters = {}
    catch_up: CatchUpName = "last"
    is_paused: bool = False


class PipelineSchedule(ResponseModel):
    """``next_starts``: empty if the schedule is paused. ``last_message``: why the last start
    created no run.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    pipeline: str
    pipeline_id: str
    domain: str
    project: str
    owner: str
    owner_id: str
    start: str | None
    every_minutes: int | None
    time_zone: str
    parameters: dict[str, ParameterValue]
    catch_up: str
    is_paused: bool
    next_starts: list[datetime]
    last_start_at: datetime | None
    last_run_id: str | None
    last_message: str


class SchedulesHandler(APIHandler):
    @operation("List schedules of pipelines", tag=_TAG, returns=PipelineSchedule, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.PipelineSchedule]:
        return await self.manager.pipelines.schedules.page(self.caller, query)

    @operation(
        "Create a schedule of a pipeline",
        tag=_TAG,
        body=NewPipelineSchedule,
        returns=PipelineSchedule,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewPipelineSchedule) -> records.PipelineSchedule:
        return await self.manager.pipelines.schedules.create(self.caller, body.given_fields())


class ScheduleHandler(APIHandler):
    @operation("Read a schedule of a pipeline", tag=_TAG, returns=PipelineSchedule)
    async def get(self, key: str) -> records.PipelineSchedule:
        return await self.manager.pipelines.schedules.get(self.caller, key)

    @operation(
        "Change a schedule of a pipeline",
        tag=_TAG,
        body=PipelineScheduleChange,
        returns=PipelineSchedule,
    )
    async def patch(self, key: str, body: PipelineScheduleChange) -> records.PipelineSchedule:
        return await self.manager.pipelines.schedules.update(self.caller, key, body.given_fields())

    @operation(
        "Delete a schedule of a pipeline; its runs continue",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self, key: str) -> None:
        await self.manager.pipelines.schedules.delete(self.caller, key)


ROUTES = [
    ("/pipeline-schedules", SchedulesHandler),
    (r"/pipeline-schedules/(?P<key>[^/]+)", ScheduleHandler),
]
