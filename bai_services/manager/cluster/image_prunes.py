"""List and remove unused images on agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.cluster.image_store import AgentImages, PrunedImage, PruneReport
from bai_services.core.cluster.model import AgentStatus, EngineName
from bai_services.db.cluster.image_pulls import ImagePullStore
from bai_services.db.cluster.images import ImageStore
from bai_services.db.tables.cluster import image_prunes

from ..accounts import authorizer
from ..context import ManagerContext
from .agent_requests import AgentRequests
from .resource_groups import ResourceGroups

PRUNE = "prune"
# Time for the reports of all agents; a removal continues after it.
REPORT_SECONDS = 20.0
EXPIRY = timedelta(minutes=10)
MAX_REPORTED_IMAGES = 1000
MAX_NAME_CHARACTERS = 255


class ImagePrunes:
    """Requests agents to list or remove their unused images, and collects the reports."""

    def __init__(
        self,
        context: ManagerContext,
        groups: ResourceGroups,
        wake: Callable[[Iterable[str]], None],
    ) -> None:
        self._requests = AgentRequests(context, image_prunes, PRUNE, EXPIRY, wake)
        self._agents = ImagePullStore(context.database)
        self._images = ImageStore(context.database)
        self._groups = groups
        self._audit = context.audit
        # An attribute, so that tests can set a shorter time.
        self.report_seconds = REPORT_SECONDS

    async def prune(
        self, caller: Caller, group: str, unused_seconds: int, *, is_dry_run: bool
    ) -> PruneReport:
        """Remove images that were unused for ``unused_seconds`` from the agents of a group.

        Keep images in use, images to which an alias or a project's default image refers, and images
        that are in no registry. With ``is_dry_run``, only list the images.

        Raises
        ------
        NotFound
            If the group does not exist.
        """
        authorizer.require(caller, "image-pull.write")
        found = await self._groups.get(caller, group)
        agents = {
            agent.agent_id: agent
            for agent in await self._agents.agents(found.name)
            if agent.status == AgentStatus.ALIVE and agent.engine == EngineName.DOCKER
        }
        present = {name for agent in agents.values() for name in agent.digests}
        keep = sorted(present & await self._images.protected_names())
        request = {"unused_seconds": unused_seconds, "keep": keep, "is_dry_run": is_dry_run}
        entry = self._audit.entry(
            caller,
            "image.prune",
            found.name,
            agents=len(agents),
            unused_seconds=unused_seconds,
            is_dry_run=is_dry_run,
        )
        prune_id = await self._requests.create(list(agents), request, entry)
        results = await self._requests.wait(prune_id, len(agents), self.report_seconds)
        images = [
            image
            for agent_id in sorted(results)
            for image in _pruned(agents[agent_id], results[agent_id])
        ]
        complete = {agent_id for agent_id, result in results.items() if result["is_complete"]}
        return PruneReport(is_dry_run, images, sorted(agents.keys() - complete))

    async def work_items(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the open request to an agent."""
        return await self._requests.work_items(agent_id)

    async def report(self, agent_id: str, report: Mapping[str, Any]) -> None:
        """Store the images that an agent has listed or removed."""
        images = [_bounded(image) for image in (report.get("pruned") or ())[:MAX_REPORTED_IMAGES]]
        result = {"images": images, "is_complete": report["state"] == "done"}
        await self._requests.report(agent_id, str(report.get("work_id")), result)


def _bounded(image: Mapping[str, Any]) -> dict[str, Any]:
    size, used = image.get("size_bytes"), image.get("last_used")
    return {
        "image": str(image.get("image") or "")[:MAX_NAME_CHARACTERS],
        "size_bytes": size if isinstance(size, int) and 0 <= size < 2**62 else 0,
        "last_used": used if isinstance(used, int | float) and 0 <= used < 2**32 else 0,
        "is_removed": image.get("is_removed") is True,
    }


def _pruned(agent: AgentImages, result: Mapping[str, Any]) -> Sequence[PrunedImage]:
    return [
        PrunedImage(
            agent.agent_id,
            agent.resource_group,
            image["image"],
            image["size_bytes"],
            datetime.fromtimestamp(image["last_used"], UTC),
            image["is_removed"],
        )
        for image in result["images"]
    ]
