"""Read the SBOMs of images through the agents that have the images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.image_store import AgentImages, digest_state
from bai_services.core.cluster.model import AgentStatus, EngineName
from bai_services.core.cluster.records import Image
from bai_services.core.cluster.sbom import (
    SBOM_LABEL,
    ImageSbom,
    parse_sbom,
    unpack_sbom,
)
from bai_services.core.coded_text import refusal
from bai_services.core.errors import Conflict, NotFound, Unavailable
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.cluster.image_pulls import ImagePullStore
from bai_services.db.tables.cluster import image_sboms

from ..context import ManagerContext
from .agent_requests import AgentRequests
from .images import Images

SBOM = "sbom"
REPORT_SECONDS = 20.0
EXPIRY = timedelta(minutes=2)
MAX_MESSAGE_CHARACTERS = 500


class ImageSboms:
    """Requests agents to read SBOMs, and waits for their reports. SBOMs are not stored."""

    def __init__(
        self, context: ManagerContext, images: Images, wake: Callable[[Iterable[str]], None]
    ) -> None:
        self._requests = AgentRequests(context, image_sboms, SBOM, EXPIRY, wake)
        self._agents = ImagePullStore(context.database)
        self._images = images
        # A lock for each agent, which processes one request at a time.
        self._turns: dict[str, asyncio.Lock] = {}
        # An attribute, so that tests can set a shorter time.
        self.report_seconds = REPORT_SECONDS

    async def get(self, caller: Caller, key: str) -> ImageSbom:
        """Return the SBOM of an image, read on an agent that has the image.

        Raises
        ------
        NotFound
            If there is no such image, or it has no SBOM.
        Conflict
            If no live agent has the image.
        Unavailable
            If the agent does not report in time.
        """
        image = await self._images.get(caller, key)
        if SBOM_LABEL not in image.labels:
            raise NotFound(
                refusal(RefusalText.IMAGE_WITHOUT_SBOM, name=image.name), image=image.name
            )
        agent = _holder(image, await self._agents.agents())
        if agent is None:
            raise Conflict(
                refusal(RefusalText.SBOM_NOT_PULLED, name=image.name),
                image=image.name,
            )
        async with self._turns.setdefault(agent.agent_id, asyncio.Lock()):
            result = await self._ask(agent.agent_id, image.name)
        if result is None:
            raise Unavailable(
                refusal(
                    RefusalText.SBOM_TIMEOUT,
                    agent=agent.agent_id,
                    name=image.name,
                    limit_seconds=round(self.report_seconds),
                ),
                image=image.name,
            )
        if message := result.get("error"):
            raise NotFound(str(message), image=image.name)
        # Parsing and sorting tens of thousands of packages would block the event loop.
        return await asyncio.to_thread(
            lambda: parse_sbom(
                image.name, agent.agent_id, image.labels, unpack_sbom(str(result["sbom"]))
            )
        )

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open request to an agent."""
        return await self._requests.work_items(agent_id)

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Store an SBOM, or the reason why the agent cannot read it, for the waiting request."""
        result: dict[str, Any]
        if report["state"] == "done" and report.get("sbom"):
            result = {"sbom": report["sbom"]}
        else:
            message = (report.get("error") or {}).get("message") or "the SBOM cannot be read"
            result = {"error": str(message)[:MAX_MESSAGE_CHARACTERS]}
        await self._requests.report(agent_id, str(report.get("work_id")), result)

    async def _ask(self, agent_id: str, image: str) -> Mapping[str, Any] | None:
        """Return the report of an agent; None if there is none in time."""
        request_id = await self._requests.create([agent_id], {"image": image})
        try:
            results = await self._requests.wait(request_id, 1, self.report_seconds)
            return results.get(agent_id)
        finally:
            await self._requests.forget(request_id)


def _holder(image: Image, agents: Iterable[AgentImages]) -> AgentImages | None:
    """Return an agent that has an image, preferably its registered version."""
    holders = [
        agent
        for agent in agents
        if agent.status == AgentStatus.ALIVE
        and agent.engine == EngineName.DOCKER
        and agent.architecture == image.architecture
        and image.name in agent.digests
    ]
    holders.sort(key=lambda a: digest_state(image.digest, a.digests[image.name]) is False)
    return holders[0] if holders else None
