"""Resumable uploads: started, continued after any interruption, finished when complete."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Conflict, InvalidRequest, NotFound, TooLarge
from bai_services.core.folders.vfolders import Precondition
from bai_services.db.folders.vfolders import VfolderRow
from bai_services.storage.base import Entry
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import UploadFacts, Writer, expiry
from bai_services.storage.transfers.uploads import ResumableUploads

from ..settings import Settings
from .files import Files, Landing
from .open_uploads import OpenUploads
from .quotas import location_of
from .storage_hosts import StorageHosts
from .write_buffer import Receive, WriteBuffer

MAX_PARTS = 1000
CHECKSUMS = ("md5", "sha1", "sha256", "sha512")


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A requested upload: a file, a part of one, or an archive to unpack."""

    path: str
    length: int
    is_partial: bool = False
    is_archive: bool = False
    parts: Sequence[str] = ()
    etag: str | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an upload; ``entry`` is the finished file, in the answer to the last piece."""

    id: str
    vfolder_id: str
    offset: int
    length: int
    expires_at: float
    is_partial: bool
    is_done: bool
    entry: Entry | None = None


class Uploads:
    """One method per verb; only the user who started an upload can see it."""

    def __init__(self, files: Files, hosts: StorageHosts, settings: Settings) -> None:
        self._files = files
        self._open = OpenUploads(hosts, settings.max_open_uploads)
        self._expiry_seconds = settings.upload_expiry_seconds
        self.max_bytes = settings.max_file_bytes
        # The request that is sending a piece, by upload id: a newer request replaces an older one.
        self._active: dict[str, Piece] = {}

    async def require(self, caller: Caller, key: str) -> None:
        """Raise what ``create`` would raise for the caller, whatever the upload."""
        await self._row(caller, key)

    async def create(self, caller: Caller, key: str, spec: UploadRequest) -> Progress:
        """Start an upload; one made of ``parts`` is finished at once.

        Raises
        ------
        TooLarge, QuotaExceeded, StorageFull
            If there is no space for it and the other announced uploads, or the caller has too
            many unfinished uploads.
        Changed
            If the file at its path is not as expected.
        Conflict
            If a part is incomplete, or something else is at its path.
        """
        row = await self._files.writable(caller, key, spec.length)
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
            return await self._land(caller, row, facts, writer)
        return _progress(facts)

    async def state(self, caller: Caller, key: str, upload_id: str) -> Progress:
        """Return the progress of an upload; a request that is sending a piece of it is cut off.

        An upload that is complete but not finished is finished now, or the reason why it cannot be
        is raised: otherwise the client would consider it done.
        """
        row = await self._row(caller, key)
        await self._cut_off(upload_id)
        facts = await self._facts(caller, row, upload_id)
        if facts.offset < facts.length or facts.is_partial or facts.is_done:
            return _progress(facts)
        writer = await self._staged(row).writer(facts.id)
        return await self._land(caller, row, facts, writer)

    async def piece(
        self,
        caller: Caller,
        key: str,
        upload_id: str,
        offset: int,
        checksum: tuple[str, bytes] | None,
    ) -> Piece:
        """Continue an upload at its current offset.

        Raises
        ------
        Conflict
            If ``offset`` is not its current offset, or it is complete.
        """
        row = await self._row(caller, key)
        await self._cut_off(upload_id)
        facts = await self._facts(caller, row, upload_id)
        if facts.offset != offset:
            raise Conflict(
                f"the upload is at {facts.offset}, not at {offset}; continue there",
                offset=facts.offset,
            )
        if facts.is_done:
            raise Conflict("the upload is complete", offset=facts.offset)
        writer = await self._staged(row).writer(facts.id, checksum)
        made = Piece(self, caller, row, facts, writer)
        self._active[upload_id] = made
        return made

    async def delete(self, caller: Caller, key: str, upload_id: str) -> None:
        """Abort an upload; the bytes sent so far are deleted."""
        row = await self._row(caller, key)
        await self._cut_off(upload_id)
        await self._facts(caller, row, upload_id)
        await self._staged(row).remove(upload_id)
        self._open.ended(upload_id)

    def forget(self, piece: Piece) -> None:
        """Keep what was received of a piece whose connection broke, in the background."""
        self._files.forget(piece)

    async def finish(
        self, caller: Caller, row: VfolderRow, facts: UploadFacts, writer: Writer
    ) -> Progress:
        """Finish an upload that is complete; otherwise return its progress."""
        facts = _at(facts, writer.size)
        if facts.offset < facts.length or facts.is_partial:
            writer.close()
            return _progress(facts)
        return await self._land(caller, row, facts, writer)

    def ended(self, piece: Piece, upload_id: str) -> None:
        if self._active.get(upload_id) is piece:
            del self._active[upload_id]

    def host_of(self, row: VfolderRow) -> StorageHost:
        return self._files.host(row)

    async def _land(
        self, caller: Caller, row: VfolderRow, facts: UploadFacts, writer: Writer
    ) -> Progress:
        entry = None
        try:
            if facts.is_archive:
                await self._files.unpack(caller, row, facts.path, writer)
            else:
                expected = Precondition(facts.etag, facts.is_new)
                entry = await self._files.land(caller, row, facts.path, writer, expected)
        finally:
            writer.close()
        await self._staged(row).finish(facts)
        self._open.ended(facts.id)
        return _progress(_at(facts, facts.length), is_done=True, entry=entry)

    async def _join(
        self, caller: Caller, row: VfolderRow, facts: UploadFacts, parts: Sequence[str]
    ) -> Progress:
        if len(parts) > MAX_PARTS or len(set(parts)) < len(parts):
            raise InvalidRequest(f"an upload has at most {MAX_PARTS} parts, each once")
        length = 0
        for part in parts:
            known = await self._facts(caller, row, part)
            if not known.is_partial or known.offset < known.length:
                raise Conflict(f"part {part} is incomplete, or not a part", part=part)
            length += known.length
        self._files.check_size(length)
        whole = _at(facts, length, length)
        staged = self._staged(row)
        await staged.join(whole, parts)
        try:
            done = await self._land(caller, row, whole, await staged.writer(whole.id))
        except BaseException:
            await staged.remove(whole.id)
            raise
        for part in parts:
            await staged.remove(part)
            self._open.ended(part)
        return done

    async def _begin(self, row: VfolderRow, facts: UploadFacts) -> None:
        await self._open.read()
        announced = self._open.announced_bytes(row.host, row.scope)
        await self._files.check_room(row, announced + facts.length)
        self._open.begin(row.host, row.scope, facts)
        try:
            await self._staged(row).begin(facts)
        except BaseException:
            self._open.ended(facts.id)
            raise

    async def _row(self, caller: Caller, key: str) -> VfolderRow:
        return await self._files.writable(caller, key, 0)

    async def _facts(self, caller: Caller, row: VfolderRow, upload_id: str) -> UploadFacts:
        facts = await self._staged(row).recover(upload_id)
        if facts.vfolder_id != row.id or facts.user_id != (caller.user_id or ""):
            raise NotFound("there is no such upload, or it has expired")
        return facts

    def _staged(self, row: VfolderRow) -> ResumableUploads:
        return self._files.host(row).uploads(location_of(row))

    async def _cut_off(self, upload_id: str) -> None:
        active = self._active.get(upload_id)
        if active is not None:
            await active.abort()


class Piece:
    """The bytes that one request adds to an upload."""

    def __init__(
        self, uploads: Uploads, caller: Caller, row: VfolderRow, facts: UploadFacts, writer: Writer
    ) -> None:
        self._uploads = uploads
        self._caller = caller
        self._row = row
        self._facts = facts
        self._writer = writer
        self._host = uploads.host_of(row)
        self._pieces = WriteBuffer(self._host, writer)
        self._size = facts.offset
        self._is_over = False
        self._ending = asyncio.Lock()
        self._landing: Landing | None = None

    async def write(self, chunk: bytes) -> None:
        self._check(len(chunk))
        await self._pieces.write(chunk)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly from the socket."""
        self._check(size)
        await self._pieces.receive(receive, size)

    async def commit(self) -> Progress:
        """Acknowledge: all received bytes are on the disk from now on.

        Raises
        ------
        ChecksumMismatch
            If they do not match the announced checksum; then they are dropped.
        """
        async with self._ending:
            if self._is_over:
                raise Conflict("another request has continued this upload")
            await self._pieces.flush()
            await self._host.run(self._writer.sync)
            self._is_over = True
            self._landing = Landing(
                self._uploads.finish(self._caller, self._row, self._facts, self._writer)
            )
            try:
                done: Progress = await self._landing.result()
                return done
            finally:
                self._uploads.ended(self, self._facts.id)

    def hang_up(self) -> None:
        """Stop unpacking for a disconnected client; a query of the state starts it again."""
        if self._landing is not None and self._facts.is_archive:
            self._landing.stop()

    def _check(self, size: int) -> None:
        if self._is_over:
            raise Conflict("another request has continued this upload")
        self._size += size
        if self._size > self._facts.length:
            raise TooLarge(
                f"the upload was announced with {self._facts.length} bytes, but has more",
                limit_bytes=self._facts.length,
            )

    async def abort(self) -> None:
        """Keep the received bytes, unless their checksum was still to come; idempotent."""
        async with self._ending:
            if self._is_over:
                return
            self._is_over = True
            try:
                await self._pieces.settle(keeps_rest=not self._writer.is_unchecked)
                await self._host.run(self._writer.drop)
            finally:
                self._writer.close()
                self._uploads.ended(self, self._facts.id)


def _at(facts: UploadFacts, offset: int, length: int | None = None) -> UploadFacts:
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
