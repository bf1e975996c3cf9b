"""Run imports of models: download the files of a model into its folder."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from bai_services.core.errors import BaiError, InvalidTransition, NotFound, TooLarge, Unavailable
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.models.imports import (
    ImportEvent,
    ImportStatus,
    RemoteFile,
    Source,
    SourceKind,
    chosen_files,
    definition_of,
    path_of,
)
from bai_services.core.models.records import IMPORTS_KEPT_FOR
from bai_services.core.serving.definition import FILE_NAME
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.db.models.imports import ImportRow, ImportStore
from bai_services.storage.workers import Workers

from ..context import ManagerContext
from ..folders.files import DEFAULT_UID
from ..folders.folder_changes import FolderChanges
from ..folders.quotas import Quotas, location_of
from ..folders.storage_hosts import StorageHosts
from ..loop import Loop
from ..scheduling.lease import Lease
from .hub_client import HubClient, SourceError, Transfer

log = logging.getLogger(__name__)

TICK_SECONDS = 30.0
REPORT_SECONDS = 2.0
MAX_CONCURRENT = 8
# Slow imports of a few users must not delay those of others.
MAX_CONCURRENT_PER_USER = 2
_MAX_PROBLEM = 500


class ImportRunner:
    """Runs the imports of all stores while this manager holds the lease.

    After a restart, an import continues with the first file that is not complete.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: ImportStore,
        client: HubClient,
        max_bytes: int,
        *,
        hosts: StorageHosts,
        quotas: Quotas,
        changes: FolderChanges,
        lease: Lease,
    ) -> None:
        self._store = store
        self._folders = VfolderStore(context.database)
        self._clock = context.clock
        self._read_only = context.read_only
        self._clients = {SourceKind.HUGGINGFACE: client, SourceKind.URL: client.anonymous()}
        self._max_bytes = max_bytes
        self._hosts = hosts
        self._quotas = quotas
        self._changes = changes
        self._lease = lease
        self._threads = Workers("imports", MAX_CONCURRENT)
        self._running: dict[str, tuple[asyncio.Task[None], Transfer]] = {}
        self._owners: Counter[str] = Counter()  # running imports by owner
        self._loop = Loop("model imports", self.step, TICK_SECONDS)

    def start(self) -> None:
        self.start_threads()
        self._loop.start()

    def start_threads(self) -> None:
        """Start the threads that download."""
        self._threads.start()

    async def stop(self) -> None:
        """Interrupt running imports; the next start continues them."""
        await self._loop.stop()
        running = list(self._running.values())
        for task, transfer in running:
            transfer.cancel()
            task.cancel()
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        await self._threads.stop()

    def wake(self) -> None:
        self._loop.wake()

    async def step(self) -> None:
        """Begin the oldest imports that do not run yet, and delete old ones."""
        if await self._lease.hold() is None:
            return
        for row in await self.open():
            if len(self._running) >= MAX_CONCURRENT:
                break
            if row.id not in self._running and self._may_begin(row):
                transfer = Transfer()
                task = asyncio.create_task(self.run(row, transfer), name=f"import {row.id}")
                self._running[row.id] = task, transfer
                self._owners[row.owner_id] += 1
                task.add_done_callback(functools.partial(self._ended, row.id, row.owner_id))
        await self._store.clean_up(self._clock() - IMPORTS_KEPT_FOR)

    async def wait(self) -> None:
        """Wait for the running imports."""
        await asyncio.gather(*(task for task, _ in self._running.values()))

    def _may_begin(self, row: ImportRow) -> bool:
        if self._owners[row.owner_id] >= MAX_CONCURRENT_PER_USER:
            return False
        # During read-only maintenance, only imports that have begun continue.
        with suppress(Unavailable):
            if row.status is not ImportStatus.RUNNING:
                self._read_only.require_writable(row.owner_role)
            return True
        return False

    def _ended(self, key: str, owner_id: str, _: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        self._owners[owner_id] -= 1
        self._owners += Counter()  # without zeros
        self._loop.wake()

    async def open(self) -> Sequence[ImportRow]:
        """Return the imports of active users that are queued or running, the oldest first."""
        return await self._store.open()

    async def run(self, row: ImportRow, transfer: Transfer) -> None:
        """Run or continue one import."""
        report = asyncio.create_task(self._report(row.id, transfer), name=f"progress {row.id}")
        event, problem = ImportEvent.COMPLETED, ""
        try:
            await self._store.apply(row.id, ImportEvent.BEGUN, self._clock())
            await self._import(row, transfer)
        except (SourceError, BaiError) as error:
            if transfer.is_cancelled:
                return
            event, problem = ImportEvent.BROKEN, str(error)[:_MAX_PROBLEM]
        except Exception:
            log.exception("import %s has failed", row.id)
            event, problem = ImportEvent.BROKEN, "internal error"
        finally:
            report.cancel()
            await asyncio.gather(report, return_exceptions=True)
        changes = {"problem": problem, **_progress(transfer)}
        with suppress(InvalidTransition, NotFound):  # cancelled during this step
            await self._store.apply(row.id, event, self._clock(), changes)

    async def _report(self, import_id: str, transfer: Transfer) -> None:
        """Store the progress regularly; stop an import that was cancelled, or that another manager
        continues.
        """
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            try:
                is_running = await self._store.progress(import_id, _progress(transfer))
                if not is_running or await self._lease.hold() is None:
                    transfer.cancel()
                    return
            except BaiError as error:
                log.warning("the progress of import %s cannot be stored: %s", import_id, error)

    async def _import(self, row: ImportRow, transfer: Transfer) -> None:
        commit, metadata, files = await self._files_of(row, transfer)
        totals = {
            "commit_id": commit,
            "total_files": len(files),
            "total_bytes": sum(file.size or 0 for _, file in files),
        }
        await self._store.progress(row.id, totals)
        folder = await self._folder(row)
        left = [each for each in files if not await self._is_complete(folder, each[1])]
        for _, file in set(files) - set(left):
            transfer.file_complete(file.size or 0)
        await self._quotas.require_space(folder, sum(file.size or 0 for _, file in left))
        for url, file in left:
            client = self._clients[row.kind]
            await self._receive(await self._folder(row), client, url, file, transfer)
        source = Source(row.kind, row.source)
        text = definition_of(source, row.folder, commit or row.sha256, metadata)
        await self._write_definition(await self._folder(row), text)

    async def _files_of(
        self, row: ImportRow, transfer: Transfer
    ) -> tuple[str, dict[str, Any], Sequence[tuple[str, RemoteFile]]]:
        """Return the commit, the metadata, and the files with their URLs."""
        client = self._clients[row.kind]
        if row.kind is SourceKind.URL:
            path = path_of(urlsplit(row.source).path)
            size = await self._blocking(client.size_of, row.source, transfer)
            if size > self._max_bytes:
                raise TooLarge(
                    f"the file has {size} bytes; an import may have at most {self._max_bytes}",
                    limit_bytes=self._max_bytes,
                )
            return "", {}, [(row.source, RemoteFile(path, size, row.sha256))]
        # A continued import uses the commit with which it has begun.
        revision = row.commit_id or row.revision
        info = await self._blocking(client.info, row.source, revision, transfer)
        files = await asyncio.to_thread(chosen_files, info.files, row.patterns, self._max_bytes)
        found = []
        for file in files:
            url = client.file_url(row.source, info.commit, file.path)
            if file.size is None:
                size = await self._blocking(client.size_of, url, transfer)
                file = RemoteFile(file.path, size, file.sha256)
            found.append((url, file))
        chosen_files([file for _, file in found], (), self._max_bytes)
        return info.commit, dict(info.metadata), found

    async def _blocking(self, work: Any, *arguments: Any) -> Any:
        return await self._threads.run(work, *arguments, seconds=None)

    async def _folder(self, row: ImportRow) -> VfolderRow:
        for folder in await self._folders.by_id(row.vfolder_id or ""):
            if folder.status is VfolderStatus.READY and folder.project_id == row.project_id:
                return folder
        raise NotFound(f"folder {row.folder} is no longer in the project")

    async def _is_complete(self, folder: VfolderRow, file: RemoteFile) -> bool:
        """Return whether a file exists: an import creates a file only when it is complete."""
        host = self._hosts.get(folder.host)
        try:
            entry = await host.entry(location_of(folder), file.path)
        except NotFound:
            return False
        return entry.size == file.size

    async def _receive(
        self,
        folder: VfolderRow,
        client: HubClient,
        url: str,
        file: RemoteFile,
        transfer: Transfer,
    ) -> None:
        host, location, size = self._hosts.get(folder.host), location_of(folder), file.size or 0
        with self._quotas.reservation(folder) as space:
            await space.require(size)
            await host.check_target(location, file.path, size)
            writer = await host.writer(location)
            try:

                def download() -> None:
                    client.download(
                        url, file, write=writer.write, restart=writer.restart, transfer=transfer
                    )

                await self._blocking(download)
                await host.commit(location, writer, file.path, DEFAULT_UID)
            except Exception:
                await host.discard(writer)
                raise
            # When the manager stops, the thread may still write: the next start removes the file.
            space.use(size)
        transfer.file_complete(size)
        self._changes.files_changed(folder)

    async def _write_definition(self, folder: VfolderRow, text: str) -> None:
        host, location = self._hosts.get(folder.host), location_of(folder)
        with suppress(NotFound):
            await host.entry(location, FILE_NAME)
            return
        content = text.encode()
        with self._quotas.reservation(folder) as space:
            await space.require(len(content))
            writer = await host.writer(location)
            try:
                await host.run(writer.write, content)
                await host.commit(location, writer, FILE_NAME, DEFAULT_UID)
            except BaseException:
                await host.discard(writer)
                raise
            space.use(len(content))
        self._changes.files_changed(folder)


def _progress(transfer: Transfer) -> dict[str, int]:
    return {"files": transfer.files, "bytes": transfer.bytes}
