"""`/image-registries`: registries from which images are found and pulled, and their scans."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field, SecretStr, StringConstraints

from bai_services.core.cluster import registries as records
from bai_services.core.cluster.registries import (
    MAX_CERTIFICATE_CHARACTERS,
    MAX_PATTERNS,
    MAX_REPOSITORIES,
    MAX_RESCAN_SECONDS,
    MIN_RESCAN_SECONDS,
    RegistryKind,
)
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, Secret, ShortText

_TAG = "image registries"

Certificate = Annotated[
    str, StringConstraints(max_length=MAX_CERTIFICATE_CHARACTERS, pattern=r"^[^\x00]*$")
]
RescanSeconds = (
    Annotated[int, Field(ge=MIN_RESCAN_SECONDS, le=MAX_RESCAN_SECONDS)]
    | Annotated[int, Field(ge=0, le=0)]
)


class RegistryChange(Body):
    """``repositories``: repositories to scan; empty: all in the registry's catalog. ``patterns``:
    patterns for ``repository:tag``, such as ``team/*:3.*``; empty: all tags. ``rescan_seconds``:
    time between scans; 0: no repeated scans. ``activates_images``: whether found images are active
    at once.
    ``labelled_only``: ignore images without labels of the platform. ``allowed_projects``: projects
    (id, name or ``domain/name``) that may use the images if ``is_global`` is false. An empty
    ``password`` removes the password.
    """

    url: ShortText = ""
    username: ShortText = ""
    password: Secret = SecretStr("")
    ca_certificate: Certificate = ""
    repositories: Annotated[list[ShortText], Field(max_length=MAX_REPOSITORIES)] = []
    patterns: Annotated[list[ShortText], Field(max_length=MAX_PATTERNS)] = []
    rescan_seconds: RescanSeconds = 0
    is_enabled: bool = True
    activates_images: bool = False
    labelled_only: bool = True
    is_global: bool = True
    allowed_projects: Annotated[list[ShortText], Field(max_length=1000)] = []

    def given_fields(self) -> dict[str, Any]:
        given: dict[str, Any] = super().given_fields()
        if "password" in given:
            given["password"] = self.password.get_secret_value()
        return given


class NewRegistry(RegistryChange):
    """``kind`` sets the default of ``url`` and ``username``."""

    name: NameText
    kind: RegistryKind = RegistryKind.DOCKER


class ImageRegistry(ResponseModel):
    """``host``: the beginning of the images' names. The password is never returned.

    ``scan_status``: never, queued, running, done, failed or cancelled. ``scan_tags``: matching tags
    of the last scan; ``scan_checked``: checked tags; ``scan_new``: registered images;
    ``scan_changed``: images with a new digest; ``scan_skipped``: tags that were ignored or could
    not be read; ``scan_removed``: deleted images, because their tags no longer exist.
    ``scan_problem``: why the scan, or a tag, failed.
    """

    id: str
    created_at: datetime
    name: str
    kind: str
    url: str
    host: str
    username: str
    has_password: bool
    ca_certificate: str
    repositories: list[str]
    patterns: list[str]
    rescan_seconds: int
    is_enabled: bool
    activates_images: bool
    labelled_only: bool
    is_global: bool
    allowed_projects: list[str]
    scan_status: str
    scan_requested_by: str
    scan_started_at: datetime | None
    scan_ended_at: datetime | None
    scan_tags: int
    scan_checked: int
    scan_new: int
    scan_changed: int
    scan_skipped: int
    scan_removed: int
    scan_problem: str


class RegistriesHandler(APIHandler):
    @operation("List image registries", tag=_TAG, returns=ImageRegistry, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ImageRegistry]:
        return await self.manager.cluster.registries.page(self.caller, query)

    @operation(
        "Add an image registry",
        tag=_TAG,
        body=NewRegistry,
        returns=ImageRegistry,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewRegistry) -> records.ImageRegistry:
        return await self.manager.cluster.registries.create(self.caller, body.given_fields())


class RegistryHandler(APIHandler):
    @operation("Read an image registry", tag=_TAG, returns=ImageRegistry)
    async def get(self, key: str) -> records.ImageRegistry:
        return await self.manager.cluster.registries.get(self.caller, key)

    @operation("Change an image registry", tag=_TAG, body=RegistryChange, returns=ImageRegistry)
    async def patch(self, key: str, body: RegistryChange) -> records.ImageRegistry:
        changes = body.given_fields()
        return await self.manager.cluster.registries.update(self.caller, key, changes)

    @operation(
        "Delete an image registry; its images remain", tag=_TAG, status=HTTPStatus.NO_CONTENT
    )
    async def delete(self, key: str) -> None:
        await self.manager.cluster.registries.delete(self.caller, key)


class RegistryScanHandler(APIHandler):
    @operation(
        "Scan an image registry",
        tag=_TAG,
        returns=ImageRegistry,
        status=HTTPStatus.ACCEPTED,
    )
    async def post(self, key: str) -> records.ImageRegistry:
        return await self.manager.cluster.registries.scan(self.caller, key)

    @operation("Cancel the scan of an image registry", tag=_TAG, returns=ImageRegistry)
    async def delete(self, key: str) -> records.ImageRegistry:
        return await self.manager.cluster.registries.cancel_scan(self.caller, key)


ROUTES = [
    ("/image-registries", RegistriesHandler),
    (r"/image-registries/(?P<key>[^/]+)", RegistryHandler),
    (r"/image-registries/(?P<key>[^/]+)/scan", RegistryScanHandler),
]
