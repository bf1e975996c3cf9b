"""File operations in one open folder, relative to its descriptor: no path can leave the folder."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import heapq
import os
import re
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bai_services.core.display_text import file_name_problem
from bai_services.core.errors import Changed, Conflict, InvalidRequest, TooLarge
from bai_services.core.folders.entries import Entry, FileType
from bai_services.core.folders.vfolders import NO_PRECONDITION, Precondition
from bai_services.system.descent import remove_tree

from . import acl
from .base import CopyProgress, Entries
from .safe_paths import Opener, open_regular
from .trees import copy_file, copy_metadata, copy_tree, descriptor, measure_tree, open_subdirectory

# Mode of directories with a shared group: sessions that mount the folder may write, other users
# have no access.
SHARED_MODE = 0o2770
PRIVATE_MODE = 0o700
# Constants of renameat2(2); Python does not define them.
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
# Names are cached only if the directory was not modified in the last 2 s. Two changes within one
# tick of the kernel clock have the same modification time, so the second change would not be
# detected.
_SETTLED_NS = 2 * 10**9
_CACHED_DIRECTORIES = 4

_libc = ctypes.CDLL(None, use_errno=True)

SORTS: dict[str, Callable[[Entry], tuple[object, str]]] = {
    "size": lambda entry: (entry.size, entry.name),
    "modified_at": lambda entry: (entry.modified_at, entry.name),
    "type": lambda entry: (entry.type, entry.name),
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of new files; ``gid`` is the group of all sessions."""

    uid: int
    gid: int


# Serializes replacements. If two writers have read the same version, the second must fail with
# ``Changed``.
_replace_lock = threading.Lock()


