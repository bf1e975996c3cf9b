"""Open paths below a directory; a path that leads out of the directory is rejected.

If the kernel has ``openat2`` with ``RESOLVE_BENEATH``, links inside the directory work and links
out of it fail. Otherwise the path is opened part by part, and every link fails.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence

from bai_services.core.display_text import file_name_problem
from bai_services.core.errors import Conflict, Forbidden, InvalidRequest
from bai_services.core.user_input import shown
from bai_services.system.openat2 import open_beneath

# Below PATH_MAX, so that a path exceeds this limit before it exceeds the limit of the kernel.
MAX_PATH_BYTES = 4000
MAX_PART_BYTES = 255

Opener = Callable[[int, Sequence[str], int], int]


def parse_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path inside a folder; for the folder itself an empty tuple.

    Raises
    ------
    InvalidRequest
        If the path is absolute (except ``/``), contains ``..`` or a NUL, is not UTF-8 text, or is
        too long.
    """
    if path in ("", "/"):
        return ()
    if path.startswith("/"):
        raise InvalidRequest(
            "the path must be relative to the folder: remove the leading /", field="path"
        )
    if "\0" in path:
        raise InvalidRequest("a path cannot contain a NUL", field="path")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise InvalidRequest("the path must not contain '..'", field="path")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise InvalidRequest("the path is not UTF-8 text", field="path") from None
    if max(sizes, default=0) > MAX_PART_BYTES or sum(sizes) + len(sizes) > MAX_PATH_BYTES:
        raise InvalidRequest(
            f"the path is too long: at most {MAX_PART_BYTES} bytes between two / and "
            f"{MAX_PATH_BYTES} in all",
            field="path",
        )
    return parts


def parse_new_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path at which something is created.

    Raises
    ------
    InvalidRequest
        As ``parse_path``, and if the path contains characters that break lines, control a terminal
        or reorder text.
    """
    parts = parse_path(path)
    if problem := file_name_problem(path):
        raise InvalidRequest(f"{shown(path)!r} cannot be a path: {problem}", field="path")
    return parts


def file_parts(path: str, is_new: bool = False) -> tuple[str, ...]:
    """Return the parts of the path of an entry inside a folder, never the folder itself.

    Raises
    ------
    InvalidRequest
        As ``parse_path`` (with ``is_new`` as ``parse_new_path``), and if the path is the folder
        itself or ends with ``/``.
    """
    parts = parse_new_path(path) if is_new else parse_path(path)
    if not parts:
        raise InvalidRequest("a path inside the folder is required", field="path")
    if path.endswith("/"):
        raise InvalidRequest("the path of a file must not end with /", field="path")
    return parts


def open_with_kernel(root: int, parts: Sequence[str], flags: int) -> int:
    """Return a descriptor of ``parts`` below ``root``; raise OSError like ``os.open``."""
    return open_beneath(root, "/".join(parts) or ".", flags)


def open_walking(root: int, parts: Sequence[str], flags: int) -> int:
    """Open ``parts`` like ``open_with_kernel``, but raise ELOOP for every link on the path."""
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            inner = _open_no_link(here, part, os.O_PATH | os.O_DIRECTORY)
            os.close(here)
            here = inner
        return _open_no_link(here, parts[-1] if parts else ".", flags)
    finally:
        os.close(here)


def _open_no_link(directory: int, name: str, flags: int) -> int:
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except NotADirectoryError:
        # The kernel checks O_DIRECTORY before O_NOFOLLOW, so a link gives ENOTDIR.
        if _is_link(directory, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
    # O_PATH with O_NOFOLLOW opens the link itself.
    if stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return opened


def best_opener() -> Opener:
    """Return ``open_with_kernel`` if openat2 is available and permitted, else ``open_walking``."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_with_kernel(root, (), os.O_PATH))
        return open_with_kernel
    except OSError as error:
        # ENOSYS: a kernel before 5.6; EPERM: a sandbox that blocks the call.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return open_walking
    finally:
        os.close(root)


def open_regular(opener: Opener, root: int, parts: Sequence[str]) -> int:
    """Return a descriptor for reading a regular file.

    The type is checked before opening: opening a pipe could block forever, and opening a device
    could have side effects.

    Raises
    ------
    Conflict
        If the entry is a directory or a special file.
    """
    path = opener(root, parts, os.O_PATH)
    try:
        mode = os.fstat(path).st_mode
        if stat.S_ISDIR(mode):
            raise Conflict("this is a directory, not a file")
        if not stat.S_ISREG(mode):
            raise Conflict("this is not a regular file; pipes, sockets and devices are not opened")
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(path)


def path_escape_error() -> Forbidden:
    """Return the error for a path with a link that is not followed."""
    return Forbidden(
        "the path contains a link that leads out of the folder or cannot be followed", field="path"
    )


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
