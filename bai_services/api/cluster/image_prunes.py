"""`/image-prunes`: list or remove the unused images of agents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from bai_services.core.cluster import image_store as records

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel

MAX_UNUSED_SECONDS = 10 * 366 * 24 * 3600


class NewPrune(Body):
    """``unused_seconds``: minimum time since the last use of an image. ``is_dry_run``: only list
    the images.
    """

    resource_group: NameText
    unused_seconds: Annotated[int, Field(ge=3600, le=MAX_UNUSED_SECONDS)]
    is_dry_run: bool = True


class PrunedImage(ResponseModel):
    """``is_removed``: false in a dry run, or if the image was used again."""

    agent_id: str
    resource_group: str
    image: str
    size_bytes: int
    last_used_at: datetime
    is_removed: bool


class PruneReport(ResponseModel):
    """``silent_agents``: agents that have not reported within 20 seconds, or whose engine does not
    respond. A removal continues on these agents.
    """

    is_dry_run: bool
    images: list[PrunedImage]
    silent_agents: list[str]


class PrunesHandler(APIHandler):
    @operation(
        "List or remove unused images of the agents of a resource group; takes at most 20 seconds",
        tag="images",
        body=NewPrune,
        returns=PruneReport,
        is_expensive=True,
    )
    async def post(self, body: NewPrune) -> records.PruneReport:
        return await self.manager.cluster.image_prunes.prune(
            self.caller, body.resource_group, body.unused_seconds, is_dry_run=body.is_dry_run
        )


ROUTES = [("/image-prunes", PrunesHandler)]
