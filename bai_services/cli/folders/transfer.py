"""Parallel, resumable uploads and downloads of folder files, with progress bars."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from bai_services.client import Client
from bai_services.core.counts import counted
from bai_services.core.errors import BaiError, ChecksumMismatch, Conflict, NotFound, Unavailable

from .. import output
from ..text import printable
from .local_files import CompletedFiles, PartialFile, open_regular
from .upload_records import UploadRecords

T = TypeVar("T")

# Buffer size of reads and writes.
BUFFER_BYTES = 2**20
# Maximum size of one request of a resumable upload. After an interruption, at most one request per
# upload is sent again.
CHUNK_BYTES = 32 * 2**20
# Uploads of at least this size are resumable; a smaller file is sent again as a whole.
RESUMABLE_BYTES = 8 * 2**20
# Minimum size of a part, except the last. With ``parallel`` above 1, files of at least twice this
# size are uploaded in parallel parts.
PART_BYTES = 64 * 2**20
PART_ALIGNMENT = 2**20
MAX_PARTS = 16
# Files smaller than this are bundled into archives, if there are at least MIN_BUNDLED_FILES.
SMALL_BYTES = 2**20
MIN_BUNDLED_FILES = 8
MAX_BUNDLE_FILES = 2000
MAX_BUNDLE_BYTES = 64 * 2**20
# A request fails if it makes no progress for this time. There is no timeout for a whole transfer.
STALL_SECONDS = 300.0
MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file, its target path in the folder, and its size in bytes."""

    file: Path
    target: str
    size: int


