"""Base class of the stores of imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import NotFound, QuotaExceeded
from bai_services.core.imports.lifecycle import (
    ENDED,
    MAX_OPEN_IMPORTS_PER_USER,
    ImportEvent,
    ImportStatus,
    next_status,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.refusal_texts import RefusalText

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import users

Row = TypeVar("Row")

_OPEN = sorted(set(ImportStatus) - ENDED)


class ImportStore(Generic[Row]):
    """Reads and changes the rows of one table of imports."""

    def __init__(
        self,
        database: Database,
        table: sa.Table,
        *,
        rows: sa.Select[Any],
        make_row: Callable[..., Row],
        listing: Listing,
        visible: Callable[[Visibility], sa.Select[Any]],
    ) -> None:
        """Set the queries. ``rows`` must join ``users``; ``visible`` returns the visible rows."""
        self._db = database
        self._table = table
        self._rows = rows
        self._make_row = make_row
        self._listing = listing
        self._visible = visible

    async def page(self, query: ListQuery, visible: Visibility) -> Page[Row]:
        async with self._db.read() as tx:
            return await self._listing.page(tx, self._visible(visible), query, self._make_row)

    async def find(self, key: str, visible: Visibility) -> Row:
        """Return a visible import.

        Raises
        ------
        NotFound
            If no visible import has that id.
        """
        async with self._db.read() as tx:
            rows = await tx.execute(self._visible(visible).where(self._table.c.id == key))
            found = first_record(self._make_row, rows)
        if found is None:
            raise NotFound(refusal(RefusalText.NO_IMPORT, name=key))
        return found

    async def check_count(self, owner_id: str) -> None:
        """Raise ``QuotaExceeded`` if the user has too many open imports."""
        async with self._db.read() as tx:
            await self._check_count(tx, owner_id)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert an import.

        Raises
        ------
        QuotaExceeded
            If the user has too many imports that have not ended.
        Conflict
            If the user is no longer active.
        """
        async with self._db.write() as tx:
            await lock_active(tx, values["owner_id"])
            await self._check_count(tx, values["owner_id"])
            await tx.execute(self._table.insert().values(**values))
            await record(tx, audit)

    async def open(self) -> list[Row]:
        """Return the imports of active users that must be run, oldest first."""
        runs = sorted((ImportStatus.QUEUED, ImportStatus.RUNNING))
        rows = self._rows.where(self._table.c.status.in_(runs), users.c.status == "active")
        async with self._db.read() as tx:
            found = await tx.execute(rows.order_by(self._table.c.created_at))
            return records(self._make_row, found)

    async def apply(
        self,
        import_id: str,
        event: ImportEvent,
        now: datetime,
        changes: Mapping[str, Any] | None = None,
        audit: AuditEntry | None = None,
    ) -> ImportStatus:
        """Apply an event to an import, and write other ``changes``; return the new status.

        Raises
        ------
        InvalidTransition
            If the event is not valid in the status of the import.
        NotFound
            If the import no longer exists.
        """
        async with self._db.write() as tx:
            after = await self._apply(tx, import_id, event, now, changes or {})
            if audit is not None:
                await record(tx, audit)
            return after

    async def retry(
        self,
        import_id: str,
        owner_id: str,
        now: datetime,
        changes: Mapping[str, Any],
        audit: AuditEntry,
        event: ImportEvent = ImportEvent.RETRIED,
    ) -> None:
        """Repeat a failed import, and write other ``changes``.

        ``event`` is ``RETRIED`` (queued again) or ``RESUBMITTED`` (waits for an approval).

        Raises
        ------
        InvalidTransition
            If the import has not failed.
        QuotaExceeded
            If the owner has too many imports that have not ended.
        Conflict
            If the owner is no longer active.
        """
        changes = {"problem": "", "problem_coded": None, "files": 0, "bytes": 0, **changes}
        async with self._db.write() as tx:
            await lock_active(tx, owner_id)
            await self._check_count(tx, owner_id)
            await self._apply(tx, import_id, event, now, changes)
            await record(tx, audit)

    async def progress(self, import_id: str, changes: Mapping[str, Any]) -> bool:
        """Write the progress of a running import; return False if it no longer runs."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                self._table.update()
                .where(self._table.c.id == import_id, self._table.c.status == ImportStatus.RUNNING)
                .values(changes)
            )
            return bool(changed.rowcount)

    async def clean_up(self, before: datetime) -> None:
        """Delete the imports that ended before a time."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(self._table).where(
                    self._table.c.status.in_(sorted(ENDED)), self._table.c.changed_at < before
                )
            )

    async def _check_count(self, tx: AsyncConnection, owner_id: str) -> None:
        own = sa.select(sa.func.count()).where(
            self._table.c.owner_id == owner_id, self._table.c.status.in_(_OPEN)
        )
        if int(await tx.scalar(own) or 0) >= MAX_OPEN_IMPORTS_PER_USER:
            raise QuotaExceeded(
                refusal(RefusalText.TOO_MANY_IMPORTS, limit=MAX_OPEN_IMPORTS_PER_USER),
                limit=MAX_OPEN_IMPORTS_PER_USER,
            )

    async def _apply(
        self,
        tx: AsyncConnection,
        import_id: str,
        event: ImportEvent,
        now: datetime,
        changes: Mapping[str, Any],
    ) -> ImportStatus:
        after = next_status(await self._locked_status(tx, import_id), event)
        await tx.execute(
            self._table.update()
            .where(self._table.c.id == import_id)
            .values(status=after, changed_at=now, **changes)
        )
        return after

    async def _locked_status(self, tx: AsyncConnection, import_id: str) -> ImportStatus:
        status = await tx.scalar(
            sa.select(self._table.c.status).where(self._table.c.id == import_id).with_for_update()
        )
        if status is None:
            raise NotFound(refusal(RefusalText.IMPORT_REMOVED))
        return ImportStatus(status)
