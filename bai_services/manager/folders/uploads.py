"""Resumable uploads: start, resume after an interruption, finish when complete."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, InvalidRequest, NotFound, TooLarge
from bai_services.core.folders.entries import Entry
from bai_services.core.folders.vfolders import Precondition
from bai_services.db.folders.rows import VfolderRow
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import UploadFacts, Writer, expiry
from bai_services.storage.transfers.uploads import ResumableUploads

from ..settings import Settings
from .files import Files, FinalStep
from .open_uploads import OpenUploads
from .quotas import location_of
from .write_buffer import Receive, WriteBuffer

MAX_PARTS = 1000
CHECKSUMS = ("md5", "sha1", "sha256", "sha512")


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A requested upload: a file, a part of a file, or an archive to unpack.

    ``length`` is in bytes. ``parts``: ids of the partial uploads to join. ``etag`` and ``is_new``:
    see ``Precondition``.
    """

    path: str
    length: int
    is_partial: bool = False
    is_archive: bool = False
    parts: Sequence[str] = ()
    etag: str | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an upload; when a file is finished, ``entry`` describes the file.

    ``offset`` and ``length`` are in bytes; ``expires_at`` is a Unix time in seconds.
    """

    id: str
    vfolder_id: str
    offset: int
    length: int
    expires_at: float
    is_partial: bool
    is_done: bool
    entry: Entry | None = None


class Uploads:
    """Manages uploads. Only the user who started an upload can see it."""

    def __init__(self, files: Files, open_uploads: OpenUploads, settings: Settings) -> None:
        self._files = files
        self._open_uploads = open_uploads
        self._expiry_seconds = settings.upload_expiry_seconds
        self.max_bytes = settings.max_file_bytes
        # By upload id: the chunk in progress, which a newer request for the upload aborts.
        self._active: dict[str, UploadChunk] = {}

    async def require(self, caller: Caller, key: str) -> None:
        """Raise an error if the caller may not upload to the folder."""
        await self._row(caller, key)

    async def create(self, caller: Caller, key: str, spec: UploadRequest) -> Progress:
        """Start an upload; if ``spec`` has parts, join them and finish the upload immediately.

        Raises
        ------
        TooLarge, QuotaExceeded, StorageFull
            If the upload exceeds the maximum size of a file, if there is not enough space for this
            upload and the unfinished ones, or if the caller has too many unfinished uploads.
        Changed
            If the existing file does not match ``etag`` or ``is_new``.
        Conflict
            If a part is incomplete, or the path is not a file.
        InvalidRequest
            If there are more than ``MAX_PARTS`` parts, or a part is listed twice.
        NotFound
            If there is no such part.
        """
        row = await self._files.find_writable(caller, key, spec.length)
        host, location = self._files.host(row), location_of(row)
        if not spec.is_partial and not spec.is_archive:
            expected = Precondition(spec.etag, spec.is_new)
            await host.check_target(location, spec.path, spec.length, expected)
        now, end = expiry(self._expiry_seconds)
        facts = UploadFacts(
            id=str(uuid.uuid4()),
            vfolder_id=row.id,
            path=spec.path,
            length=spec.length,
            user_id=caller.user_id or "",
            created_at=now,
            expires_at=end,
            is_partial=spec.is_partial,
            is_archive=spec.is_archive,
            etag=spec.etag,
            is_new=spec.is_new,
        )
        if spec.parts:
            return await self._join(caller, row, facts, spec.parts)
        await self._begin(row, facts)
        if facts.length == 0 and not facts.is_partial:
            writer = await host.uploads(location).writer(facts.id)
            return await self._finish(caller, row, facts, writer)
        return _progress(facts)

    async def prepare_resume(self, caller: Caller, key: str, upload_id: str) -> Progress:
        """Return the progress of an upload; abort a chunk in progress.

        If all bytes were received but the final step failed, repeat the final step now. Its error
        is raised, because otherwise the client would consider the upload done.
        """
        row = await self._row(caller, key)
        await self._abort_active(upload_id)
        facts = await self._facts(caller, row, upload_id)
        if facts.offset < facts.length or facts.is_partial or facts.is_done:
            return _progress(facts)
        writer = await self._resumable_uploads(row).writer(facts.id)
        return await self._finish(caller, row, facts, writer)

    async def open_chunk(
        self,
        caller: Caller,
        key: str,
        upload_id: str,
        offset: int,
        checksum: tuple[str, bytes] | None,
    ) -> UploadChunk:
        """Open the next chunk of an upload at its current offset.

        Raises
        ------
        Conflict
            If ``offset`` is not the current offset, or the upload is complete.
        NotFound
            If the caller has no such upload.
        """
        row = await self._row(caller, key)
        await self._abort_active(upload_id)
        facts = await self._facts(caller, row, upload_id)
        if facts.offset != offset:
            raise Conflict(
                f"the upload has {facts.offset} bytes; resume at this offset, not at {offset}",
                offset=facts.offset,
            )
        if facts.is_done:
            raise Conflict("the upload is complete", offset=facts.offset)
        writer = await self._resumable_uploads(row).writer(facts.id, checksum)
        chunk = UploadChunk(self, row, facts, writer)
        self._active[upload_id] = chunk
        return chunk

    async def delete(self, caller: Caller, key: str, upload_id: str) -> None:
        """Abort an upload and delete the received bytes."""
        row = await self._row(caller, key)
        await self._abort_active(upload_id)
        await self._facts(caller, row, upload_id)
        await self._resumable_uploads(row).remove(upload_id)
        self._open_uploads.end(upload_id)

    def abort_in_background(self, chunk: UploadChunk) -> None:
        """Abort a chunk whose connection broke, without waiting; see ``UploadChunk.abort``."""
        self._files.abort_in_background(chunk)

    async def finish(
        self, caller: Caller, row: VfolderRow, facts: UploadFacts, writer: Writer
    ) -> Progress:
        """Finish an upload if it is complete; return its progress."""
        facts = _with_offset(facts, writer.size)
        if facts.offset < facts.length or facts.is_partial:
            writer.close()
            return _progress(facts)
        return await self._finish(caller, row, facts, writer)

    def extend(self, upload_id: str) -> float:
        """Postpone the expiry of an upload that receives data; return the new time of expiry."""
        _, end = expiry(self._expiry_seconds)
        self._open_uploads.extend(upload_id, end)
        return end

    def end_chunk(self, chunk: UploadChunk, upload_id: str) -> None:
        """Unregister a chunk."""
        if self._active.get(upload_id) is chunk:
            del self._active[upload_id]

    def host_of(self, row: VfolderRow) -> StorageHost:
        """Return the storage host of a folder."""
        return self._files.host(row)

    async def _finish(
        self,
        caller: Caller,
        row: VfolderRow,
        facts: UploadFacts,
        writer: Writer,
        parts: Sequence[str] = (),
    ) -> Progress:
        entry = None
        uploads = (facts.id, *parts)
        with self._files.reservation(row, uploads) as space:
            try:
                if facts.is_archive:
                    await self._files.unpack(caller, row, facts.path, writer, space)
                else:
                    await space.require(facts.length)
                    expected = Precondition(facts.etag, facts.is_new)
                    entry = await self._files.commit(
                        caller, row, facts.path, writer, expected, space
                    )
            finally:
                writer.close()
            await self._resumable_uploads(row).finish(facts)
            for upload in uploads:
                self._open_uploads.end(upload)
        return _progress(_with_offset(facts, facts.length), is_done=True, entry=entry)

    async def _join(
        self, caller: Caller, row: VfolderRow, facts: UploadFacts, parts: Sequence[str]
    ) -> Progress:
        if len(parts) > MAX_PARTS or len(set(parts)) < len(parts):
            raise InvalidRequest(
                f"the upload lists {len(parts)} parts, {len(set(parts))} of them different; it can "
                f"have at most {MAX_PARTS} parts, each only once"
            )
        length = 0
        for part in parts:
            known = await self._facts(caller, row, part)
            if not known.is_partial or known.offset < known.length:
                raise Conflict(
                    f"upload {part} is incomplete, or was not started as a partial upload",
                    part=part,
                )
            length += known.length
        self._files.check_size(length)
        whole = _with_offset(facts, length, length)
        staged = self._resumable_uploads(row)
        await staged.join(whole, parts)
        try:
            done = await self._finish(caller, row, whole, await staged.writer(whole.id), parts)
        except BaseException:
            await staged.remove(whole.id)
            raise
        for part in parts:
            await staged.remove(part)
        return done

    async def _begin(self, row: VfolderRow, facts: UploadFacts) -> None:
        await self._open_uploads.read()
        with self._files.reservation(row) as space:
            await space.require(facts.length)
            # Do not await here: the announced bytes must replace the reservation in one step.
            self._open_uploads.begin(row.host, row.scope, facts)
        try:
            await self._resumable_uploads(row).begin(facts)
        except BaseException:
            self._open_uploads.end(facts.id)
            raise

    async def _row(self, caller: Caller, key: str) -> VfolderRow:
        return await self._files.find_writable(caller, key, 0)

    async def _facts(self, caller: Caller, row: VfolderRow, upload_id: str) -> UploadFacts:
        facts = await self._resumable_uploads(row).recover(upload_id)
        if facts.vfolder_id != row.id or facts.user_id != (caller.user_id or ""):
            raise NotFound("there is no such upload, or it has expired")
        return facts

    def _resumable_uploads(self, row: VfolderRow) -> ResumableUploads:
        return self._files.host(row).uploads(location_of(row))

    async def _abort_active(self, upload_id: str) -> None:
        active = self._active.get(upload_id)
        if active is not None:
            await active.abort()


class UploadChunk:
    """The bytes that one request adds to an upload."""

    def __init__(
        self, uploads: Uploads, row: VfolderRow, facts: UploadFacts, writer: Writer
    ) -> None:
        self._uploads = uploads
        self._row = row
        self._facts = facts
        self._writer = writer
        self._host = uploads.host_of(row)
        self._buffer = WriteBuffer(self._host, writer)
        self._size = facts.offset
        self._expires_at = facts.expires_at
        self._has_ended = False
        self._end_lock = asyncio.Lock()
        self._final_step: FinalStep[Progress] | None = None

    async def write(self, chunk: bytes) -> None:
        self._check(len(chunk))
        self._extend()
        await self._buffer.write(chunk)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly from the socket."""

        async def receive_part(view: memoryview) -> int:
            count = await receive(view)
            self._extend()
            return count

        self._check(size)
        await self._buffer.receive(receive_part, size)

    async def commit(self, caller: Caller) -> Progress:
        """Sync the received bytes to disk; finish the upload if it is complete.

        Raises
        ------
        ChecksumMismatch
            If the bytes do not match the announced checksum; they are discarded.
        Conflict
            If another request has aborted this chunk.
        """
        async with self._end_lock:
            if self._has_ended:
                raise Conflict("another request has resumed this upload")
            await self._buffer.flush()
            await self._host.run(self._writer.sync)
            self._has_ended = True
            facts = replace(self._facts, expires_at=self._expires_at)
            self._final_step = FinalStep(
                self._uploads.finish(caller, self._row, facts, self._writer)
            )
            try:
                return await self._final_step.result()
            finally:
                self._uploads.end_chunk(self, self._facts.id)

    def on_disconnect(self) -> None:
        """Stop unpacking for a disconnected client; ``prepare_resume`` restarts it."""
        if self._final_step is not None and self._facts.is_archive:
            self._final_step.stop()

    def _extend(self) -> None:
        self._expires_at = self._uploads.extend(self._facts.id)

    def _check(self, size: int) -> None:
        if self._has_ended:
            raise Conflict("another request has resumed this upload")
        self._size += size
        if self._size > self._facts.length:
            raise TooLarge(
                f"the upload was announced with {self._facts.length} bytes, but more were sent",
                limit_bytes=self._facts.length,
            )

    async def abort(self) -> None:
        """Store the received bytes, unless their checksum cannot be checked yet; idempotent."""
        async with self._end_lock:
            if self._has_ended:
                return
            self._has_ended = True
            try:
                await self._buffer.close(writes_rest=not self._writer.is_unchecked)
                await self._host.run(self._writer.drop)
            finally:
                self._writer.close()
                self._uploads.end_chunk(self, self._facts.id)


def _with_offset(facts: UploadFacts, offset: int, length: int | None = None) -> UploadFacts:
    return replace(facts, offset=offset, length=facts.length if length is None else length)


def _progress(
    facts: UploadFacts, is_done: bool | None = None, entry: Entry | None = None
) -> Progress:
    return Progress(
        id=facts.id,
        vfolder_id=facts.vfolder_id,
        offset=facts.offset,
        length=facts.length,
        expires_at=facts.expires_at,
        is_partial=facts.is_partial,
        is_done=facts.is_done if is_done is None else is_done,
        entry=entry,
    )
