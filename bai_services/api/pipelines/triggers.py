"""`/pipeline-triggers`: signed requests, files and runs of other pipelines that run pipelines."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines import records
from bai_services.core.pipelines.triggers import MAX_PATTERN, RunResult, TriggerKind
from bai_services.core.sessions.callbacks import SIGNATURE_HEADER, TIMESTAMP_HEADER

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, ShortText
from ..serving.bodies import EmptyBody
from .pipelines import ParameterValue
from .runs import Parameters, RunParameters

_TAG = "pipelines"


class NewPipelineTrigger(Body):
    """``pipeline``: id or name. A trigger of the kind ``file`` needs ``folder`` (id or name) and
    ``pattern``, such as ``inbox/*.csv``: it fires once for each file that appears. A trigger of
    the kind ``pipeline`` needs ``source`` (id or name of a pipeline), and fires when a run of it
    ends with ``result`` (default: success). ``parameters``: parameters of the runs. In them,
    ``$FILE`` stands for the path of the file, and ``$RUN`` and ``$STATUS`` for the id and the
    status of the run.
    """

    pipeline: ShortText
    name: NameText
    kind: TriggerKind = TriggerKind.WEBHOOK
    folder: ShortText | None = None
    pattern: Annotated[str, Field(max_length=MAX_PATTERN)] | None = None
    source: ShortText | None = None
    result: RunResult | None = None
    parameters: Parameters = {}


class PipelineTriggerChange(Body):
    is_enabled: bool


class PipelineTrigger(ResponseModel):
    """``kind``: webhook, file or pipeline. ``result``: success, failure or any. ``last_message``:
    why the last event created no run.
    """

    id: str
    created_at: datetime
    name: str
    kind: str
    folder: str | None
    folder_id: str | None
    pattern: str
    source: str | None
    source_id: str | None
    result: str | None
    parameters: dict[str, ParameterValue]
    pipeline: str
    pipeline_id: str
    domain: str
    project: str
    owner: str
    owner_id: str
    is_enabled: bool
    last_call_at: datetime | None
    last_run_id: str | None
    last_message: str


class CreatedPipelineTrigger(PipelineTrigger):
    """``secret``: key of the signatures of a webhook; only this response contains it."""

    secret: str | None


class PipelineTriggerSecret(ResponseModel):
    id: str
    secret: str


class PipelineTriggerCall(ResponseModel):
    """``run``: id of the run. ``is_new``: false for a repeated call."""

    run: str
    is_new: bool


class TriggersHandler(APIHandler):
    @operation("List triggers of pipelines", tag=_TAG, returns=PipelineTrigger, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.PipelineTrigger]:
        return await self.manager.pipelines.triggers.page(self.caller, query)

    @operation(
        "Create a trigger of a pipeline",
        tag=_TAG,
        body=NewPipelineTrigger,
        returns=CreatedPipelineTrigger,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewPipelineTrigger) -> records.CreatedPipelineTrigger:
        return await self.manager.pipelines.triggers.create(self.caller, body.given_fields())


class TriggerHandler(APIHandler):
    @operation("Read a trigger of a pipeline", tag=_TAG, returns=PipelineTrigger)
    async def get(self, key: str) -> records.PipelineTrigger:
        return await self.manager.pipelines.triggers.get(self.caller, key)

    @operation(
        "Enable or disable a trigger of a pipeline",
        tag=_TAG,
        body=PipelineTriggerChange,
        returns=PipelineTrigger,
    )
    async def patch(self, key: str, body: PipelineTriggerChange) -> records.PipelineTrigger:
        return await self.manager.pipelines.triggers.update(
            self.caller, key, is_enabled=body.is_enabled
        )

    @operation(
        "Delete a trigger of a pipeline; its runs continue",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self, key: str) -> None:
        await self.manager.pipelines.triggers.delete(self.caller, key)


class TriggerSecretHandler(APIHandler):
    @operation(
        "Replace the secret of a trigger", tag=_TAG, body=EmptyBody, returns=PipelineTriggerSecret
    )
    async def post(self, key: str, body: EmptyBody) -> records.PipelineTriggerSecret:
        return await self.manager.pipelines.triggers.renew_secret(self.caller, key)


class TriggerCallsHandler(APIHandler):
    @operation(
        "Run the pipeline of a trigger; the headers Bai-Timestamp and Bai-Signature sign the "
        "request",
        tag=_TAG,
        body=RunParameters,
        returns=PipelineTriggerCall,
        status=HTTPStatus.ACCEPTED,
        is_open=True,
    )
    async def post(self, key: str, body: RunParameters) -> records.PipelineTriggerCall:
        headers = self.request.headers
        return await self.manager.pipelines.triggers.call(
            key,
            body.parameters,
            timestamp=headers.get(TIMESTAMP_HEADER, ""),
            signature=headers.get(SIGNATURE_HEADER, ""),
            body=self.request.body,
        )


_ONE = r"/pipeline-triggers/(?P<key>[^/]+)"
ROUTES = [
    ("/pipeline-triggers", TriggersHandler),
    (_ONE, TriggerHandler),
    (_ONE + "/secret", TriggerSecretHandler),
    (_ONE + "/calls", TriggerCallsHandler),
]
