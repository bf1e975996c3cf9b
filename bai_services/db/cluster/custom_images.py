"""Store of custom images: commits of sessions, and the images that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.accounts.roles import Visibility as VisibleRows
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.custom_images import (
    MAX_ENDED_COMMITS,
    OPEN_COMMITS,
    CommitEvent,
    CommitStatus,
    CustomImage,
    Visibility,
    next_commit_status,
)
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, Conflict, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.lifecycle import LIVE

from ..accounts.visibility import visible_rows
from ..audit import record
from ..database import Database
from ..integrity import require_unused
from ..listing import Listing
from ..records import first_record
from ..tables.accounts import memberships, project_policies, projects, user_policies, users
from ..tables.cluster import custom_images, deleted_custom_images, image_aliases, images
from ..tables.sessions import sessions
from .deleted_custom_images import record_deleted

# An open commit of an ended session fails if it has not changed for this time. During this time,
# its agent may still report the result.
GRACE = timedelta(minutes=10)

_OTHER = {
    "owner": users.c.username,
    "owner_role": users.c.role,
    "domain": projects.c.domain,
    "project": projects.c.name,
}
# Without recipes and logs, which can be large and are rarely needed.
_COLUMNS = [c for c in custom_images.columns if c.name not in ("recipe", "log")]
_ROWS = (
    sa.select(*_COLUMNS, *(column.label(name) for name, column in _OTHER.items()))
    .join_from(custom_images, users, custom_images.c.owner_id == users.c.id)
    .join(projects, custom_images.c.project_id == projects.c.id)
)
_LISTING = Listing(
    columns={
        **{c.name: c for c in _COLUMNS if c.name not in ("labels", "kernel_id")},
        **{name: column for name, column in _OTHER.items() if name != "owner_role"},
    },
    default_sort=("-created_at", "id"),
)
_IS_OPEN = custom_images.c.status.in_(sorted(OPEN_COMMITS))
# Images and commits that count for the quotas.
_COUNTS = custom_images.c.status.in_(sorted({*OPEN_COMMITS, CommitStatus.DONE}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomImageRow(CustomImage):
    owner_role: Role
    kernel_id: str


class CustomImageStore:
    """Reads and writes custom images. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, visible: VisibleRows, reader_id: str
    ) -> Page[CustomImageRow]:
        """Return the rows that a caller may see, and those shared with ``reader_id``."""
        async with self._db.read() as tx:
            rows = _ROWS.where(_visible_to(visible, reader_id))
            return await _LISTING.page(tx, rows, query, CustomImageRow)

    async def find(self, custom_id: str) -> CustomImageRow:
        """Return a custom image.

        Raises
        ------
        NotFound
            If there is no custom image with this id.
        """
        async with self._db.read() as tx:
            return await _find(tx, custom_id)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> CustomImageRow:
        """Insert a commit; delete the oldest failed ones of the owner.

        Raises
        ------
        AlreadyExists
            If the owner has a custom image with this name.
        Conflict
            If the session is being committed.
        QuotaExceeded
            If the owner or the project has too many custom images.
        """
        owner_id, project_id = values["owner_id"], values["project_id"]
        async with self._db.write() as tx:
            await _check_counts(tx, owner_id, project_id)
            of_owner = custom_images.c.owner_id == owner_id
            same_name = of_owner & (custom_images.c.name == values["name"]) & _COUNTS
            if await tx.scalar(sa.select(custom_images.c.id).where(same_name)):
                raise AlreadyExists(
                    refusal(RefusalText.CUSTOM_IMAGE_TAKEN, name=values["name"]),
                    name=values["name"],
                )
            same_session = (custom_images.c.session_id == values["session_id"]) & _IS_OPEN
            if await tx.scalar(sa.select(custom_images.c.id).where(same_session)):
                raise Conflict(refusal(RefusalText.COMMIT_RUNNING))
            ended = await tx.scalars(
                sa.select(custom_images.c.id)
                .where(of_owner, ~_COUNTS)
                .order_by(custom_images.c.created_at.desc())
                .offset(MAX_ENDED_COMMITS)
            )
            too_many = custom_images.c.id.in_(ended.all())
            await record_deleted(tx, too_many)
            await tx.execute(custom_images.delete().where(too_many))
            await tx.execute(custom_images.insert().values(values))
            await record(tx, audit)
            return await _find(tx, values["id"])

    async def update(
        self, custom_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> CustomImageRow:
        """Change columns of a custom image.

        Raises
        ------
        AlreadyExists
            If the owner has another custom image with the new name.
        NotFound
            If it does not exist.
        """
        async with self._db.write() as tx:
            found = await _find(tx, custom_id, lock=True)
            if "name" in changes:
                other = (
                    (custom_images.c.owner_id == found.owner_id)
                    & (custom_images.c.name == changes["name"])
                    & (custom_images.c.id != found.id)
                )
                if await tx.scalar(sa.select(custom_images.c.id).where(other & _COUNTS)):
                    raise AlreadyExists(
                        refusal(RefusalText.CUSTOM_IMAGE_EXISTS, name=changes["name"]),
                        name=changes["name"],
                    )
            if changes:
                of_row = custom_images.update().where(custom_images.c.id == found.id)
                await tx.execute(of_row.values(changes))
            await record(tx, audit)
            return await _find(tx, custom_id)

    async def delete(self, custom_id: str, audit: AuditEntry) -> None:
        """Delete a custom image that is not being committed, and its registered image.

        Raises
        ------
        Conflict
            If the commit has not ended.
        InUse
            If live sessions use the image, or it is the default image of a project.
        NotFound
            If it does not exist.
        """
        async with self._db.write() as tx:
            found = await _find(tx, custom_id, lock=True)
            if found.status in OPEN_COMMITS:
                raise Conflict(refusal(RefusalText.COMMIT_NOT_DELETABLE))
            if found.image_id is not None:
                uses = {
                    "live sessions": sa.and_(
                        sessions.c.image == found.image, sessions.c.status.in_(sorted(LIVE))
                    ),
                    "projects": projects.c.default_image == found.image,
                }
                await require_unused(tx, f"image {found.image}", uses)
                of_image = image_aliases.c.image_id == found.image_id
                await tx.execute(image_aliases.delete().where(of_image))
            await record_deleted(tx, custom_images.c.id == found.id)
            await tx.execute(custom_images.delete().where(custom_images.c.id == found.id))
            await tx.execute(images.delete().where(images.c.id == found.image_id))
            await record(tx, audit)

    async def apply(
        self,
        custom_id: str,
        agent_id: str | None,
        event: CommitEvent,
        changes: Mapping[str, Any],
        image: Mapping[str, Any] | None = None,
        audit: AuditEntry | None = None,
    ) -> CustomImageRow:
        """Apply an event to a commit; with ``agent_id``, only if the commit belongs to this agent.

        ``image``: columns of the image that a completed commit registers.

        Raises
        ------
        InvalidTransition
            If the event is not valid in the status of the commit.
        NotFound
            If the commit does not exist, or belongs to another agent.
        """
        async with self._db.write() as tx:
            found = await _find(tx, custom_id, lock=True)
            if agent_id is not None and found.agent_id != agent_id:
                raise NotFound("there is no such commit", id=custom_id)
            values: dict[str, Any] = {**changes}
            values["status"] = next_commit_status(CommitStatus(found.status), event)
            if image is not None:
                await tx.execute(images.insert().values(image))
                values["image_id"] = image["id"]
            of_row = custom_images.update().where(custom_images.c.id == found.id)
            await tx.execute(of_row.values(values))
            if audit is not None:
                await record(tx, audit)
            return await _find(tx, custom_id)

    async def open(self) -> list[CustomImageRow]:
        """Return the commits that have not ended, the oldest first."""
        async with self._db.read() as tx:
            rows = await tx.execute(_ROWS.where(_IS_OPEN).order_by(custom_images.c.created_at))
            return [CustomImageRow(**row) for row in rows.mappings()]

    async def recipe(self, custom_id: str) -> Mapping[str, str]:
        """Return the files of a recipe; empty if the image is a commit."""
        async with self._db.read() as tx:
            select = sa.select(custom_images.c.recipe).where(custom_images.c.id == custom_id)
            return await tx.scalar(select) or {}

    async def log(self, custom_id: str) -> str:
        """Return the output of a build."""
        async with self._db.read() as tx:
            select = sa.select(custom_images.c.log).where(custom_images.c.id == custom_id)
            return await tx.scalar(select) or ""

    async def assign(self, row: CustomImageRow) -> None:
        """Store the agent and the kernel of a build whose session has started."""
        of_row = custom_images.update().where(
            custom_images.c.id == row.id, custom_images.c.agent_id == "", _IS_OPEN
        )
        values = {
            "agent_id": row.agent_id,
            "kernel_id": row.kernel_id,
            "architecture": row.architecture,
        }
        async with self._db.write() as tx:
            await tx.execute(of_row.values(values))

    async def discarded_images(self) -> set[str]:
        """Return the names of images whose commit failed or was cancelled, or whose custom image
        was deleted. Names of registered images are omitted.
        """
        discarded = sa.union(
            sa.select(custom_images.c.image).where(~_COUNTS),
            sa.select(deleted_custom_images.c.image),
        ).subquery()
        is_registered = sa.exists().where(images.c.name == discarded.c.image)
        async with self._db.read() as tx:
            return set(await tx.scalars(sa.select(discarded.c.image).where(~is_registered)))

    async def fail_abandoned(self, now: datetime, message: str) -> None:
        """Fail open commits that have not changed for ``GRACE`` and whose session has ended."""
        is_live = sa.exists().where(
            sessions.c.id == custom_images.c.session_id, sessions.c.status.in_(sorted(LIVE))
        )
        abandoned = _IS_OPEN & (custom_images.c.changed_at < now - GRACE) & ~is_live
        async with self._db.write() as tx:
            values = {"status": CommitStatus.FAILED, "changed_at": now, "message": message}
            await tx.execute(custom_images.update().where(abandoned).values(values))

    async def is_committing(self, session_id: str) -> bool:
        """Return whether a commit of the session has not ended."""
        async with self._db.read() as tx:
            found = custom_images.c.session_id == session_id
            select = sa.select(custom_images.c.id).where(found, _IS_OPEN).limit(1)
            return await tx.scalar(select) is not None


async def _find(tx: AsyncConnection, custom_id: str, lock: bool = False) -> CustomImageRow:
    if lock:
        of_row = custom_images.update().where(custom_images.c.id == custom_id)
        await tx.execute(of_row.values(changed_at=custom_images.c.changed_at))
    rows = await tx.execute(_ROWS.where(custom_images.c.id == custom_id))
    found = first_record(CustomImageRow, rows)
    if found is None:
        raise NotFound(refusal(RefusalText.NO_CUSTOM_IMAGE, name=custom_id), id=custom_id)
    return found


def _visible_to(visible: VisibleRows, reader_id: str) -> sa.ColumnElement[bool]:
    rows = visible_rows(visible, domain=projects.c.domain, owner_id=custom_images.c.owner_id)
    is_shared = (custom_images.c.visibility == Visibility.PUBLIC) | (
        (custom_images.c.visibility == Visibility.PROJECT)
        & sa.exists().where(
            memberships.c.user_id == reader_id,
            memberships.c.project_id == custom_images.c.project_id,
        )
    )
    is_done = custom_images.c.status == CommitStatus.DONE
    return sa.or_(sa.and_(sa.true(), *rows), is_shared & is_done)


async def _check_counts(tx: AsyncConnection, owner_id: str, project_id: str) -> None:
    # Lock owner and project: of two concurrent commits, the second must count the first.
    for table, key in ((users, owner_id), (projects, project_id)):
        await tx.execute(table.update().where(table.c.id == key).values(id=table.c.id))
    limits: Sequence[tuple[RefusalText, Any, Any]] = (
        (
            RefusalText.USER_CUSTOM_IMAGE_QUOTA,
            custom_images.c.owner_id == owner_id,
            sa.select(user_policies.c.max_custom_images)
            .join_from(users, user_policies, users.c.resource_policy == user_policies.c.name)
            .where(users.c.id == owner_id),
        ),
        (
            RefusalText.PROJECT_CUSTOM_IMAGE_QUOTA,
            custom_images.c.project_id == project_id,
            sa.select(project_policies.c.max_custom_images)
            .join_from(
                projects, project_policies, projects.c.resource_policy == project_policies.c.name
            )
            .where(projects.c.id == project_id),
        ),
    )
    for over_quota, of_rows, select in limits:
        limit = await tx.scalar(select)
        if limit is None:
            continue
        count = await tx.scalar(sa.select(sa.func.count()).where(of_rows, _COUNTS)) or 0
        if count >= limit:
            raise QuotaExceeded(
                refusal(over_quota, limit=limit),
                limit=limit,
                used=count,
            )
