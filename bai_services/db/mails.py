"""Store of the mail queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.mail import Mail

from .database import Database
from .tables.mails import mails

_MAX_ERROR_CHARACTERS = 255
_COLUMNS = [mails.c[name] for name in Mail.__dataclass_fields__]


async def enqueue(tx: AsyncConnection, mail: Mail) -> None:
    """Insert a mail as part of ``tx``; it is due at once."""
    values = {name: getattr(mail, name) for name in Mail.__dataclass_fields__}
    values |= {"values": dict(mail.values), "next_at": mail.created_at, "last_error": ""}
    await tx.execute(mails.insert(), values)


class MailStore:
    """Reads and writes the mail queue. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, mail: Mail) -> None:
        async with self._db.write() as tx:
            await enqueue(tx, mail)

    async def due(self, now: datetime, limit: int) -> Sequence[Mail]:
        """Return up to ``limit`` mails whose next attempt is due, oldest due time first."""
        rows = sa.select(*_COLUMNS).where(mails.c.next_at <= now)
        rows = rows.order_by(mails.c.next_at, mails.c.id).limit(limit)
        async with self._db.read() as tx:
            return [Mail(**row) for row in (await tx.execute(rows)).mappings()]

    async def remove(self, mail_id: str) -> None:
        """Delete a mail that needs no further attempt."""
        async with self._db.write() as tx:
            await tx.execute(mails.delete().where(mails.c.id == mail_id))

    async def mark_failed(
        self, mail_id: str, attempts: int, at: datetime, next_at: datetime, error: str
    ) -> None:
        columns = {
            "attempts": attempts,
            "next_at": next_at,
            "failed_at": at,
            "last_error": error[:_MAX_ERROR_CHARACTERS],
        }
        async with self._db.write() as tx:
            await tx.execute(mails.update().where(mails.c.id == mail_id).values(columns))

    async def summary(self) -> tuple[int, str]:
        """Return the number of mails in the queue, and the error of the latest failure."""
        failed = sa.select(mails.c.last_error).where(mails.c.last_error != "")
        async with self._db.read() as tx:
            count = await tx.scalar(sa.select(sa.func.count()).select_from(mails))
            error = await tx.scalar(failed.order_by(mails.c.failed_at.desc(), mails.c.id).limit(1))
        return count or 0, error or ""
