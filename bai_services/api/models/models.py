"""`/models`: the models of the projects of type model-store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Literal

from pydantic import Field

from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.models import records
from bai_services.core.serving import records as serving_records
from bai_services.manager.folders.vfolders import VFolder

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, ShortText, SlotsInput, SlotsOutput
from ..serving.bodies import MAX_COMMAND, EmptyBody, Replicas
from ..serving.endpoints import Endpoint
from ..sessions.bodies import MAX_VARIABLES

_TAG = "models"


class ModelCard(ResponseModel):
    """``id``: the id of the model's folder. ``is_latest``: the model has the highest version of all
    models of its project with this name. ``size_bytes``: null before the first count. ``problem``:
    why its definition is not valid. ``is_fitting``: whether your quotas and the largest agent
    permit a replica; null if you may not create sessions.
    """

    id: str
    created_at: datetime
    refreshed_at: datetime
    folder: str
    host: str
    domain: str
    project: str
    project_id: str
    name: str
    title: str
    version: str
    is_latest: bool
    author: str
    description: str
    task: str
    category: str
    architecture: str
    license: str
    created: str
    last_modified: str
    frameworks: list[str]
    labels: list[str]
    min_resources: SlotsOutput
    has_command: bool
    cloneable: bool
    size_bytes: int | None
    problem: str
    problem_line: int | None
    is_fitting: bool | None


class ModelReadme(ResponseModel):
    """``text``: Markdown by the author of the model; show it without its HTML."""

    id: str
    text: str


class ModelClone(Body):
    """``name``: default is the name of the model's folder. ``project``: create a folder of this
    project. ``host``: default is the host of the model.
    """

    name: NameText | None = None
    permission: Literal["ro", "rw"] = "rw"
    cloneable: bool = False
    project: NameText | None = None
    host: NameText | None = None


class Deployment(Body):
    """Everything is optional. ``name``: the default is derived from the name of the folder.
    ``variant``: default is ``custom``, the definition. Without ``preset`` and ``resources``, the
    smallest preset with at least the model's minimum resources is used, or else the minimum
    resources.
    """

    name: NameText | None = None
    project: ShortText | None = None
    variant: NameText | None = None
    command: str | None = Field(default=None, max_length=MAX_COMMAND)
    image: ShortText | None = None
    preset: NameText | None = None
    resources: SlotsInput = {}
    resource_group: NameText | None = None
    environ: dict[str, str] = Field(default={}, max_length=MAX_VARIABLES)
    shared_memory: ShortText | None = None
    replicas: Replicas = 1
    is_public: bool = False


class ModelsHandler(APIHandler):
    @operation(
        "List the models of your model stores",
        tag=_TAG,
        returns=ModelCard,
        is_list=True,
        parameters={
            "text__contains": "search in folder, name, title, description, author, task and labels",
            "fits": "true: only models that your quotas let you deploy; false: only others",
            "fits_project": "project whose quotas apply; default: the project of a new session",
        },
    )
    async def get(self, query: ListQuery) -> Page[records.ModelCard]:
        filters = dict(query.filters)
        project, fits = filters.pop("fits_project", None), filters.pop("fits", None)
        if fits not in (None, "true", "false"):
            raise InvalidRequest("fits must be true or false", filter="fits")
        return await self.manager.models.models.page(
            self.caller,
            replace(query, filters=filters),
            project,
            None if fits is None else fits == "true",
        )


class ModelHandler(APIHandler):
    @operation("Read a model", tag=_TAG, returns=ModelCard)
    async def get(self, key: str) -> records.ModelCard:
        return await self.manager.models.models.get(self.caller, key)


class ReadmeHandler(APIHandler):
    @operation("Read the README of a model", tag=_TAG, returns=ModelReadme)
    async def get(self, key: str) -> records.ModelReadme:
        return await self.manager.models.models.readme(self.caller, key)


class VersionsHandler(APIHandler):
    @operation(
        "List the versions of a model: the models of its project with the same name",
        tag=_TAG,
        returns=ModelCard,
        is_list=True,
    )
    async def get(self, key: str, query: ListQuery) -> Page[records.ModelCard]:
        return await self.manager.models.models.versions(self.caller, key, query)


class RefreshHandler(APIHandler):
    @operation(
        "Read the definition and the README of a model's folder again",
        tag=_TAG,
        body=EmptyBody,
        returns=ModelCard,
        is_expensive=True,
    )
    async def post(self, key: str, body: EmptyBody) -> records.ModelCard:
        return await self.manager.models.models.refresh(self.caller, key)


class CloneHandler(APIHandler):
    @operation(
        "Clone the folder of a model, in the background",
        tag=_TAG,
        body=ModelClone,
        returns=VFolder,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: ModelClone) -> VFolder:
        return await self.manager.models.models.clone(self.caller, key, body.given_fields())


class DeploymentHandler(APIHandler):
    @operation(
        "Create an endpoint that serves a model",
        tag=_TAG,
        body=Deployment,
        returns=Endpoint,
        status=HTTPStatus.CREATED,
        is_expensive=True,
    )
    async def post(self, key: str, body: Deployment) -> serving_records.Endpoint:
        return await self.manager.models.models.deploy(self.caller, key, body.given_fields())


_ONE = r"/models/(?P<key>[^/]+)"
ROUTES = [
    ("/models", ModelsHandler),
    (_ONE, ModelHandler),
    (_ONE + "/readme", ReadmeHandler),
    (_ONE + "/versions", VersionsHandler),
    (_ONE + "/refresh", RefreshHandler),
    (_ONE + "/clone", CloneHandler),
    (_ONE + "/deployment", DeploymentHandler),
]
