"""Pull images to agents before sessions need them, and list the agents that have an image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.image_store import (
    ImageOnAgent,
    ImagePull,
    PullStatus,
    digest_state,
    lacks,
)
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.coded_text import refusal
from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page
from bai_services.core.refusal_texts import RefusalText
from bai_services.db.cluster.image_pulls import ImagePullStore, PullWork
from bai_services.db.cluster.images import ImageStore

from ..accounts import authorizer
from ..context import ManagerContext
from .images import resolve_image
from .pull_secrets import PullSecrets
from .resource_groups import ResourceGroups

PULL = "pull"
MAX_IMAGES = 100
MAX_MESSAGE_CHARACTERS = 500
MAX_DIGEST_CHARACTERS = 128
RETENTION = timedelta(days=7)
# Open pulls are read again after this time, because another manager may create pulls.
CACHE_TTL_SECONDS = 5.0


class ImagePulls:
    """Creates, lists and cancels pulls; passes them to agents and processes their reports."""

    def __init__(
        self,
        context: ManagerContext,
        groups: ResourceGroups,
        wake: Callable[[Iterable[str]], None],
        secrets: PullSecrets,
    ) -> None:
        self._secrets = secrets
        self._store = ImagePullStore(context.database)
        self._images = ImageStore(context.database)
        self._groups = groups
        self._clock = context.clock
        self._audit = context.audit
        self._wake = wake
        # Open pulls by agent, and the monotonic time at which they were read.
        self._open: tuple[float, Mapping[str, Sequence[PullWork]]] | None = None

    async def page(self, caller: Caller, query: ListQuery) -> Page[ImagePull]:
        authorizer.require(caller, "image-pull.read")
        return await self._store.page(query)

    async def create(self, caller: Caller, keys: Sequence[str], group: str) -> int:
        """Request that the agents of a group pull images; return the number of pulls.

        Agents that already have an image, cannot run it or are not alive are skipped.

        Raises
        ------
        NotFound
            If an image or the group does not exist.
        InvalidRequest
            If no agent of the group can run one of the images.
        """
        authorizer.require(caller, "image-pull.write")
        found = await self._groups.get(caller, group)
        images = [await resolve_image(self._images, key) for key in keys]
        agents = [
            agent
            for agent in await self._store.agents(found.name)
            if agent.status == AgentStatus.ALIVE
        ]
        for image in images:
            if not any(
                agent.engine == "docker" and agent.architecture == image.architecture
                for agent in agents
            ):
                raise InvalidRequest(
                    refusal(
                        RefusalText.PULL_NO_AGENT,
                        group=found.name,
                        name=image.name,
                        architecture=image.architecture,
                    ),
                    field="resource_group",
                )
        wanted = {
            (image.id, agent.agent_id)
            for image in images
            for agent in agents
            if lacks(agent, image.name, image.architecture, image.digest)
        }
        now = self._clock()
        entry = self._audit.entry(
            caller,
            "image-pull.create",
            found.name,
            images=[image.name for image in images],
            agents=len({agent_id for _, agent_id in wanted}),
        )
        await self._store.create(sorted(wanted), caller.username, now, now - RETENTION, entry)
        self._open = None
        self._wake({agent_id for _, agent_id in wanted})
        return len(wanted)

    async def cancel(self, caller: Caller, pull_id: str) -> None:
        """Cancel a pull; the agent stops it when it next reports progress."""
        authorizer.require(caller, "image-pull.write")
        values = {"status": PullStatus.CANCELLED, "changed_at": self._clock()}
        entry = self._audit.entry(caller, "image-pull.cancel", pull_id)
        await self._store.change(pull_id, None, values, audit=entry)
        self._open = None

    async def on_agents(self, caller: Caller, key: str) -> list[ImageOnAgent]:
        """Return the agents that have an image, with its digest there."""
        authorizer.require(caller, "image-pull.read")
        image = await resolve_image(self._images, key)
        return [
            ImageOnAgent(
                agent.agent_id,
                agent.resource_group,
                agent.status,
                agent.digests[image.name],
                digest_state(image.digest, agent.digests[image.name]),
            )
            for agent in await self._store.agents()
            if image.name in agent.digests and agent.architecture == image.architecture
        ]

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open pulls of an agent."""
        if self._open is None or time.monotonic() - self._open[0] > CACHE_TTL_SECONDS:
            by_agent: dict[str, list[PullWork]] = {}
            for pull in await self._store.open():
                by_agent.setdefault(pull.agent_id, []).append(pull)
            self._open = time.monotonic(), by_agent
        return [
            {
                "id": f"pull-{pull.id}",
                "kind": PULL,
                "image": pull.image,
                "digest": pull.digest,
                **await self._secrets.of_image(pull.image),
            }
            for pull in self._open[1].get(agent_id, ())
        ]

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Process the progress or result of a pull.

        Raises
        ------
        NotFound
            If the pull was cancelled; the agent then stops it.
        """
        pull_id = str(report.get("work_id")).removeprefix("pull-")
        values: dict[str, Any] = {"changed_at": self._clock()}
        image = None
        if report["state"] == "progress":
            percent = (report.get("progress") or {}).get("percent")
            values |= {"status": PullStatus.PULLING, "percent": _percent(percent)}
        elif report["state"] == "done":
            values |= {"status": PullStatus.DONE, "percent": 100}
            image = _image(report.get("image") or {})
        else:
            message = (report.get("error") or {}).get("message") or "the pull failed"
            values |= {
                "status": PullStatus.FAILED,
                "message": str(message)[:MAX_MESSAGE_CHARACTERS],
            }
        await self._store.change(pull_id, agent_id, values, image)
        if report["state"] != "progress":
            self._open = None


def _percent(value: object) -> int | None:
    return min(100, max(0, value)) if isinstance(value, int) else None


def _image(reported: Mapping[str, Any]) -> dict[str, Any]:
    size = reported.get("size_bytes")
    return {
        "digest": str(reported.get("digest") or "")[:MAX_DIGEST_CHARACTERS],
        "registry_digest": str(reported.get("registry_digest") or "")[:MAX_DIGEST_CHARACTERS],
        "size_bytes": size if isinstance(size, int) and 0 <= size < 2**62 else 0,
    }
