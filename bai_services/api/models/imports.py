"""`/model-imports`: imports of models into model stores."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, StringConstraints

from bai_services.core.listing import ListQuery, Page
from bai_services.core.models import records
from bai_services.core.models.imports import MAX_PATTERNS

from ..base import APIHandler, operation
from ..fields import Body, CodedText, NameText, ResponseModel, ShortText
from ..serving.bodies import EmptyBody

_TAG = "models"


class NewModelImport(Body):
    """``repository``: name of a model at the hub, with ``revision`` (default: main) and
    ``patterns`` that select files, such as ``*.safetensors``. ``url``: a single file instead, with
    its ``sha256`` if known. ``project``: the model store; default is the only one. ``folder``:
    name of the new folder.
    """

    repository: ShortText = ""
    revision: ShortText = ""
    patterns: list[ShortText] = Field(default=[], max_length=MAX_PATTERNS)
    url: Annotated[str, StringConstraints(max_length=2048)] = ""
    sha256: NameText = ""
    project: ShortText | None = None
    folder: NameText = ""


class ModelImport(ResponseModel):
    """``kind``: huggingface or url. ``status``: requested (waits for an approval), queued, running,
    done, failed or cancelled. ``commit_id``: the commit of the revision when the import began.
    ``problem``: why the import has failed; ``problem_coded``: the same text as a code with values,
    null for a text without a code. The folder of a failed or cancelled import is deleted; after an
    interruption, its complete files remain until ``kept_until``, and a retry continues with them.
    A retry without the folder needs the same approval as a new import.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    kind: str
    source: str
    revision: str
    commit_id: str
    patterns: list[str]
    folder: str
    folder_id: str | None
    domain: str
    project: str
    project_id: str
    owner: str
    owner_id: str
    status: str
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    problem: str
    problem_coded: CodedText | None
    kept_until: datetime | None


class ImportsHandler(APIHandler):
    @operation("List imports of models", tag=_TAG, returns=ModelImport, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ModelImport]:
        return await self.manager.models.imports.page(self.caller, query)

    @operation(
        "Import a model in the background; imports of members wait for an approval",
        tag=_TAG,
        body=NewModelImport,
        returns=ModelImport,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, body: NewModelImport) -> records.ModelImport:
        return await self.manager.models.imports.create(self.caller, body.given_fields())


class ImportHandler(APIHandler):
    @operation("Read an import of a model, with its progress", tag=_TAG, returns=ModelImport)
    async def get(self, key: str) -> records.ModelImport:
        return await self.manager.models.imports.get(self.caller, key)

    @operation(
        "Cancel or reject an import of a model; its folder is deleted",
        tag=_TAG,
        returns=ModelImport,
    )
    async def delete(self, key: str) -> records.ModelImport:
        return await self.manager.models.imports.cancel(self.caller, key)


class ApprovalHandler(APIHandler):
    @operation(
        "Approve an import of a model",
        tag=_TAG,
        body=EmptyBody,
        returns=ModelImport,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: EmptyBody) -> records.ModelImport:
        return await self.manager.models.imports.approve(self.caller, key)


class RetryHandler(APIHandler):
    @operation(
        "Retry a failed import of a model",
        tag=_TAG,
        body=EmptyBody,
        returns=ModelImport,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: EmptyBody) -> records.ModelImport:
        return await self.manager.models.imports.retry(self.caller, key)


_ONE = r"/model-imports/(?P<key>[^/]+)"
ROUTES = [
    ("/model-imports", ImportsHandler),
    (_ONE, ImportHandler),
    (_ONE + "/approval", ApprovalHandler),
    (_ONE + "/retry", RetryHandler),
]
