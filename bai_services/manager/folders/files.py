"""List, download, upload, move, copy and remove the files of a folder."""

from __future__ import annotations

import asyncio
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, InvalidRequest, NotFound, TooLarge
from bai_services.core.folders.entries import Entry, Unpacked
from bai_services.core.folders.vfolders import NO_PRECONDITION, Precondition
from bai_services.core.listing import ListQuery, Page
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.rows import VfolderRow
from bai_services.storage.base import CopyProgress
from bai_services.storage.folder import SORTS
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.downloads import ArchiveStream
from bai_services.storage.transfers.staging import Writer

from ..context import ManagerContext
from ..settings import Settings
from .access import VFolderAccess
from .folder_changes import FolderChanges
from .quotas import FolderUsage, Quotas, Reservation, headroom_bytes, location_of
from .storage_hosts import StorageHosts
from .write_buffer import Receive, WriteBuffer

DEFAULT_UID = 1000

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)


class Files:
    """Operations on files; ``path`` is relative to the folder, with the separator ``/``."""

    def __init__(
        self,
        context: ManagerContext,
        hosts: StorageHosts,
        quotas: Quotas,
        changes: FolderChanges,
        settings: Settings,
    ) -> None:
        self._grants = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._audit = context.audit
        self._hosts = hosts
        self._quotas = quotas
        self._changes = changes
        self.max_file_bytes = settings.max_file_bytes
        self._aborting: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Wait for the cleanup of aborted uploads."""
        await asyncio.gather(*self._aborting, return_exceptions=True)

    async def page(self, caller: Caller, key: str, path: str, query: ListQuery) -> Page[Entry]:
        """Return a page of a directory, sorted by name or as requested.

        Sorting by a field other than the name reads all entries first.
        """
        row, _ = await self._access.for_files(caller, key)
        sort = query.sort[0] if len(query.sort) == 1 else "name"
        text = query.filters.get("name__contains", "")
        is_known = sort.removeprefix("-") in ("name", *SORTS) and len(query.sort) < 2
        if not is_known or set(query.filters) - {"name__contains"}:
            raise InvalidRequest(
                f"files can be sorted by one of name, {', '.join(SORTS)}; "
                "the only filter is name__contains"
            )
        entries = await self.host(row).list(
            location_of(row), path, query.offset, query.limit, sort, text
        )
        await self._audit.record_access(
            caller,
            "vfolder.list-files",
            row.id,
            owner_id=row.owner_id,
            domain=row.domain,
            name=row.name,
        )
        return Page(entries.items, entries.total, query.limit, query.offset)

    async def entries(self, caller: Caller, key: str, paths: Sequence[str]) -> list[Entry | None]:
        """Return the entry at each path; None for a path that does not exist."""
        row = await self.find_readable(caller, key)
        host, location = self.host(row), location_of(row)
        found: list[Entry | None] = []
        for path in paths:
            try:
                found.append(await host.entry(location, path))
            except NotFound:
                found.append(None)
        return found

    async def find(
        self,
        caller: Caller,
        key: str,
        pattern: Sequence[re.Pattern[str]],
        max_scanned: int,
        max_matches: int,
    ) -> dict[str, str]:
        """Return the signatures of matching files by path; ``pattern`` has one part per path level.

        Raises
        ------
        TooLarge
            If the search exceeds one of the limits.
        """
        row = await self.find_readable(caller, key)
        return await self.host(row).find(location_of(row), pattern, max_scanned, max_matches)

    async def usage(self, caller: Caller, key: str, is_fresh: bool = False) -> FolderUsage:
        """Return the number of files and bytes of a folder, and when they were counted."""
        row, _ = await self._access.for_files(caller, key)
        return await self._quotas.usage(row, is_fresh)

    async def download(self, caller: Caller, key: str, path: str) -> tuple[str, OpenFile]:
        """Open a file for download; return the folder's id and the open file.

        The caller must close the file.
        """
        row = await self.find_readable(caller, key)
        opened = await self.host(row).open_download(location_of(row), path)
        try:
            await self.record(caller, "vfolder.download", row, path=path, bytes=opened.size)
        except BaseException:
            await opened.close()
            raise
        return row.id, opened

    async def archive(
        self, caller: Caller, key: str, paths: Sequence[str], form: str
    ) -> tuple[str, ArchiveStream, str]:
        """Open an archive of ``paths``; return the id of the folder, the archive and a file name.

        The caller must close the archive.
        ``form`` is ``zip`` or ``tar``.
        """
        row = await self.find_readable(caller, key)
        stream = await self.host(row).open_archive(location_of(row), paths, form)
        try:
            await self.record(caller, "vfolder.download", row, paths=list(paths)[:20])
        except BaseException:
            await stream.close()
            raise
        top = paths[0].strip("/").rpartition("/")[2] if len(paths) == 1 else ""
        return row.id, stream, f"{top or row.name}.{form}"

    async def upload(
        self, caller: Caller, key: str, path: str, size_bytes: int | None,
        expected: Precondition = NO_PRECONDITION,
    ) -> FileUpload:  # fmt: skip
        """Start receiving a file; ``size_bytes`` is None if unknown. See ``FileUpload``.

        Raises
        ------
        TooLarge, QuotaExceeded
            If the upload exceeds the maximum size of a file, or the remaining quota of the folder's
            quota scope.
        Forbidden
            If the caller may only read the folder, or may not upload to the storage host.
        Conflict
            If the path is a directory, a link or a special file.
        Changed
            If the existing file does not match ``expected``.
        """
        row = await self.find_writable(caller, key, size_bytes or 0)
        await self.host(row).check_target(location_of(row), path, size_bytes or 0, expected)
        writer, space = await self._staged(row, size_bytes or 0)
        return FileUpload(self, row, path, writer, expected, space)

    async def upload_archive(
        self, caller: Caller, key: str, path: str, size_bytes: int | None
    ) -> ArchiveUpload:
        """Start receiving a tar archive; ``commit`` unpacks it into the directory ``path``."""
        row = await self.find_writable(caller, key, size_bytes or 0)
        writer, space = await self._staged(row, size_bytes or 0)
        return ArchiveUpload(self, row, path, writer, NO_PRECONDITION, space)

    async def _staged(self, row: VfolderRow, size_bytes: int) -> tuple[Writer, Reservation]:
        """Reserve ``size_bytes`` bytes for an upload, and open its staged file."""
        space = self.reservation(row)
        try:
            await space.require(size_bytes)
            return await self.host(row).writer(location_of(row)), space
        except BaseException:
            space.release()
            raise

    async def commit(
        self,
        caller: Caller,
        row: VfolderRow,
        path: str,
        writer: Writer,
        expected: Precondition,
        space: Reservation,
    ) -> Entry:
        """Move a completely received file to its path, if the caller is still allowed to write.

        ``space`` is the reservation for the file's bytes.
        """
        # Check again, because an upload can take hours and permissions may have changed in the
        # meantime.
        await self.check_writable(caller, row)
        entry = await self.host(row).commit(
            location_of(row), writer, path, await self._uid(caller, row), expected
        )
        space.use(entry.size)
        self._changes.files_changed(row)
        await self.record(caller, "vfolder.upload", row, path=path, bytes=entry.size)
        return entry

    async def unpack(
        self,
        caller: Caller,
        row: VfolderRow,
        path: str,
        writer: Writer,
        space: Reservation,
        max_bytes: int | None = None,
    ) -> Unpacked:
        """Unpack a completely received archive, if the caller is still allowed to write.

        The size of its content is reserved in ``space`` before a file becomes visible.
        ``max_bytes``: maximum size of the content, if lower than the general limit for archives.
        """
        await self.check_writable(caller, row)

        async def require(size_bytes: int) -> None:
            await self.check_writable(caller, row)
            await space.require(size_bytes)

        remaining = await self._quotas.remaining_bytes(row, space.uploads)
        limits = (self.max_file_bytes, remaining, max_bytes)
        unpacked = await self.host(row).unpack(
            location_of(row),
            writer,
            path,
            await self._uid(caller, row),
            min(limit for limit in limits if limit is not None),
            require,
        )
        space.use(unpacked.bytes)
        self._changes.files_changed(row)
        facts = {"path": path, "files": unpacked.files, "bytes": unpacked.bytes}
        await self.record(caller, "vfolder.upload", row, **facts)
        return unpacked

    async def make_directories(
        self, caller: Caller, key: str, paths: Sequence[str], exists_ok: bool
    ) -> list[str]:
        """Create directories, including missing parents."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        uid = await self._uid(caller, row)
        for path in paths:
            await self.host(row).make_directory(location_of(row), path, exists_ok, uid)
        self._changes.files_changed(row)
        await self.record(caller, "vfolder.make-directories", row, paths=list(paths)[:20])
        return list(paths)

    async def move(
        self, caller: Caller, key: str, source: str, target: str, replaces: bool
    ) -> Entry:
        """Move or rename a file or directory inside a folder."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        uid = await self._uid(caller, row)
        entry = await self.host(row).move(location_of(row), source, target, replaces, uid)
        self._changes.files_changed(row)
        await self.record(caller, "vfolder.move-file", row, path=source, target=target)
        return entry

    async def copy(self, caller: Caller, key: str, source: str, target: str) -> Entry:
        """Copy a file, or a directory with its contents, inside a folder."""
        row = await self.find_writable(caller, key, 0)
        uid, progress = await self._uid(caller, row), CopyProgress()
        with self.reservation(row) as space:
            if await self._quotas.remaining_bytes(row) is not None:
                size = await self.host(row).content_bytes(location_of(row), source)
                await space.require(size, headroom_bytes(size))
                progress.limit_bytes = space.size
            try:
                entry = await self.host(row).copy(location_of(row), source, target, uid, progress)
            except asyncio.CancelledError:
                progress.is_cancelled = True
                raise
            space.use(progress.bytes)
        self._changes.files_changed(row)
        await self.record(caller, "vfolder.copy-file", row, path=source, target=target)
        return entry

    async def remove(self, caller: Caller, key: str, path: str, is_recursive: bool = False) -> None:
        """Remove a file, link or empty directory or, with ``is_recursive``, a directory tree."""
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        await self.host(row).remove(location_of(row), path, is_recursive)
        self._changes.files_changed(row)
        await self.record(caller, "vfolder.remove-file", row, path=path)

    def abort_in_background(self, upload: Abortable) -> None:
        """Abort an upload without waiting, after its client has disconnected; idempotent."""
        upload.on_disconnect()
        task = asyncio.create_task(upload.abort(), name="abort upload")
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def find_writable(self, caller: Caller, key: str, size_bytes: int) -> VfolderRow:
        """Return a folder, if the caller may upload ``size_bytes`` bytes to it."""
        self.check_size(size_bytes)
        row, _ = await self._access.for_files(caller, key, is_writing=True)
        await self._hosts.require(caller, row.host, "upload-file", row.project_id)
        if size_bytes:
            await self._quotas.require_space(row, size_bytes)
        return row

    async def check_writable(self, caller: Caller, row: VfolderRow) -> None:
        """Raise an error if the caller may no longer write to the folder."""
        await self._access.for_files(caller, row.id, is_writing=True)

    def check_size(self, size_bytes: int) -> None:
        """Raise ``TooLarge`` if ``size_bytes`` exceeds the maximum size of a file."""
        if size_bytes > self.max_file_bytes:
            raise TooLarge(
                f"a file can have at most {self.max_file_bytes} bytes; this one has at least "
                f"{size_bytes}",
                limit_bytes=self.max_file_bytes,
            )

    def reservation(self, row: VfolderRow, uploads: Sequence[str] = ()) -> Reservation:
        """Return an empty reservation that replaces the announced bytes of ``uploads``."""
        return self._quotas.reservation(row, uploads=uploads)

    def host(self, row: VfolderRow) -> StorageHost:
        return self._hosts.get(row.host)

    async def record(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> None:
        """Write an audit entry for a file operation."""
        shortened = {name: _short(value) for name, value in details.items()}
        entry = self._audit.entry(
            caller,
            action,
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **shortened,
        )
        await self._audit.add(entry)

    async def find_readable(self, caller: Caller, key: str) -> VfolderRow:
        """Return a folder, if the caller may download its files."""
        row, _ = await self._access.for_files(caller, key)
        await self._hosts.require(caller, row.host, "download-file", row.project_id)
        return row

    async def _uid(self, caller: Caller, row: VfolderRow) -> int:
        uid = await self._grants.container_uid(row.owner_id or caller.user_id)
        return DEFAULT_UID if uid is None else uid


class Abortable(Protocol):
    """An upload that can be aborted."""

    def on_disconnect(self) -> None:
        """Abort the upload after a disconnection of the client; must not block."""
        ...

    async def abort(self) -> None:
        """Release all resources; idempotent."""
        ...


class OpenFile(Protocol):
    """A file that is open for a download; the caller must call ``close``."""

    size: int
    modified_at: datetime
    etag: str

    def chunks(self, start: int, length: int) -> AsyncIterator[bytes]:
        """Yield ``length`` bytes from ``start``; fewer only if the file shrinks during the read."""
        ...

    async def send(self, sock: socket.socket, start: int, length: int) -> int:
        """Send bytes to a socket with sendfile; return the number sent."""
        ...

    async def close(self) -> None: ...


class Upload(Abortable, Protocol[Result]):
    """An upload in progress; ``commit`` completes it and returns its result.

    ``commit`` receives the caller as authenticated at the end of the upload.
    """

    async def write(self, chunk: bytes) -> None: ...

    async def receive(self, receive: Receive, size: int) -> None: ...

    async def commit(self, caller: Caller) -> Result: ...


class _ReceivedFile(ABC, Generic[T]):
    """A file that is received in one request; it is invisible until ``commit``."""

    def __init__(
        self,
        files: Files,
        row: VfolderRow,
        path: str,
        writer: Writer,
        expected: Precondition,
        space: Reservation,
    ) -> None:
        self._files = files
        self._row = row
        self._path = path
        self._writer = writer
        self._expected = expected
        self._space = space
        self._is_committing = False
        self._buffer = WriteBuffer(files.host(row), writer)
        self._size = 0

    async def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._files.check_size(self._size)
        # A body of unknown length reserves its bytes while it is received.
        await self._space.require(self._size, headroom_bytes(self._size))
        await self._buffer.write(chunk)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly from the socket."""
        self._size += size
        await self._buffer.receive(receive, size)

    def on_disconnect(self) -> None:
        """Do nothing; ``ArchiveUpload`` overrides this to stop unpacking."""

    async def commit(self, caller: Caller) -> T:
        """Complete the upload, if the caller is still allowed to write."""
        self._is_committing = True
        with self._space:
            await self._buffer.flush()
            return await self._finish(caller)

    async def abort(self) -> None:
        # After a disconnect, a ``commit`` in progress continues and needs its reservation.
        if not self._is_committing:
            self._space.release()
        await self._buffer.close(writes_rest=False)
        await self._files.host(self._row).discard(self._writer)

    @abstractmethod
    async def _finish(self, caller: Caller) -> T: ...


