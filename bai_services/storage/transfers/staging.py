"""Staging area for incomplete uploads, one per quota scope, next to the scope's folders.

A resumable upload consists of two files: ``ID.data`` with the received bytes and ``ID.json`` with
its state. The size of ``ID.data`` is the progress, so a chunk without a checksum needs no other
write.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from bai_services.system.descent import remove_tree

from ..base import Scope
from ..trees import copy_file, descriptor, start_writeback, write_sparsely

DIRECTORY = ".staging"
_FACTS = ".json"
_DATA = ".data"
# A file with this suffix contains the offset at which a chunk with a checksum starts. The file
# exists until the checksum is verified. After a crash, ``recover`` removes the bytes after the
# offset.
_UNCHECKED = ".unchecked"
# Suffix of one-shot uploads, which cannot be resumed; ``Staging.sweep`` removes abandoned ones.
_ONE_SHOT = ".once"
ONE_SHOT_TTL_SECONDS = 24 * 3600.0
# Minimum bytes of a write that is flushed early, so that the final sync has little to do.
EARLY_FLUSH_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class UploadFacts:
    """State of a resumable upload; ``offset`` is the number of received bytes.

    The stored ``expires_at`` applies until bytes are received; after that, ``Staging`` returns a
    later time (see ``Staging.read``).
    """

    id: str
    vfolder_id: str
    path: str
    length: int
    user_id: str
    created_at: float
    expires_at: float
    is_partial: bool = False  # a partial upload, to be concatenated with others later
    is_archive: bool = False  # a tar archive that is unpacked into the directory ``path``
    etag: str | None = None  # ``etag`` and ``is_new``: see ``Precondition``
    is_new: bool = False
    is_done: bool = False
    offset: int = 0


class Staging:
    """The staging area of one scope."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, facts: UploadFacts) -> None:
        """Create an upload durably, before the request is acknowledged."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with descriptor(os.open(self.data_path(facts.id), _NEW, 0o600)):
            pass
        self._write(facts)

    def read(self, upload_id: str) -> UploadFacts:
        """Return the state of an upload.

        For an incomplete upload, the returned ``expires_at`` is later than the stored one: the time
        to live begins at the last received byte instead of at the start of the upload.

        Raises
        ------
        NotFound
            If the upload does not exist, for example because it was removed after its expiry.
        """
        try:
            facts = _load(self._path(upload_id, _FACTS))
        except (FileNotFoundError, ValueError):
            raise NotFound("there is no such upload, or it has expired") from None
        return self._with_progress(facts)

    def recover(self, upload_id: str) -> UploadFacts:
        """Remove bytes whose checksum was not verified before a crash, and return the state.

        The upload must not have a writer.
        """
        with contextlib.suppress(FileNotFoundError, ValueError):
            start = int(self._path(upload_id, _UNCHECKED).read_text())
            os.truncate(self.data_path(upload_id), start)
            self._path(upload_id, _UNCHECKED).unlink()
        return self.read(upload_id)

    def finish(self, facts: UploadFacts) -> None:
        """Mark an upload as complete. Its state is kept for clients that missed the response."""
        self._write(replace(facts, is_done=True))
        self.data_path(facts.id).unlink(missing_ok=True)

    def remove(self, upload_id: str) -> None:
        for suffix in (_FACTS, _UNCHECKED, _DATA):
            self._path(upload_id, suffix).unlink(missing_ok=True)

    def join(self, facts: UploadFacts, parts: Sequence[str]) -> None:
        """Create an upload by concatenating the complete uploads with these ids, in their order."""
        self.begin(facts)
        with descriptor(os.open(self.data_path(facts.id), os.O_RDWR | os.O_CLOEXEC)) as target:
            for part in parts:
                with descriptor(
                    os.open(self.data_path(part), os.O_RDONLY | os.O_CLOEXEC)
                ) as source:
                    copy_file(source, target)

    def writer(self, upload_id: str, checksum: tuple[str, bytes] | None) -> Writer:
        """Return a writer that appends a chunk to an upload.

        ``checksum`` is the algorithm and the digest of the chunk, None without a checksum.
        """
        if checksum is not None:
            size = os.stat(self.data_path(upload_id)).st_size
            self._path(upload_id, _UNCHECKED).write_text(str(size))
        return Writer(
            self.data_path(upload_id), os.O_RDWR, checksum, self._path(upload_id, _UNCHECKED)
        )

    def one_shot_writer(self) -> Writer:
        """Return the writer of a new one-shot upload."""
        while True:
            writer = Writer(self.new_path(_ONE_SHOT), _NEW)
            if _lock(writer.file) and os.fstat(writer.file).st_nlink:
                return writer
            # A sweep has removed the file before it was locked.
            writer.discard()

    def new_path(self, suffix: str = _ONE_SHOT) -> Path:
        """Return an unused path."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return self._path(str(uuid.uuid4()), suffix)

    def data_path(self, upload_id: str) -> Path:
        return self._path(upload_id, _DATA)

    def unfinished(self) -> list[UploadFacts]:
        """Return the incomplete uploads."""
        uploads = []
        for name in _list_names(self._directory):
            if name.endswith(_FACTS):
                # The file may have been removed since the listing, or truncated by a crash.
                with contextlib.suppress(OSError, ValueError):
                    facts = self._with_progress(_load(self._directory / name))
                    if not facts.is_done:
                        uploads.append(facts)
        return uploads

    def sweep(self, now: float, is_start: bool) -> int:
        """Remove expired resumable uploads, and return their number.

        Also remove files that cannot be resumed: one-shot uploads, remains of copies and deletions,
        and uploads with an unreadable state. They must be older than ``ONE_SHOT_TTL_SECONDS``; with
        ``is_start`` (the start of the manager), they need only be older than ``now``. Files that
        another manager is writing are locked, and remain.
        """
        removed = 0
        for name in _list_names(self._directory):
            path = self._directory / name
            with contextlib.suppress(OSError):
                is_known = _is_readable(path.with_suffix(_FACTS))
                if name.endswith(_FACTS) and is_known:
                    if self._with_progress(_load(path)).expires_at < now:
                        self.remove(name.removesuffix(_FACTS))
                        removed += 1
                    continue
                # At start-up, keep files that are newer than ``now``: imports and uploads may begin
                # before this sweep has ended.
                maximum = 0.0 if is_start else ONE_SHOT_TTL_SECONDS
                if not is_known and now - os.stat(path).st_mtime >= maximum:
                    _remove_unlocked(path)
        return removed

    def _with_progress(self, facts: UploadFacts) -> UploadFacts:
        """Add the progress, which the data file shows, to a stored state."""
        if facts.is_done:
            return replace(facts, offset=facts.length)
        try:
            data = os.stat(self.data_path(facts.id))
        except FileNotFoundError:
            # The upload was completed, but a crash prevented the update of its state.
            return replace(facts, is_done=True, offset=facts.length)
        active_seconds = max(0.0, data.st_mtime - facts.created_at)
        return replace(facts, offset=data.st_size, expires_at=facts.expires_at + active_seconds)

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
    """Appends to one staged file. Its methods block; the caller must not run two at a time."""

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
        """Return whether the written bytes have a checksum that was not verified yet."""
        return self._expected is not None

    def write(self, chunk: bytes | memoryview) -> None:
        """Append a chunk, with holes for blocks of zeros; an error leaves the file unchanged."""
        before = self.size
        try:
            write_sparsely(self.file, chunk, before)
            # write_sparsely does not extend the file for a hole at the end.
            os.ftruncate(self.file, before + len(chunk))
        except OSError:
            os.ftruncate(self.file, before)
            raise
        self.size = before + len(chunk)
        if self.size - before >= EARLY_FLUSH_BYTES:
            start_writeback(self.file, before, self.size - before)
        if self._hash is not None:
            self._hash.update(chunk)

    def restart(self) -> None:
        """Remove all bytes, for a source that cannot resume where it stopped."""
        os.ftruncate(self.file, 0)
        self.size = 0

    def sync(self) -> None:
        """Verify the checksum and flush to the disk; afterwards the chunk may be acknowledged.

        Raises
        ------
        ChecksumMismatch
            If the written bytes do not match the checksum; they are removed.
        """
        if self._expected is not None:
            if self._hash.digest() != self._expected[1]:
                self.drop()
                raise ChecksumMismatch("the chunk does not match its checksum")
            self._expected = None
        os.fdatasync(self.file)
        self._unmark()

    def drop(self) -> None:
        """Remove the bytes that this writer has written if their checksum was not verified."""
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


