"""Bind mounts of directories inside folders (subpath mounts).

A session that requests ``data/sub`` gets exactly that directory: ``openat2`` with
``RESOLVE_BENEATH`` opens ``sub`` below the folder ``data``, and the descriptor is bind-mounted at
``$BAI_HOME/mounts/<name of the kernel's folder>/<number>``. Replacing the directory with a link
afterwards therefore has no effect. Only this process's user can reach the mount point. All methods
block.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bai_services.core.errors import BaiError, Forbidden, NotFound, Unavailable
from bai_services.system.openat2 import open_directory_beneath

_MS_BIND, _MS_PRIVATE = 0x1000, 0x40000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


class StorageUnavailable(Unavailable):
    """A folder of a session cannot be used on this machine; it may work on another machine."""


def check_sources(mounts: Iterable[Mapping[str, Any]]) -> None:
    """Check that the folders of a session are mounted on this machine, and writable if necessary.

    Raises
    ------
    StorageUnavailable
        If a folder does not exist, or its file system does not work or is mounted read-only.
    """
    for mount in mounts:
        target = mount["target"]
        try:
            flags = os.statvfs(str(mount["source"])).f_flag
        except FileNotFoundError:
            raise StorageUnavailable(
                f"the folder for {target} does not exist on the chosen agent; "
                "its storage may not be mounted",
                target=target,
            ) from None
        except OSError as error:
            raise StorageUnavailable(
                f"the storage of the folder for {target} fails on the chosen agent: "
                f"{error.strerror}",
                target=target,
            ) from None
        if flags & os.ST_RDONLY and not mount.get("read_only"):
            raise StorageUnavailable(
                f"the storage of the folder for {target} is mounted read-only on the chosen agent",
                target=target,
            )


class BindMounts:
    """Creates and removes the bind mounts, which requires permission to mount (root).

    If this process lacks the permission and ``engine_binds_subpaths`` is set, the engine binds the
    directories itself.
    """

    def __init__(self, home: Path, engine_binds_subpaths: bool = False) -> None:
        self._root = home.absolute() / "mounts"
        self._engine_binds_subpaths = engine_binds_subpaths

    def can_bind(self) -> bool:
        """Return whether sessions of this machine can mount directories inside folders."""
        return self._engine_binds_subpaths or self._may_mount

    @functools.cached_property
    def _may_mount(self) -> bool:
        probe = self._root / "tried"
        probe.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _mount(str(probe), probe, _MS_BIND)
        except OSError:
            return False
        finally:
            _unmount(probe)
        return True

    def create(self, name: str, mounts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Bind-mount the ``mounts`` that have a subpath, and return them for the engine.

        ``name`` is the kernel's folder name. Existing bind mounts of the kernel are replaced.

        Raises
        ------
        NotFound
            If a folder has no such directory.
        Forbidden
            If a link leads out of the folder.
        Unavailable
            If this process is not allowed to mount.
        BaiError
            If mounting fails for another reason.
        """
        self.remove(name)
        return [
            self._bind(name, number, mount)
            for number, mount in enumerate(mount for mount in mounts if mount.get("subpath"))
        ]

    def remove(self, name: str) -> bool:
        """Unmount all of a kernel's directories; return whether all are unmounted.

        Only empty mount points are deleted, so files below a remaining mount are never touched.
        """
        folder = self._root / name
        for mount_point in list(folder.iterdir()) if folder.is_dir() else ():
            _unmount(mount_point)
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    def remove_stale_mount_points(self) -> None:
        """Remove mount points without a mount, which remain after a reboot.

        A session that used such a mount point then fails to start again, because the directory is
        missing. If the empty directory remained, the session would write into it instead of its
        folder.
        """
        for mount_point in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                mount_point.rmdir()

    def _bind(self, name: str, number: int, mount: Mapping[str, Any]) -> dict[str, Any]:
        source, target, subpath = (str(mount[key]) for key in ("source", "target", "subpath"))
        flags = {key: bool(mount.get(key)) for key in ("read_only", "is_own")}
        mount_point = self._root / name / str(number)
        try:
            directory = open_directory_beneath(source, subpath)
            try:
                if self._engine_binds_subpaths and not self._may_mount:
                    # The engine itself opens the directory in the same way and binds its
                    # descriptor.
                    return {"source": source, "subpath": subpath, "target": target, **flags}
                mount_point.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                mount_point.mkdir(mode=0o700, exist_ok=True)
                _mount(f"/proc/self/fd/{directory}", mount_point, _MS_BIND)
                # Private: mounts below it are not propagated to other mount namespaces.
                _mount("none", mount_point, _MS_PRIVATE)
            finally:
                os.close(directory)
        except OSError as error:
            raise _failure(error, subpath, target) from error
        return {"source": str(mount_point), "target": target, **flags}


def _unmount(mount_point: Path) -> None:
    """Unmount all mounts stacked on a mount point and delete it if it is empty."""
    while _libc.umount2(os.fsencode(mount_point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    with contextlib.suppress(OSError):
        mount_point.rmdir()


def _mount(source: str, target: Path, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _failure(error: OSError, subpath: str, target: str) -> BaiError:
    facts = {"subpath": subpath, "target": target}
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFound(
            f"the folder mounted at {target} has no directory {subpath}; create it, or mount "
            "another directory",
            **facts,
        )
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return Forbidden(f"{subpath} leads out of its folder through a link", **facts)
    if error.errno == errno.EPERM:
        return Unavailable(
            f"{subpath} cannot be mounted at {target}: the chosen agent is not allowed to mount "
            "directories, which requires root; mount the whole folder",
            **facts,
        )
    return BaiError(f"{subpath} cannot be mounted at {target}: {error.strerror}")
