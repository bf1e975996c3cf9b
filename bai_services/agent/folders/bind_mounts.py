"""Bind mounts of directories inside folders.

A session that requests ``data/sub`` gets exactly that directory: the kernel resolves it below its
folder (``openat2`` with ``RESOLVE_BENEATH``), and it is bound through its descriptor to
``$BAI_HOME/mounts/<kernel's folder>/<number>``. Replacing it with a link afterwards has no effect,
and only this process's user can reach the mount point. All methods block.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bai_services.core.errors import BaiError, Forbidden, NotFound, Unavailable
from bai_services.openat2 import open_directory_beneath

_MS_BIND, _MS_PRIVATE = 0x1000, 0x40000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


class BindMounts:
    """Creates and removes the bind mounts, which requires the right to mount (root).

    Without that right they are left to an engine that ``opens_directories`` by itself.
    """

    def __init__(self, home: Path, opens_directories: bool = False) -> None:
        self._root = home.absolute() / "mounts"
        self._opens_directories = opens_directories

    def works(self) -> bool:
        """Return whether sessions of this machine can mount directories inside folders."""
        return self._opens_directories or self._may_mount

    @functools.cached_property
    def _may_mount(self) -> bool:
        place = self._root / "tried"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _mount(str(place), place, _MS_BIND)
        except OSError:
            return False
        finally:
            _remove(place)
        return True

    def make(self, name: str, mounts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Bind the directories among ``mounts`` and return them in the form that engines mount.

        ``name`` is the kernel's folder; a second call for the same one binds again.

        Raises
        ------
        NotFound
            If a folder has no such directory.
        Forbidden
            If a link takes the path out of its folder.
        Unavailable
            If this process may not mount.
        """
        self.remove(name)
        return [
            self._bound(name, number, mount)
            for number, mount in enumerate(mount for mount in mounts if mount.get("subpath"))
        ]

    def remove(self, name: str) -> bool:
        """Unmount all of a kernel's directories; return whether none is left.

        Only empty mount points are deleted: what is still mounted is not touched.
        """
        folder = self._root / name
        for place in list(folder.iterdir()) if folder.is_dir() else ():
            _remove(place)
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    def tidy(self) -> None:
        """Remove mount points that have lost their mounts, as after a reboot.

        A restarted session then fails for the missing directory, instead of writing to an empty
        one.
        """
        for place in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                place.rmdir()

    def _bound(self, name: str, number: int, mount: Mapping[str, Any]) -> dict[str, Any]:
        source, target, subpath = (str(mount[key]) for key in ("source", "target", "subpath"))
        facts = {key: bool(mount.get(key)) for key in ("read_only", "is_own")}
        place = self._root / name / str(number)
        try:
            directory = open_directory_beneath(source, subpath)
            try:
                if self._opens_directories and not self._may_mount:
                    # The engine resolves the directory in the same way, and binds the descriptor.
                    return {"source": source, "subpath": subpath, "target": target, **facts}
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                place.mkdir(mode=0o700, exist_ok=True)
                _mount(f"/proc/self/fd/{directory}", place, _MS_BIND)
                # Private: later mounts below it are not propagated to other copies.
                _mount("none", place, _MS_PRIVATE)
            finally:
                os.close(directory)
        except OSError as error:
            raise _failure(error, subpath, target) from error
        return {"source": str(place), "target": target, **facts}


def _remove(place: Path) -> None:
    while _libc.umount2(os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    with contextlib.suppress(OSError):
        place.rmdir()


def _mount(source: str, place: Path, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(place), None, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _failure(error: OSError, subpath: str, target: str) -> BaiError:
    facts = {"subpath": subpath, "target": target}
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(
            f"the folder mounted at {target} has no directory {subpath}; create it, or mount "
            "another one",
            **facts,
        )
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return Forbidden(f"{subpath} leads out of its folder through a link", **facts)
    if error.errno == errno.EPERM:
        return Unavailable(
            f"{subpath} cannot be mounted at {target}: the chosen agent "
            "may not mount, which requires root; mount the whole folder",
            **facts,
        )
    return BaiError(f"{subpath} cannot be mounted at {target}: {error.strerror}")
