"""Store of the model cards of folders in projects of type model-store."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.imports.lifecycle import ImportStatus
from bai_services.core.listing import ListQuery, Page
from bai_services.core.models.cards import CardContent, latest, resources_text
from bai_services.core.resources import ResourceSlots
from bai_services.core.tags import joined

from ..database import Database
from ..listing import Listing
from ..records import records
from ..tables.accounts import projects
from ..tables.folders import vfolders
from ..tables.models import model_cards, model_imports

STORE = "model-store"
# Maximum number of distinct minimum resources for a filter by quota.
MAX_RESOURCES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """A card with the facts of its folder; ``readme`` is read separately."""

    id: str
    created_at: datetime
    refreshed_at: datetime
    folder: str
    host: str
    domain: str
    project: str
    project_id: str
    name: str
    title: str
    version: str
    is_latest: bool
    author: str
    description: str
    task: str
    category: str
    architecture: str
    license: str
    created: str
    last_modified: str
    frameworks: str
    labels: str
    min_resources: str
    has_command: bool
    cloneable: bool
    size_bytes: int | None
    problem: str
    problem_line: int | None


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A ready folder of a store; ``etag`` is the ETag of the card, None without a card."""

    id: str
    name: str
    domain: str
    project_id: str
    etag: str | None


_HIDDEN = {"vfolder_id", "etag", "readme"}
_FOLDER_COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    "id": vfolders.c.id,
    "created_at": vfolders.c.created_at,
    "folder": vfolders.c.name,
    "host": vfolders.c.host,
    "domain": vfolders.c.domain,
    "cloneable": vfolders.c.cloneable,
    "size_bytes": vfolders.c.used_bytes,
    "project_id": vfolders.c.project_id,
    "project": projects.c.name,
}
_CARD_COLUMNS: Mapping[str, sa.ColumnElement[Any]] = {
    column.name: column for column in model_cards.columns if column.name not in _HIDDEN
}
_SEARCHED = ("name", "title", "description", "author", "task", "labels")
# Columns that the filter ``text__contains`` searches.
_TEXT: sa.ColumnElement[str] = vfolders.c.name.concat("")
for _name in _SEARCHED:
    _TEXT = _TEXT.concat(" ").concat(model_cards.c[_name])
_LISTING = Listing(
    columns={**_FOLDER_COLUMNS, **_CARD_COLUMNS, "text": _TEXT},
    default_sort=("title", "id"),
    sorted_by={
        "title": sa.func.lower(model_cards.c.title),
        # An unknown size is sorted as the smallest size, because the two databases sort NULL
        # differently.
        "size_bytes": sa.func.coalesce(vfolders.c.used_bytes, -1),
    },
)
# The condition that a folder has no import, or its import is done.
_IS_COMPLETE = ~(
    sa.exists()
    .where(model_imports.c.vfolder_id == vfolders.c.id)
    .where(model_imports.c.status != ImportStatus.DONE)
)
_IS_IN_STORE = (projects.c.type == STORE) & (vfolders.c.status == VfolderStatus.READY)


def _cards(visible: Visibility) -> sa.Select[Any]:
    columns = {**_FOLDER_COLUMNS, **_CARD_COLUMNS}
    rows = (
        sa.select(*(column.label(name) for name, column in columns.items()))
        .join_from(model_cards, vfolders, model_cards.c.vfolder_id == vfolders.c.id)
        .join(projects, vfolders.c.project_id == projects.c.id)
        .where(_IS_IN_STORE, _IS_COMPLETE)
    )
    return rows.where(*_conditions(visible))


def _conditions(visible: Visibility) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if visible.domain is not None:
        conditions.append(vfolders.c.domain == visible.domain)
    if visible.project_ids is not None:
        conditions.append(vfolders.c.project_id.in_(sorted(visible.project_ids)))
    return conditions


def _folders() -> sa.Select[Any]:
    return (
        sa.select(
            vfolders.c.id,
            vfolders.c.name,
            vfolders.c.domain,
            vfolders.c.project_id,
            model_cards.c.etag,
        )
        .join_from(vfolders, projects, vfolders.c.project_id == projects.c.id)
        .outerjoin(model_cards, model_cards.c.vfolder_id == vfolders.c.id)
        .where(_IS_IN_STORE)
    )


