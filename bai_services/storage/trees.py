"""Count and copy directory trees of any depth, without following links."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bai_services.system.descent import GONE, Descent

from .base import CopyProgress, Usage

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_SYNC_FILE_RANGE_WRITE = 2
_FICLONE = 0x40049409
_CHUNK_BYTES = 8 * 2**20
# Size of the blocks of zeros that become holes.
HOLE_BYTES = 64 * 2**10
_ZEROS = bytes(HOLE_BYTES)
# The unit of ``st_blocks`` on every file system.
_BLOCK_BYTES = 512
# Errors of a copy system call which mean that the file systems do not support the call.
_NO_KERNEL_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENOTTY)


def measure_tree(directory: int) -> Usage:
    """Return the usage below an open directory: number of entries and bytes; see ``Usage``."""
    files = size = on_disk = 0
    with Descent(directory) as at:
        waiting = []
        while True:
            directories = []
            with os.scandir(at.here) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat(follow_symlinks=False)
                        size += facts.st_size
                        on_disk += facts.st_blocks * _BLOCK_BYTES
            waiting.append(directories)
            if not advance(at, waiting):
                return Usage(files, size, on_disk)


def advance(at: Descent, waiting: list[list[str]]) -> bool:
    """Enter the next directory of a tree, depth first; return False at the end.

    ``waiting`` holds, for each level from the root to ``at``, the names of the directories that
    have not been visited yet.
    """
    while True:
        while waiting[-1]:
            if try_enter(at, waiting[-1].pop()):
                return True
        waiting.pop()
        if not waiting:
            return False
        at.leave()


def try_enter(at: Descent, name: str) -> bool:
    """Enter a directory; return False if it was removed or replaced since it was listed."""
    try:
        at.enter(name)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
    return True


def copy_tree(source: int, target: int, progress: CopyProgress) -> None:
    """Copy files, directories and links from one open directory to another.

    Special files are left out. Holes in files are preserved; owners, modes, times and ACLs are
    preserved where this process has permission.

    Raises
    ------
    Conflict
        If the copy was cancelled, or if it would exceed ``progress.limit_bytes``.
    """
    with Descent(source) as a, Descent(target) as b:
        waiting = [_copy_files(a.here, b.here, progress)]
        while True:
            if waiting[-1]:
                name = waiting[-1].pop()
                if try_enter(a, name):
                    os.mkdir(name, 0o700, dir_fd=b.here)
                    b.enter(name)
                    waiting.append(_copy_files(a.here, b.here, progress))
                continue
            copy_metadata(a.here, b.here)
            waiting.pop()
            if not waiting:
                return
            a.leave()
            b.leave()


def _copy_files(source: int, target: int, progress: CopyProgress) -> list[str]:
    """Copy the files and links of a directory; return the names of its subdirectories."""
    directories = []
    with os.scandir(source) as entries:
        for entry in entries:
            progress.check()
            progress.files += 1
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
                continue
            with contextlib.suppress(FileNotFoundError):
                _copy_entry(source, target, entry.name, progress)
    return directories


def _copy_entry(source: int, target: int, name: str, progress: CopyProgress) -> None:
    facts = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    elif stat.S_ISREG(facts.st_mode):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            descriptor(
                # Non-blocking, because the file may have been replaced by a pipe since the stat.
                os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source
                )
            ) as a,
            descriptor(os.open(name, flags, 0o600, dir_fd=target)) as b,
        ):
            copy_file(a, b, progress)
            copy_metadata(a, b)


def copy_file(source: int, target: int, progress: CopyProgress | None = None) -> None:
    """Append the content of file ``source`` to file ``target``, preserving holes.

    Uses a reflink or copy_file_range where the file system supports it, else sendfile.
    """
    size = os.fstat(source).st_size
    if progress is not None:
        progress.check_size(size)
    start = os.fstat(target).st_size
    if start == 0:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
        else:
            if progress is not None:
                progress.bytes += size
            return
    done = 0
    for begin, end in data_segments(source, size):
        while begin < end:
            if progress is not None:
                progress.check()
            moved = _copy_chunk(source, begin, target, start + begin, end - begin)
            if not moved:
                return  # the file was truncated during the copy
            begin += moved
            if progress is not None:
                progress.bytes += begin - done
            done = begin
    os.ftruncate(target, start + size)
    if progress is not None:
        progress.bytes += size - done


def data_segments(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of a file's data segments; holes lie between them."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
            end = os.lseek(file, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            if error.errno not in _NO_KERNEL_COPY:
                raise
            begin, end = at, size  # a file system that does not report holes
        if begin >= size:
            return
        yield begin, min(end, size)
        at = end


def _copy_chunk(source: int, begin: int, target: int, place: int, size: int) -> int:
    size = min(size, _CHUNK_BYTES)
    try:
        return os.copy_file_range(source, target, size, offset_src=begin, offset_dst=place)
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
    os.lseek(target, place, os.SEEK_SET)
    return os.sendfile(target, source, begin, size)


def write_sparsely(file: int, chunk: bytes | memoryview, place: int) -> None:
    """Write a chunk of a file at offset ``place``, leaving holes for blocks of zeros.

    The caller sets the final size of the file.
    """
    with memoryview(chunk) as view:
        begin = 0
        while begin < len(view):
            end = begin
            while end < len(view) and not _is_zero(view[end : end + HOLE_BYTES]):
                end += HOLE_BYTES
            end = min(end, len(view))
            while begin < end:
                begin += os.pwrite(file, view[begin:end], place + begin)
            begin += HOLE_BYTES


def _is_zero(block: memoryview) -> bool:
    # Cheap pre-check: nearly every block with data has a non-zero first or last byte.
    return block[0] == 0 == block[-1] and block.tobytes() == _ZEROS[: len(block)]


def start_writeback(file: int, offset: int, size: int) -> None:
    """Let the kernel start writing ``size`` bytes of a file from ``offset`` to the disk.

    There is no guarantee that the kernel does so.
    """
    # Errors are ignored: fsync reports them, and not every file system supports the call.
    _libc.sync_file_range(file, offset, size, _SYNC_FILE_RANGE_WRITE)


def copy_metadata(source: int, target: int) -> None:
    """Copy owner, ACLs, mode and times from one open file or directory to another."""
    facts = os.fstat(source)
    with contextlib.suppress(PermissionError):
        os.fchown(target, facts.st_uid, facts.st_gid)
    for name in ("system.posix_acl_default", "system.posix_acl_access"):
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(facts.st_mode))
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def can_share_blocks(directory: Path) -> bool:
    """Return whether the directory's file system supports copies that share blocks (reflinks)."""
    try:
        with (
            tempfile.TemporaryFile(dir=directory) as source,
            tempfile.TemporaryFile(dir=directory) as target,
        ):
            source.write(b"x" * 4096)
            source.flush()
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


@contextlib.contextmanager
def descriptor(number: int) -> Iterator[int]:
    """Yield the open descriptor ``number``, and close it at the end of the block."""
    try:
        yield number
    finally:
        os.close(number)


def open_subdirectory(directory: int, name: str) -> contextlib.AbstractContextManager[int]:
    """Open a subdirectory until the end of the block; raise OSError if it is a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return descriptor(os.open(name, flags, dir_fd=directory))
