"""Bytes between this machine's files and a folder: many at a time, resumed, with a bar."""

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
from bai_services.core.errors import BaiError, ChecksumMismatch, Conflict, NotFound, Unavailable

from .. import output
from ..text import printable
from .local_files import Landing, regular
from .upload_records import Memory

T = TypeVar("T")

CHUNK_BYTES = 2**20
# What one request of a resumable upload carries: so much is sent again at most.
PIECE_BYTES = 32 * 2**20
# From this size on an upload can be resumed; what is smaller is sent again.
RESUMABLE_BYTES = 8 * 2**20
# From this size on a file goes in parts side by side, of at least this much each.
PART_BYTES = 64 * 2**20
MAX_PARTS = 16
# Many files that are smaller than this travel together.
SMALL_BYTES = 2**20
BUNDLE_FILES = 2000
BUNDLE_BYTES = 64 * 2**20
FEWEST_BUNDLED = 8
# Between two pieces, not for the whole file.
STALL_SECONDS = 300.0
TRIES = 5


@dataclass(frozen=True, slots=True)
class Sending:
    """A file and its path in the folder."""

    file: Path
    target: str
    size: int


@dataclass(slots=True)
class Parts:
    """A big file that is sent in parts side by side, and becomes one when all have arrived."""

    item: Sending
    mark: tuple[int, int]
    """Size and time of change when it was begun: a file that changes meanwhile is no file."""
    task: Any
    keys: list[str] = field(default_factory=list)
    uploads: dict[int, str] = field(default_factory=dict)

    @property
    def starts(self) -> range:
        # By its size alone, so that it goes on whatever may be sent side by side the next time. In
        # whole MiB: at whole blocks btrfs and XFS join parts without a copy, elsewhere in seconds.
        step = max(PART_BYTES, -(-self.item.size // MAX_PARTS))
        return range(0, self.item.size, -(-step // CHUNK_BYTES) * CHUNK_BYTES)

    @property
    def is_complete(self) -> bool:
        return len(self.uploads) == len(self.starts)


@dataclass(frozen=True, slots=True)
class Fetching:
    """A file of the folder and where it goes; ``etag`` and size as it was listed."""

    source: str
    file: Path
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """What one upload carries of an open file, and the bar that shows it."""

    source: BinaryIO
    start: int
    length: int
    task: Any


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Show bars on standard error while the block runs; nothing unless it is a terminal."""
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
    ) as bar:
        yield bar


async def in_parallel(
    work: Callable[[T], Awaitable[Any]], items: Sequence[T], parallel: int
) -> None:
    """Do work on every item, so many at a time; the first error ends it."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    tasks = [asyncio.create_task(worker()) for _ in range(min(parallel, len(items)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Uploader:
    """Sends files to one folder: big ones so that they can be resumed, small ones together."""

    def __init__(self, client: Client, folder_path: str, bar: Progress, has_checksum: bool) -> None:
        """``folder_path`` is the folder's address by its id: what is resumed must be the same."""
        self._client = client
        self._folder = folder_path
        self._bar = bar
        self._has_checksum = has_checksum
        self._memory = Memory(f"{client.url}{folder_path}")

    async def send(self, files: Sequence[Sending], parallel: int) -> None:
        total = sum(item.size for item in files)
        self._all = self._bar.add_task(counted(files), total=total)
        small = [item for item in files if item.size < SMALL_BYTES]
        if len(small) < FEWEST_BUNDLED:
            small = []
        bundled = {id(item) for item in small}
        alone = [item for item in files if id(item) not in bundled]
        steps: list[Callable[[], Awaitable[None]]] = [
            partial(self._send_bundle, bundle) for bundle in _bundles(small)
        ]
        for item in alone:
            if parallel > 1 and item.size >= 2 * PART_BYTES:
                parts = self._divided(item)
                steps += [partial(self._send_part, parts, start) for start in parts.starts]
            else:
                steps.append(partial(self._send_one, item))
        await in_parallel(lambda step: step(), steps, parallel)

    async def _send_one(self, item: Sending) -> None:
        task = self._bar.add_task(printable(item.target), total=item.size)
        with regular(item.file) as source:
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
        self._bar.remove_task(task)

    async def _send_resumable(self, item: Sending, source: BinaryIO, task: Any) -> None:
        facts = os.fstat(source.fileno())
        key = f"{item.target} {facts.st_size} {facts.st_mtime_ns} {item.file}"
        span = Span(source, 0, item.size, task)
        await self._send_span(span, key, {"Upload-Metadata": _path_metadata(item)})
        self._memory.forget(key)

    def _divided(self, item: Sending) -> Parts:
        facts = os.stat(item.file)
        task = self._bar.add_task(printable(item.target), total=item.size)
        return Parts(item, (facts.st_size, facts.st_mtime_ns), task)

    async def _send_part(self, parts: Parts, start: int) -> None:
        item = parts.item
        length = min(parts.starts.step, item.size - start)
        key = f"{item.target} {parts.mark} {start}+{length} {item.file}"
        with regular(item.file) as source:
            facts = os.fstat(source.fileno())
            if (facts.st_size, facts.st_mtime_ns) != parts.mark:
                raise Conflict(f"{item.file} has changed while it was sent; send it again")
            span = Span(source, start, length, parts.task)
            upload = await self._send_span(span, key, {"Upload-Concat": "partial"})
        parts.keys.append(key)
        parts.uploads[start] = upload
        if parts.is_complete:
            await self._join(parts)

    async def _join(self, parts: Parts) -> None:
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
            self._forget(parts)  # these parts will never become a file
            raise
        self._forget(parts)
        self._bar.remove_task(parts.task)

    def _forget(self, parts: Parts) -> None:
        for key in parts.keys:
            self._memory.forget(key)

    async def _send_span(self, span: Span, key: str, headers: Mapping[str, str]) -> str:
        """Send a span of a file as one upload, going on with one of that key; return its address.

        ``headers`` are those of a new one.
        """
        upload, offset = await self._begun(key, span.length, headers)
        self._bar.advance(span.task, offset)
        self._bar.advance(self._all, offset)
        failures = 0
        while offset < span.length:
            try:
                offset = await self._send_piece(upload, span, offset)
                failures = 0
            except (Unavailable, ChecksumMismatch, Conflict):
                failures += 1
                if failures >= TRIES:
                    raise
                await asyncio.sleep(2**failures / 4)
                offset = await self._offset(upload)
        return upload

    async def _begun(self, key: str, length: int, headers: Mapping[str, str]) -> tuple[str, int]:
        """Return the upload that was begun before and how far it is, or a new one."""
        known = self._memory.get(key)
        if known is not None:
            with contextlib.suppress(NotFound):
                return known, await self._offset(known)
        answer = await self._client.send(
            "POST",
            f"{self._folder}/uploads",
            headers={"Upload-Length": str(length), **headers},
        )
        upload = f"{self._folder}/uploads/{answer.headers['Location'].rpartition('/')[2]}"
        self._memory.put(key, upload)
        return upload, 0

    async def _offset(self, upload: str) -> int:
        answer = await self._client.send("HEAD", upload)
        return int(answer.headers["Upload-Offset"])

    async def _send_piece(self, upload: str, span: Span, offset: int) -> int:
        length = min(PIECE_BYTES, span.length - offset)
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(length),
            "Tus-Resumable": "1.0.0",
            "Upload-Offset": str(offset),
        }
        if self._has_checksum:
            digest = await asyncio.to_thread(_digest, span.source, span.start + offset, length)
            headers["Upload-Checksum"] = f"sha256 {base64.b64encode(digest).decode()}"
        span.source.seek(span.start + offset)
        answer = await self._client.send(
            "PATCH",
            upload,
            content=self._read(span.source, length, span.task),
            headers=headers,
            timeout_seconds=STALL_SECONDS,
        )
        return int(answer.headers["Upload-Offset"])

    async def _send_bundle(self, items: Sequence[Sending]) -> None:
        await self._client.call(
            "PUT",
            f"{self._folder}/archive",
            content=self._packed(items),
            timeout_seconds=STALL_SECONDS,
        )

    async def _packed(self, items: Sequence[Sending]) -> AsyncIterator[bytes]:
        waiting = bytearray()
        for item in items:
            waiting += await asyncio.to_thread(_member, item)
            self._bar.advance(self._all, item.size)
            if len(waiting) >= CHUNK_BYTES:
                yield bytes(waiting)
                waiting.clear()
        yield bytes(waiting) + b"\0" * tarfile.BLOCKSIZE * 2

    async def _read(self, source: BinaryIO, length: int, task: Any) -> AsyncIterator[bytes]:
        left = length
        while left and (piece := await asyncio.to_thread(source.read, min(CHUNK_BYTES, left))):
            yield piece
            left -= len(piece)
            self._bar.advance(task, len(piece))
            self._bar.advance(self._all, len(piece))


async def fetch(
    client: Client, folder_path: str, item: Fetching, bar: Progress, *, replaces: bool
) -> None:
    """Fetch one file, going on where an earlier try ended.

    It appears under its name only when it is complete.

    Raises
    ------
    BaiError
        If the file exists and ``replaces`` is False, or what arrives is not whole.
    """
    landing = Landing(item.file, item.etag, replaces=replaces)
    task = bar.add_task(printable(item.source), total=item.size)
    for attempt in range(TRIES):
        try:
            await _receive(client, f"{folder_path}/content", item, landing, bar, task)
            break
        except Unavailable:
            if attempt + 1 == TRIES:
                raise
            await asyncio.sleep(2**attempt / 4)
    landing.finish()
    bar.remove_task(task)


async def _receive(
    client: Client, path: str, item: Fetching, landing: Landing, bar: Progress, task: Any
) -> None:
    with landing.open() as sink:
        have = os.fstat(sink.fileno()).st_size
        if have and have == item.size:
            return
        headers = {}
        if have and item.etag:
            headers = {"Range": f"bytes={have}-", "If-Range": f'"{item.etag}"'}
        async with client.stream(path, headers=headers, path=item.source) as response:
            if have and response.status_code != 206:
                sink.truncate(0)
                have = 0
            bar.update(task, completed=have)
            expected = have + int(response.headers.get("Content-Length", item.size - have))
            async for piece in response.aiter_bytes(CHUNK_BYTES):
                await asyncio.to_thread(sink.write, piece)
                bar.advance(task, len(piece))
        sink.flush()
        got = os.fstat(sink.fileno()).st_size
    if got != expected:
        landing.part.unlink(missing_ok=True)
        raise BaiError(f"{item.source} ended after {got} of {expected} bytes; try again")


def size(amount: Any) -> str:
    """Return a number of bytes as people read it."""
    return decimal(int(amount))


def counted(files: Sequence[Any]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _path_metadata(item: Sending) -> str:
    return f"path {base64.b64encode(item.target.encode()).decode()}"


def _bundles(items: Sequence[Sending]) -> Iterator[list[Sending]]:
    bundle: list[Sending] = []
    held = 0
    for item in items:
        if bundle and (len(bundle) >= BUNDLE_FILES or held + item.size > BUNDLE_BYTES):
            yield bundle
            bundle, held = [], 0
        bundle.append(item)
        held += item.size
    if bundle:
        yield bundle


def _member(item: Sending) -> bytes:
    """Return a small file as it stands in a tar archive."""
    with regular(item.file) as source:
        facts = os.fstat(source.fileno())
        content = source.read()
    info = tarfile.TarInfo(item.target)
    info.size, info.mtime, info.mode = len(content), int(facts.st_mtime), facts.st_mode & 0o777
    padding = b"\0" * (-len(content) % tarfile.BLOCKSIZE)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + content + padding


def _digest(source: BinaryIO, offset: int, length: int) -> bytes:
    found = hashlib.sha256()
    source.seek(offset)
    while length and (piece := source.read(min(CHUNK_BYTES, length))):
        found.update(piece)
        length -= len(piece)
    return found.digest()
