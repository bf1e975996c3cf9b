"""Unpack an untrusted tar or zip archive into a folder, with limits on sizes, headers and members.

This runs in a separate process (``unpack_worker``), so that a hostile archive can exhaust only the
memory and CPU time of that process.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.folders.entries import Unpacked

from .. import safe_paths
from ..folder import OpenFolder, existing_mode, move_into_place, sync_file_system
from ..trees import descriptor, write_sparsely

CHUNK_BYTES = 2**20
# Maximum number of members of an archive, including their parent directories.
MAX_MEMBERS = 200_000
# Maximum size of one extension header, and of all global pax headers of an archive together.
MAX_HEADER_BYTES = 256 * 2**10
# Maximum number of extension headers of one member; GNU tar writes up to three.
MAX_HEADERS = 8
MAX_DEPTH = 256
# Protection against decompression bombs: a compressed archive may unpack to the larger of MAX_RATIO
# times its own size and MIN_UNPACKED_BYTES.
MAX_RATIO = 200
MIN_UNPACKED_BYTES = 2**30

Parts = tuple[str, ...]

# Maximum number of digits of the length at the start of a pax record.
MAX_LENGTH_DIGITS = 10
_MANY_DIGITS = re.compile(rb"[0-9]{200}")
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, *_PAX)
# Exceptions that the decompressors and the tar reader raise for invalid data.
_BROKEN = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, OverflowError, IndexError, RecursionError),
    *(zipfile.BadZipFile, NotImplementedError),  # NotImplementedError: an unknown compression
)
_ZIP_HEADS = (b"PK\x03\x04", b"PK\x05\x06")


class _Archive(tarfile.TarFile):
    """Counts the extension headers before each member."""

    headers = 0
    shared_header_bytes = 0  # total size of the global pax headers


class _Head(tarfile.TarInfo):
    """A member header. A malformed header raises an error; tarfile itself would treat it as the end
    of the archive.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Head:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # it is not in the stubs
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error

    def _proc_member(self, archive: _Archive) -> Any:
        # tarfile reads an extension header completely into memory before it returns the member.
        if self.size < 0:
            raise tarfile.ReadError("a negative size")
        if self.type in _EXTENSIONS:
            size, what = self.size, "a header"
            if self.type == tarfile.XGLTYPE:
                archive.shared_header_bytes += self.size
                size, what = archive.shared_header_bytes, "global headers"
            archive.headers += 1
            if size > MAX_HEADER_BYTES:
                raise InvalidRequest(
                    f"the archive has {what} of {size} bytes; the maximum is {MAX_HEADER_BYTES}",
                    limit_bytes=MAX_HEADER_BYTES,
                )
            if archive.headers > MAX_HEADERS:
                raise InvalidRequest(
                    f"a member of the archive has more than {MAX_HEADERS} headers",
                    limit=MAX_HEADERS,
                )
            if self.type in _PAX:
                stream = cast(_Stream, archive.fileobj)
                content = stream.read(self.size)
                _check_records(content)
                stream.unread(content)
        return super()._proc_member(archive)  # type: ignore[misc]  # it is not in the stubs


class _Stream(io.RawIOBase):
    """The archive's decompressed content as a stream that only seeks forward.

    Reading more than ``limit`` bytes raises ``InvalidRequest``; None means no limit.
    """

    def __init__(self, inner: IO[bytes], limit: int | None) -> None:
        self._inner = inner
        self._limit = limit
        self._position = 0
        self._returned = b""

    def read(self, size: int | None = -1) -> bytes:
        wanted = CHUNK_BYTES if size is None or size < 0 else size
        chunk, self._returned = self._returned[:wanted], self._returned[wanted:]
        if len(chunk) < wanted:
            chunk += self._inner.read(wanted - len(chunk))
        self._position += len(chunk)
        if self._limit is not None and self._position > self._limit:
            raise _too_compressed(self._limit)
        return chunk

    def unread(self, chunk: bytes) -> None:
        """Return the last chunk to the stream, so that the next ``read`` returns it again."""
        self._returned = chunk + self._returned
        self._position -= len(chunk)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if position < self._position or whence != os.SEEK_SET:
            raise tarfile.ReadError("its members overlap")
        if self._limit is None and not self._returned:
            self._inner.seek(position)
            self._position = position
        while self._position < position:
            if not self.read(min(CHUNK_BYTES, position - self._position)):
                break
        return self._position

    def tell(self) -> int:
        return self._position


def _check_records(content: bytes) -> None:
    """Raise ReadError for malformed pax records; tarfile would parse some in quadratic time."""
    place, end = 0, len(content)
    while place < end:
        space = content.find(b" ", place, place + MAX_LENGTH_DIGITS + 1)
        digits = content[place:space] if space > 0 else b""
        size = int(digits) if digits.isdigit() else 0
        last = place + size - 1
        if size == 0 or not space < last < end or content[last] != ord("\n"):
            raise tarfile.ReadError("a pax header is malformed")
        place += size
    if _MANY_DIGITS.search(content):
        raise tarfile.ReadError("a pax header contains a number that is too long")


