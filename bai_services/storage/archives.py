"""Trees as one stream: out as zip or tar without a copy on the disk, in from tar."""

from __future__ import annotations

import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from bai_services.core.errors import BaiError, Conflict, InvalidRequest

from . import beneath
from .folder import OpenFolder, carry, existing_mode, sync_file_system
from .trees import descriptor

FORMATS = {"zip": "application/zip", "tar": "application/x-tar"}
PIECE_BYTES = 2**20
MAX_MEMBERS = 200_000
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """Something that goes into an archive: ``name`` is its path there."""

    name: str
    parts: Parts
    facts: os.stat_result


def walk(folder: OpenFolder, tops: Sequence[Parts]) -> Iterator[Member]:
    """Yield what lies at some paths and below them, a directory before what is in it.

    Special files are left out. Each directory is opened anew from the folder, so
    that only a few are open at a time and no link is followed out of it.
    """
    for top in tops:
        cut = len(top[:-1])
        if top:
            with folder.directory(top[:-1]) as parent:
                facts = os.stat(top[-1], dir_fd=parent, follow_symlinks=False)
            yield Member("/".join(top[cut:]), top, facts)
            if not stat.S_ISDIR(facts.st_mode):
                continue
        waiting = [top]
        while waiting:
            here = waiting.pop()
            for name, facts in _entries(folder, here):
                yield Member("/".join((*here[cut:], name)), (*here, name), facts)
                if stat.S_ISDIR(facts.st_mode):
                    waiting.append((*here, name))


