"""A storage host: a backend on a mounted path, through which the manager accesses folders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from bai_services.core.cluster.storage_checks import MARKER_FILE
from bai_services.core.errors import InvalidRequest, NotFound, StorageFull, Unavailable
from bai_services.core.folders.entries import Entry, Unpacked
from bai_services.core.folders.vfolders import NO_PRECONDITION, Precondition
from bai_services.system.descent import remove_tree

from . import folder, safe_paths, trees
from .backends.backend import Backend
from .base import (
    Capability,
    CopyProgress,
    Entries,
    Health,
    HostStatus,
    Location,
    Scope,
    Usage,
)
from .folder import OpenFolder, Owner
from .transfers.archives import FORMATS, check_path, generate_archive
from .transfers.downloads import ArchiveStream, Download
from .transfers.staging import (
    DIRECTORY,
    Staging,
    UploadFacts,
    Writer,
    remove_any,
    sweep_all,
    unfinished_uploads,
)
from .transfers.unpack_process import Require, cpu_seconds, unpack
from .transfers.unpack_worker import Job
from .transfers.uploads import ResumableUploads
from .workers import Workers

log = logging.getLogger(__name__)
T = TypeVar("T")

THREADS = 8
# Threads for operations that may take hours: copies, usage counts, deletions of trees.
LONG_THREADS = 4
# Concurrent processes that unpack archives, each with up to 512 MiB of memory.
UNPACKERS = 4
PROBE_SECONDS = 5.0
# Timeout of a search for files.
FIND_SECONDS = 10.0
SLOW_SECONDS = 1.0
# A host with less free space counts as full, because the file system needs space for its metadata.
MIN_FREE_BYTES = 16 * 2**20
MAX_ARCHIVE_PATHS = 1000


class StorageHost:
    """Stores a folder in ``ROOT/KIND/OWNER_ID/FOLDER_ID``; KIND is ``user`` or ``project``.

    An unmanaged folder stays at its own path, which may be on another file system.
    Uploads in progress are in the directory ``.staging`` next to the folders: on the same file
    system, counted against the same quota, and never visible in a session. Paths that lead out of a
    folder through links are rejected.

    The methods raise ``NotFound`` for a missing entry, ``Conflict`` if an existing entry prevents
    the operation, ``InvalidRequest`` for an invalid path, ``Forbidden`` for a path that leads out
    of the folder, and ``Unavailable`` if the host does not respond. Without free space, they raise
    ``StorageFull`` or ``QuotaExceeded``.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        shared_gid: int | None = None,
        opener: safe_paths.Opener | None = None,
    ) -> None:
        """Create a host; ``start`` must be called before use.

        ``shared_gid`` (needs root) is the group of all containers. Its members have access to every
        folder, but a container sees only the folders that are mounted into it. Without
        ``shared_gid`` only the manager's user has access to folders.
        """
        self.name = name
        self.backend = backend
        self.capabilities: frozenset[Capability] = frozenset()
        self.health = Health(HostStatus.GONE, "not checked yet", 0, 0, datetime.now(UTC))
        # Content of the file with which agents recognize the file system; "" if it is unknown.
        self.marker = ""
        self._root = backend.root.absolute()
        self._shared_gid = shared_gid
        self._opener = opener or safe_paths.best_opener()
        self.workers = Workers(name, THREADS)
        self._long = Workers(f"{name}-long", LONG_THREADS)
        self._unpackers = asyncio.Semaphore(UNPACKERS)
        self._unpack_locks: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()

    async def start(self) -> None:
        """Start the threads and check the host. If the host is unavailable, only log this."""
        self.workers.start()
        self._long.start()
        try:
            await self.workers.run(self._prepare, seconds=PROBE_SECONDS)
        except Unavailable as error:
            log.error("storage host %s: %s", self.name, error.message)
        await self.probe()

    async def stop(self) -> None:
        """Wait a few seconds for running operations, and abandon the unfinished ones.

        The folder tasks of abandoned operations are resumed at the next start.
        """
        await asyncio.gather(self._long.stop(), self.workers.stop())

    async def probe(self) -> Health:
        """Check the host's health within a few seconds, and return it."""
        started = time.monotonic()
        now = datetime.now(UTC)
        try:
            status, message, total, free = await self.workers.run(
                self._probe, seconds=PROBE_SECONDS
            )
        except (Unavailable, NotFound) as error:
            self.health = Health(HostStatus.GONE, error.message, 0, 0, now)
            return self.health
        taken = time.monotonic() - started
        if status is HostStatus.READY and taken > SLOW_SECONDS:
            status, message = HostStatus.SLOW, f"it took {taken:.1f} s to respond"
        self.health = Health(status, message, total, free, now)
        return self.health

    async def create(self, location: Location) -> None:
        """Create an empty folder."""
        await self.workers.run(self._create, location)

    async def check_unmanaged(self, path: str) -> None:
        """Raise ``InvalidRequest`` unless a path is a directory that may be used as a folder."""
        await self.workers.run(self._check_unmanaged, path)

    async def delete(self, location: Location) -> None:
        """Delete a folder and its content; idempotent. Does nothing for an unmanaged folder."""
        if location.unmanaged_path is None:
            await self._long.run(self._delete, location, seconds=None)

    async def usage(self, location: Location) -> Usage:
        """Return the usage of a folder, computed by walking its tree."""
        return await self._long.run(self._measure, location, seconds=None)

    async def scope_bytes(self, scope: Scope) -> int | None:
        """Return the file system's usage counter of a scope in bytes.

        Return None if the file system has no counter or the scope has no directory.
        """
        if Capability.FAST_USAGE not in self.capabilities:
            return None
        return await self.workers.run(self._with_scope, self.backend.usage, scope)

    async def set_quota(self, scope: Scope, limit_bytes: int | None) -> None:
        """Set the limit of a scope.

        Does nothing if the file system cannot enforce limits or the scope has no directory.
        """
        if Capability.QUOTA in self.capabilities:
            await self.workers.run(self._set_quota, scope, limit_bytes)

    async def copy_folder(
        self, source: Location, target_host: StorageHost, target: Location, progress: CopyProgress
    ) -> None:
        """Copy a whole folder; remains of an interrupted copy at ``target`` are replaced."""
        await self._long.run(self._copy_folder, source, target_host, target, progress, seconds=None)

    async def move_folder(self, source: Location, target: Location, progress: CopyProgress) -> None:
        """Move a folder to another scope; can be repeated after an interruption."""
        await self._long.run(self._move_folder, source, target, progress, seconds=None)

    async def check_access(self, location: Location, seconds: float) -> None:
        """Raise ``NotFound`` if the folder is missing, ``Unavailable`` after ``seconds``."""
        await self.workers.run(self._check_access, location, seconds=seconds)

    async def list(
        self, location: Location, path: str, offset: int = 0, limit: int = 100,
        sort: str = "name", text: str = "",
    ) -> Entries:  # fmt: skip
        parts = safe_paths.parse_path(path)
        return await self._run_in_folder(
            location, None, OpenFolder.list, parts, offset, limit, sort, text
        )

    async def entry(self, location: Location, path: str) -> Entry:
        parts = safe_paths.file_parts(path)
        return await self._run_in_folder(location, None, OpenFolder.entry, parts)

    async def find(
        self,
        location: Location,
        pattern: Sequence[re.Pattern[str]],
        max_scanned: int,
        max_matches: int,
    ) -> dict[str, str]:
        """Return the files that match a pattern, with signatures; see ``OpenFolder.find``."""
        return await self.workers.run(
            self._opened_for,
            location,
            None,
            OpenFolder.find,
            pattern,
            max_scanned,
            max_matches,
            seconds=FIND_SECONDS,
        )

    async def make_directory(
        self, location: Location, path: str, exists_ok: bool, uid: int | None = None
    ) -> None:
        parts = safe_paths.file_parts(path.rstrip("/"), is_new=True)
        await self._run_in_folder(location, uid, OpenFolder.make_directory, parts, exists_ok)

    async def move(
        self, location: Location, source: str, target: str, replaces: bool, uid: int | None = None
    ) -> Entry:
        """Move or rename an entry inside a folder, and return the moved entry."""
        old, new = safe_paths.file_parts(source), safe_paths.file_parts(target, is_new=True)
        return await self._run_in_folder(location, uid, OpenFolder.move, old, new, replaces)

    async def content_bytes(self, location: Location, path: str) -> int:
        """Return the size in bytes of a file, or of all files in a directory."""
        parts = safe_paths.file_parts(path)
        return await self._long.run(self._content_bytes, location, parts, seconds=None)

    async def copy(
        self, location: Location, source: str, target: str, uid: int | None, progress: CopyProgress
    ) -> Entry:
        """Copy an entry inside a folder, and return the copy.

        The copy becomes visible when it is complete.
        """
        old, new = safe_paths.file_parts(source), safe_paths.file_parts(target, is_new=True)
        return await self._long.run(self._copy, location, uid, old, new, progress, seconds=None)

    async def remove(self, location: Location, path: str, is_recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; with ``is_recursive`` also a tree."""
        parts = safe_paths.file_parts(path)
        left = await self.workers.run(self._remove, location, parts, is_recursive)
        if left is not None:
            await self._long.run(remove_tree, left, seconds=None)

    async def open_download(self, location: Location, path: str) -> Download:
        """Open a file; the caller closes it."""
        parts = safe_paths.file_parts(path)
        file = await self._run_in_folder(location, None, OpenFolder.open_file, parts)
        return Download(file, self.workers)

    async def open_archive(
        self, location: Location, paths: Sequence[str], form: str
    ) -> ArchiveStream:
        """Open a zip or tar archive that is created while it is read; the caller closes it."""
        if form not in FORMATS or not paths or len(paths) > MAX_ARCHIVE_PATHS:
            raise InvalidRequest(
                f"an archive must have the format {' or '.join(FORMATS)} and 1 to "
                f"{MAX_ARCHIVE_PATHS} paths",
                field="format",
            )
        tops = [safe_paths.parse_path(path) for path in paths]
        root = await self.workers.run(self._open_root, location)
        opened = OpenFolder(root, self._opener)
        try:
            for top in tops:
                await self.workers.run(check_path, opened, top)
        except BaseException:
            os.close(root)
            raise
        return ArchiveStream(root, generate_archive(opened, tops, form), self.workers)

    def uploads(self, location: Location) -> ResumableUploads:
        """Return the resumable uploads of a folder's scope."""
        return ResumableUploads(self.staging(location), self.workers, self._long)

    async def writer(self, location: Location) -> Writer:
        """Return the writer of a new one-shot upload."""
        return await self.workers.run(self.staging(location).one_shot_writer)

    async def check_target(
        self,
        location: Location,
        path: str,
        size_bytes: int,
        expected: Precondition = NO_PRECONDITION,
    ) -> None:
        """Raise the error that ``commit`` would raise now, before the client sends the content."""
        parts = safe_paths.file_parts(path, is_new=True)
        await self._run_in_folder(location, None, OpenFolder.check_target, parts, expected)
        await self.workers.run(self._require_free_space, size_bytes)

    async def commit(
        self, location: Location, writer: Writer, path: str, uid: int | None,
        expected: Precondition = NO_PRECONDITION,
    ) -> Entry:  # fmt: skip
        """Move an uploaded file to its path, durably and atomically; return the entry."""
        parts = safe_paths.file_parts(path, is_new=True)
        return await self.workers.run(self._commit, location, writer, parts, uid, expected)

    async def unpack(
        self,
        location: Location,
        writer: Writer,
        path: str,
        uid: int | None,
        max_bytes: int,
        require: Require | None = None,
    ) -> Unpacked:
        """Unpack an uploaded tar archive into a directory of the folder.

        Return the number of files and their total size. Before files are moved into the folder,
        ``require`` is called with the total size in bytes; its error stops the unpacking. A
        cancellation stops the unpacking, unless files are already being moved into the folder.
        """
        parts = safe_paths.parse_new_path(path)
        staging = await self.workers.run(self.staging(location).new_path, ".unpacked")
        owner = self._owner(uid)
        job = Job(
            folder=str(self._path(location)),
            staging=str(staging),
            archive=str(writer.path),
            above=list(parts),
            max_bytes=max_bytes,
            owner=None if owner is None else (owner.uid, owner.gid),
            has_kernel_opener=self._opener is safe_paths.open_with_kernel,
            cpu_seconds=cpu_seconds(writer.size),
        )
        # Unpack one archive at a time per scope, so that one user cannot occupy all unpack
        # processes.
        async with self._unpack_locks.setdefault(location.scope, asyncio.Lock()), self._unpackers:
            try:
                return await unpack(job, require)
            finally:
                removal = self._long.run(remove_any, staging, seconds=None)
                with contextlib.suppress(Unavailable):  # a later sweep removes the directory
                    await asyncio.shield(asyncio.ensure_future(removal))

    async def discard(self, writer: Writer) -> None:
        """Close the writer of a one-shot upload and delete what it wrote."""
        await self.workers.run(writer.discard)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a method of a ``Writer`` in a thread, and return its result."""
        return await self.workers.run(work, *arguments)

    async def sweep(self, is_start: bool = False) -> int:
        """Remove expired resumable uploads, and return their number.

        Also remove old remains of other operations; with ``is_start``, all such remains.
        """
        return await self._long.run(sweep_all, self._root, time.time(), is_start, seconds=None)

    async def unfinished(self) -> Sequence[tuple[Scope, UploadFacts]]:
        """Return every unfinished upload with its quota scope."""
        return await self._long.run(unfinished_uploads, self._root, seconds=None)

    def staging(self, location: Location) -> Staging:
        """Return the staging area of a folder's uploads."""
        return Staging(self._staging_path(location))

    def source_path(self, location: Location) -> str:
        """Return the absolute path of the folder, which is the same on the agents' machines."""
        return str(self._path(location))

    async def _run_in_folder(
        self, location: Location, uid: int | None, work: Callable[..., T], *arguments: Any
    ) -> T:
        """Run ``work`` on the opened folder in a thread, and return its result.

        ``uid`` will own new files.
        """
        return await self.workers.run(self._opened_for, location, uid, work, *arguments)

    def _opened_for(
        self, location: Location, uid: int | None, work: Callable[..., T], *arguments: Any
    ) -> T:
        with self._opened(location, uid) as opened:
            return work(opened, *arguments)

    @contextlib.contextmanager
    def _opened(self, location: Location, uid: int | None = None) -> Iterator[OpenFolder]:
        with trees.descriptor(self._open_root(location)) as root:
            yield OpenFolder(root, self._opener, self._owner(uid))

    def _open_root(self, location: Location) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path(location), flags)

    def _owner(self, uid: int | None) -> Owner | None:
        if self._shared_gid is None:
            return None
        return Owner(os.geteuid() if uid is None else uid, self._shared_gid)

    def _scope_path(self, scope: Scope) -> Path:
        return self._root.joinpath(*scope.parts)

    def _path(self, location: Location) -> Path:
        if location.unmanaged_path is not None:
            return Path(location.unmanaged_path)
        return self._scope_path(location.scope) / str(uuid.UUID(location.vfolder_id))

    def _staging_path(self, location: Location) -> Path:
        # The staging directory is not inside the folder, where sessions could replace it with a
        # link.
        return self._scope_path(location.scope) / DIRECTORY

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=folder.PRIVATE_MODE)
        self.capabilities = self.backend.capabilities()

    def _probe(self) -> tuple[HostStatus, str, int, int]:
        if not self.capabilities:
            self._prepare()
        self.marker = self._read_marker()
        stats = os.statvfs(self._root)
        total, free = stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
        if stats.f_flag & os.ST_RDONLY:
            return HostStatus.READ_ONLY, "it is mounted read-only", total, free
        if not os.access(self._root, os.W_OK | os.X_OK):
            return HostStatus.READ_ONLY, "the manager may not write to it", total, free
        if free < MIN_FREE_BYTES:
            return HostStatus.FULL, f"{free} bytes are left", total, free
        return HostStatus.READY, "", total, free

    def _read_marker(self) -> str:
        """Return the content of the marker; create it if necessary, "" if that is not possible."""
        path = self._root / MARKER_FILE
        try:
            with contextlib.suppress(FileNotFoundError):
                return path.read_text()
            # Another manager may create the marker at the same time. One file replaces the other,
            # and both managers read it in their next probe.
            content = str(uuid.uuid4())
            new = self._root / f"{MARKER_FILE}.{content}"
            new.write_text(content)
            new.rename(path)
        except (OSError, UnicodeDecodeError):
            return ""
        return content

    def _create(self, location: Location) -> None:
        self.backend.create(self._scope_path(location.scope))
        if location.unmanaged_path is not None:
            return  # an unmanaged folder needs only the staging area of the scope
        path = self._path(location)
        path.mkdir(mode=folder.PRIVATE_MODE)
        if self._shared_gid is None:
            return
        try:
            with trees.descriptor(self._open_root(location)) as made:
                folder.grant_directory_access(made, Owner(-1, self._shared_gid))
        except OSError:
            path.rmdir()
            raise

    def _check_unmanaged(self, path: str) -> None:
        place = Path(path)
        if not place.is_absolute() or ".." in place.parts or place != place.resolve():
            raise InvalidRequest(
                f"{path} must be an absolute path without links and '..'",
                field="unmanaged_path",
            )
        if not place.is_dir():
            raise InvalidRequest(f"{path} is not a directory", field="unmanaged_path")
        root = self._root.resolve()
        if len(place.parts) < 3 or place in (root, *root.parents) or root in place.parents:
            raise InvalidRequest(
                f"{path} is or contains the storage host's root, is inside it, or is a top-level "
                "directory; give a separate directory",
                field="unmanaged_path",
            )

    def _delete(self, location: Location) -> None:
        gone = self._staging_path(location) / f"{uuid.UUID(location.vfolder_id)}.trash"
        # The remains of an interrupted deletion would prevent the rename.
        remove_tree(gone)
        # Rename before the removal, so that the folder disappears from its path atomically.
        with contextlib.suppress(FileNotFoundError):
            gone.parent.mkdir(mode=folder.PRIVATE_MODE, exist_ok=True)
            os.rename(self._path(location), gone)
        remove_tree(gone)

    def _measure(self, location: Location) -> Usage:
        with trees.descriptor(self._open_root(location)) as root:
            return trees.measure_tree(root)

    def _with_scope(self, work: Callable[[Path], T], scope: Scope) -> T | None:
        path = self._scope_path(scope)
        return work(path) if path.exists() else None

    def _set_quota(self, scope: Scope, limit_bytes: int | None) -> None:
        path = self._scope_path(scope)
        if path.exists():
            self.backend.set_quota(path, limit_bytes)

    def _copy_folder(
        self, source: Location, host: StorageHost, target: Location, progress: CopyProgress
    ) -> None:
        usage = self._measure(source)
        progress.total_files, progress.total_bytes = usage.files, usage.bytes
        host._require_free_space(usage.disk_bytes)
        host._delete(target)
        host._create(target)
        self.backend.clone(self._path(source), host._path(target), progress)
        with trees.descriptor(host._open_root(target)) as made:
            if host._shared_gid is not None:
                folder.grant_directory_access(made, Owner(-1, host._shared_gid))
            folder.sync_file_system(made)

    def _move_folder(self, source: Location, target: Location, progress: CopyProgress) -> None:
        old, new = self._path(source), self._path(target)
        if not old.exists():
            if new.exists():
                return  # an earlier call was interrupted after it had moved the folder
            raise FileNotFoundError(old)
        self.backend.create(self._scope_path(target.scope))
        try:
            if not new.exists():
                os.rename(old, new)
                return
        except OSError:
            log.info(
                "copying folder %s to another quota scope, because it cannot be renamed",
                source.vfolder_id,
            )
        self._copy_folder(source, self, target, progress)
        self._delete(source)

    def _check_access(self, location: Location) -> None:
        with trees.descriptor(self._open_root(location)) as root:
            os.fstat(root)

    def _content_bytes(self, location: Location, parts: Any) -> int:
        with self._opened(location, None) as opened:
            return opened.content_bytes(parts)

    def _copy(
        self, location: Location, uid: int | None, old: Any, new: Any, progress: CopyProgress
    ) -> Entry:
        staging = self.staging(location).new_path()
        try:
            with self._opened(location, uid) as opened:
                return opened.copy(old, new, staging, progress)
        finally:
            remove_any(staging)

    def _remove(self, location: Location, parts: Any, is_recursive: bool) -> Path | None:
        trash = self.staging(location).new_path(".trash") if is_recursive else None
        with self._opened(location) as opened:
            return trash if opened.remove(parts, trash) else None

    def _require_free_space(self, size_bytes: int) -> None:
        stats = os.statvfs(self._root)
        free = stats.f_bavail * stats.f_frsize
        if size_bytes > free:
            raise StorageFull(
                f"storage host {self.name} has {free} bytes left, but {size_bytes} are needed",
                size_bytes=size_bytes,
                free_bytes=free,
            )

    def _commit(
        self,
        location: Location,
        writer: Writer,
        parts: Any,
        uid: int | None,
        expected: Precondition,
    ) -> Entry:
        with self._opened(location, uid) as opened:
            entry = opened.put(writer.path, writer.file, parts, expected)
        writer.close()
        return entry