def _load(path: Path) -> UploadFacts:
    """Return the state of an upload that the file ``path`` contains.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If its content is not the state of an upload, for example because the disk lost a part.
    """
    try:
        facts = UploadFacts(**json.loads(path.read_text()))
    except TypeError as error:
        raise ValueError(f"{path} is not the state of an upload: {error}") from None
    uuid.UUID(facts.id)
    return facts


def _is_readable(path: Path) -> bool:
    """Return False if the state of an upload does not exist or is damaged."""
    try:
        _load(path)
    except (FileNotFoundError, ValueError):
        return False
    return True


def remove_any(path: Path) -> None:
    """Remove a file or a directory tree; idempotent."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_directory:
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _lock(file: int) -> bool:
    """Lock a file that is being written; return False if another process has locked it.

    The lock ends with the process. If the file system does not support locks, return True without a
    lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _remove_unlocked(path: Path) -> None:
    """Remove a file or a directory tree, unless it is a file that is being written."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with descriptor(os.open(path, flags)) as file:
        if _lock(file):
            remove_any(path)


def staging_areas(root: Path) -> list[tuple[Scope, Staging]]:
    """Return the staging area of every quota scope below a storage host's root."""
    return [
        (Scope(kind, scope_path.name), Staging(scope_path / DIRECTORY))
        for kind in ("user", "project")
        for scope_path in subdirectories(root / kind)
    ]


def sweep_all(root: Path, now: float, is_start: bool) -> int:
    """Sweep every staging area below a storage host's root; return the number of expired uploads.

    ``now`` is the Unix time in seconds. See ``Staging.sweep``.
    """
    return sum(area.sweep(now, is_start) for _, area in staging_areas(root))


def unfinished_uploads(root: Path) -> list[tuple[Scope, UploadFacts]]:
    """Return every incomplete upload below a storage host's root."""
    return [(scope, facts) for scope, area in staging_areas(root) for facts in area.unfinished()]


def subdirectories(path: Path) -> list[Path]:
    """Return the subdirectories of a directory, [] if it does not exist."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return []
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _list_names(directory: Path) -> Iterator[str]:
    try:
        yield from os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