class CardStore:
    """Reads and writes model cards. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, visible: Visibility, resources: Collection[str] | None = None
    ) -> Page[CardRow]:
        """Return a page of the visible cards; ``resources`` restricts the minimum resources."""
        rows = _cards(visible)
        if resources is not None:
            rows = rows.where(model_cards.c.min_resources.in_(sorted(resources)))
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, CardRow)

    async def resources(self, visible: Visibility) -> list[str]:
        """Return the distinct minimum resources of the visible cards, at most MAX_RESOURCES."""
        rows = _cards(visible).with_only_columns(
            model_cards.c.min_resources, maintain_column_froms=True
        )
        async with self._db.read() as tx:
            return list(
                await tx.scalars(rows.distinct().order_by(sa.text("1")).limit(MAX_RESOURCES))
            )

    async def named(self, key: str, visible: Visibility) -> list[CardRow]:
        """Return the visible card with the id ``key``, else the cards of folders named ``key``."""
        matching = _cards(visible).where((vfolders.c.id == key) | (vfolders.c.name == key))
        async with self._db.read() as tx:
            found = records(CardRow, await tx.execute(matching.order_by(vfolders.c.id)))
        return [card for card in found if card.id == key] or found

    async def folders_named(self, key: str, visible: Visibility) -> list[StoreFolder]:
        """Like ``named``, but return visible folders of stores, with or without a card."""
        matching = _folders().where(
            (vfolders.c.id == key) | (vfolders.c.name == key), *_conditions(visible)
        )
        async with self._db.read() as tx:
            found = records(StoreFolder, await tx.execute(matching.order_by(vfolders.c.id)))
        return [folder for folder in found if folder.id == key] or found

    async def readme(self, vfolder_id: str) -> str:
        """Return the README of a card, "" if there is no such card."""
        rows = sa.select(model_cards.c.readme).where(model_cards.c.vfolder_id == vfolder_id)
        async with self._db.read() as tx:
            return str(await tx.scalar(rows) or "")

    async def folders(self, ids: Collection[str] | None = None) -> list[StoreFolder]:
        """Return the ready folders of all stores; ``ids`` restricts them."""
        rows = _folders()
        if ids is not None:
            rows = rows.where(vfolders.c.id.in_(sorted(ids)))
        async with self._db.read() as tx:
            return records(StoreFolder, await tx.execute(rows.order_by(vfolders.c.id)))

    async def put(self, vfolder_id: str, etag: str, content: CardContent, now: datetime) -> None:
        """Store the card of a folder; do nothing if the folder is no longer in a store."""
        values = _values(etag, content, now)
        async with self._db.write() as tx:
            # Lock the folder: two concurrent refreshes must not both insert a card.
            locked = await tx.execute(
                sa.select(vfolders.c.project_id)
                .where(vfolders.c.id == vfolder_id)
                .with_for_update()
            )
            project_id = locked.scalar_one_or_none()
            if project_id is None:
                return
            await _lock(tx, project_id)
            one = model_cards.c.vfolder_id == vfolder_id
            former = await tx.scalar(sa.select(model_cards.c.name).where(one))
            if former is None:
                await tx.execute(
                    model_cards.insert().values(vfolder_id=vfolder_id, is_latest=False, **values)
                )
            else:
                await tx.execute(model_cards.update().where(one).values(values))
            for name in {content.name, former} - {None}:
                await _mark_latest(tx, project_id, str(name))

    async def mark_latest(self, ids: Collection[str] | None = None) -> None:
        """Recompute ``is_latest`` of all models with the names of these folders.

        Call this, for example, after a move to the trash. Without ``ids``, recompute it for all
        names that do not have exactly one latest model.
        """
        names = sa.select(vfolders.c.project_id, model_cards.c.name).join_from(
            model_cards, vfolders, model_cards.c.vfolder_id == vfolders.c.id
        )
        if ids is not None:
            names = names.where(vfolders.c.id.in_(sorted(ids)), vfolders.c.project_id.is_not(None))
            names = names.distinct()
        else:
            marks = sa.func.sum(sa.case((model_cards.c.is_latest, 1), else_=0))
            names = (
                names.join(projects, vfolders.c.project_id == projects.c.id)
                .where(_IS_IN_STORE, _IS_COMPLETE, model_cards.c.name != "")
                .group_by(vfolders.c.project_id, model_cards.c.name)
                .having(marks != 1)
            )
        async with self._db.read() as tx:
            wrong = sorted((row.project_id, row.name) for row in await tx.execute(names))
        for project_id, name in wrong:
            async with self._db.write() as tx:
                await _lock(tx, project_id)
                await _mark_latest(tx, project_id, name)

    async def clean_up(self) -> None:
        """Delete the cards of folders that are no longer in a store."""
        purged = sa.select(vfolders.c.id).where(
            vfolders.c.project_id.is_(None)
            | (vfolders.c.status == VfolderStatus.DELETE_COMPLETE)
            | vfolders.c.project_id.in_(sa.select(projects.c.id).where(projects.c.type != STORE))
        )
        async with self._db.write() as tx:
            await tx.execute(sa.delete(model_cards).where(model_cards.c.vfolder_id.in_(purged)))


async def _lock(tx: AsyncConnection, project_id: str) -> None:
    """Lock a store, because refreshes of models with the same name change each other's cards."""
    await tx.execute(
        sa.select(projects.c.id).where(projects.c.id == project_id).with_for_update(key_share=True)
    )


async def _mark_latest(tx: AsyncConnection, project_id: str, name: str) -> None:
    """Set ``is_latest`` of a project's cards with this name; True for cards without a name."""
    members = sa.select(vfolders.c.id).where(
        vfolders.c.project_id == project_id,
        vfolders.c.status == VfolderStatus.READY,
        _IS_COMPLETE,
    )
    same = (model_cards.c.name == name) & model_cards.c.vfolder_id.in_(members)
    if not name:
        await tx.execute(model_cards.update().where(same).values(is_latest=True))
        return
    rows = await tx.execute(sa.select(model_cards.c.vfolder_id, model_cards.c.version).where(same))
    newest = latest({row.vfolder_id: row.version for row in rows})
    is_newest = model_cards.c.vfolder_id == newest
    await tx.execute(model_cards.update().where(same).values(is_latest=is_newest))


def _values(etag: str, content: CardContent, now: datetime) -> dict[str, Any]:
    names = (
        "name", "title", "version", "author", "description", "task", "category", "architecture",
        "license", "created", "last_modified", "has_command", "readme", "problem", "problem_line",
    )  # fmt: skip
    return {
        **{name: getattr(content, name) for name in names},
        "etag": etag,
        "refreshed_at": now,
        "frameworks": joined(content.frameworks),
        "labels": joined(content.labels),
        "min_resources": resources_text(content.min_resources),
    }


def needs_of(row: CardRow) -> ResourceSlots:
    """Return the minimum resources of a card."""
    return ResourceSlots.parse(json.loads(row.min_resources))
