"""Zip and tar archives that are generated while they are sent, without a temporary file."""

from __future__ import annotations

import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, cast

from bai_services.core.errors import Conflict
from bai_services.core.folders.entries import FileType
from bai_services.system.descent import Descent

from .. import safe_paths
from ..folder import OpenFolder
from ..trees import advance, data_segments, descriptor

FORMATS = {"zip": "application/zip", "tar": "application/x-tar"}
CHUNK_BYTES = 2**20
# The longest path that a zip archive can store.
MAX_PATH_BYTES = 65_535
# Maximum number of data segments of a sparse file that are stored one by one; the rest of the file
# is one more segment. The limit bounds the memory for the map of segments.
MAX_SEGMENTS = 10_000
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive: the entry ``name`` of the open ``directory``.

    ``path`` is the path in the archive. ``directory`` is valid until the next member is requested.
    """

    path: str
    directory: int
    name: str
    facts: os.stat_result


def check_path(folder: OpenFolder, path: Parts) -> None:
    """Check whether an archive can contain the entry at ``path``.

    Raises
    ------
    FileNotFoundError
        If there is no such entry.
    Conflict
        If the entry is a pipe, socket or device.
    """
    if path and folder.entry(path).type is FileType.OTHER:
        raise Conflict(
            f"{path[-1][:200]} is a pipe, socket or device; archives cannot contain it",
            field="path",
        )


def walk(folder: OpenFolder, tops: Sequence[Parts]) -> Iterator[Member]:
    """Yield the entries at ``tops`` and below them, a directory before its entries.

    Special files are left out, and links are not followed. Only the length of paths limits the
    depth of directories.

    Raises
    ------
    Conflict
        If a path is too long for an archive.
    """
    for top in tops:
        if top:
            with folder.directory(top[:-1]) as parent:
                facts = os.stat(top[-1], dir_fd=parent, follow_symlinks=False)
                if _is_special(facts):
                    continue
                yield Member(top[-1], parent, top[-1], facts)
            if not stat.S_ISDIR(facts.st_mode):
                continue
        with folder.directory(top) as directory, Descent(directory) as at:
            waiting: list[list[str]] = []
            while True:
                directories: list[str] = []
                yield from _entries(at.here, "/".join((*top[-1:], *at.names)), directories)
                directories.sort(reverse=True)
                waiting.append(directories)
                if not advance(at, waiting):
                    break


def _entries(here: int, above: str, directories: list[str]) -> Iterator[Member]:
    with os.scandir(here) as entries:
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # removed since its name was read
            if _is_special(facts):
                continue
            path = f"{above}/{entry.name}" if above else entry.name
            if len(os.fsencode(path)) > MAX_PATH_BYTES:
                raise Conflict(
                    f"a path of more than {MAX_PATH_BYTES} bytes does not fit in an archive"
                )
            if stat.S_ISDIR(facts.st_mode):
                directories.append(entry.name)
            yield Member(path, here, entry.name, facts)


def _is_special(facts: os.stat_result) -> bool:
    return stat.S_IFMT(facts.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


class _Sink:
    """Output file of an archive writer: a buffer of the bytes to be sent."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._sent = 0

    def write(self, chunk: bytes) -> int:
        self._waiting += chunk
        return len(chunk)

    def tell(self) -> int:
        return self._sent + len(self._waiting)

    def flush(self) -> None:
        return None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= CHUNK_BYTES

    def take(self) -> bytes:
        chunk, self._waiting = bytes(self._waiting), bytearray()
        self._sent += len(chunk)
        return chunk


def generate_archive(
    folder: OpenFolder, tops: Sequence[Parts], form: str
) -> Generator[bytes, None, None]:
    """Yield the chunks of a zip or tar archive of the paths ``tops``.

    The archive is not a snapshot: each file is read only when it is added. Links are archived as
    links.
    """
    sink = _Sink()
    make = _zip if form == "zip" else _tar
    for _ in make(folder, tops, sink):
        if sink.is_full:
            yield sink.take()
    yield sink.take()


