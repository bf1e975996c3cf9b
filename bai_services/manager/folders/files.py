"""Files of a folder: list, download, upload, move, copy, remove."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, InvalidRequest, TooLarge
from bai_services.core.folders.vfolders import NO_PRECONDITION, Precondition
from bai_services.core.listing import ListQuery, Page
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.vfolders import VfolderRow
from bai_services.storage.base import CopyProgress, Entry
from bai_services.storage.folder import SORTS
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.downloads import ArchiveStream, Download
from bai_services.storage.transfers.staging import Writer
from bai_services.storage.transfers.unpacking import Unpacked

from ..context import ManagerContext
from ..settings import Settings
from .access import VFolderAccess
from .quotas import FolderUsage, Quotas, location_of
from .storage_hosts import StorageHosts
from .write_buffer import Receive, WriteBuffer

DEFAULT_UID = 1000


class Files:
    """One method per verb; ``path`` is relative to the folder, with ``/`` as separator."""

    def __init__(
        self, context: ManagerContext, hosts: StorageHosts, quotas: Quotas, settings: Settings
    ) -> None:
        self._grants = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._audit = context.audit
        self._hosts = hosts
        self._quotas = quotas
        self.max_file_bytes = settings.max_file_bytes
        self._ending: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Wait until aborted uploads are cleaned up."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def page(self, caller: Caller, key: str, path: str, query: ListQuery) -> Page[Entry]:
        """Return a page of a directory, sorted by name or as requested.

        Any order other than by name reads every entry first.
        """
        row, _ = await self._access.for_files(caller, key)
        sort = query.sort[0] if len(query.sort) == 1 else "name"
        text = query.filters.get("name__contains", "")
        is_known = sort.removeprefix("-") in ("name", *SORTS) and len(query.sort) < 2
        if not is_known or set(query.filters) - {"name__contains"}:
            raise InvalidRequest(
                f"files can be sorted by name, {', '.join(SORTS)}, and filtered by name__contains"
            )
        found = await self.host(row).list(
            location_of(row), path, query.offset, query.limit, sort, text
        )
        return Page(found.items, found.total, query.limit, query.offset)

    async def usage(self, caller: Caller, key: str, is_fresh: bool = False) -> FolderUsage:
        """Return the number of files and bytes of a folder, and when they were counted."""
        row, _ = await self._access.for_files(caller, key)
        return await self._quotas.usage(row, is_fresh)

    async def download(self, caller: Caller, key: str, path: str) -> Download:
        """Open a file; the caller closes it."""
        row = await self._readable(caller, key)
        found = await self.host(row).open_download(location_of(row), path)
        try:
            await self.note(caller, "vfolder.download", row, path=path, bytes=found.size)
        except BaseException:
            await found.close()
            raise
        return found

    async def archive(
        self, caller: Caller, key: str, paths: Sequence[str], form: str
    ) -> tuple[ArchiveStream, str]:
        """Open an archive, which the caller closes, and return it with a file name for it."""
        row = await self._readable(caller, key)
        found = await self.host(row).open_archive(location_of(row), paths, form)
        try:
            await self.note(caller, "vfolder.download", row, paths=list(paths)[:20])
        except BaseException:
            await found.close()
            raise
        top = paths[0].strip("/").rpartition("/")[2] if len(paths) == 1 else ""
        return found, f"{top or row.name}.{form}"

    async def upload(
        self, caller: Caller, key: str, path: str, size_bytes: int | None,
        expected: Precondition = NO_PRECONDITION,
    ) -> FileUpload:  # fmt: skip
        """Start to receive a file of known or unknown size; see ``FileUpload``.

        Raises
        ------
        TooLarge, QuotaExceeded
            If it is larger than one file may be, or than its owner has left.
        Forbidden
            If the folder is shared with the caller read-only.
        Changed
            If the file is not as ``expected``.
        """
        row = await self.writable(caller, key, size_bytes or 0)
        await self.host(row).check_target(location_of(row), path, size_bytes or 0, expected)
        writer = await self.host(row).writer(location_of(row))
        return FileUpload(self, caller, row, path, writer, expected)

    async def upload_archive(
        self, caller: Caller, key: str, path: str, size_bytes: int | None
    ) -> ArchiveUpload:
        """Start to receive a tar archive that is unpacked into the directory ``path``
        afterwards.
        """
        row = await self.writable(caller, key, size_bytes or 0)
        writer = await self.host(row).writer(location_of(row))
        return ArchiveUpload(self, caller, row, path, writer, NO_PRECONDITION)

    async def land(
        self, caller: Caller, row: VfolderRow, path: str, writer: Writer, expected: Precondition
    ) -> Entry:
        """Move a completely received file to its path, if the caller may still write there."""
        # Permissions may have changed: receiving may take hours.
        await self.check_writable(caller, row)
        entry = await self.host(row).commit(
            location_of(row), writer, path, await self._uid(caller, row), expected
        )
        self._quotas.arrived(row, entry.size)
        await self.note(caller, "vfolder.upload", row, path=path, bytes=entry.size)
        return entry

    async def unpack(self, caller: Caller, row: VfolderRow, path: str, writer: Writer) -> Unpacked:
        """Unpack a completely received tar archive, if the caller may still write there."""
        await self.check_writable(caller, row)
        room = await self._quotas.room(row)
        found = await self.host(row).unpack(
            location_of(row),
            writer,
            path,
            await self._uid(caller, row),
            self.max_file_bytes if room is None else min(room, self.max_file_bytes),
        )
        self._quotas.arrived(row, found.bytes)
        facts = {"path": path, "files": found.files, "bytes": found.bytes}
        await self.note(caller, "vfolder.upload", row, **facts)
        return found

    async def make_directories(
        self, caller: Caller, key: str, paths: Sequence[str], exists_ok: bool
    ) -> list[str]:
        """Create directories, with missing parents."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        uid = await self._uid(caller, row)
        for path in paths:
            await self.host(row).make_directory(location_of(row), path, exists_ok, uid)
        await self.note(caller, "vfolder.make-directories", row, paths=list(paths)[:20])
        return list(paths)

    async def move(
        self, caller: Caller, key: str, source: str, target: str, replaces: bool
    ) -> Entry:
        """Move or rename something inside a folder."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        uid = await self._uid(caller, row)
        entry = await self.host(row).move(location_of(row), source, target, replaces, uid)
        await self.note(caller, "vfolder.move-file", row, path=source, target=target)
        return entry

    async def copy(self, caller: Caller, key: str, source: str, target: str) -> Entry:
        """Copy a file, or a directory with its contents, inside a folder."""
        row = await self.writable(caller, key, 0)
        uid, progress = await self._uid(caller, row), CopyProgress()
        try:
            entry = await self.host(row).copy(location_of(row), source, target, uid, progress)
        except asyncio.CancelledError:
            progress.is_cancelled = True
            raise
        self._quotas.arrived(row, progress.bytes)
        await self.note(caller, "vfolder.copy-file", row, path=source, target=target)
        return entry

    async def remove(self, caller: Caller, key: str, path: str, is_recursive: bool = False) -> None:
        """Remove a file, link or empty directory; with ``is_recursive`` a whole tree."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        await self.host(row).remove(location_of(row), path, is_recursive)
        await self.note(caller, "vfolder.remove-file", row, path=path)

    def forget(self, upload: Any) -> None:
        """Abort an upload in the background, for callers that cannot wait; harmless after its
        end.
        """
        upload.hang_up()
        task = asyncio.create_task(upload.abort(), name="abort upload")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def writable(self, caller: Caller, key: str, size_bytes: int) -> VfolderRow:
        """Return a folder into which the caller may upload that many bytes."""
        self.check_size(size_bytes)
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        await self._hosts.require(caller, row.host, "upload-file", row.project_id)
        await self._quotas.check_room(row, size_bytes)
        return row

    async def check_writable(self, caller: Caller, row: VfolderRow) -> None:
        """Raise what ``upload`` would raise now."""
        await self._access.for_files(caller, row.id, is_writing=True)

    def check_size(self, size_bytes: int) -> None:
        """Raise ``TooLarge`` if one file may not have that many bytes."""
        if size_bytes > self.max_file_bytes:
            raise TooLarge(
                f"a file has at most {self.max_file_bytes} bytes; this has {size_bytes} or more",
                limit_bytes=self.max_file_bytes,
            )

    async def check_room(self, row: VfolderRow, size_bytes: int) -> None:
        """Raise ``QuotaExceeded`` if the folder's owner has less space left."""
        await self._quotas.check_room(row, size_bytes)

    def host(self, row: VfolderRow) -> StorageHost:
        return self._hosts.get(row.host)

    async def note(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> None:
        """Write an audit entry for a file operation."""
        shown = {name: _short(value) for name, value in details.items()}
        await self._audit.add(
            self._audit.entry(caller, action, row.id, domain=row.domain, name=row.name, **shown)
        )

    async def _readable(self, caller: Caller, key: str) -> VfolderRow:
        row, _ = await self._access.for_files(caller, key)
        await self._hosts.require(caller, row.host, "download-file", row.project_id)
        return row

    async def _uid(self, caller: Caller, row: VfolderRow) -> int:
        uid = await self._grants.container_uid(row.owner_id or caller.user_id)
        return DEFAULT_UID if uid is None else uid


class FileUpload:
    """A file that is received in one request; invisible until ``commit``."""

    def __init__(
        self,
        files: Files,
        caller: Caller,
        row: VfolderRow,
        path: str,
        writer: Writer,
        expected: Precondition,
    ) -> None:
        self._files = files
        self._caller = caller
        self._row = row
        self._path = path
        self._writer = writer
        self._expected = expected
        self._pieces = WriteBuffer(files.host(row), writer)
        self._size = 0

    async def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._files.check_size(self._size)
        await self._pieces.write(chunk)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly from the socket."""
        self._size += size
        await self._pieces.receive(receive, size)

    def hang_up(self) -> None:
        """Record that the client has disconnected and does not need the result."""

    async def commit(self) -> Any:
        """Move the file to its path, if the caller may still write there."""
        await self._pieces.flush()
        await self._files.check_room(self._row, self._size)
        return await self._land()

    async def abort(self) -> None:
        await self._pieces.settle(keeps_rest=False)
        await self._files.host(self._row).discard(self._writer)

    async def _land(self) -> Any:
        return await self._files.land(
            self._caller, self._row, self._path, self._writer, self._expected
        )


class ArchiveUpload(FileUpload):
    """A tar archive that is received in one request and unpacked by ``commit``."""

    _landing: Landing | None = None

    def hang_up(self) -> None:
        if self._landing is not None:
            self._landing.stop()

    async def _land(self) -> Any:
        self._landing = Landing(
            self._files.unpack(self._caller, self._row, self._path, self._writer)
        )
        found = await self._landing.result()
        await self.abort()
        return found


class Landing:
    """The final step of an upload; stops when its client has disconnected."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.create_task(work, name="land an upload")

    def stop(self) -> None:
        self._task.cancel()

    async def result(self) -> Any:
        """Return the result of the work.

        Raises
        ------
        Conflict
            If it was stopped.
        """
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if self._task.cancelled():
            raise Conflict("the upload was aborted before its archive was unpacked")
        return self._task.result()


def _short(value: Any) -> Any:
    return value[:200] if isinstance(value, str) else value
