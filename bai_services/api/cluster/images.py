"""`/images` and `/image-aliases`: the images that sessions may use."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from bai_services.core.cluster import records, sbom
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, Description, NameText, ResponseModel, ShortText, SlotsInput, SlotsOutput

_TAG = "images"

Bytes = Annotated[int, Field(ge=0, le=2**62)]
Architecture = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,32}$")]
Digest = Annotated[str, StringConstraints(max_length=128, pattern=r"^[a-z0-9:+._-]*$")]


class ImageChange(Body):
    name: ShortText = ""
    description: Description = ""
    digest: Digest = ""
    size_bytes: Bytes = 0
    labels: dict[str, str] = {}
    min_slots: SlotsInput = {}
    max_slots: SlotsInput = {}
    is_active: bool = True


class NewImage(ImageChange):
    name: ShortText
    architecture: Architecture = "x86_64"


class Image(ResponseModel):
    """``registry_problem``: why the image remains although its tag was deleted in the registry."""

    id: str
    created_at: datetime
    name: str
    architecture: str
    description: str
    digest: str
    size_bytes: int
    labels: dict[str, str]
    min_slots: SlotsOutput
    max_slots: SlotsOutput
    is_active: bool
    registry_digest: str
    registry: str
    registry_problem: str
    aliases: list[str]
    apps: list[str]
    features: list[str]
    role: str
    is_private: bool
    preferred_slots: SlotsOutput
    preferred_shared_memory: str | None


class SbomPackage(ResponseModel):
    """``kind``: the type of the package URL, such as ``pypi``, ``deb`` or ``npm``."""

    name: str
    version: str
    kind: str


class ImageSbom(ResponseModel):
    """``is_of_base``: the SBOM describes the image from which this custom image was made.

    ``document``: the whole SBOM, in the format ``format`` (``CycloneDX`` or ``SPDX``).
    """

    image: str
    agent_id: str
    format: str
    spec_version: str
    is_of_base: bool
    packages: list[SbomPackage]
    document: dict[str, Any]


class AliasChange(Body):
    image: ShortText = ""


class NewAlias(Body):
    alias: NameText
    image: ShortText


class ImageAlias(ResponseModel):
    alias: str
    created_at: datetime
    image_id: str
    image: str
    architecture: str


class ImagesHandler(APIHandler):
    @operation("List images", tag=_TAG, returns=Image, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.Image]:
        return await self.manager.cluster.images.page(self.caller, query)

    @operation(
        "Register an image", tag=_TAG, body=NewImage, returns=Image, status=HTTPStatus.CREATED
    )
    async def post(self, body: NewImage) -> records.Image:
        return await self.manager.cluster.images.create(self.caller, body.given_fields())


class ImageHandler(APIHandler):
    @operation("Read an image", tag=_TAG, returns=Image)
    async def get(self, key: str) -> records.Image:
        return await self.manager.cluster.images.get(self.caller, key)

    @operation("Change an image", tag=_TAG, body=ImageChange, returns=Image)
    async def patch(self, key: str, body: ImageChange) -> records.Image:
        return await self.manager.cluster.images.update(self.caller, key, body.given_fields())

    @operation("Delete an unused image", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.images.delete(self.caller, key)


class ImageSbomHandler(APIHandler):
    @operation(
        "Read the SBOM of an image, on an agent that has the image; takes at most 20 seconds",
        tag=_TAG,
        returns=ImageSbom,
        is_expensive=True,
    )
    async def get(self, key: str) -> sbom.ImageSbom:
        return await self.manager.cluster.image_sboms.get(self.caller, key)


class AliasesHandler(APIHandler):
    @operation("List image aliases", tag=_TAG, returns=ImageAlias, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ImageAlias]:
        return await self.manager.cluster.image_aliases.page(self.caller, query)

    @operation(
        "Create an image alias",
        tag=_TAG,
        body=NewAlias,
        returns=ImageAlias,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewAlias) -> records.ImageAlias:
        return await self.manager.cluster.image_aliases.create(self.caller, body.given_fields())


class AliasHandler(APIHandler):
    @operation("Read an image alias", tag=_TAG, returns=ImageAlias)
    async def get(self, key: str) -> records.ImageAlias:
        return await self.manager.cluster.image_aliases.get(self.caller, key)

    @operation("Change the image of an alias", tag=_TAG, body=AliasChange, returns=ImageAlias)
    async def patch(self, key: str, body: AliasChange) -> records.ImageAlias:
        return await self.manager.cluster.image_aliases.update(
            self.caller, key, body.given_fields()
        )

    @operation("Delete an image alias", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.image_aliases.delete(self.caller, key)


ROUTES = [
    ("/images", ImagesHandler),
    (r"/images/(?P<key>[^/]+)", ImageHandler),
    (r"/images/(?P<key>[^/]+)/sbom", ImageSbomHandler),
    ("/image-aliases", AliasesHandler),
    (r"/image-aliases/(?P<key>[^/]+)", AliasHandler),
]