def _entries(folder: OpenFolder, parts: Parts) -> list[tuple[str, os.stat_result]]:
    found = []
    try:
        with folder.directory(parts) as directory:
            for name in sorted(os.listdir(directory)):
                try:
                    facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_IFMT(facts.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                    found.append((name, facts))
    except (FileNotFoundError, NotADirectoryError):
        return []  # removed since its name was read
    return found


class _Sink:
    """What an archive writer writes to: pieces that wait to be sent."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._sent = 0

    def write(self, piece: bytes) -> int:
        self._waiting += piece
        return len(piece)

    def tell(self) -> int:
        return self._sent + len(self._waiting)

    def flush(self) -> None:
        return None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= PIECE_BYTES

    def take(self) -> bytes:
        piece, self._waiting = bytes(self._waiting), bytearray()
        self._sent += len(piece)
        return piece


def packed(folder: OpenFolder, tops: Sequence[Parts], form: str) -> Iterator[bytes]:
    """Yield a zip or tar archive of what lies at some paths, piece by piece.

    Files go in as they are when their turn comes.
    """
    sink = _Sink()
    make = _zip if form == "zip" else _tar
    for _ in make(folder, tops, sink):
        if sink.is_full:
            yield sink.take()
    yield sink.take()


def _zip(folder: OpenFolder, tops: Sequence[Parts], sink: _Sink) -> Iterator[None]:
    # Not compressed: what is big in such folders is compressed already, and the wire is quicker.
    with zipfile.ZipFile(cast(IO[bytes], sink), "w", zipfile.ZIP_STORED) as archive:
        for member in walk(folder, tops):
            info = zipfile.ZipInfo(member.name, _zip_time(member.facts.st_mtime))
            info.external_attr = (member.facts.st_mode & 0xFFFF) << 16
            if stat.S_ISDIR(member.facts.st_mode):
                info.filename += "/"
                archive.writestr(info, b"")
            elif stat.S_ISREG(member.facts.st_mode):
                info.file_size = member.facts.st_size
                is_huge = member.facts.st_size >= 2**31 - PIECE_BYTES
                with archive.open(info, "w", force_zip64=is_huge) as entry:
                    for piece in _content(folder, member):
                        entry.write(piece)
                        yield
            yield


def _tar(folder: OpenFolder, tops: Sequence[Parts], sink: _Sink) -> Iterator[None]:
    for member in walk(folder, tops):
        info = tarfile.TarInfo(member.name)
        info.mtime = int(member.facts.st_mtime)
        info.mode = stat.S_IMODE(member.facts.st_mode)
        if stat.S_ISDIR(member.facts.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(member.facts.st_mode):
            info.type = tarfile.SYMTYPE
            with folder.directory(member.parts[:-1]) as parent:
                info.linkname = os.readlink(member.parts[-1], dir_fd=parent)
        else:
            info.size = member.facts.st_size
        sink.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        yield
        if info.isreg():
            for piece in _content(folder, member):
                sink.write(piece)
                yield
            sink.write(b"\0" * (-info.size % tarfile.BLOCKSIZE))
    sink.write(b"\0" * tarfile.BLOCKSIZE * 2)
    yield


def _content(folder: OpenFolder, member: Member) -> Iterator[bytes]:
    """Yield exactly as many bytes as the archive's head says."""
    with descriptor(folder.open_file(member.parts)) as file:
        left = member.facts.st_size
        while left:
            piece = os.read(file, min(PIECE_BYTES, left))
            if not piece:
                raise Conflict(f"{member.name} became shorter while it was read")
            left -= len(piece)
            yield piece


def _zip_time(seconds: float) -> tuple[int, int, int, int, int, int]:
    when = time.gmtime(max(seconds, 0))[:6]
    return when if _ZIP_EPOCH[0] <= when[0] < 2108 else _ZIP_EPOCH


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out of an archive."""

    files: int
    bytes: int


class _Head(tarfile.TarInfo):
    """A member's head; the library takes whatever it cannot read for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Head:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # it is not in the stubs
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class Unpacking:
    """Unpacks a tar archive into a folder: first beside it, then file by file into its places.

    One bad member refuses the whole archive before anything of it has appeared.
    """

    def __init__(self, folder: OpenFolder, above: Parts, staging: Path, max_bytes: int) -> None:
        self._folder = folder
        self._above = above
        self._staging = staging
        self._max_bytes = max_bytes
        self._places: dict[Parts, None] = {}  # in the order of the archive
        self._directories: dict[Parts, None] = {}

    def run(self, archive: Path) -> Unpacked:
        """Unpack; ``staging`` is made and holds what could not be moved, until it is removed.

        Raises
        ------
        InvalidRequest
            If it is no tar archive, or holds a name, link or thing that cannot be.
        Conflict
            If something else is at the place of a file.
        """
        self._staging.mkdir(mode=0o700)
        with descriptor(os.open(self._staging, os.O_RDONLY | os.O_DIRECTORY)) as here:
            total = self._extract(archive, here)
            self._check_places()
            # Everything is on the disk before anything appears, and what appeared stays.
            sync_file_system(here)
            self._place_all(here)
            sync_file_system(here)
        return Unpacked(len(self._places), total)

    def _extract(self, archive: Path, here: int) -> int:
        total = 0
        try:
            with tarfile.open(archive, "r:*", tarinfo=_Head) as source:
                number = 0
                while (member := source.next()) is not None:
                    number += 1
                    if number > MAX_MEMBERS:
                        raise InvalidRequest(f"the archive has more than {MAX_MEMBERS} members")
                    total += member.size
                    if total > self._max_bytes:
                        raise InvalidRequest(
                            f"the archive holds more than {self._max_bytes} bytes",
                            limit_bytes=self._max_bytes,
                        )
                    self._take(source, member, here)
                    source.members = []  # type: ignore[attr-defined]  # else it keeps them all
        except (tarfile.TarError, EOFError, UnicodeError) as error:
            raise InvalidRequest(f"that is no tar archive, or a broken one: {error}") from None
        return total

    def _take(self, source: tarfile.TarFile, member: tarfile.TarInfo, here: int) -> None:
        try:
            inside = beneath.parse_new_path(member.name)
        except BaiError as error:
            raise InvalidRequest(
                f"the archive's member {member.name[:100]!r}: {error.message}"
            ) from None
        parts = (*self._above, *inside)
        if member.isdir():
            self._directories[parts] = None
            return
        if not member.isreg() or not inside:
            raise InvalidRequest(
                f"the archive's member {member.name[:100]!r} is a link or something special; "
                "only files and directories can be unpacked"
            )
        if parts in self._places:
            raise InvalidRequest(f"the archive holds {member.name[:100]!r} twice")
        content = source.extractfile(member)
        assert content is not None  # it is a regular file
        name = str(len(self._places))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with content, descriptor(os.open(name, flags, 0o600, dir_fd=here)) as file:
            while piece := content.read(PIECE_BYTES):
                _write_all(file, piece)
            os.utime(file, (member.mtime, member.mtime))
            self._folder.give(file, is_executable=bool(member.mode & 0o100))
        self._places[parts] = None

    def _check_places(self) -> None:
        for above, names in self._by_directory().items():
            try:
                with self._folder.directory(above) as parent:
                    for name, _ in names:
                        existing_mode(parent, name)
            except FileNotFoundError:
                continue

    def _place_all(self, here: int) -> None:
        for parts in self._directories:
            self._folder.make_directory(parts, exists_ok=True)
        for above, names in self._by_directory().items():
            with self._folder.directory(above, makes=True) as parent:
                for name, number in names:
                    existing_mode(parent, name)
                    carry(here, str(number), parent, name)

    def _by_directory(self) -> dict[Parts, list[tuple[str, int]]]:
        found: dict[Parts, list[tuple[str, int]]] = {}
        for number, parts in enumerate(self._places):
            found.setdefault(parts[:-1], []).append((parts[-1], number))
        return found


def _write_all(file: int, piece: bytes) -> None:
    view: Any = memoryview(piece)
    while view:
        view = view[os.write(file, view) :]
