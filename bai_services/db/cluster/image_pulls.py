"""Store of image pulls: requests to pull images to agents, with their progress."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.image_store import OPEN_PULLS, AgentImages, ImagePull, PullStatus
from bai_services.core.cluster.model import AgentStatus
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..scheduling.caps import CHUNK
from ..tables.cluster import agents, image_pulls, images

_PULLS = (
    sa.select(
        image_pulls,
        images.c.name.label("image"),
        agents.c.resource_group,
    )
    .join_from(image_pulls, images, image_pulls.c.image_id == images.c.id)
    .join(agents, image_pulls.c.agent_id == agents.c.id)
)
_LISTING = Listing(
    columns={
        **{c.name: c for c in image_pulls.columns},
        "image": images.c.name,
        "resource_group": agents.c.resource_group,
    },
    default_sort=("-created_at", "id"),
)
_IS_OPEN = image_pulls.c.status.in_(sorted(OPEN_PULLS))


@dataclass(frozen=True, slots=True)
class PullWork:
    """A pull for an agent; ``digest``: the required version, or "" for any version."""

    id: str
    agent_id: str
    image: str
    digest: str


class ImagePullStore:
    """Reads and writes image pulls. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[ImagePull]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _PULLS, query, ImagePull)

    async def agents(self, group: str | None = None) -> list[AgentImages]:
        """Return the images of all agents, or of a group's agents; skip terminated agents."""
        select = (
            sa.select(
                agents.c.id,
                agents.c.resource_group,
                agents.c.engine,
                agents.c.architecture,
                agents.c.status,
                agents.c.facts,
            )
            .where(agents.c.status != AgentStatus.TERMINATED)
            .order_by(agents.c.id)
        )
        if group is not None:
            select = select.where(agents.c.resource_group == group)
        async with self._db.read() as tx:
            rows = await tx.execute(select)
            return [
                AgentImages(
                    row.id,
                    row.resource_group,
                    row.engine,
                    row.architecture,
                    row.status,
                    _digests(row.facts or {}),
                )
                for row in rows
            ]

    async def present(self, group: str) -> set[str]:
        """Return the names of the images on the live agents of a group."""
        return {
            name
            for agent in await self.agents(group)
            if agent.status == AgentStatus.ALIVE
            for name in agent.digests
        }

    async def create(
        self,
        wanted: Sequence[tuple[str, str]],
        requested_by: str,
        at: datetime,
        before: datetime,
        audit: AuditEntry,
    ) -> None:
        """Insert pulls of (image id, agent id) pairs; replace ended pulls of the same pair.

        Pairs that have an open pull are skipped. Pulls that ended before ``before`` are deleted.
        """
        async with self._db.write() as tx:
            await tx.execute(
                image_pulls.delete().where(~_IS_OPEN, image_pulls.c.changed_at < before)
            )
            images_wanted = sorted({image_id for image_id, _ in wanted})
            of_images = image_pulls.c.image_id.in_(images_wanted)
            found = await tx.execute(
                sa.select(
                    image_pulls.c.id, image_pulls.c.image_id, image_pulls.c.agent_id, _IS_OPEN
                ).where(of_images)
            )
            pairs = set(wanted)
            ended: list[str] = []
            for pull_id, image_id, agent_id, is_open in found:
                if is_open:
                    pairs.discard((image_id, agent_id))
                elif (image_id, agent_id) in pairs:
                    ended.append(pull_id)
            for start in range(0, len(ended), CHUNK):
                chunk = ended[start : start + CHUNK]
                await tx.execute(image_pulls.delete().where(image_pulls.c.id.in_(chunk)))
            if pairs:
                rows = [
                    {
                        "id": str(uuid.uuid4()),
                        "created_at": at,
                        "changed_at": at,
                        "image_id": image_id,
                        "agent_id": agent_id,
                        "status": PullStatus.PENDING,
                        "message": "",
                        "requested_by": requested_by,
                    }
                    for image_id, agent_id in sorted(pairs)
                ]
                await tx.execute(image_pulls.insert(), rows)
            await record(tx, audit)

    async def open(self) -> list[PullWork]:
        """Return all pulls that have not ended, oldest first."""
        select = (
            sa.select(
                image_pulls.c.id,
                image_pulls.c.agent_id,
                images.c.name.label("image"),
                images.c.digest,
            )
            .join_from(image_pulls, images, image_pulls.c.image_id == images.c.id)
            .where(_IS_OPEN)
            .order_by(image_pulls.c.created_at, image_pulls.c.id)
        )
        async with self._db.read() as tx:
            return [PullWork(**row) for row in (await tx.execute(select)).mappings()]

    async def change(
        self,
        pull_id: str,
        agent_id: str | None,
        values: Mapping[str, Any],
        image: Mapping[str, Any] | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Change a pull that has not ended; a completed pull also changes the image.

        ``image`` has ``digest`` (of the pulled image), ``registry_digest`` and ``size_bytes``. An
        existing digest of the image remains, even if the tag has moved in the registry.

        Raises
        ------
        NotFound
            If the pull does not exist, has ended, or belongs to another agent.
        """
        is_pull = sa.and_(image_pulls.c.id == pull_id, _IS_OPEN)
        if agent_id is not None:
            is_pull &= image_pulls.c.agent_id == agent_id
        async with self._db.write() as tx:
            changed = await tx.execute(image_pulls.update().where(is_pull).values(values))
            if not changed.rowcount:
                raise NotFound("there is no such pull, or it has ended", pull=pull_id)
            if image is not None:
                of_pull = sa.select(image_pulls.c.image_id).where(image_pulls.c.id == pull_id)
                row = images.c.id.in_(of_pull)
                await tx.execute(
                    images.update().where(row).values(registry_digest=image["registry_digest"])
                )
                await tx.execute(
                    images.update()
                    .where(row, images.c.digest == "")
                    .values(digest=image["digest"], size_bytes=image["size_bytes"])
                )
            if audit is not None:
                await record(tx, audit)


def _digests(facts: Mapping[str, Any]) -> dict[str, str]:
    digests = facts.get("image_digests")
    known = digests if isinstance(digests, dict) else {}
    names = facts.get("images")
    listed = names if isinstance(names, list) else []
    return {str(name): str(known.get(name) or "") for name in listed if isinstance(name, str)}
