"""`/folder-imports`: imports of repositories, archives and files into folders."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from bai_services.core.imports import records
from bai_services.core.imports.sources import MAX_BRANCH, MAX_TOKEN
from bai_services.core.listing import ListQuery, Page
from bai_services.core.models.imports import MAX_PATH
from bai_services.core.sessions.callbacks import MAX_URL

from ..base import APIHandler, operation
from ..fields import Body, CodedText, NameText, ResponseModel, ShortText

_TAG = "imports"

Path = Annotated[str, StringConstraints(max_length=MAX_PATH)]


class ImportSource(Body):
    """``repo``: URL of a repository, a zip or tar archive, or a file; also links to pages of GitHub
    and GitLab. ``branch``: branch, tag or commit of a repository; default is its default branch.
    ``path``: file to open, relative to the imported files. ``kind``: kind of the source, needed
    only if it does not follow from the URL.
    """

    repo: Annotated[str, StringConstraints(max_length=MAX_URL)] = Field(
        examples=["https://github.com/jupyterhub/jupyterhub"]
    )
    branch: Annotated[str, StringConstraints(max_length=MAX_BRANCH)] = ""
    path: Path = ""
    kind: Literal["git", "archive", "file", ""] = ""


class NewFolderImport(ImportSource):
    """``folder``: name of a new folder, on ``host`` and of ``project``; or ``into``: name or id of
    an existing folder. ``directory``: directory of the folder in which the files are stored; by
    default, the folder itself. ``token``: for a private repository; it is removed when the import
    has ended. ``urlpath``: path below the address of a session, such as
    ``lab/tree/course/a.ipynb``; default is ``path`` in JupyterLab.
    """

    folder: NameText = ""
    into: ShortText = ""
    host: NameText = ""
    project: ShortText = ""
    directory: Path = ""
    token: Annotated[str, StringConstraints(max_length=MAX_TOKEN)] = ""
    urlpath: Path = ""


class ImportPreview(ResponseModel):
    """What an import would fetch, without fetching it. ``folder``: default name of the new folder.
    ``max_bytes``: maximum size of an import.
    """

    kind: str
    source: str
    host: str
    branch: str
    path: str
    folder: str
    max_bytes: int


class FolderImport(ResponseModel):
    """``kind``: git, archive or file. ``status``: queued, running, done, failed or cancelled.
    ``open_path``: path below the address of a session with the folder. ``skipped``: numbers of
    ``links`` and ``submodules`` that were not imported, and of Git LFS files (``lfs``) without
    their content. ``problem``: why the import has failed; ``problem_coded``: the same text as a
    code with values, null for a text without a code.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    kind: str
    source: str
    branch: str
    commit_id: str
    folder: str
    folder_id: str | None
    directory: str
    open_path: str
    domain: str
    owner: str
    owner_id: str
    status: str
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    skipped: dict[str, int]
    problem: str
    problem_coded: CodedText | None


class ImportsHandler(APIHandler):
    @operation("List imports into folders", tag=_TAG, returns=FolderImport, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.FolderImport]:
        return await self.manager.imports.imports.page(self.caller, query)

    @operation(
        "Import a repository, an archive or a file into a folder in the background",
        tag=_TAG,
        body=NewFolderImport,
        returns=FolderImport,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, body: NewFolderImport) -> records.FolderImport:
        return await self.manager.imports.imports.create(self.caller, body.given_fields())


class PreviewHandler(APIHandler):
    @operation(
        "Show what an import would fetch; this fetches nothing",
        tag=_TAG,
        body=ImportSource,
        returns=ImportPreview,
    )
    async def post(self, body: ImportSource) -> records.ImportPreview:
        return self.manager.imports.imports.preview(self.caller, body.given_fields())


class ImportHandler(APIHandler):
    @operation("Read an import into a folder, with its progress", tag=_TAG, returns=FolderImport)
    async def get(self, key: str) -> records.FolderImport:
        return await self.manager.imports.imports.get(self.caller, key)

    @operation("Cancel an import into a folder", tag=_TAG, returns=FolderImport)
    async def delete(self, key: str) -> records.FolderImport:
        return await self.manager.imports.imports.cancel(self.caller, key)


ROUTES = [
    ("/folder-imports", ImportsHandler),
    ("/folder-imports/preview", PreviewHandler),
    (r"/folder-imports/(?P<key>[^/]+)", ImportHandler),
]