def _open_stream(file: IO[bytes], size: int) -> IO[bytes]:
    head = file.read(6)
    file.seek(0)
    inner: Any
    if head.startswith(b"\x1f\x8b"):
        inner = gzip.GzipFile(fileobj=file)
    elif head.startswith(b"BZh"):
        inner = bz2.BZ2File(file)
    elif head == b"\xfd7zXZ\0" or head.startswith(b"]\0\0"):
        inner = lzma.LZMAFile(file)  # noqa: SIM115  # the caller closes it
    else:
        return cast(IO[bytes], _Stream(file, None))
    return cast(IO[bytes], _Stream(inner, max(MIN_UNPACKED_BYTES, MAX_RATIO * size)))


class Unpacking:
    """Unpacks a tar or zip archive into a staging directory and then moves its files into a folder.

    An archive with an invalid member is rejected before any file is moved.
    """

    def __init__(
        self,
        folder: OpenFolder,
        above: Parts,
        staging: Path,
        max_bytes: int,
        before_commit: Callable[[int], None] = lambda total_bytes: None,
    ) -> None:
        """Prepare to unpack into a directory of a folder; ``above`` is its path inside the folder.

        ``before_commit`` is called with the total size before the first file is moved into the
        folder.
        """
        self._folder = folder
        self._above = above
        self._staging = staging
        self._max_bytes = max_bytes
        self._files: dict[Parts, None] = {}  # paths of the files, in the order of the archive
        self._directories: dict[Parts, None] = {}
        self._parents: set[Parts] = set()
        self._members = 0
        self._before_commit = before_commit

    def run(self, archive: Path) -> Unpacked:
        """Unpack an archive. The caller removes the staging directory, which this method creates.

        Raises
        ------
        InvalidRequest
            If the file is not a tar or zip archive, exceeds a limit, contains a forbidden member,
            or contains a path both as a file and as a directory.
        Conflict
            If a directory, link or special file exists at the path of a file, or if something other
            than a directory exists at the path of a directory.
        """
        self._staging.mkdir(mode=0o700)
        with descriptor(os.open(self._staging, os.O_RDONLY | os.O_DIRECTORY)) as here:
            total = self._extract(archive, here)
            self._check_members()
            self._check_targets()
            # Flush before the first file is moved, so that a crash leaves no partial file.
            sync_file_system(here)
            self._before_commit(total)
            self._move_all(here)
            sync_file_system(here)
        return Unpacked(len(self._files), total)

    def _extract(self, archive: Path, here: int) -> int:
        try:
            with archive.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                is_zip = file.read(4) in _ZIP_HEADS
                file.seek(0)
                if is_zip:
                    return self._extract_zip(file, size, here)
                return self._extract_tar(file, size, here)
        except MemoryError:
            raise InvalidRequest("the archive needs too much memory to be unpacked") from None
        except _BROKEN as error:
            raise _not_readable(error) from None
        except OSError as error:
            if error.errno is None:  # raised by the decompressors for broken data
                raise _not_readable(error) from None
            raise

    def _extract_tar(self, file: IO[bytes], size: int, here: int) -> int:
        total = 0
        with _Archive(fileobj=_open_stream(file, size), tarinfo=_Head) as source:
            while (member := source.next()) is not None:
                total = self._checked_total(total, member)
                write = functools.partial(_write_content, source, member)
                self._extract_member(member, write, here)
                source.headers = 0
                # Otherwise TarFile keeps every member in memory.
                source.members = []  # type: ignore[attr-defined]
        return total

    def _extract_zip(self, file: IO[bytes], size: int, here: int) -> int:
        total, limit = 0, max(MIN_UNPACKED_BYTES, MAX_RATIO * size)
        with zipfile.ZipFile(file) as source:
            for entry in source.infolist():
                if entry.flag_bits & 1:
                    raise InvalidRequest("the archive is encrypted")
                member = _tar_member(entry)
                total = self._checked_total(total, member)
                if total > limit:
                    raise _too_compressed(limit)
                write = functools.partial(_write_entry, source, entry)
                self._extract_member(member, write, here)
        return total

    def _checked_total(self, total: int, member: tarfile.TarInfo) -> int:
        if member.size < 0:
            raise tarfile.ReadError("a negative size")
        total += member.size
        if total > self._max_bytes:
            raise InvalidRequest(
                f"the archive contains more than {self._max_bytes} bytes",
                limit_bytes=self._max_bytes,
            )
        return total

    def _extract_member(
        self, member: tarfile.TarInfo, write: Callable[[int], None], here: int
    ) -> None:
        """Store a member; ``write`` writes its content to a file descriptor."""
        try:
            inside = safe_paths.parse_new_path(member.name)
        except BaiError as error:
            raise InvalidRequest(
                f"the archive's member {member.name[:100]!r}: {error.message}"
            ) from None
        parts = (*self._above, *inside)
        if member.isdir():
            self._count_member(parts)
            self._directories[parts] = None
            return
        if not member.isreg() or not inside:
            raise InvalidRequest(
                f"the archive's member {member.name[:100]!r} is a link or a special file; "
                "only files and directories can be unpacked"
            )
        if parts in self._files:
            raise InvalidRequest(f"the archive contains {member.name[:100]!r} twice")
        self._count_member(parts)
        name = str(len(self._files))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with descriptor(os.open(name, flags, 0o600, dir_fd=here)) as file:
            write(file)
            with contextlib.suppress(ValueError, OverflowError, OSError):  # not a valid time
                os.utime(file, (member.mtime, member.mtime))
            self._folder.grant_access(file, is_executable=bool(member.mode & 0o100))
        self._files[parts] = None

    def _count_member(self, parts: Parts) -> None:
        """Count a member, and the parent directories that were not yet counted as parents."""
        if len(parts) > MAX_DEPTH:
            raise InvalidRequest(
                f"the archive has directories nested more than {MAX_DEPTH} deep", limit=MAX_DEPTH
            )
        self._members += 1
        above = parts[:-1]
        while above and above not in self._parents:
            self._parents.add(above)
            self._members += 1
            above = above[:-1]
        if self._members > MAX_MEMBERS:
            raise InvalidRequest(
                f"the archive has more than {MAX_MEMBERS} files and directories",
                limit=MAX_MEMBERS,
            )

    def _check_members(self) -> None:
        """Raise ``InvalidRequest`` if a file is also a directory or the parent of a member."""
        for parts in self._files:
            if parts in self._parents or parts in self._directories:
                name = "/".join(parts[len(self._above) :])
                raise InvalidRequest(
                    f"the archive contains {name[:100]!r} as a file and as a directory"
                )

    def _check_targets(self) -> None:
        """Raise the errors of ``_move_all`` for existing entries, before anything is moved."""
        for parts in self._directories:
            with contextlib.suppress(FileNotFoundError), self._folder.directory(parts):
                pass
        for above, names in self._by_directory().items():
            try:
                with self._folder.directory(above) as parent:
                    for name, _ in names:
                        existing_mode(parent, name)
            except FileNotFoundError:
                continue

    def _move_all(self, here: int) -> None:
        for parts in self._directories:
            self._folder.make_directory(parts, exists_ok=True)
        for above, names in self._by_directory().items():
            with self._folder.directory(above, create_missing=True) as parent:
                for name, number in names:
                    existing_mode(parent, name)
                    move_into_place(here, str(number), parent, name)

    def _by_directory(self) -> dict[Parts, list[tuple[str, int]]]:
        by_directory: dict[Parts, list[tuple[str, int]]] = {}
        for number, parts in enumerate(self._files):
            by_directory.setdefault(parts[:-1], []).append((parts[-1], number))
        return by_directory


