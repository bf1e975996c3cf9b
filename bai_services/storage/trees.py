"""Whole directory trees: counted, copied, removed, without following a link anywhere."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bai_services.core.errors import Conflict

from .base import Copying, Usage

_libc = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_SYNC_FILE_RANGE_WRITE = 2
_FICLONE = 0x40049409
_PIECE_BYTES = 8 * 2**20
# Below it directories are listed, so that a copy never needs more open files than this.
MAX_DEPTH = 200
# A directory's descriptor that needs no right to read it.
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What a file system, or a pair of them, answers that cannot copy by itself.
_NO_KERNEL_COPY = (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENOTTY)


def count(directory: int) -> Usage:
    """Count what lies below an open directory."""
    files = size = 0
    for _, directories, names, here in os.fwalk(".", dir_fd=directory):
        files += len(directories) + len(names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(name, dir_fd=here, follow_symlinks=False).st_size
    return Usage(files, size)


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it; one that is gone is fine."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if path.exists():
            remove_tree(path)  # somebody else removed a part of it meanwhile
    except PermissionError:
        make_removable(path)
        shutil.rmtree(path)


def copy_tree(source: int, target: int, progress: Copying, depth: int = 0) -> None:
    """Copy what lies in one open directory into another: files, directories and links as they are.

    Special files are left out. Owners, modes, times and access lists are kept
    where this process may.

    Raises
    ------
    Conflict
        If the copy was cancelled, or directories are nested too deep.
    """
    if depth > MAX_DEPTH:
        raise Conflict(f"directories are nested more than {MAX_DEPTH} deep")
    for name in os.listdir(source):
        if progress.is_cancelled:
            raise Conflict("the copy was cancelled")
        with contextlib.suppress(FileNotFoundError):
            _copy_entry(source, target, name, progress, depth)
            progress.files += 1
    copy_facts(source, target)


def _copy_entry(source: int, target: int, name: str, progress: Copying, depth: int) -> None:
    facts = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(facts.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    elif stat.S_ISDIR(facts.st_mode):
        os.mkdir(name, 0o700, dir_fd=target)
        with opened(source, name) as inner, opened(target, name) as outer:
            copy_tree(inner, outer, progress, depth + 1)
    elif stat.S_ISREG(facts.st_mode):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            descriptor(
                os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
            ) as a,
            descriptor(os.open(name, flags, 0o600, dir_fd=target)) as b,
        ):
            copy_file(a, b, progress)
            copy_facts(a, b)


def copy_file(source: int, target: int, progress: Copying | None = None) -> None:
    """Append a file's content to another: by the file system itself, else by the kernel."""
    size = os.fstat(source).st_size
    if os.fstat(target).st_size == 0:
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
        else:
            if progress is not None:
                progress.bytes += size
            return
    os.lseek(target, 0, os.SEEK_END)
    done = 0
    while done < size:
        if progress is not None and progress.is_cancelled:
            raise Conflict("the copy was cancelled")
        moved = _copy_piece(source, target, done)
        if not moved:
            return
        done += moved
        if progress is not None:
            progress.bytes += moved


def _copy_piece(source: int, target: int, offset: int) -> int:
    try:
        return os.copy_file_range(source, target, _PIECE_BYTES, offset_src=offset)
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
    return os.sendfile(target, source, offset, _PIECE_BYTES)


def begin_writing(file: int, offset: int, size: int) -> None:
    """Let the kernel begin to bring a part of a file to the disk; nothing is promised by it."""
    # An error is no matter here: fsync tells of it, and not every file system can do this.
    _libc.sync_file_range(file, offset, size, _SYNC_FILE_RANGE_WRITE)


def copy_facts(source: int, target: int) -> None:
    """Give an open file or directory the owner, access list, mode and times of another."""
    facts = os.fstat(source)
    with contextlib.suppress(PermissionError):
        os.fchown(target, facts.st_uid, facts.st_gid)
    for name in ("system.posix_acl_default", "system.posix_acl_access"):
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(facts.st_mode))
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def can_share_blocks(directory: Path) -> bool:
    """Return whether copies share their blocks there (reflinks)."""
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
    """Close a descriptor at the end of the block."""
    try:
        yield number
    finally:
        os.close(number)


def opened(directory: int, name: str) -> contextlib.AbstractContextManager[int]:
    """Open a directory in another one, if it is no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return descriptor(os.open(name, flags, dir_fd=directory))


def make_removable(path: Path) -> None:
    """Undo what somebody did to the modes of their own directories.

    Whoever still writes there may put links in their places: modes are changed through
    descriptors of directories only.
    """
    with descriptor(os.open(path, _LOOK)) as top:
        os.chmod(f"/proc/self/fd/{top}", 0o700)
        for _, directories, _, here in os.fwalk(".", dir_fd=top):
            for name in directories:
                with (
                    contextlib.suppress(OSError),
                    descriptor(os.open(name, _LOOK, dir_fd=here)) as one,
                ):
                    os.chmod(f"/proc/self/fd/{one}", 0o700)
