"""Trees as one stream: out as zip or tar without a copy on the disk, in from tar."""

from __future__ import annotations

import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, cast

from bai_services.core.errors import Conflict

from .folder import OpenFolder
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
