"""Read the cards of models from the files of their folders."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from bai_services.core.errors import BaiError, NotFound
from bai_services.core.folders.entries import Entry, FileType
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.models.cards import MAX_README_BYTES, README_NAMES, card_content
from bai_services.core.serving.definition import FILE_NAME, MAX_BYTES
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.db.models.cards import CardStore, StoreFolder
from bai_services.storage.base import Location
from bai_services.storage.host import StorageHost

from ..context import ManagerContext
from ..folders.quotas import Quotas, location_of
from ..folders.storage_hosts import StorageHosts
from ..loop import Loop
from ..scheduling.lease import Lease

log = logging.getLogger(__name__)

# Sessions change files without a notification, so the ETags of all folders are compared regularly.
SCAN_SECONDS = 600.0
COUNT_TIMEOUT_SECONDS = 10.0


class CardRefresher:
    """Refreshes cards on request, after changes of their folders, and every ``SCAN_SECONDS``."""

    def __init__(
        self,
        context: ManagerContext,
        store: CardStore,
        hosts: StorageHosts,
        quotas: Quotas,
        lease: Lease,
    ) -> None:
        self._store = store
        self._folders = VfolderStore(context.database)
        self._clock = context.clock
        self._hosts = hosts
        self._quotas = quotas
        self._lease = lease
        self._changed: set[str] = set()
        self._scanned_at = time.monotonic()
        self._loop = Loop("model cards", self.step, SCAN_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    def folder_changed(self, row: VfolderRow) -> None:
        """Refresh the card of a folder soon, if the folder is in a store."""
        if row.project_id is not None:
            self._changed.add(row.id)
            self._loop.wake()

    async def step(self) -> None:
        """Refresh the folders with a reported change, then scan all folders for changed files.

        After a reported change, skip the scan if the last one is less than ``SCAN_SECONDS`` old.
        """
        changed, self._changed = self._changed, set()
        if changed:
            await self._refresh(await self._store.folders(changed), computes_size=True)
            await self._store.mark_latest(changed)
            # Skip the scan only if the last one is recent; otherwise frequent changes would prevent
            # all scans.
            if time.monotonic() < self._scanned_at + SCAN_SECONDS:
                return
        self._scanned_at = time.monotonic()
        if await self._lease.hold() is None:
            return
        await self._refresh(await self._store.folders())
        await self._store.mark_latest()
        await self._store.clean_up()

    async def _refresh(
        self, folders: Sequence[StoreFolder], *, computes_size: bool = False
    ) -> None:
        for folder in folders:
            try:
                await self.refresh(folder)
                if computes_size or folder.etag is None:
                    await self._compute_size(folder.id)
            except (BaiError, OSError) as error:
                # The next scan retries the refresh.
                log.warning("the card of folder %s cannot be refreshed: %s", folder.id, error)

    async def refresh(self, folder: StoreFolder, *, is_forced: bool = False) -> None:
        """Read the card of a folder if its files have changed.

        With ``is_forced``, always read it, and compute the size of the folder.

        Raises
        ------
        Unavailable
            If the storage host does not respond.
        """
        rows = await self._folders.by_id(folder.id)
        if not rows or rows[0].status is not VfolderStatus.READY:
            return
        row = rows[0]
        host, location = self._hosts.get(row.host), location_of(row)
        definition = await _entry(host, location, (FILE_NAME,))
        readme = await _entry(host, location, README_NAMES)
        etag = " ".join(entry.etag or "" if entry else "-" for entry in (definition, readme))[:255]
        if etag != folder.etag or is_forced:
            await self._read(row, host, location, definition, readme, etag)
        if is_forced:
            await self._compute_size(row.id)

    async def _read(
        self,
        row: VfolderRow,
        host: StorageHost,
        location: Location,
        definition: Entry | None,
        readme: Entry | None,
        etag: str,
    ) -> None:
        text = await _text(host, location, definition, MAX_BYTES + 1)
        about = await _text(host, location, readme, MAX_README_BYTES)
        content = await asyncio.to_thread(card_content, text, about or "")
        title = content.title or content.name or row.name
        await self._store.put(row.id, etag, replace(content, title=title), self._clock())

    async def _compute_size(self, folder_id: str) -> None:
        """Compute the size of a folder for its card."""
        for row in await self._folders.by_id(folder_id):
            with suppress(TimeoutError):  # the count continues in the background
                async with asyncio.timeout(COUNT_TIMEOUT_SECONDS):
                    await self._quotas.usage(row, is_fresh=False)

    async def definition(self, folder_id: str) -> str | None:
        """Return the current model definition; None if the folder is not ready or has none."""
        rows = await self._folders.by_id(folder_id)
        if not rows or rows[0].status is not VfolderStatus.READY:
            return None
        host, location = self._hosts.get(rows[0].host), location_of(rows[0])
        entry = await _entry(host, location, (FILE_NAME,))
        # One byte more than the limit, so that the parser rejects a longer file.
        return await _text(host, location, entry, MAX_BYTES + 1)


async def _entry(host: StorageHost, location: Location, names: Sequence[str]) -> Entry | None:
    """Return the first existing file of ``names``; links are not followed."""
    for name in names:
        with suppress(NotFound):
            entry = await host.entry(location, name)
            if entry.type is FileType.FILE:
                return entry
    return None


async def _text(
    host: StorageHost, location: Location, entry: Entry | None, max_bytes: int
) -> str | None:
    """Return the first ``max_bytes`` bytes of a file, None if it does not exist."""
    if entry is None:
        return None
    try:
        file = await host.open_download(location, entry.name)
    except NotFound:
        return None
    try:
        length = min(file.size, max_bytes)
        parts = [part async for part in file.chunks(0, length)]
    finally:
        await file.close()
    # PostgreSQL cannot store a NUL.
    return b"".join(parts).decode(errors="replace").replace("\0", "\ufffd")
