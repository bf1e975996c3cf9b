"""Local side of transfers: select files by pattern, read them, write downloads atomically."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bai_services.core.errors import BaiError, InvalidRequest


@dataclass(frozen=True, slots=True)
class Patterns:
    """Select the paths that match an ``include`` pattern and no ``exclude`` pattern.

    A pattern with a ``/`` is compared with the whole path, any other pattern with each component
    of the path. Without ``include``, all paths are included.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def matches(self, path: str) -> bool:
        if any(_matches(path, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(path, pattern) for pattern in self.include)


EVERYTHING = Patterns()

# Names of the files that a download writes in addition to its targets: partial files and the
# journal. The comparison ignores case, as some file systems do.
_RESERVED_NAME = re.compile(r"\.bai-.*\.(part|done)", re.IGNORECASE | re.DOTALL)


def files_below(
    paths: tuple[Path, ...], patterns: Patterns = EVERYTHING
) -> list[tuple[Path, PurePosixPath]]:
    """Return the files in ``paths`` and below the directories in ``paths``, if ``patterns`` match.

    Each file is returned with its target path in the folder: its path relative to the parent
    of the given file or directory. Symbolic links inside a directory are skipped, because they
    can point outside of it.

    Raises
    ------
    InvalidRequest
        If two files have the same target path.
    """
    files: dict[PurePosixPath, Path] = {}
    for path in paths:
        base = Path(os.path.abspath(path))
        inside = [base]
        if base.is_dir():
            inside = sorted(p for p in base.rglob("*") if p.is_file() and not p.is_symlink())
        for file in inside:
            target = PurePosixPath(*file.relative_to(base.parent).parts)
            if not patterns.matches(str(target)):
                continue
            if target in files:
                raise InvalidRequest(
                    f"{files[target]} and {file} would both become {target}; upload one of them "
                    "to another directory with --to"
                )
            files[target] = file
    return [(file, target) for target, file in files.items()]


@contextlib.contextmanager
def open_regular(file: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises
    ------
    InvalidRequest
        If ``file`` is not a regular file.
    """
    # O_NONBLOCK: otherwise, opening a named pipe would block until another process writes to it.
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise InvalidRequest(f"{file} is not a regular file")
        yield source


class PartialFile:
    """A download in progress, in a ``.part`` file from which an interrupted download resumes."""

    def __init__(self, file: Path, etag: str | None, *, replaces: bool) -> None:
        """``etag`` identifies the content: a partial file with other content is not resumed."""
        self._file = file
        self._replaces = replaces
        digest = hashlib.sha256(f"{file.name} {etag}".encode()).hexdigest()[:16]
        self.part = file.parent / f".bai-{digest}.part"

    def open(self) -> BinaryIO:
        """Open the partial file for appending; create it if it does not exist.

        Raises
        ------
        BaiError
            If the target is a directory, or exists and must not be replaced, or if the partial file
            is not a regular file of this user.
        """
        self._check_target()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(_open_own(self.part, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")

    def finish(self) -> None:
        """Rename the complete file to its target.

        Raises
        ------
        BaiError
            As in ``open``.
        """
        self._check_target()
        descriptor = _open_own(self.part, os.O_WRONLY)
        try:
            os.fchmod(descriptor, 0o666 & ~_umask())
        finally:
            os.close(descriptor)
        os.replace(self.part, self._file)

    def _check_target(self) -> None:
        file = self._file
        if file.is_dir() or (file.exists() and not self._replaces):
            remedy = "" if file.is_dir() else "; replace it with --force"
            raise BaiError(f"{file} already exists{remedy}", file=str(file))


class CompletedFiles:
    """Journal of the complete files of a download, so that a repeated command skips them.

    It is a file in the target directory and is removed when the whole download is complete. A file
    is downloaded again if its content in the folder (``etag``) or the local file has changed.

    Other users may be able to write into the directory. Therefore a journal or a complete file of
    another user is not trusted.
    """

    def __init__(self, folder: Path, download: Sequence[str]) -> None:
        """``download`` identifies the command, for example the folder's name and the paths."""
        digest = hashlib.sha256(json.dumps(download).encode()).hexdigest()[:16]
        self._folder = folder
        self._journal = folder / f".bai-{digest}.done"
        self._lines: set[str] | None = None

    def contains(self, file: Path, etag: str | None) -> bool:
        """Return whether ``file`` is recorded and unchanged.

        Raises
        ------
        BaiError
            If the journal is not a regular file of this user.
        """
        if self._lines is None:
            self._lines = self._read()
        try:
            return (
                bool(self._lines)
                and _is_own(file.lstat())
                and self._line(file, etag, file) in self._lines
            )
        except OSError:
            return False

    def add(self, file: Path, etag: str | None, part: Path) -> None:
        """Record that ``file`` is complete; do nothing if ``etag`` is None.

        Call this before the partial file ``part`` is renamed to ``file``.
        """
        if etag is None:
            return
        line = self._line(file, etag, part) + "\n"
        descriptor = _open_own(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "ab", buffering=0) as journal:
            journal.write(line.encode("utf-8", "surrogateescape"))

    def remove(self) -> None:
        self._journal.unlink(missing_ok=True)

    def _read(self) -> set[str]:
        try:
            descriptor = _open_own(self._journal, os.O_RDONLY)
        except FileNotFoundError:
            return set()
        with os.fdopen(
            descriptor, encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as text:
            return set(text.read().split("\n"))

    def _line(self, file: Path, etag: str | None, content: Path) -> str:
        facts = content.lstat()
        path = str(file.relative_to(self._folder))
        return json.dumps([path, etag, facts.st_size, facts.st_mtime_ns])


def local_path(folder: Path, inside: str) -> Path:
    """Return the local path below ``folder`` for the path ``inside`` a vfolder.

    Raises
    ------
    InvalidRequest
        If ``inside`` is not a valid path, for example because it leads out of ``folder``, or if it
        contains a name of the files that a download writes.
    """
    parts = PurePosixPath(inside.lstrip("/")).parts
    if not parts or any(part in ("..", ".") or "\0" in part for part in parts):
        raise InvalidRequest(f"{inside!r} is not a valid path inside a folder")
    for part in parts:
        if _RESERVED_NAME.fullmatch(part):
            raise InvalidRequest(
                f"{inside!r} cannot be downloaded, because bai uses such names for incomplete "
                "downloads; rename it in the folder, or omit it with --exclude"
            )
    return folder.joinpath(*parts)


def _open_own(path: Path, flags: int) -> int:
    """Open a regular file of this user in a directory into which others may be able to write.

    Raises
    ------
    BaiError
        If the file is a link, belongs to another user, or is not a regular file.
    """
    # O_NONBLOCK: otherwise, opening a named pipe would block until another process opens it.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
        if _is_own(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    raise BaiError(f"{path} is not a regular file of yours; delete it, or use another directory")


def _is_own(facts: os.stat_result) -> bool:
    # If a file has a second hard link, it may be a file of this user outside of the directory.
    is_single_file = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
    return is_single_file and facts.st_uid == os.geteuid()


def _matches(path: str, pattern: str) -> bool:
    if "/" in pattern:
        return fnmatch.fnmatchcase(path, pattern.strip("/"))
    return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/"))


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
