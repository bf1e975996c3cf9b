"""`/pipeline-templates`: definitions from which users create pipelines; conversions of formats."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines import records
from bai_services.core.pipelines.conversion import Format

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel, ShortText
from .pipelines import DefinitionText, NewPipeline

_TAG = "pipelines"


class PipelineTemplate(ResponseModel):
    """``definition`` is empty in lists. A built-in template has neither owner nor project; a
    template of a project has no owner.
    """

    id: str
    created_at: datetime | None
    name: str
    description: str
    is_builtin: bool
    domain: str | None
    project: str | None
    project_id: str | None
    owner: str | None
    owner_id: str | None
    can_delete: bool
    tasks: int
    definition: str


class Conversion(Body):
    """``text``: a pipeline in one of the formats. ``name``: name of the pipeline, used if the text
    contains none. ``target``: bai (YAML of this installation), elyra (JSON) or fasttrack (YAML).
    """

    text: DefinitionText
    name: ShortText = "pipeline"
    target: Format = Format.BAI


class ConvertedPipeline(ResponseModel):
    text: str


class TemplatesHandler(APIHandler):
    @operation("List templates of pipelines", tag=_TAG, returns=PipelineTemplate, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.PipelineTemplate]:
        return await self.manager.pipelines.templates.page(self.caller, query)

    @operation(
        "Save a template of pipelines",
        tag=_TAG,
        body=NewPipeline,
        returns=PipelineTemplate,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, body: NewPipeline) -> records.PipelineTemplate:
        return await self.manager.pipelines.templates.create(self.caller, body.given_fields())


class TemplateHandler(APIHandler):
    @operation("Read a template of pipelines", tag=_TAG, returns=PipelineTemplate)
    async def get(self, key: str) -> records.PipelineTemplate:
        return await self.manager.pipelines.templates.get(self.caller, key)

    @operation(
        "Delete a template of pipelines; its pipelines remain",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self, key: str) -> None:
        await self.manager.pipelines.templates.delete(self.caller, key)


class ConversionsHandler(APIHandler):
    @operation(
        "Convert a pipeline from or to the format of Elyra or FastTrack; nothing is stored",
        tag=_TAG,
        body=Conversion,
        returns=ConvertedPipeline,
        is_expensive=True,
    )
    async def post(self, body: Conversion) -> records.ConvertedPipeline:
        return await self.manager.pipelines.pipelines.convert(
            self.caller, body.text, body.name, body.target
        )


ROUTES = [
    ("/pipeline-templates", TemplatesHandler),
    (r"/pipeline-templates/(?P<key>[^/]+)", TemplateHandler),
    ("/pipeline-conversions", ConversionsHandler),
]
