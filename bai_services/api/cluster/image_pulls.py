"""`/image-pulls` and `/images/{key}/agents`: pull images to agents; list agents with an image."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.cluster import image_store as records
from bai_services.core.listing import ListQuery, Page
from bai_services.manager.cluster.image_pulls import MAX_IMAGES

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, ShortText

_TAG = "images"


class NewPulls(Body):
    """``images``: names, aliases or ids."""

    images: Annotated[list[ShortText], Field(min_length=1, max_length=MAX_IMAGES)]
    resource_group: NameText


class CreatedPulls(ResponseModel):
    """``count``: number of pulls; agents that already have an image are left out."""

    count: int


class ImagePull(ResponseModel):
    """``percent`` is null while the size is unknown. ``message`` is the reason for a failure."""

    id: str
    created_at: datetime
    changed_at: datetime
    image_id: str
    image: str
    agent_id: str
    resource_group: str
    status: str
    percent: int | None
    message: str
    requested_by: str


class ImageOnAgent(ResponseModel):
    """``is_current``: the agent has the registered digest; null if one of them is unknown."""

    agent_id: str
    resource_group: str
    status: str
    digest: str
    is_current: bool | None


class ImageOnAgentList(ResponseModel):
    items: list[ImageOnAgent]


class PullsHandler(APIHandler):
    @operation("List pulls of images to agents", tag=_TAG, returns=ImagePull, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.ImagePull]:
        return await self.manager.cluster.image_pulls.page(self.caller, query)

    @operation(
        "Pull images to the agents of a resource group",
        tag=_TAG,
        body=NewPulls,
        returns=CreatedPulls,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewPulls) -> dict[str, int]:
        count = await self.manager.cluster.image_pulls.create(
            self.caller, body.images, body.resource_group
        )
        return {"count": count}


class PullHandler(APIHandler):
    @operation("Cancel a pull", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.cluster.image_pulls.cancel(self.caller, key)


class ImageAgentsHandler(APIHandler):
    @operation("List the agents that have an image", tag=_TAG, returns=ImageOnAgentList)
    async def get(self, key: str) -> dict[str, Sequence[records.ImageOnAgent]]:
        return {"items": await self.manager.cluster.image_pulls.on_agents(self.caller, key)}


ROUTES = [
    ("/image-pulls", PullsHandler),
    (r"/image-pulls/(?P<key>[^/]+)", PullHandler),
    (r"/images/(?P<key>[^/]+)/agents", ImageAgentsHandler),
]
