"""This machine's files, as transfers see them: chosen by patterns, read and put in their places."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bai_services.core.errors import BaiError, InvalidRequest


@dataclass(frozen=True, slots=True)
class Patterns:
    """Which paths count: those that some ``include`` matches, without those of ``exclude``.

    A pattern with a ``/`` is compared with the whole path, one without with every
    part of it. No ``include`` at all takes everything.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def take(self, path: str) -> bool:
        if any(_matches(path, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(path, pattern) for pattern in self.include)


EVERYTHING = Patterns()


def files_below(
    paths: tuple[Path, ...], patterns: Patterns = EVERYTHING
) -> list[tuple[Path, PurePosixPath]]:
    """Return every file that is meant, with its path inside the folder.

    A file keeps its name, a directory its name and everything below it. Links
    inside a directory are left out: what they lead to may not be meant.

    Raises
    ------
    InvalidRequest
        If two of them would get the same path.
    """
    found: dict[PurePosixPath, Path] = {}
    for path in paths:
        base = Path(os.path.abspath(path))
        inside = [base]
        if base.is_dir():
            inside = sorted(p for p in base.rglob("*") if p.is_file() and not p.is_symlink())
        for file in inside:
            target = PurePosixPath(*file.relative_to(base.parent).parts)
            if not patterns.take(str(target)):
                continue
            if target in found:
                raise InvalidRequest(f"{found[target]} and {file} would both become {target}")
            found[target] = file
    return [(file, target) for target, file in found.items()]


@contextlib.contextmanager
def regular(file: Path) -> Iterator[BinaryIO]:
    """Open a regular file.

    Raises
    ------
    InvalidRequest
        If it is anything else.
    """
    # Not blocking: a named pipe without a writer would hold the command for ever.
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise InvalidRequest(f"{file} is not a regular file")
        yield source


class Landing:
    """A file on its way in: kept beside its place, and gone on with, until it is whole."""

    def __init__(self, file: Path, etag: str | None, *, replaces: bool) -> None:
        """``etag`` names what is fetched: what was begun of anything else is not gone on with."""
        self._file = file
        self._replaces = replaces
        mark = hashlib.sha256(f"{file.name} {etag}".encode()).hexdigest()[:16]
        self.part = file.parent / f".bai-{mark}.part"

    def open(self) -> BinaryIO:
        """Open what there is of it, at its end."""
        self._refuse_existing()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self.part, flags, 0o600), "ab")

    def finish(self) -> None:
        """Put it in its place."""
        self._refuse_existing()
        os.chmod(self.part, 0o666 & ~_umask())
        os.replace(self.part, self._file)

    def _refuse_existing(self) -> None:
        file = self._file
        if file.is_dir() or (file.exists() and not self._replaces):
            remedy = "" if file.is_dir() else "; replace it with --force"
            raise BaiError(f"{file} exists already{remedy}", file=str(file))


def local_path(folder: Path, inside: str) -> Path:
    """Return where a file of a vfolder is put below ``folder``.

    Raises
    ------
    InvalidRequest
        If its path would lead out of ``folder``.
    """
    parts = PurePosixPath(inside.lstrip("/")).parts
    if not parts or any(part in ("..", ".") or "\0" in part for part in parts):
        raise InvalidRequest(f"{inside!r} is no path of a file inside the folder")
    return folder.joinpath(*parts)


def _matches(path: str, pattern: str) -> bool:
    if "/" in pattern:
        return fnmatch.fnmatchcase(path, pattern.strip("/"))
    return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/"))


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
