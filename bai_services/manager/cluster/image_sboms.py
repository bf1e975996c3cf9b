"""Read the SBOMs of images through the agents that have the images."""

from __future__ import annotations

import asyncio
import time
import uuid
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
from bai_services.core.errors import Conflict, NotFound, Unavailable
from bai_services.db.cluster.agent_checks import AgentCheckStore
from bai_services.db.cluster.image_pulls import ImagePullStore
from bai_services.db.tables.cluster import image_sboms

from ..context import ManagerContext
from .images import Images

SBOM = "sbom"
REPORT_SECONDS = 20.0
POLL_SECONDS = 0.1
# Open requests are read again after this time, because another manager may create them.
CACHE_TTL_SECONDS = 2.0
EXPIRY = timedelta(minutes=2)
MAX_MESSAGE_CHARACTERS = 500


class ImageSboms:
    """Requests agents to read SBOMs, and waits for their reports. SBOMs are not stored."""

    def __init__(
        self, context: ManagerContext, images: Images, wake: Callable[[Iterable[str]], None]
    ) -> None:
        self._store = AgentCheckStore(context.database, image_sboms)
        self._agents = ImagePullStore(context.database)
        self._images = images
        self._clock = context.clock
        self._wake = wake
        # An agent has one request at a time.
        self._turns: dict[str, asyncio.Lock] = {}
        # Shorter in tests.
        self.report_seconds = REPORT_SECONDS
        # Open requests by agent, and the monotonic time at which they were read.
        self._open: tuple[float, Mapping[str, Mapping[str, Any]]] | None = None

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
            raise NotFound(f"image {image.name} has no SBOM", image=image.name)
        agent = _holder(image, await self._agents.agents())
        if agent is None:
            raise Conflict(
                f"no machine in operation has image {image.name}; its SBOM can be read after "
                "the image has been pulled",
                image=image.name,
            )
        async with self._turns.setdefault(agent.agent_id, asyncio.Lock()):
            result = await self._ask(agent.agent_id, image.name)
        if result is None:
            raise Unavailable(
                f"agent {agent.agent_id} did not return the SBOM of image {image.name} within "
                f"{self.report_seconds:g} seconds",
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
        if self._open is None or time.monotonic() - self._open[0] > CACHE_TTL_SECONDS:
            requests = await self._store.open_requests(self._clock() - EXPIRY)
            self._open = time.monotonic(), requests
        row = self._open[1].get(agent_id)
        if row is None:
            return []
        return [{**row["request"], "id": f"{SBOM}-{row['id']}", "kind": SBOM}]

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Store an SBOM, or the reason why the agent cannot read it, for the waiting request."""
        request_id = str(report.get("work_id")).removeprefix(f"{SBOM}-")
        result: dict[str, Any]
        if report["state"] == "done" and report.get("sbom"):
            result = {"sbom": report["sbom"]}
        else:
            message = (report.get("error") or {}).get("message") or "the SBOM cannot be read"
            result = {"error": str(message)[:MAX_MESSAGE_CHARACTERS]}
        await self._store.report(agent_id, request_id, result)
        self._open = None

    async def _ask(self, agent_id: str, image: str) -> Mapping[str, Any] | None:
        """Return the report of an agent; None if there is none in time."""
        request_id = str(uuid.uuid4())
        request = {"image": image}
        await self._store.request(request_id, [agent_id], self._clock(), request=request)
        self._open = None
        self._wake([agent_id])
        try:
            deadline = time.monotonic() + self.report_seconds
            while time.monotonic() < deadline:
                results = await self._store.results(request_id)
                if agent_id in results:
                    return results[agent_id]
                await asyncio.sleep(POLL_SECONDS)
            return None
        finally:
            await self._store.forget(request_id)
            self._open = None


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
