"""Run imports into folders: fetch a repository, an archive or a file, and store its files."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import BaiError, TooLarge
from bai_services.core.folders.entries import FetchedFiles
from bai_services.core.folders.vfolders import NO_PRECONDITION
from bai_services.core.imports.sources import SourceKind, file_name
from bai_services.core.ip_addresses import parse_address
from bai_services.core.models.imports import RemoteFile
from bai_services.db.folders.rows import VfolderRow
from bai_services.db.imports.folder_imports import FolderImportRow, FolderImportStore
from bai_services.storage.transfers.git_process import fetch_repository
from bai_services.storage.transfers.git_worker import Job
from bai_services.storage.transfers.staging import Writer

from ..accounts.callers import Callers
from ..accounts.keypair_secrets import KeypairSecrets
from ..context import ManagerContext
from ..folders.files import Files
from ..folders.quotas import Quotas, Reservation, location_of
from ..folders.vfolders import VFolders
from ..models.hub_client import HubClient
from ..scheduling.lease import Lease
from .import_loop import ImportLoop
from .transfer import SourceError, Transfer

log = logging.getLogger(__name__)


class FolderImportRunner(ImportLoop[FolderImportRow]):
    """Runs the imports of all users, with the permissions and within the quotas of each user.

    After a restart, an import fetches its files again.
    """

    def __init__(
        self,
        context: ManagerContext,
        store: FolderImportStore,
        client: HubClient,
        max_bytes: int,
        cipher: KeypairSecrets,
        *,
        callers: Callers,
        folders: VFolders,
        files: Files,
        quotas: Quotas,
        lease: Lease,
    ) -> None:
        super().__init__("folder imports", context, store, lease)
        self._client = client
        self._max_bytes = max_bytes
        self._cipher = cipher
        self._callers = callers
        self._folders = folders
        self._files = files
        self._quotas = quotas

    async def fetch(self, row: FolderImportRow, transfer: Transfer) -> None:
        caller = await self._callers.for_schedule(row.owner)
        folder = await self._files.find_writable(caller, row.vfolder_id or "", 0)
        host, location = self._files.host(folder), location_of(folder)
        writer = await host.writer(location)
        try:
            with self._files.reservation(folder) as space:
                if row.kind is SourceKind.FILE:
                    await self._fetch_file(caller, row, folder, writer, space, transfer)
                else:
                    await self._fetch_archive(caller, row, folder, writer, space, transfer)
        finally:
            await host.discard(writer)

    async def failed(self, row: FolderImportRow) -> None:
        """Remove the folder that the import has created, unless it contains something.

        The folder is first moved to the trash: nobody can write to it while it is checked.
        """
        if not row.is_new_folder or row.vfolder_id is None:
            return
        try:
            caller = await self._callers.for_schedule(row.owner)
            folder = await self._files.find_writable(caller, row.vfolder_id, 0)
            host, location = self._files.host(folder), location_of(folder)
            if (await host.list(location, "", 0, 1, "name", "")).total:
                return
            await self._folders.trash(caller, folder.id)
            if (await host.list(location, "", 0, 1, "name", "")).total:
                await self._folders.restore(caller, folder.id)
            else:
                await self._folders.purge(caller, folder.id)
        except BaiError as error:
            # The folder cannot be removed, for example because a session has mounted it in the
            # meantime.
            log.info("the folder of the failed import %s is kept: %s", row.id, error)

    def changes_at_end(self, failure: Exception | None, transfer: Transfer) -> dict[str, Any]:
        return {"token": ""}

    async def _fetch_file(
        self,
        caller: Caller,
        row: FolderImportRow,
        folder: VfolderRow,
        writer: Writer,
        space: Reservation,
        transfer: Transfer,
    ) -> None:
        name = file_name(row.source)
        path = f"{row.directory}/{name}" if row.directory else name
        size = await self._download(row, name, writer, space, transfer)
        await self._store.progress(row.id, {"total_files": 1})
        transfer.check()
        await self._files.commit(caller, folder, path, writer, NO_PRECONDITION, space)
        transfer.file_complete(size)

    async def _fetch_archive(
        self,
        caller: Caller,
        row: FolderImportRow,
        folder: VfolderRow,
        writer: Writer,
        space: Reservation,
        transfer: Transfer,
    ) -> None:
        if row.kind is SourceKind.GIT:
            fetched = await self._fetch_repository(row, folder, writer, transfer)
            changes = {
                "commit_id": fetched.commit,
                "skipped": dict(fetched.skipped),
                "total_files": fetched.files,
                "total_bytes": fetched.bytes,
            }
            await self._store.progress(row.id, changes)
        else:
            await self._download(row, file_name(row.source), writer, space, transfer)
        transfer.check()
        # The archive is deleted after unpacking; only its content counts towards the quota.
        space.release()
        with self._files.reservation(folder) as content:
            unpacked = await self._files.unpack(
                caller, folder, row.directory, writer, content, self._max_bytes
            )
        transfer.files, transfer.partial_bytes = unpacked.files, 0
        transfer.complete_bytes = unpacked.bytes
        totals = {"total_files": unpacked.files, "total_bytes": unpacked.bytes}
        await self._store.progress(row.id, totals)

    async def _download(
        self,
        row: FolderImportRow,
        name: str,
        writer: Writer,
        space: Reservation,
        transfer: Transfer,
    ) -> int:
        size = await self.blocking(self._client.size_of, row.source, transfer)
        if size > self._max_bytes:
            raise TooLarge(
                f"the file has {size} bytes; an import may have at most {self._max_bytes}",
                size_bytes=size,
                limit_bytes=self._max_bytes,
            )
        await space.require(size)
        await self._store.progress(row.id, {"total_bytes": size})

        def download() -> None:
            self._client.download(
                row.source,
                RemoteFile(name, size),
                write=writer.write,
                restart=writer.restart,
                transfer=transfer,
            )

        await self.blocking(download)
        return size

    async def _fetch_repository(
        self, row: FolderImportRow, folder: VfolderRow, writer: Writer, transfer: Transfer
    ) -> FetchedFiles:
        host, location = self._files.host(folder), location_of(folder)
        addresses = await self.blocking(allowed_addresses, self._client, row.source)
        remaining = await self._quotas.remaining_bytes(folder)
        limit = self._max_bytes if remaining is None else min(self._max_bytes, remaining)
        directory = await host.run(host.staging(location).new_path, ".git")

        def report(received_bytes: int) -> None:
            transfer.check()
            transfer.partial_bytes = received_bytes

        job = Job(
            url=row.source,
            revision=row.branch,
            token=self._cipher.decrypt(row.token) if row.token else "",
            addresses=pinned(row.source, addresses),
            ca_file=ssl.get_default_verify_paths().cafile or "",
            directory=str(directory),
            archive=str(writer.path),
            max_bytes=limit,
        )
        try:
            fetched = await fetch_repository(job, report)
        finally:
            await host.run(shutil.rmtree, directory, True)
        writer.size = os.fstat(writer.file).st_size
        return fetched


def allowed_addresses(client: HubClient, url: str) -> list[str]:
    """Return the addresses of a URL's host; raise ``SourceError`` if none of them is allowed."""
    addresses = client.allowed_addresses(url)
    if not addresses:
        raise SourceError("the host has no address")
    return addresses


def pinned(url: str, addresses: Sequence[str]) -> str:
    """Return ``HOST:PORT:ADDRESS,…``, which limits git to these addresses of a URL's host.

    Return "" if the host is an address.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parse_address(host) is not None:
        return ""
    texts = (f"[{address}]" if ":" in address else address for address in addresses)
    return f"{host}:{parts.port or 443}:{','.join(texts)}"
