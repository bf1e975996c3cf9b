"""Run imports of models: download the files of a model into its folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from bai_services.core.coded_text import TextTemplate
from bai_services.core.errors import BaiError, NotFound, TooLarge
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.models.imports import (
    RemoteFile,
    Source,
    SourceKind,
    chosen_files,
    definition_of,
    path_of,
)
from bai_services.core.serving.definition import FILE_NAME
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.folders.vfolders import VfolderStore
from bai_services.db.models.imports import ImportRow, ModelImportStore

from ..context import ManagerContext
from ..folders.files import DEFAULT_UID
from ..folders.folder_changes import FolderChanges
from ..folders.quotas import Quotas, location_of
from ..folders.storage_hosts import StorageHosts
from ..folders.tasks import VFolderTasks
from ..imports.import_loop import ImportLoop
from ..imports.transfer import SourceError, Transfer
from ..scheduling.lease import Lease
from .hub_client import HubClient

log = logging.getLogger(__name__)

# How long the complete files of an interrupted import are kept, so that it can be continued.
KEPT_FOR = timedelta(hours=24)


class ImportRunner(ImportLoop[ImportRow]):
    """Runs the imports of all stores.

    After a restart, an import continues with the first file that is not complete. The folder of an
    import that fails or is cancelled is deleted, except after an interruption: then its complete
    files are kept for ``KEPT_FOR``.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: ModelImportStore,
        client: HubClient,
        max_bytes: int,
        *,
        hosts: StorageHosts,
        quotas: Quotas,
        tasks: VFolderTasks,
        changes: FolderChanges,
        lease: Lease,
    ) -> None:
        super().__init__("model imports", context, store, lease)
        self._imports = store
        self._folders = VfolderStore(context.database)
        self._clients = {SourceKind.HUGGINGFACE: client, SourceKind.URL: client.anonymous()}
        self._max_bytes = max_bytes
        self._hosts = hosts
        self._quotas = quotas
        self._tasks = tasks
        self._changes = changes

    async def fetch(self, row: ImportRow, transfer: Transfer) -> None:
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

    async def completed(self, row: ImportRow) -> None:
        # Notify listeners of the folder, whose card becomes visible now.
        for folder in await self._folders.by_id(row.vfolder_id or ""):
            await self._changes.folder_changed(folder)

    def changes_at_end(self, failure: Exception | None, transfer: Transfer) -> dict[str, Any]:
        is_kept = isinstance(failure, SourceError) and failure.is_temporary and transfer.files > 0
        return {"kept_until": self._clock() + KEPT_FOR if is_kept else None}

    async def clean_up(self) -> None:
        """Delete the folders of failed and cancelled imports, except while they are kept."""
        for row in await self._imports.abandoned(self._clock()):
            if self.is_running(row.id):  # its thread may still write files
                continue
            try:
                await self._delete_folder(row)
            except BaiError as error:
                # The next step tries again.
                log.warning("the folder of import %s cannot be deleted: %s", row.id, error)

    async def _delete_folder(self, row: ImportRow) -> None:
        folder_id = row.vfolder_id or ""
        for folder in await self._folders.by_id(folder_id):
            if folder.status is VfolderStatus.READY and folder.project_id == row.project_id:
                await self._tasks.delete(folder, f"the import of {row.folder} is {row.status}")
        await self._imports.folder_deleted(row.id, folder_id)

    async def _files_of(
        self, row: ImportRow, transfer: Transfer
    ) -> tuple[str, dict[str, Any], Sequence[tuple[str, RemoteFile]]]:
        """Return the commit, the metadata, and the files with their URLs."""
        client = self._clients[row.kind]
        if row.kind is SourceKind.URL:
            path = path_of(urlsplit(row.source).path)
            size = await self.blocking(client.size_of, row.source, transfer)
            if size > self._max_bytes:
                raise TooLarge(
                    f"the file has {size} bytes; an import may have at most {self._max_bytes}",
                    size_bytes=size,
                    limit_bytes=self._max_bytes,
                )
            return "", {}, [(row.source, RemoteFile(path, size, row.sha256))]
        # A resumed import uses the commit with which it began.
        revision = row.commit_id or row.revision
        info = await self.blocking(client.info, row.source, revision, transfer)
        files = await asyncio.to_thread(chosen_files, info.files, row.patterns, self._max_bytes)
        found = []
        for file in files:
            url = client.file_url(row.source, info.commit, file.path)
            if file.size is None:
                size = await self.blocking(client.size_of, url, transfer)
                file = RemoteFile(file.path, size, file.sha256)
            found.append((url, file))
        chosen_files([file for _, file in found], (), self._max_bytes)
        return info.commit, dict(info.metadata), found

    async def _folder(self, row: ImportRow) -> VfolderRow:
        for folder in await self._folders.by_id(row.vfolder_id or ""):
            if folder.status is VfolderStatus.READY and folder.project_id == row.project_id:
                return folder
        raise SourceError(TextTemplate.IMPORT_FOLDER_LOST.text(name=row.folder))

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

                await self.blocking(download)
                await host.commit(location, writer, file.path, DEFAULT_UID)
            except Exception:
                await host.discard(writer)
                raise
            # When the manager stops, the thread may still be writing: the next start removes the
            # file.
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
