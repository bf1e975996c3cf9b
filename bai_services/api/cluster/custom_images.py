"""`/custom-images` and `/sessions/{key}/commit`: images made from sessions and recipes."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.cluster import custom_images as records
from bai_services.core.cluster.custom_images import MAX_COMMIT_LABELS, CommitStatus, Visibility
from bai_services.core.cluster.recipes import FILES, MAX_RECIPE_CHARACTERS
from bai_services.core.imports.sources import MAX_BRANCH, MAX_TOKEN
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, ShortText, SlotsInput

_TAG = "custom images"
Description = Annotated[str, Field(max_length=512, pattern=r"^[^\x00]*$")]


class NewCommit(Body):
    """``name``: 4 to 32 letters, digits, hyphens and underscores.

    ``labels``: labels of the image in addition to those of the session's image.
    """

    name: NameText
    description: Description = ""
    visibility: Visibility = Visibility.PRIVATE
    labels: Annotated[dict[str, str], Field(max_length=MAX_COMMIT_LABELS)] = {}


class NewBuild(NewCommit):
    """``recipe``: contents of the files `apt.txt`, `environment.yml`, `requirements.txt` and
    `Dockerfile`, at least one of them, each of at most 64 KiB.

    ``image``: the base image; by default the project's default image. ``project``,
    ``resource_group`` and ``resources`` apply to the session that reserves the resources of the
    build.
    """

    recipe: Annotated[
        dict[NameText, Annotated[str, Field(max_length=MAX_RECIPE_CHARACTERS)]],
        Field(min_length=1, max_length=len(FILES)),
    ]
    image: ShortText | None = None
    project: NameText | None = None
    resource_group: NameText | None = None
    resources: SlotsInput = {}


class RecipeSource(Body):
    """A folder (``vfolder``: its name or id) or a git repository (``repo``: its URL).

    ``directory``: the directory with the files of the recipe. ``branch``: branch, tag or commit;
    ``token``: access token of a private repository, which is not stored.
    """

    vfolder: NameText = ""
    repo: Annotated[str, Field(max_length=2048)] = ""
    branch: Annotated[str, Field(max_length=MAX_BRANCH)] = ""
    token: Annotated[str, Field(max_length=MAX_TOKEN, repr=False)] = ""
    directory: Annotated[str, Field(max_length=1024)] = ""


class Recipe(ResponseModel):
    """``recipe``: contents of the files, as for a build."""

    recipe: dict[str, str]


class BuildLog(ResponseModel):
    """``log``: the last 64 KiB of the output."""

    log: str


class CustomImageChange(Body):
    """``visibility``: only superadmins may set it to ``public``."""

    name: NameText = ""
    description: Description = ""
    visibility: Visibility = Visibility.PRIVATE


class CustomImage(ResponseModel):
    """A commit of a session or a build of a recipe, and its image.

    ``image_id`` is null until the commit is done. ``is_built`` is true for the build of a recipe.
    ``percent`` is null while the size is unknown.
    ``message`` is the reason for a failure.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    name: str
    description: str
    image: str
    image_id: str | None
    base_image: str
    architecture: str
    owner_id: str
    owner: str
    domain: str
    project_id: str
    project: str
    visibility: Visibility
    is_publish_requested: bool
    labels: dict[str, str]
    session_id: str
    session_name: str
    is_built: bool
    agent_id: str
    status: CommitStatus
    percent: int | None
    message: str
    size_bytes: int
    digest: str


class CommitHandler(APIHandler):
    @operation(
        "Commit a running session to a custom image",
        tag=_TAG,
        body=NewCommit,
        returns=CustomImage,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str, body: NewCommit) -> records.CustomImage:
        return await self.manager.cluster.custom_images.commit(
            self.caller, key, body.given_fields()
        )


class CustomImagesHandler(APIHandler):
    @operation("List custom images and commits", tag=_TAG, returns=CustomImage, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.CustomImage]:
        return await self.manager.cluster.custom_images.page(self.caller, query)

    @operation(
        "Build a custom image from a recipe, if the installation allows it",
        tag=_TAG,
        body=NewBuild,
        returns=CustomImage,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, body: NewBuild) -> records.CustomImage:
        return await self.manager.cluster.custom_images.build(self.caller, body.given_fields())


class RecipeHandler(APIHandler):
    @operation(
        "Read the recipe in a folder or git repository, to build it",
        tag=_TAG,
        body=RecipeSource,
        returns=Recipe,
        works_when_read_only=True,
        is_expensive=True,
    )
    async def post(self, body: RecipeSource) -> dict[str, dict[str, str]]:
        self.is_timed = False
        return {"recipe": await self.manager.imports.recipes.read(self.caller, body.given_fields())}


class CustomImageHandler(APIHandler):
    @operation("Read a custom image", tag=_TAG, returns=CustomImage)
    async def get(self, key: str) -> records.CustomImage:
        return await self.manager.cluster.custom_images.get(self.caller, key)

    @operation("Change a custom image", tag=_TAG, body=CustomImageChange, returns=CustomImage)
    async def patch(self, key: str, body: CustomImageChange) -> records.CustomImage:
        return await self.manager.cluster.custom_images.update(
            self.caller, key, body.given_fields()
        )

    @operation("Delete a custom image", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.custom_images.delete(self.caller, key)


class LogHandler(APIHandler):
    @operation("Read the output of the build of a custom image", tag=_TAG, returns=BuildLog)
    async def get(self, key: str) -> records.BuildLog:
        return await self.manager.cluster.custom_images.log(self.caller, key)


class CancelHandler(APIHandler):
    @operation("Cancel a commit", tag=_TAG, returns=CustomImage)
    async def post(self, key: str) -> records.CustomImage:
        return await self.manager.cluster.custom_images.cancel(self.caller, key)


class PublicationHandler(APIHandler):
    @operation("Ask an administrator to publish a custom image", tag=_TAG, returns=CustomImage)
    async def post(self, key: str) -> records.CustomImage:
        return await self.manager.cluster.custom_images.request_publication(self.caller, key)


_KEY = r"/custom-images/(?P<key>[^/]+)"
ROUTES = [
    ("/recipes", RecipeHandler),
    (r"/sessions/(?P<key>[^/]+)/commit", CommitHandler),
    ("/custom-images", CustomImagesHandler),
    (_KEY, CustomImageHandler),
    (_KEY + "/log", LogHandler),
    (_KEY + "/cancel", CancelHandler),
    (_KEY + "/publication-request", PublicationHandler),
]