def _not_readable(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"the file is not a tar or zip archive, or is broken: {str(error)[:200]}")


def _too_compressed(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"the archive unpacks to more than {limit} bytes, which is more than {MAX_RATIO} times its "
        "own size; pack it with less compression",
        limit_bytes=limit,
    )


def _tar_member(entry: zipfile.ZipInfo) -> tarfile.TarInfo:
    """Return the header that the entry of a zip archive would have in a tar archive."""
    member = tarfile.TarInfo(entry.filename)
    member.size = entry.file_size
    mode = entry.external_attr >> 16
    member.mode = stat.S_IMODE(mode)
    if entry.is_dir():
        member.type, member.size = tarfile.DIRTYPE, 0
    elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        member.type = tarfile.SYMTYPE  # rejected later, like other special files
    with contextlib.suppress(ValueError, OverflowError):
        member.mtime = int(time.mktime((*entry.date_time, 0, 0, -1)))
    return member


def _write_entry(source: zipfile.ZipFile, entry: zipfile.ZipInfo, file: int) -> None:
    """Write the content of an entry of a zip archive, with holes for blocks of zeros."""
    place = 0
    with source.open(entry) as content:
        while chunk := content.read(CHUNK_BYTES):
            place += len(chunk)
            if place > entry.file_size:
                raise zipfile.BadZipFile("an entry is longer than announced")
            write_sparsely(file, chunk, place - len(chunk))
    if place < entry.file_size:
        raise zipfile.BadZipFile("an entry is shorter than announced")
    os.ftruncate(file, entry.file_size)


def _write_content(source: tarfile.TarFile, member: tarfile.TarInfo, file: int) -> None:
    """Write a member's content, with holes for blocks of zeros."""
    stream = cast(IO[bytes], source.fileobj)
    stream.seek(member.offset_data)
    end = 0
    # The map of a sparse file: the offset and size of each data segment, in the archive's order.
    sparse_map: Any = member.sparse if member.issparse() else [(0, member.size)]
    segments: list[tuple[int, int]] = sparse_map
    for place, size in segments:
        if size == 0:
            continue  # end marker of the map
        if size < 0 or place < end or place + size > member.size:
            raise tarfile.ReadError("the map of a sparse file is wrong")
        end = place + size
        while place < end:
            chunk = stream.read(min(CHUNK_BYTES, end - place))
            if not chunk:
                raise tarfile.ReadError("unexpected end of data")
            write_sparsely(file, chunk, place)
            place += len(chunk)
    os.ftruncate(file, member.size)