def _zip(folder: OpenFolder, tops: Sequence[Parts], sink: _Sink) -> Iterator[None]:
    # Do not compress: large files are usually already compressed, and the network is faster than
    # compression.
    with zipfile.ZipFile(cast(IO[bytes], sink), "w", zipfile.ZIP_STORED) as archive:
        for member in walk(folder, tops):
            info = zipfile.ZipInfo(member.path, _zip_time(member.facts.st_mtime))
            info.external_attr = (member.facts.st_mode & 0xFFFF) << 16
            if stat.S_ISDIR(member.facts.st_mode):
                info.filename += "/"
                archive.writestr(info, b"")
            elif stat.S_ISLNK(member.facts.st_mode):
                target = os.readlink(member.name, dir_fd=member.directory)
                archive.writestr(info, os.fsencode(target))
            elif stat.S_ISREG(member.facts.st_mode):
                info.file_size = member.facts.st_size
                is_huge = member.facts.st_size >= 2**31 - CHUNK_BYTES
                with archive.open(info, "w", force_zip64=is_huge) as entry:
                    for chunk in _content(member, [(0, member.facts.st_size)]):
                        entry.write(chunk)
                        yield
            yield


def _tar(folder: OpenFolder, tops: Sequence[Parts], sink: _Sink) -> Iterator[None]:
    for member in walk(folder, tops):
        info = tarfile.TarInfo(member.path)
        info.mtime = int(member.facts.st_mtime)
        info.mode = stat.S_IMODE(member.facts.st_mode)
        segments: list[tuple[int, int]] = []
        sparse_map = b""
        if stat.S_ISDIR(member.facts.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(member.facts.st_mode):
            info.type = tarfile.SYMTYPE
            info.linkname = os.readlink(member.name, dir_fd=member.directory)
        else:
            info.size = member.facts.st_size
            segments = [(0, info.size)]
            if member.facts.st_blocks * 512 < info.size:
                segments = _data_of(member)
                sparse_map = _make_sparse(info, segments)
        sink.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        sink.write(sparse_map)
        yield
        if info.isreg():
            for chunk in _content(member, segments):
                sink.write(chunk)
                yield
            sink.write(b"\0" * (-info.size % tarfile.BLOCKSIZE))
    sink.write(b"\0" * tarfile.BLOCKSIZE * 2)
    yield


def _data_of(member: Member) -> list[tuple[int, int]]:
    """Return start and end of a file's data segments.

    After the first MAX_SEGMENTS segments, the rest of the file is one segment.
    """
    size = member.facts.st_size
    found: list[tuple[int, int]] = []
    with descriptor(_open(member)) as file:
        for begin, end in data_segments(file, size):
            if len(found) == MAX_SEGMENTS:
                return [*found, (begin, size)]
            found.append((begin, end))
    return found


def _make_sparse(info: tarfile.TarInfo, segments: Sequence[tuple[int, int]]) -> bytes:
    """Convert ``info`` to the header of a sparse file (GNU 1.0); return the map that follows it."""
    rows = [(begin, end - begin) for begin, end in segments]
    rows.append((info.size, 0))
    text = "".join(f"{number}\n" for number in (len(rows), *chain.from_iterable(rows))).encode()
    text += b"\0" * (-len(text) % tarfile.BLOCKSIZE)
    above, _, name = info.name.rpartition("/")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": info.name,
        "GNU.sparse.realsize": str(info.size),
    }
    info.name = "/".join(part for part in (above, "GNUSparseFile.0", name) if part)
    info.size = len(text) + sum(size for _, size in rows)
    return text


def _content(member: Member, segments: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the bytes of these segments; raise ``Conflict`` if the file has become shorter.

    The file's header, which is already in the archive, states the original size.
    """
    with descriptor(_open(member)) as file:
        for place, end in segments:
            while place < end:
                chunk = os.pread(file, min(CHUNK_BYTES, end - place), place)
                if not chunk:
                    raise Conflict(f"{member.path[:200]} became shorter while it was read")
                place += len(chunk)
                yield chunk


def _open(member: Member) -> int:
    return safe_paths.open_regular(safe_paths.open_walking, member.directory, (member.name,))


def _zip_time(seconds: float) -> tuple[int, int, int, int, int, int]:
    when = time.gmtime(max(seconds, 0))[:6]
    return when if _ZIP_EPOCH[0] <= when[0] < 2108 else _ZIP_EPOCH
