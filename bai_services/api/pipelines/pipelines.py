"""`/pipelines`: definitions of pipelines, and their validation."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines import records
from bai_services.core.pipelines.parsing import MAX_BYTES

from ..base import APIHandler, operation
from ..fields import Body, CodedText, Count, ResponseModel, ShortText

_TAG = "pipelines"
DefinitionText = Annotated[str, StringConstraints(max_length=MAX_BYTES, pattern=r"^[^\x00]*$")]
# The value of a parameter: a string, a number, true or false, or a list of these.
ParameterValue = str | int | float | bool | list[str | int | float | bool]


class NewPipeline(Body):
    """``definition``: YAML; see ``GET /pipeline-schema``. ``project``: project of the tasks'
    sessions; by default the caller's only project, else the project named default.
    ``is_project_owned``: the pipeline belongs to ``project``, whose members may run it.
    """

    definition: DefinitionText
    project: ShortText | None = None
    is_project_owned: bool = False


class PipelineChange(Body):
    """``version``: the version that the caller has read; optional."""

    definition: DefinitionText
    version: Count | None = None


class Definition(Body):
    definition: DefinitionText


class PipelineParameter(ResponseModel):
    """``type``: text, integer, number, boolean or list. ``default``: null if runs must set it."""

    name: str
    type: str
    default: ParameterValue | None
    description: str


class Pipeline(ResponseModel):
    """``definition`` is empty in lists. ``folder``: id of the folder that tasks mount at
    ``/pipeline``; null if it was removed. ``owner``: null if the pipeline belongs to its project.
    ``can_write``: the reader may change the pipeline.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    version: int
    name: str
    description: str
    domain: str
    project: str
    project_id: str
    owner: str | None
    owner_id: str | None
    can_write: bool
    folder: str | None
    definition: str
    tasks: int
    parameters: list[PipelineParameter]
    last_run_id: str | None
    last_run_status: str | None
    last_run_at: datetime | None


class PipelineTask(ResponseModel):
    """``kind``: command, notebook, condition, approval or pipeline. ``run_if``: success,
    any-success, failure or always.
    """

    name: str
    kind: str
    needs: list[str]
    run_if: str


class PipelineCheck(ResponseModel):
    """``problem`` and ``line`` say why a definition is not valid. ``problem_coded``: the problem as
    a code with values.
    """

    is_valid: bool
    problem: str
    problem_coded: CodedText | None
    line: int | None
    name: str
    parameters: list[PipelineParameter]
    tasks: list[PipelineTask]


class PipelineVersion(ResponseModel):
    version: int
    created_at: datetime
    definition: str


class PipelineSchema(ResponseModel):
    json_schema: dict[str, Any] = Field(description="JSON schema of the YAML of pipelines")


class SchemaHandler(APIHandler):
    @operation("Read the JSON schema of pipelines", tag=_TAG, returns=PipelineSchema)
    async def get(self) -> records.PipelineSchema:
        return self.manager.pipelines.pipelines.schema(self.caller)


class ChecksHandler(APIHandler):
    @operation(
        "Validate the definition of a pipeline; nothing is stored",
        tag=_TAG,
        body=Definition,
        returns=PipelineCheck,
        is_expensive=True,
    )
    async def post(self, body: Definition) -> records.PipelineCheck:
        return await self.manager.pipelines.pipelines.validate(self.caller, body.definition)


class PipelinesHandler(APIHandler):
    @operation("List pipelines", tag=_TAG, returns=Pipeline, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Pipeline]:
        return await self.manager.pipelines.pipelines.page(self.caller, query)

    @operation(
        "Create a pipeline",
        tag=_TAG,
        body=NewPipeline,
        returns=Pipeline,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: NewPipeline) -> records.Pipeline:
        return await self.manager.pipelines.pipelines.create(self.caller, body.given_fields())


class PipelineHandler(APIHandler):
    @operation("Read a pipeline", tag=_TAG, returns=Pipeline)
    async def get(self, key: str) -> records.Pipeline:
        return await self.manager.pipelines.pipelines.get(self.caller, key)

    @operation(
        "Replace the definition of a pipeline; earlier runs keep theirs",
        tag=_TAG,
        body=PipelineChange,
        returns=Pipeline,
        is_expensive=True,
    )
    async def patch(self, key: str, body: PipelineChange) -> records.Pipeline:
        return await self.manager.pipelines.pipelines.update(self.caller, key, body.given_fields())

    @operation("Delete a pipeline with its runs", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.pipelines.pipelines.delete(self.caller, key)


class VersionsHandler(APIHandler):
    @operation(
        "List the versions of the definition of a pipeline",
        tag=_TAG,
        returns=PipelineVersion,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.PipelineVersion]:
        return await self.manager.pipelines.pipelines.versions(self.caller, key, query)


ONE_PIPELINE = r"/pipelines/(?P<key>[^/]+)"
ROUTES = [
    ("/pipeline-schema", SchemaHandler),
    ("/pipeline-checks", ChecksHandler),
    ("/pipelines", PipelinesHandler),
    (ONE_PIPELINE, PipelineHandler),
    (ONE_PIPELINE + "/versions", VersionsHandler),
]