@dataclass(slots=True)
class MultipartUpload:
    """A large file that is uploaded in parallel parts, which the server joins at the end."""

    item: Upload
    # Size and modification time at the start: the upload fails if the file changes later.
    fingerprint: tuple[int, int]
    task: Any
    keys: list[str] = field(default_factory=list)
    uploads: dict[int, str] = field(default_factory=dict)

    @property
    def starts(self) -> range:
        """The offset of each part.

        The offsets depend only on the file size, so that an upload can be resumed with another
        value of ``--parallel`` (above 1). They are multiples of 1 MiB, because btrfs and XFS join
        block-aligned parts without copying them.
        """
        step = max(PART_BYTES, -(-self.item.size // MAX_PARTS))
        return range(0, self.item.size, -(-step // PART_ALIGNMENT) * PART_ALIGNMENT)

    @property
    def is_complete(self) -> bool:
        return len(self.uploads) == len(self.starts)


@dataclass(frozen=True, slots=True)
class Download:
    """A file of the folder, with the listed size in bytes and ETag, and its local target path."""

    source: str
    file: Path
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A byte range of an open file that one upload sends, and the task of its progress bar."""

    source: BinaryIO
    start: int
    length: int
    task: Any


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show progress bars while the block runs, if standard error is a terminal."""
    console = output.progress_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        yield bars


async def in_parallel(
    work: Callable[[T], Awaitable[Any]], items: Sequence[T], parallel: int
) -> None:
    """Run ``work`` for every item, at most ``parallel`` at a time; stop at the first error."""
    pending = iter(items)

    async def worker() -> None:
        for item in pending:
            await work(item)

    tasks = [asyncio.create_task(worker()) for _ in range(min(parallel, len(items)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Uploader:
    """Uploads files to one folder. Large files can be resumed; many small files are bundled."""

    def __init__(
        self, client: Client, folder_path: str, bars: Progress, *, has_checksum: bool
    ) -> None:
        """``folder_path`` must contain the folder's id: uploads are resumed by path, and a name
        may later belong to another folder.
        """
        self._client = client
        self._folder = folder_path
        self._bars = bars
        self._has_checksum = has_checksum
        self._records = UploadRecords(f"{client.url}{folder_path}")

    async def send(self, files: Sequence[Upload], parallel: int) -> None:
        """Upload the files with at most ``parallel`` concurrent requests."""
        total = sum(item.size for item in files)
        self._total_task = self._bars.add_task(counted(len(files), "files"), total=total)
        small = [item for item in files if item.size < SMALL_BYTES]
        if len(small) < MIN_BUNDLED_FILES:
            small = []
        bundled = {id(item) for item in small}
        single = [item for item in files if id(item) not in bundled]
        steps: list[Callable[[], Awaitable[None]]] = [
            partial(self._send_bundle, bundle) for bundle in _bundles(small)
        ]
        for item in single:
            if parallel > 1 and item.size >= 2 * PART_BYTES:
                parts = self._start_multipart(item)
                steps += [partial(self._send_part, parts, start) for start in parts.starts]
            else:
                steps.append(partial(self._send_one, item))
        await in_parallel(lambda step: step(), steps, parallel)

    async def _send_one(self, item: Upload) -> None:
        task = self._bars.add_task(printable(item.target), total=item.size)
        with open_regular(item.file) as source:
            if item.size >= RESUMABLE_BYTES:
                await self._send_resumable(item, source, task)
            else:
                await self._client.call(
                    "PUT",
                    f"{self._folder}/content",
                    query={"path": item.target},
                    content=self._read(source, item.size, task),
                    timeout_seconds=STALL_SECONDS,
                )
        self._bars.remove_task(task)

    async def _send_resumable(self, item: Upload, source: BinaryIO, task: Any) -> None:
        status = os.fstat(source.fileno())
        key = f"{item.target} {status.st_size} {status.st_mtime_ns} {item.file}"
        byte_range = ByteRange(source, 0, item.size, task)
        await self._send_range(byte_range, key, {"Upload-Metadata": _path_metadata(item)})
        self._records.delete(key)

    def _start_multipart(self, item: Upload) -> MultipartUpload:
        status = os.stat(item.file)
        task = self._bars.add_task(printable(item.target), total=item.size)
        return MultipartUpload(item, (status.st_size, status.st_mtime_ns), task)

    async def _send_part(self, parts: MultipartUpload, start: int) -> None:
        item = parts.item
        length = min(parts.starts.step, item.size - start)
        key = f"{item.target} {parts.fingerprint} {start}+{length} {item.file}"
        with open_regular(item.file) as source:
            status = os.fstat(source.fileno())
            if (status.st_size, status.st_mtime_ns) != parts.fingerprint:
                raise Conflict(f"{item.file} changed during the upload; upload it again")
            byte_range = ByteRange(source, start, length, parts.task)
            upload = await self._send_range(byte_range, key, {"Upload-Concat": "partial"})
        parts.keys.append(key)
        parts.uploads[start] = upload
        if parts.is_complete:
            await self._join(parts)

    async def _join(self, parts: MultipartUpload) -> None:
        urls = " ".join(parts.uploads[start] for start in parts.starts)
        try:
            await self._client.send(
                "POST",
                f"{self._folder}/uploads",
                headers={
                    "Upload-Concat": f"final;{urls}",
                    "Upload-Metadata": _path_metadata(parts.item),
                },
                timeout_seconds=STALL_SECONDS,
            )
        except (NotFound, Conflict):
            self._delete_records(parts)  # discard them: parts of a changed file cannot be joined
            raise
        self._delete_records(parts)
        self._bars.remove_task(parts.task)

    def _delete_records(self, parts: MultipartUpload) -> None:
        for key in parts.keys:
            self._records.delete(key)

    async def _send_range(self, byte_range: ByteRange, key: str, headers: Mapping[str, str]) -> str:
        """Send a byte range as one upload, and return the path of the upload in the REST API.

        An upload recorded under ``key`` is resumed; otherwise one is created with ``headers``.
        """
        upload, offset = await self._resume_or_create(key, byte_range.length, headers)
        self._bars.advance(byte_range.task, offset)
        self._bars.advance(self._total_task, offset)
        failures = 0
        while offset < byte_range.length:
            try:
                offset = await self._send_chunk(upload, byte_range, offset)
                failures = 0
            except (Unavailable, ChecksumMismatch, Conflict):
                failures += 1
                if failures >= MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(2**failures / 4)
                offset = await self._offset(upload)
        return upload

    async def _resume_or_create(
        self, key: str, length: int, headers: Mapping[str, str]
    ) -> tuple[str, int]:
        """Return the path and the offset of the upload recorded under ``key``, or of a new one."""
        known = self._records.get(key)
        if known is not None:
            with contextlib.suppress(NotFound):
                return known, await self._offset(known)
        response = await self._client.send(
            "POST",
            f"{self._folder}/uploads",
            headers={"Upload-Length": str(length), **headers},
        )
        upload = f"{self._folder}/uploads/{response.headers['Location'].rpartition('/')[2]}"
        self._records.put(key, upload)
        return upload, 0

    async def _offset(self, upload: str) -> int:
        response = await self._client.send("HEAD", upload)
        return int(response.headers["Upload-Offset"])

    async def _send_chunk(self, upload: str, byte_range: ByteRange, offset: int) -> int:
        """Send one chunk; return the offset after it."""
        length = min(CHUNK_BYTES, byte_range.length - offset)
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(length),
            "Tus-Resumable": "1.0.0",
            "Upload-Offset": str(offset),
        }
        if self._has_checksum:
            digest = await asyncio.to_thread(
                _digest, byte_range.source, byte_range.start + offset, length
            )
            headers["Upload-Checksum"] = f"sha256 {base64.b64encode(digest).decode()}"
        byte_range.source.seek(byte_range.start + offset)
        response = await self._client.send(
            "PATCH",
            upload,
            content=self._read(byte_range.source, length, byte_range.task),
            headers=headers,
            timeout_seconds=STALL_SECONDS,
        )
        return int(response.headers["Upload-Offset"])

    async def _send_bundle(self, items: Sequence[Upload]) -> None:
        await self._client.call(
            "PUT",
            f"{self._folder}/archive",
            content=self._tar_stream(items),
            timeout_seconds=STALL_SECONDS,
        )

    async def _tar_stream(self, items: Sequence[Upload]) -> AsyncIterator[bytes]:
        buffer = bytearray()
        for item in items:
            buffer += await asyncio.to_thread(_tar_member, item)
            self._bars.advance(self._total_task, item.size)
            if len(buffer) >= BUFFER_BYTES:
                yield bytes(buffer)
                buffer.clear()
        yield bytes(buffer) + b"\0" * tarfile.BLOCKSIZE * 2

    async def _read(self, source: BinaryIO, length: int, task: Any) -> AsyncIterator[bytes]:
        """Yield ``length`` bytes of a file and advance the progress bars."""
        remaining = length
        while remaining and (
            data := await asyncio.to_thread(source.read, min(BUFFER_BYTES, remaining))
        ):
            yield data
            remaining -= len(data)
            self._bars.advance(task, len(data))
            self._bars.advance(self._total_task, len(data))


async def fetch(
    client: Client,
    folder_path: str,
    item: Download,
    bars: Progress,
    completed: CompletedFiles,
    *,
    replaces: bool,
) -> None:
    """Download one file; resume an interrupted download, and skip a file in ``completed``.

    The file appears under its name only when it is complete.

    Raises
    ------
    BaiError
        If the local path is a directory, if the local file exists and ``replaces`` is False, or if
        the download is incomplete.
    """
    if completed.contains(item.file, item.etag):
        return
    partial_file = PartialFile(item.file, item.etag, replaces=replaces)
    task = bars.add_task(printable(item.source), total=item.size)
    for attempt in range(MAX_ATTEMPTS):
        try:
            await _receive(client, f"{folder_path}/content", item, partial_file, bars, task)
            break
        except Unavailable:
            if attempt + 1 == MAX_ATTEMPTS:
                raise
            await asyncio.sleep(2**attempt / 4)
    completed.add(item.file, item.etag, partial_file.part)
    partial_file.finish()
    bars.remove_task(task)


async def _receive(
    client: Client,
    path: str,
    item: Download,
    partial_file: PartialFile,
    bars: Progress,
    task: Any,
) -> None:
    with partial_file.open() as sink:
        received = os.fstat(sink.fileno()).st_size
        if received and received == item.size:
            return
        headers = {}
        if received and item.etag:
            headers = {"Range": f"bytes={received}-", "If-Range": f'"{item.etag}"'}
        async with client.stream(path, headers=headers, path=item.source) as response:
            if received and response.status_code != 206:
                sink.truncate(0)
                received = 0
            bars.update(task, completed=received)
            expected = received + int(response.headers.get("Content-Length", item.size - received))
            async for data in response.aiter_bytes(BUFFER_BYTES):
                await asyncio.to_thread(sink.write, data)
                bars.advance(task, len(data))
        sink.flush()
        received = os.fstat(sink.fileno()).st_size
    if received != expected:
        partial_file.part.unlink(missing_ok=True)
        raise BaiError(f"{item.source}: received {received} instead of {expected} bytes; try again")


def size(amount: Any) -> str:
    """Format a number of bytes with a decimal unit: ``1.5 GB``."""
    return decimal(int(amount))


def _path_metadata(item: Upload) -> str:
    return f"path {base64.b64encode(item.target.encode()).decode()}"


def _bundles(items: Sequence[Upload]) -> Iterator[list[Upload]]:
    bundle: list[Upload] = []
    bundle_bytes = 0
    for item in items:
        is_full = bundle_bytes + item.size > MAX_BUNDLE_BYTES or len(bundle) >= MAX_BUNDLE_FILES
        if bundle and is_full:
            yield bundle
            bundle, bundle_bytes = [], 0
        bundle.append(item)
        bundle_bytes += item.size
    if bundle:
        yield bundle


def _tar_member(item: Upload) -> bytes:
    """Return the tar header and the padded content of a small file."""
    with open_regular(item.file) as source:
        status = os.fstat(source.fileno())
        content = source.read()
    info = tarfile.TarInfo(item.target)
    info.size, info.mtime, info.mode = len(content), int(status.st_mtime), status.st_mode & 0o777
    padding = b"\0" * (-len(content) % tarfile.BLOCKSIZE)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + content + padding


def _digest(source: BinaryIO, offset: int, length: int) -> bytes:
    digest = hashlib.sha256()
    source.seek(offset)
    while length and (data := source.read(min(BUFFER_BYTES, length))):
        digest.update(data)
        length -= len(data)
    return digest.digest()