class OpenFolder:
    """An open folder. Paths are tuples of parts validated by ``safe_paths.parse_path``.

    The empty tuple is the folder itself. Without an owner, new files belong to the manager's user.
    """

    def __init__(self, root: int, opener: Opener, owner: Owner | None = None) -> None:
        self.root = root
        self._opener = opener
        self._owner = owner

    @contextlib.contextmanager
    def directory(self, parts: Sequence[str], create_missing: bool = False) -> Iterator[int]:
        """Yield a descriptor of a directory, created first if ``create_missing``."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            number = self._opener(self.root, parts, flags)
        except FileNotFoundError:
            if not create_missing:
                raise
            for depth in range(1, len(parts) + 1):
                self._make(parts[:depth])
            number = self._opener(self.root, parts, flags)
        with descriptor(number):
            yield number

    def list(self, parts: Sequence[str], offset: int, limit: int, sort: str, text: str) -> Entries:
        """Return a page of the entries whose names contain ``text``, ignoring case.

        ``sort`` is ``name`` or a key of SORTS, with ``-`` in front for descending order.
        """
        field, is_descending = sort.removeprefix("-"), sort.startswith("-")
        with self.directory(parts) as here:
            names = _names.of(here)
            if text:
                names = [name for name in names if text.lower() in name.lower()]
            if field == "name":
                page = _slice(names, offset, limit, is_descending)
                entries = [entry for name in page if (entry := entry_of(name, here))]
            else:
                every = [entry for name in names if (entry := entry_of(name, here))]
                every.sort(key=SORTS[field], reverse=is_descending)
                entries = every[offset : offset + limit]
        return Entries(entries, len(names))

    def entry(self, parts: Sequence[str]) -> Entry:
        """Return the entry at a path, without following a link."""
        with self.directory(parts[:-1]) as here:
            entry = entry_of(parts[-1], here)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "gone")
        return entry

    def find(
        self, pattern: Sequence[re.Pattern[str]], max_scanned: int, max_matches: int
    ) -> dict[str, str]:
        """Return the regular files whose paths match a pattern of each level: path to signature.

        The signature changes when the file is written. Links are not followed.

        Raises
        ------
        TooLarge
            If more than ``max_scanned`` entries must be read, or more than ``max_matches`` files
            match.
        """
        found: dict[str, str] = {}
        scanned = 0
        waiting: list[tuple[str, ...]] = [()]
        for depth, level in enumerate(pattern, start=1):
            inner: list[tuple[str, ...]] = []
            entries = ((parts, each) for parts in waiting for each in self._entries(parts))
            for above, entry in entries:
                scanned += 1
                if scanned > max_scanned:
                    raise TooLarge(
                        f"more than {max_scanned} entries of the folder must be read to find the "
                        "files that match the pattern"
                    )
                if level.fullmatch(entry.name) is None or not _is_plain(entry.name):
                    continue
                path = (*above, entry.name)
                if depth < len(pattern):
                    if entry.is_dir(follow_symlinks=False):
                        inner.append(path)
                elif signature := _signature(entry):
                    found["/".join(path)] = signature
                    if len(found) > max_matches:
                        raise TooLarge(f"more than {max_matches} files match the pattern")
            waiting = inner
        return found

    def _entries(self, parts: Sequence[str]) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a directory; none if it was removed or replaced."""
        try:
            with self.directory(parts) as here, os.scandir(here) as entries:
                yield from entries
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
                raise

    def make_directory(self, parts: Sequence[str], exists_ok: bool) -> None:
        """Create a directory and its missing parents."""
        if not self._make_all(parts) and not exists_ok:
            raise FileExistsError(errno.EEXIST, "exists")

    def put(
        self,
        temporary: Path,
        file: int,
        parts: Sequence[str],
        expected: Precondition = NO_PRECONDITION,
    ) -> Entry:
        """Move a complete file to its path, replacing an existing regular file; return the entry.

        The file is flushed to the disk before it becomes visible in the folder.
        """
        with self.directory(parts[:-1], create_missing=True) as parent:
            name = parts[-1]
            mode = existing_mode(parent, name)
            self.grant_access(file, is_executable=bool(mode and mode & 0o100))
            os.fsync(file)
            with _replace_lock:
                check_expected(parent, name, expected)
                move_into_place(None, str(temporary), parent, name)
            os.fsync(parent)
            entry = entry_of(name, parent)
        return entry or _describe(name, os.fstat(file))

    def check_target(self, parts: Sequence[str], expected: Precondition = NO_PRECONDITION) -> None:
        """Raise the error that ``put`` would raise now, before the client sends the content."""
        try:
            with self.directory(parts[:-1]) as parent:
                existing_mode(parent, parts[-1])
                check_expected(parent, parts[-1], expected)
        except FileNotFoundError:
            if expected.etag is not None:
                raise Changed(f"{parts[-1]} no longer exists", etag=None) from None

    def move(self, source: Sequence[str], target: Sequence[str], replaces: bool) -> Entry:
        """Move or rename an entry inside the folder, and return the moved entry.

        Missing parents of the target are created.
        """
        if tuple(target[: len(source)]) == tuple(source):
            raise InvalidRequest("the target is the source or a path inside it", field="target")
        with self.directory(source[:-1]) as outer:
            # Check the source first: if it is missing, no directories must be created.
            os.stat(source[-1], dir_fd=outer, follow_symlinks=False)
            with self.directory(target[:-1], create_missing=True) as inner:
                if replaces:
                    os.rename(source[-1], target[-1], src_dir_fd=outer, dst_dir_fd=inner)
                else:
                    rename_new(outer, source[-1], inner, target[-1])
                os.fsync(inner)
                os.fsync(outer)
                entry = entry_of(target[-1], inner)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "gone")
        return entry

    def content_bytes(self, parts: Sequence[str]) -> int:
        """Return the size in bytes of a file, or of all files in a directory."""
        with self.directory(parts[:-1]) as outer:
            facts = os.stat(parts[-1], dir_fd=outer, follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                return facts.st_size
            with open_subdirectory(outer, parts[-1]) as opened:
                return measure_tree(opened).bytes

    def copy(
        self, source: Sequence[str], target: Sequence[str], staging: Path, progress: CopyProgress
    ) -> Entry:
        """Copy a file or a directory tree, and return the copy.

        The copy becomes visible when it is complete.
        """
        if tuple(target[: len(source)]) == tuple(source):
            raise InvalidRequest("the target is the source or a path inside it", field="target")
        with self.directory(source[:-1]) as outer:
            facts = os.stat(source[-1], dir_fd=outer, follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                staging.mkdir(mode=PRIVATE_MODE)
                with (
                    open_subdirectory(outer, source[-1]) as a,
                    descriptor(os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as b,
                ):
                    copy_tree(a, b, progress)
                    sync_file_system(b)
            else:
                with (
                    descriptor(open_regular(self._opener, self.root, source)) as a,
                    descriptor(os.open(staging, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)) as b,
                ):
                    copy_file(a, b, progress)
                    self.grant_access(b, is_executable=bool(facts.st_mode & 0o100))
                    os.fsync(b)
        with self.directory(target[:-1], create_missing=True) as inner:
            move_into_place(None, str(staging), inner, target[-1], is_new=True)
            os.fsync(inner)
            entry = entry_of(target[-1], inner)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "gone")
        return entry

    def remove(self, parts: Sequence[str], trash: Path | None) -> bool:
        """Remove a file, a link or an empty directory; with ``trash``, move a directory there.

        Return whether a tree was moved to ``trash``; the caller deletes it.
        """
        with self.directory(parts[:-1]) as parent:
            facts = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                os.unlink(parts[-1], dir_fd=parent)
                return False
            if trash is None:
                os.rmdir(parts[-1], dir_fd=parent)
                return False
            try:
                os.rename(parts[-1], trash, src_dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # The directory is on another file system, so it cannot be renamed into the trash.
                remove_tree(parts[-1], dir_fd=parent)
                return False
            return True

    def open_file(self, parts: Sequence[str]) -> int:
        return open_regular(self._opener, self.root, parts)

    def grant_access(self, file: int, is_executable: bool) -> None:
        """Set mode, ACL and owner of a new file, so that all users of the folder have access."""
        if self._owner is None:
            os.fchmod(file, 0o700 if is_executable else 0o600)
            return
        os.fchmod(file, 0o770 if is_executable else 0o660)
        has_acl = acl.share_file(file, is_executable)
        # Without ACLs, do not change the owner, because sessions that run as the manager's user
        # would then have no access.
        os.fchown(file, self._owner.uid if has_acl else -1, self._owner.gid)

    def _make_all(self, parts: Sequence[str]) -> bool:
        is_new = False
        for depth in range(1, len(parts) + 1):
            is_new = self._make(parts[:depth])
        return is_new

    def _make(self, parts: Sequence[str]) -> bool:
        outer = self._opener(self.root, parts[:-1], os.O_PATH | os.O_DIRECTORY)
        with descriptor(outer):
            try:
                os.mkdir(parts[-1], PRIVATE_MODE, dir_fd=outer)
            except FileExistsError:
                return self._existing(parts)
            with open_subdirectory(outer, parts[-1]) as made:
                if self._owner is not None:
                    grant_directory_access(made, self._owner)
        return True

    def _existing(self, parts: Sequence[str]) -> bool:
        # Opening a directory succeeds and is rejected here; opening a file raises an error, which
        # becomes True. For a link to a directory, the result depends on the opener.
        with descriptor(self._opener(self.root, parts, os.O_PATH | os.O_DIRECTORY)):
            return False


def grant_directory_access(directory: int, owner: Owner) -> None:
    """Set mode, ACL and owner of a new directory, so that all users of the folder have access."""
    os.fchmod(directory, SHARED_MODE)
    has_acl = acl.share_directory(directory)
    os.fchown(directory, owner.uid if has_acl else -1, owner.gid)
    os.fchmod(directory, SHARED_MODE)


def etag_of(facts: os.stat_result) -> str:
    return f"{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


def _is_plain(name: str) -> bool:
    """Return whether a name is UTF-8 text without characters that control a terminal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not file_name_problem(name)


def _signature(entry: os.DirEntry[str]) -> str:
    """Return a text that changes when a regular file is written; "" for other entries."""
    try:
        facts = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return ""
    if not stat.S_ISREG(facts.st_mode):
        return ""
    return f"{facts.st_ino}-{facts.st_size}-{facts.st_mtime_ns}"


def entry_of(name: str, directory: int) -> Entry | None:
    """Return one entry of an open directory, None if it no longer exists."""
    try:
        return _describe(name, os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _describe(name: str, facts: os.stat_result) -> Entry:
    kind = FileType.OTHER
    if stat.S_ISREG(facts.st_mode):
        kind = FileType.FILE
    elif stat.S_ISDIR(facts.st_mode):
        kind = FileType.DIRECTORY
    elif stat.S_ISLNK(facts.st_mode):
        kind = FileType.LINK
    is_file = kind is FileType.FILE
    # Bytes that are not UTF-8 become replacement characters; sessions can create such names.
    return Entry(
        os.fsencode(name).decode("utf-8", "replace"),
        kind,
        facts.st_size if is_file else 0,
        datetime.fromtimestamp(facts.st_mtime, UTC),
        etag_of(facts) if is_file else None,
    )


def existing_mode(parent: int, name: str) -> int | None:
    """Return the permission bits of a regular file, None if it does not exist.

    Raises
    ------
    Conflict
        If the entry is a directory, a link or a special file.
    """
    try:
        facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(facts.st_mode):
        raise Conflict(f"{name} is a directory; upload to a path inside it")
    if not stat.S_ISREG(facts.st_mode):
        raise Conflict(f"{name} is a link or a special file; remove it first")
    return stat.S_IMODE(facts.st_mode) & 0o777


def check_expected(parent: int, name: str, expected: Precondition) -> None:
    """Raise ``Changed`` unless the file meets the condition of the request."""
    if expected == NO_PRECONDITION:
        return
    try:
        have = etag_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
    except FileNotFoundError:
        have = None
    if expected.is_new and have is not None:
        raise Changed(f"{name} already exists", etag=have)
    if expected.etag is not None and (have is None or expected.etag not in ("*", have)):
        if have is None:
            raise Changed(f"{name} does not exist", etag=None)
        raise Changed(
            f"{name} has changed since it was read; read it again and repeat your changes",
            etag=have,
        )


def rename_new(source: int | None, name: str, target: int, new_name: str) -> None:
    """Rename an entry; raise FileExistsError if the new name exists."""
    result = _libc.renameat2(
        _AT_FDCWD if source is None else source,
        os.fsencode(name),
        target,
        os.fsencode(new_name),
        _RENAME_NOREPLACE,
    )
    if result == 0:
        return
    number = ctypes.get_errno()
    if number != errno.EINVAL:
        raise OSError(number, os.strerror(number))
    # The file system does not support the flag (NFS). The check before the rename is not atomic.
    if entry_of(new_name, target) is not None:
        raise FileExistsError(errno.EEXIST, "exists")
    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def move_into_place(
    source: int | None, name: str, target: int, new_name: str, is_new: bool = False
) -> None:
    """Move an entry from staging into a folder; with ``is_new`` the target must not exist.

    An unmanaged folder may be on another file system. Then the entry is first copied next to its
    target. The copy uses descriptors only, because sessions can write to that directory.
    """
    move = rename_new if is_new else _rename
    try:
        move(source, name, target, new_name)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    beside = f".bai-{uuid.uuid4().hex}"
    facts = os.stat(name, dir_fd=source, follow_symlinks=False)
    try:
        _copy_next_to_target(source, name, target, beside, stat.S_ISDIR(facts.st_mode))
        move(target, beside, target, new_name)
    except BaseException:
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(facts.st_mode):
                remove_tree(beside, dir_fd=target)
            else:
                os.unlink(beside, dir_fd=target)
        raise


def _copy_next_to_target(
    source: int | None, name: str, target: int, beside: str, is_directory: bool
) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with descriptor(os.open(name, flags, dir_fd=source)) as a:
        if is_directory:
            os.mkdir(beside, PRIVATE_MODE, dir_fd=target)
            with open_subdirectory(target, beside) as b:
                copy_tree(a, b, CopyProgress())
                sync_file_system(b)
            return
        made = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with descriptor(os.open(beside, made, 0o600, dir_fd=target)) as b:
            copy_file(a, b)
            copy_metadata(a, b)
            os.fsync(b)


def _rename(source: int | None, name: str, target: int, new_name: str) -> None:
    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def sync_file_system(directory: int) -> None:
    """Flush a whole file system to the disk, which is faster than one fsync for each new file."""
    if _libc.syncfs(directory) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class _Names:
    """LRU cache of the names in directories, so that further pages need no ``os.listdir``."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, list[str]]] = {}
        self._lock = threading.Lock()

    def of(self, directory: int) -> list[str]:
        """Return the names in an open directory; sorted only if they come from the cache."""
        facts = os.fstat(directory)
        key, changed = (facts.st_dev, facts.st_ino), facts.st_mtime_ns
        with self._lock:
            known = self._known.pop(key, None)
        if known is not None and known[0] == changed:
            names = known[1]
            names.sort()
        else:
            names = os.listdir(directory)
        now = datetime.now(UTC).timestamp() * 1e9
        if now - changed > _SETTLED_NS:
            with self._lock:
                self._known[key] = (changed, names)
                while len(self._known) > _CACHED_DIRECTORIES:
                    self._known.pop(next(iter(self._known)), None)
        return list(names)


_names = _Names()


def _slice(names: list[str], offset: int, limit: int, is_descending: bool) -> list[str]:
    if offset == 0 and not is_descending:
        return heapq.nsmallest(limit, names)
    names.sort(reverse=is_descending)
    return names[offset : offset + limit]
