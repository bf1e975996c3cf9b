"""Store of chats; each call applies to the chats of one user."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.chats import (
    CHATS_KEPT_FOR,
    MAX_CHATS_PER_USER,
    Chat,
    ChatSummary,
)

from ..accounts.user_domains import lock_active
from ..database import Database
from ..integrity import update_version
from ..listing import Listing
from ..records import first_record
from ..tables.chats import chats

_SUMMARY = [
    chats.c[name]
    for name in ("id", "created_at", "updated_at", "version", "title", "messages", "size")
]
_LISTING = Listing(
    columns={
        name: chats.c[name]
        for name in ("id", "created_at", "updated_at", "title", "messages", "size")
    },
    default_sort=("-updated_at", "id"),
)


class ChatStore:
    """Reads and writes chats. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, user_id: str, query: ListQuery) -> Page[ChatSummary]:
        rows = sa.select(*_SUMMARY).where(chats.c.user_id == user_id)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, ChatSummary)

    async def get(self, user_id: str, key: str) -> Chat:
        """Return a chat.

        Raises
        ------
        NotFound
            If the user has no such chat.
        """
        async with self._db.read() as tx:
            return await _one(tx, user_id, key)

    async def create(self, user_id: str, values: Mapping[str, Any]) -> Chat:
        """Insert a chat, and delete the user's oldest chats beyond ``MAX_CHATS_PER_USER``.

        Raises
        ------
        Conflict
            If the user is no longer active.
        """
        async with self._db.write() as tx:
            await lock_active(tx, user_id)
            await tx.execute(chats.insert().values(**values, user_id=user_id))
            newest = (
                sa.select(chats.c.id)
                .where(chats.c.user_id == user_id)
                .order_by((chats.c.id != values["id"]), chats.c.updated_at.desc(), chats.c.id)
                .limit(MAX_CHATS_PER_USER)
            )
            kept = list(await tx.scalars(newest))
            await tx.execute(
                sa.delete(chats).where(chats.c.user_id == user_id, chats.c.id.not_in(kept))
            )
            return await _one(tx, user_id, values["id"])

    async def update(
        self, user_id: str, key: str, version: int | None, changes: Mapping[str, Any]
    ) -> Chat:
        """Change a chat.

        Raises
        ------
        NotFound
            If the user has no such chat.
        Conflict
            If ``version`` is not the current version of the chat; None matches any version.
        """
        async with self._db.write() as tx:
            current = await tx.scalar(
                sa.select(chats.c.version)
                .where(chats.c.user_id == user_id, chats.c.id == key)
                .with_for_update()
            )
            if current is None:
                raise _no_chat(key)
            await update_version(tx, chats, key, current if version is None else version, changes)
            return await _one(tx, user_id, key)

    async def delete(self, user_id: str, key: str) -> None:
        """Delete a chat.

        Raises
        ------
        NotFound
            If the user has no such chat.
        """
        async with self._db.write() as tx:
            deleted = await tx.execute(
                sa.delete(chats).where(chats.c.user_id == user_id, chats.c.id == key)
            )
            if not deleted.rowcount:
                raise _no_chat(key)

    async def clean_up(self, now: datetime) -> None:
        """Delete chats that have not changed for a long time."""
        async with self._db.write() as tx:
            await tx.execute(sa.delete(chats).where(chats.c.updated_at < now - CHATS_KEPT_FOR))


async def _one(tx: AsyncConnection, user_id: str, key: str) -> Chat:
    rows = sa.select(*_SUMMARY, chats.c.cards).where(chats.c.user_id == user_id, chats.c.id == key)
    found = first_record(Chat, await tx.execute(rows))
    if found is None:
        raise _no_chat(key)
    return found


def _no_chat(key: str) -> NotFound:
    return NotFound(f"you have no chat {key!r}", chat=key)
