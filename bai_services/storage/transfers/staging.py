"""Staging of uploads: files are stored next to the folders of their scope until complete.

A resumable upload consists of two files, its bytes and ``ID.json``. Its progress is the size of the
first, so nothing else is written for each piece.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bai_services.core.errors import ChecksumMismatch, Conflict, NotFound
from bai_services.descent import remove_tree

from ..base import Scope
from ..trees import begin_writing, copy_file, descriptor, write_sparsely

DIRECTORY = ".staging"
_FACTS = ".json"
_DATA = ".data"
# Offset of a piece with a checksum: bytes after it do not count until verified.
_UNCHECKED = ".unchecked"
# One-shot uploads: useless once their connection is lost.
_ONCE = ".once"
ONCE_SECONDS = 24 * 3600.0
# Flushing starts after this many bytes, so that little remains for the final sync.
EARLY_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class UploadFacts:
    """State of a resumable upload; ``offset`` is the number of bytes received."""

    id: str
    vfolder_id: str
    path: str
    length: int
    user_id: str
    created_at: float
    expires_at: float
    is_partial: bool = False  # a part of an upload that is joined later
    is_archive: bool = False  # a tar archive that is unpacked at ``path``
    etag: str | None = None
    is_new: bool = False
    is_done: bool = False
    offset: int = 0


class Staging:
    """The staging area of one scope."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, facts: UploadFacts) -> None:
        """Store an upload durably, before it is acknowledged."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with descriptor(os.open(self.data(facts.id), _NEW, 0o600)):
            pass
        self._write(facts)

    def read(self, upload_id: str) -> UploadFacts:
        """Return the state of an upload; bytes not verified before a crash are cut off."""
        try:
            known = json.loads(self._path(upload_id, _FACTS).read_text())
        except (FileNotFoundError, ValueError):
            raise NotFound("there is no such upload, or it has expired") from None
        facts = UploadFacts(**known)
        if facts.is_done:
            return replace(facts, offset=facts.length)
        try:
            return replace(facts, offset=os.stat(self.data(facts.id)).st_size)
        except FileNotFoundError:
            # Completed, but a crash prevented the record of it.
            return replace(facts, is_done=True, offset=facts.length)

    def recover(self, upload_id: str) -> UploadFacts:
        """Read an upload that has no writer."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            start = int(self._path(upload_id, _UNCHECKED).read_text())
            os.truncate(self.data(upload_id), start)
            self._path(upload_id, _UNCHECKED).unlink()
        return self.read(upload_id)

    def finish(self, facts: UploadFacts) -> None:
        """Mark an upload as complete: a client that missed the response asks again."""
        self._write(replace(facts, is_done=True))
        self.data(facts.id).unlink(missing_ok=True)

    def remove(self, upload_id: str) -> None:
        for suffix in (_FACTS, _UNCHECKED, _DATA):
            self._path(upload_id, suffix).unlink(missing_ok=True)

    def join(self, facts: UploadFacts, parts: Sequence[str]) -> None:
        """Create an upload from complete parts, in their order."""
        self.begin(facts)
        with descriptor(os.open(self.data(facts.id), os.O_RDWR | os.O_CLOEXEC)) as target:
            for part in parts:
                with descriptor(os.open(self.data(part), os.O_RDONLY | os.O_CLOEXEC)) as source:
                    copy_file(source, target)

    def writer(self, upload_id: str, checksum: tuple[str, bytes] | None) -> Writer:
        """Return a writer that appends to an upload; ``checksum`` is the algorithm and the
        digest.
        """
        if checksum is not None:
            size = os.stat(self.data(upload_id)).st_size
            self._path(upload_id, _UNCHECKED).write_text(str(size))
        return Writer(self.data(upload_id), os.O_RDWR, checksum, self._path(upload_id, _UNCHECKED))

    def once(self) -> Writer:
        """Return the writer of a new one-shot upload."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return Writer(self.fresh(_ONCE), _NEW)

    def fresh(self, suffix: str = _ONCE) -> Path:
        """Return an unused path."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return self._path(str(uuid.uuid4()), suffix)

    def data(self, upload_id: str) -> Path:
        return self._path(upload_id, _DATA)

    def unfinished(self) -> list[UploadFacts]:
        """Return the incomplete uploads; their offset is not set."""
        found = []
        for name in _listed(self._directory):
            if name.endswith(_FACTS):
                # Completed meanwhile, or with a record truncated by a crash.
                with contextlib.suppress(OSError, ValueError, TypeError):
                    facts = UploadFacts(**json.loads((self._directory / name).read_text()))
                    if not facts.is_done:
                        found.append(facts)
        return found

    def sweep(self, now: float, is_start: bool) -> int:
        """Remove expired uploads, and return their number.

        At the start of the manager one-shot uploads, interrupted copies and deletions are removed
        too: none of them can be continued.
        """
        gone = 0
        for name in _listed(self._directory):
            path = self._directory / name
            with contextlib.suppress(OSError):
                if name.endswith(_FACTS):
                    if json.loads(path.read_text())["expires_at"] < now:
                        self.remove(name.removesuffix(_FACTS))
                        gone += 1
                    continue
                is_known = path.with_suffix(_FACTS).exists()
                is_old = now - os.stat(path).st_mtime > ONCE_SECONDS
                if not is_known and (is_start or is_old):
                    remove_any(path)
        return gone

    def _write(self, facts: UploadFacts) -> None:
        text = json.dumps({**asdict(facts), "offset": 0}).encode()
        path = self._path(facts.id, _FACTS)
        temporary = path.with_suffix(".new")
        with descriptor(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)) as file:
            os.write(file, text)
            os.fsync(file)
        os.rename(temporary, path)
        with descriptor(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            os.fsync(directory)

    def _path(self, upload_id: str, suffix: str) -> Path:
        try:
            name = str(uuid.UUID(upload_id))
        except ValueError:
            raise NotFound("there is no such upload, or it has expired") from None
        return self._directory / (name + suffix)


class Writer:
    """Appends to one staged file; its methods run one after another, in threads."""

    def __init__(
        self, path: Path, flags: int, checksum: tuple[str, bytes] | None = None,
        mark: Path | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self._file = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._file).st_size
        self._start = self.size
        self._expected = checksum
        self._hash: Any = hashlib.new(checksum[0]) if checksum else None
        self._mark = mark

    @property
    def file(self) -> int:
        if self._file < 0:
            raise Conflict("the upload has already ended")
        return self._file

    @property
    def is_unchecked(self) -> bool:
        """Whether written bytes count only after their checksum is verified."""
        return self._expected is not None

    def write(self, piece: bytes | memoryview) -> None:
        """Append, with zeros as holes; after an error nothing of the piece remains."""
        before = self.size
        try:
            write_sparsely(self.file, piece, before)
            # A hole at the end does not extend the file by itself.
            os.ftruncate(self.file, before + len(piece))
        except OSError:
            os.ftruncate(self.file, before)
            raise
        self.size = before + len(piece)
        if self.size - before >= EARLY_BYTES:
            begin_writing(self.file, before, self.size - before)
        if self._hash is not None:
            self._hash.update(piece)

    def sync(self) -> None:
        """Flush what was written: afterwards it may be acknowledged.

        Raises
        ------
        ChecksumMismatch
            If it does not match the checksum; then it is removed.
        """
        if self._expected is not None:
            if self._hash.digest() != self._expected[1]:
                self.drop()
                raise ChecksumMismatch("the piece does not have the checksum that came with it")
            self._expected = None
        os.fdatasync(self.file)
        self._unmark()

    def drop(self) -> None:
        """Remove what this writer has written and not verified."""
        if self._file >= 0 and self._expected is not None:
            os.ftruncate(self._file, self._start)
            self.size = self._start
            self._expected = None
        self._unmark()

    def close(self) -> None:
        if self._file >= 0:
            number, self._file = self._file, -1
            os.close(number)

    def discard(self) -> None:
        """Close the writer and delete its file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _unmark(self) -> None:
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def expiry(seconds: float) -> tuple[float, float]:
    """Return the current time and the time ``seconds`` later."""
    now = time.time()
    return now, now + seconds


def remove_any(path: Path) -> None:
    """Remove a file or a directory with everything in it; a missing one is no error."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_directory:
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def staging_areas(root: Path) -> list[tuple[Scope, Staging]]:
    """Return the staging area of every quota scope below a storage host's root."""
    return [
        (Scope(kind, place.name), Staging(place / DIRECTORY))
        for kind in ("user", "project")
        for place in subdirectories(root / kind)
    ]


def sweep_all(root: Path, now: float, is_start: bool) -> int:
    """Remove expired uploads below a storage host's root; return their number."""
    return sum(area.sweep(now, is_start) for _, area in staging_areas(root))


def unfinished_uploads(root: Path) -> list[tuple[Scope, UploadFacts]]:
    """Return every incomplete upload below a storage host's root."""
    return [(scope, facts) for scope, area in staging_areas(root) for facts in area.unfinished()]


def subdirectories(path: Path) -> list[Path]:
    """Return the subdirectories of a directory, none if it does not exist."""
    try:
        found = list(os.scandir(path))
    except FileNotFoundError:
        return []
    return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]


def _listed(directory: Path) -> Iterator[str]:
    try:
        yield from os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
