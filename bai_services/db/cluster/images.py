"""Stores of images and of their aliases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.records import ImageAlias, ImageFields
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, InvalidRequest, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.refusal_texts import RefusalText
from bai_services.core.sessions.lifecycle import LIVE
from bai_services.core.user_input import shown

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, require_unused
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import memberships, projects
from ..tables.cluster import custom_images, image_aliases, images
from ..tables.sessions import sessions
from .deleted_custom_images import record_deleted
from .image_access import is_image_allowed

# Default tag of an image name without a tag.
DEFAULT_TAG = "latest"

# JSON columns; lists cannot be filtered or sorted by them.
_JSON_COLUMNS = {"labels", "min_slots", "max_slots"}

_LISTING = Listing(
    columns={c.name: c for c in images.columns if c.name not in _JSON_COLUMNS},
    default_sort=("name", "architecture"),
)

_ALIASES = sa.select(
    image_aliases.c.alias,
    image_aliases.c.created_at,
    image_aliases.c.image_id,
    images.c.name.label("image"),
    images.c.architecture,
).join_from(image_aliases, images, image_aliases.c.image_id == images.c.id)
_ALIAS_LISTING = Listing(
    columns={
        "alias": image_aliases.c.alias,
        "created_at": image_aliases.c.created_at,
        "image": images.c.name,
        "image_id": image_aliases.c.image_id,
        "architecture": images.c.architecture,
    },
    default_sort=("alias",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRow(ImageFields):
    aliases: Sequence[str] = ()


class ImageStore:
    """Reads and writes images with their ``aliases``. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, reader_id: str | None) -> Page[ImageRow]:
        """Return the images that a user may see; ``reader_id`` None: all images."""
        select = sa.select(images)
        if reader_id is not None:
            select = select.where(_is_visible_to(reader_id))
        async with self._db.read() as tx:
            page = await _LISTING.page(tx, select, query, ImageRow)
            return page.with_items(await _with_aliases(tx, page.items))

    async def is_visible(self, image_id: str, reader_id: str) -> bool:
        """Return whether a user may see an image."""
        select = sa.select(images.c.id).where(images.c.id == image_id, _is_visible_to(reader_id))
        async with self._db.read() as tx:
            return await tx.scalar(select) is not None

    async def protected_names(self) -> set[str]:
        """Return the names of images that must remain on agents.

        These are images that live sessions use, images with an alias, default images of projects,
        and custom images that are in no registry.
        """
        queries = [
            sa.select(sessions.c.image).where(sessions.c.status.in_(sorted(LIVE))),
            sa.select(images.c.name).join(image_aliases, image_aliases.c.image_id == images.c.id),
            sa.select(images.c.name).where(images.c.registry == "localhost"),
            sa.select(projects.c.default_image),
        ]
        names: set[str] = set()
        async with self._db.read() as tx:
            for query in queries:
                names |= {name for name in await tx.scalars(query.distinct()) if name}
        # The default image of a project may lack the default tag.
        return names | {f"{name}:{DEFAULT_TAG}" for name in names}

    async def named(self, key: str, canonical: str | None = None) -> list[ImageRow]:
        """Return the image with the id or alias ``key``, else all images named ``key`` or
        ``canonical``; several images can have the same name, one per architecture.

        ``canonical`` is ``key`` with its tag, such as ``py:latest`` for ``py``; None if ``key`` is
        not a valid name.
        """
        async with self._db.read() as tx:
            return await find_images(tx, key, canonical)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> ImageRow:
        """Insert an image and return it.

        Raises
        ------
        AlreadyExists
            If an image with that name and architecture exists.
        """
        already_exists = AlreadyExists(
            refusal(
                RefusalText.IMAGE_EXISTS, name=values["name"], architecture=values["architecture"]
            ),
            name=values["name"],
        )
        async with self._db.write() as tx:
            with raise_on_violation(already_exists):
                await tx.execute(images.insert().values(values))
            await record(tx, audit)
            return (await find_images(tx, values["id"]))[0]

    async def update(
        self, image_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> ImageRow:
        """Change columns of an image and return it.

        Raises
        ------
        AlreadyExists
            If another image has the new name and architecture.
        NotFound
            If the image does not exist.
        """
        already_exists = AlreadyExists(refusal(RefusalText.IMAGE_NAME_TAKEN))
        async with self._db.write() as tx:
            if changes:
                with raise_on_violation(already_exists):
                    await tx.execute(images.update().where(images.c.id == image_id).values(changes))
            rows = await find_images(tx, image_id)
            if not rows:
                raise NotFound(refusal(RefusalText.IMAGE_REMOVED))
            await record(tx, audit)
            return rows[0]

    async def delete(self, image_id: str, audit: AuditEntry) -> None:
        """Delete an image with its aliases.

        Raises
        ------
        InUse
            If live sessions use the image, or projects have it as default image.
        NotFound
            If the image does not exist.
        """
        async with self._db.write() as tx:
            await _lock_image(tx, image_id)
            (image,) = await find_images(tx, image_id)
            await require_unused_image(tx, image)
            await tx.execute(image_aliases.delete().where(image_aliases.c.image_id == image_id))
            await record_deleted(tx, custom_images.c.image_id == image_id)
            await tx.execute(images.delete().where(images.c.id == image_id))
            await record(tx, audit)


class ImageAliasStore:
    """Reads and writes aliases of images. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[ImageAlias]:
        async with self._db.read() as tx:
            return await _ALIAS_LISTING.page(tx, _ALIASES, query, ImageAlias)

    async def one(self, alias: str) -> ImageAlias:
        async with self._db.read() as tx:
            return await _alias(tx, alias)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> ImageAlias:
        """Insert an alias and return it.

        Raises
        ------
        AlreadyExists
            If the alias is taken.
        NotFound
            If the image does not exist.
        """
        alias = values["alias"]
        already_exists = AlreadyExists(refusal(RefusalText.ALIAS_EXISTS, alias=alias), alias=alias)
        async with self._db.write() as tx:
            await _lock_image(tx, values["image_id"])
            with raise_on_violation(already_exists):
                await tx.execute(image_aliases.insert().values(values))
            await record(tx, audit)
            return await _alias(tx, alias)

    async def update(self, alias: str, image_id: str, audit: AuditEntry) -> ImageAlias:
        """Point an alias at another image.

        Raises
        ------
        NotFound
            If the alias or the image does not exist.
        """
        async with self._db.write() as tx:
            await _lock_image(tx, image_id)
            await tx.execute(
                image_aliases.update()
                .where(image_aliases.c.alias == alias)
                .values(image_id=image_id)
            )
            await record(tx, audit)
            return await _alias(tx, alias)

    async def delete(self, alias: str, audit: AuditEntry) -> None:
        """Delete an alias.

        Raises
        ------
        InUse
            If projects have the alias as default image.
        NotFound
            If the alias does not exist.
        """
        async with self._db.write() as tx:
            await _lock_alias(tx, alias)
            uses = {"projects": projects.c.default_image == alias}
            await require_unused(tx, f"image alias {alias}", uses)
            deleted = await tx.execute(image_aliases.delete().where(image_aliases.c.alias == alias))
            if not deleted.rowcount:
                raise NotFound(refusal(RefusalText.NO_ALIAS, alias=alias), alias=alias)
            await record(tx, audit)


def _is_visible_to(reader_id: str) -> sa.ColumnElement[bool]:
    is_member = sa.exists().where(
        memberships.c.user_id == reader_id, memberships.c.project_id == custom_images.c.project_id
    )
    return is_image_allowed(reader_id, is_member)


async def find_images(
    tx: AsyncConnection, key: str, canonical: str | None = None
) -> list[ImageRow]:
    """Return the image with the id or alias ``key``, else all images named ``key`` or
    ``canonical`` (see ``ImageStore.named``), sorted by architecture.
    """
    aliased = sa.select(image_aliases.c.image_id).where(image_aliases.c.alias == key)
    names = sorted({key, canonical or key})
    for condition in (images.c.id == key, images.c.id.in_(aliased), images.c.name.in_(names)):
        select = sa.select(images).where(condition).order_by(images.c.architecture)
        if rows := records(ImageRow, await tx.execute(select)):
            return await _with_aliases(tx, rows)
    return []


async def require_unused_image(
    tx: AsyncConnection, image: ImageRow, *, forbids_aliases: bool = False
) -> None:
    """Raise ``InUse`` if a live session uses the image or a project has it as default image.

    With ``forbids_aliases``, also raise it if the image has an alias.
    """
    names = [image.name, image.name.removesuffix(f":{DEFAULT_TAG}"), *image.aliases]
    uses: dict[str, sa.ColumnElement[bool]] = {
        "live sessions": sa.and_(
            sessions.c.image == image.name,
            sessions.c.architecture == image.architecture,
            sessions.c.status.in_(sorted(LIVE)),
        ),
        "projects": projects.c.default_image.in_(names),
    }
    if forbids_aliases:
        uses["aliases"] = image_aliases.c.image_id == image.id
    await require_unused(tx, f"image {image.name}", uses)


async def _lock_image(tx: AsyncConnection, image_id: str) -> None:
    """Lock an image until the commit, to prevent its deletion."""
    locked = await tx.execute(
        images.update().where(images.c.id == image_id).values(created_at=images.c.created_at)
    )
    if not locked.rowcount:
        raise NotFound(refusal(RefusalText.IMAGE_REMOVED))


async def _lock_alias(tx: AsyncConnection, alias: str) -> bool:
    """Lock an alias until the commit, to prevent its deletion; return whether it exists."""
    locked = await tx.execute(
        image_aliases.update()
        .where(image_aliases.c.alias == alias)
        .values(image_id=image_aliases.c.image_id)
    )
    return bool(locked.rowcount)


async def lock_default_image(tx: AsyncConnection, name: str) -> None:
    """Lock the image or alias that becomes a project's default image, until the commit.

    ``name`` is an alias or an image name; the default tag may be omitted.

    Raises
    ------
    InvalidRequest
        If there is no such image or alias.
    """
    names = [name, f"{name}:{DEFAULT_TAG}"]
    locked = await tx.execute(
        images.update().where(images.c.name.in_(names)).values(created_at=images.c.created_at)
    )
    if not locked.rowcount and not await _lock_alias(tx, name):
        raise InvalidRequest(
            refusal(RefusalText.NO_IMAGE_OR_ALIAS, name=shown(name)), field="default_image"
        )


async def _alias(tx: AsyncConnection, alias: str) -> ImageAlias:
    rows = await tx.execute(_ALIASES.where(image_aliases.c.alias == alias))
    image_alias = first_record(ImageAlias, rows)
    if image_alias is None:
        raise NotFound(refusal(RefusalText.NO_ALIAS, alias=alias), alias=alias)
    return image_alias


async def _with_aliases(tx: AsyncConnection, rows: Sequence[ImageRow]) -> list[ImageRow]:
    pairs = await tx.execute(
        sa.select(image_aliases.c.image_id, image_aliases.c.alias)
        .where(image_aliases.c.image_id.in_([row.id for row in rows]))
        .order_by(image_aliases.c.alias)
    )
    of_image: dict[str, list[str]] = defaultdict(list)
    for image_id, alias in pairs:
        of_image[image_id].append(alias)
    return [replace(row, aliases=of_image[row.id]) for row in rows]