class FileUpload(_ReceivedFile[Entry]):
    """A file that ``commit`` moves to its path."""

    async def _finish(self, caller: Caller) -> Entry:
        await self._space.require(self._size)
        return await self._files.commit(
            caller, self._row, self._path, self._writer, self._expected, self._space
        )


class ArchiveUpload(_ReceivedFile[Unpacked]):
    """A tar archive that is received in one request and unpacked by ``commit``."""

    _final_step: FinalStep[Unpacked] | None = None

    def on_disconnect(self) -> None:
        if self._final_step is not None:
            self._final_step.stop()

    async def _finish(self, caller: Caller) -> Unpacked:
        # The archive is deleted after unpacking; only its content counts towards the quota.
        self._space.release()
        with self._files.reservation(self._row) as space:
            self._final_step = FinalStep(
                self._files.unpack(caller, self._row, self._path, self._writer, space)
            )
            unpacked = await self._final_step.result()
        await self.abort()
        return unpacked


class FinalStep(Generic[T]):
    """The final step of an upload as a task, which ``stop`` cancels."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.create_task(work, name="finish upload")

    def stop(self) -> None:
        self._task.cancel()

    async def result(self) -> T:
        """Wait for the step; return its result.

        Raises
        ------
        Conflict
            If the step was stopped.
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
