"""Walk and remove directory trees of any depth with a bounded number of descriptors.

A path of a deep tree is longer than PATH_MAX, a recursive walk exceeds Python's recursion limit,
and one descriptor per level exceeds RLIMIT_NOFILE. `Descent` moves one level at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from types import TracebackType

# Maximum number of directories with an open descriptor; directories above them are reopened when
# the walk returns to them.
OPEN_DIRECTORIES = 16
# Maximum number of rounds of a removal: a new round starts if entries were added concurrently.
MAX_REMOVAL_ROUNDS = 20
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a directory with these flags requires no read permission on it.
_PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors when a directory was removed or replaced since its name was read.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Descent:
    """A position in a directory tree; ``here`` is the descriptor of the current directory.

    Links are not followed, and the position never leaves the tree. The position moves up through
    ``..`` only if ``..`` is still the directory from which it came (compared by device and inode
    number). Otherwise it opens the directory above by its path from the root.
    """

    def __init__(self, root: int) -> None:
        """Start in an open directory; the caller remains responsible for closing ``root``."""
        self._root = root
        self._open = [os.open(".", DIRECTORY_FLAGS, dir_fd=root)]
        self._names: list[str] = []
        self._known = [_identity(self._open[0])]

    def __enter__(self) -> Descent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def here(self) -> int:
        return self._open[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the directories from the root to the current one."""
        return tuple(self._names)

    @property
    def depth(self) -> int:
        return len(self._names)

    def enter(self, name: str) -> None:
        """Move into the directory ``name``.

        Raises
        ------
        OSError
            If it cannot be opened; the position is unchanged. See ``GONE``.
        """
        inner = os.open(name, DIRECTORY_FLAGS, dir_fd=self.here)
        self._open.append(inner)
        self._names.append(name)
        self._known.append(_identity(inner))
        if len(self._open) > OPEN_DIRECTORIES:
            os.close(self._open.pop(0))

    def leave(self) -> str:
        """Move to the directory above; return the name of the directory that was left.

        Raises
        ------
        OSError
            EAGAIN if the directory above cannot be opened, for example because it was removed
            concurrently.
        """
        if len(self._open) == 1:
            self._open.insert(0, self._open_above())
        os.close(self._open.pop())
        self._known.pop()
        return self._names.pop()

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def _open_above(self) -> int:
        with contextlib.suppress(OSError):
            outer = os.open("..", DIRECTORY_FLAGS, dir_fd=self.here)
            if _identity(outer) == self._known[-2]:
                return outer
            os.close(outer)
        return self._reopen_above()

    def _reopen_above(self) -> int:
        """Open the directory above by its path from the root."""
        here = os.open(".", DIRECTORY_FLAGS, dir_fd=self._root)
        try:
            for name, known in zip(self._names[:-1], self._known[1:-1], strict=True):
                inner = os.open(name, DIRECTORY_FLAGS, dir_fd=here)
                os.close(here)
                here = inner
                if _identity(here) != known:
                    raise _moved()
        except OSError:
            os.close(here)
            raise _moved() from None
        return here


def remove_tree(path: str | os.PathLike[str], dir_fd: int | None = None) -> None:
    """Remove a directory tree of any depth; do nothing if ``path`` does not exist.

    Links are removed, not followed. Directories without owner permissions are made accessible
    first. A call after an interrupted removal removes the rest.

    Raises
    ------
    OSError
        If an entry cannot be removed, or other processes keep adding entries. The removal of the
        other entries is attempted nevertheless.
    """
    for _ in range(MAX_REMOVAL_ROUNDS):
        try:
            top = _open_accessible(os.fspath(path), dir_fd)
        except FileNotFoundError:
            return
        try:
            removal = _Removal(top)
            removal.run()
        finally:
            os.close(top)
        try:
            os.rmdir(path, dir_fd=dir_fd)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if removal.error is not None:
                raise removal.error from None
    raise OSError(
        errno.ENOTEMPTY, "other processes keep writing to the directory that is being removed"
    )


class _Removal:
    """Empty an open directory; ``error`` is the first error of an entry, if any."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.error: OSError | None = None

    def run(self) -> None:
        with Descent(self._top) as at:
            # Names of the directories still to empty, per level.
            pending = [self._unlink_files(at.here)]
            while True:
                if pending[-1]:
                    if self._enter(at, pending[-1].pop()):
                        pending.append(self._unlink_files(at.here))
                    continue
                pending.pop()
                if not pending:
                    return
                try:
                    name = at.leave()
                except OSError:
                    return  # moved concurrently: the next round starts at the top
                self._try_rmdir(name, at.here)

    def _unlink_files(self, here: int) -> list[str]:
        """Remove all entries except directories; return the names of the directories."""
        with contextlib.suppress(OSError):
            if os.fstat(here).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(here, stat.S_IRWXU)
        directories = []
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                    else:
                        self._try_unlink(entry.name, here)
        except OSError as error:
            self._record(error)
        return directories

    def _enter(self, at: Descent, name: str) -> bool:
        try:
            at.enter(name)
            return True
        except PermissionError:
            try:
                os.close(_open_accessible(name, at.here))
                at.enter(name)
                return True
            except OSError as error:
                self._record(error)
        except OSError as error:
            self._record(error)
        return False

    def _try_unlink(self, name: str, parent: int) -> None:
        try:
            os.unlink(name, dir_fd=parent)
        except OSError as error:
            self._record(error)

    def _try_rmdir(self, name: str, parent: int) -> None:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                self._record(error)

    def _record(self, error: OSError) -> None:
        # Ignore entries that were concurrently removed or replaced: the next round handles them.
        if self.error is None and error.errno not in (*GONE, errno.EISDIR):
            self.error = error


def grant_owner_access(name: str | os.PathLike[str], dir_fd: int | None = None) -> None:
    """Give the owner of a directory all permissions; do not follow a link.

    Another process could replace the directory by a link, so the mode is changed through a
    descriptor.
    """
    number = os.open(name, _PATH_FLAGS, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{number}", stat.S_IRWXU)
    finally:
        os.close(number)


def _open_accessible(name: str, dir_fd: int | None) -> int:
    """Open a directory; give its owner all permissions first if that is necessary."""
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=dir_fd)
    except PermissionError:
        grant_owner_access(name, dir_fd)
        return os.open(name, DIRECTORY_FLAGS, dir_fd=dir_fd)


def _identity(directory: int) -> tuple[int, int]:
    facts = os.fstat(directory)
    return facts.st_dev, facts.st_ino


def _moved() -> OSError:
    return OSError(errno.EAGAIN, "a directory was moved during the walk of the tree")
