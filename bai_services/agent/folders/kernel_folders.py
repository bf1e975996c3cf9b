"""The folder of each kernel on this machine: its scratch home, log and exit code.

``$BAI_HOME/sessions/<session id>/`` (for the kernel sub1: ``<session id>.sub1``) contains
``kernel.json``, ``launch.json`` and ``home/``. With devices it also contains ``devices.json``, and
with Docker and devices ``resource.txt``. The process engine writes ``session.log`` and
``exit.json`` into it. All methods block.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bai_services.core.errors import BaiError, StorageFull
from bai_services.core.sessions.agent_launch import Marker
from bai_services.core.sessions.kernel_group import MAIN_HOST, folder_name
from bai_services.system.descent import remove_tree
from bai_services.system.procfs import mounts

from ..kernels import Task
from .bind_mounts import BindMounts

LOG_LIMIT_BYTES = 256 * 1024
KERNEL_FILE = "kernel.json"
LAUNCH_FILE = "launch.json"
EXIT_FILE = "exit.json"
LOG_FILE = "session.log"
# Files that remain in the folder of a kernel whose session will run again.
KEPT_ENTRIES = frozenset({"home", LOG_FILE})


@dataclass(frozen=True, slots=True)
class KernelFolder:
    """The folder of a kernel that was prepared here and not removed yet."""

    session_id: str
    kernel_id: str
    hostname: str = MAIN_HOST
    # Whether only the home remains, because the session will run again.
    is_kept: bool = False
    attempt: int = 0
    # See ``agent/fence.py``.
    fence_seconds: int | None = None
    is_fenced: bool = False

    @property
    def name(self) -> str:
        return folder_name(self.session_id, self.hostname)


class Folders:
    """Creates and removes the folders of kernels."""

    def __init__(self, home: Path, engine_binds_subpaths: bool = False) -> None:
        """``engine_binds_subpaths``: whether the engine can create the bind mounts of subpaths
        itself.

        It does so only if this agent lacks the permission to mount.
        """
        self._root = home.absolute() / "sessions"
        self._binds = BindMounts(home, engine_binds_subpaths)

    def facts(self) -> dict[str, Any]:
        """Return the facts that the manager needs to place sessions with subpath mounts."""
        return {"binds_subpaths": self._binds.can_bind()}

    def path(self, name: str) -> Path:
        return self._root / name

    def home(self, name: str) -> Path:
        return self.path(name) / "home"

    def create(self, task: Task, uid: int | None, gid: int | None) -> Path:
        """Create the folder of a kernel and return its home; idempotent.

        If ``uid`` and ``gid`` are given, they become the owner of the home. If this process may not
        change owners, the home becomes writable for every user. Only the user of this process can
        enter the parent folder.

        Raises
        ------
        StorageFull
            If the disk is full.
        BaiError
            If the folder cannot be created for another reason.
        """
        folder, home = self.path(task.folder), self.home(task.folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.mkdir(mode=0o700, exist_ok=True)
            kernel = {
                "kernel_id": task.kernel_id,
                "session_id": task.session_id,
                "hostname": task.hostname,
                "attempt": task.attempt,
                "fence_seconds": task.fence_seconds,
            }
            write_atomically(folder / KERNEL_FILE, json.dumps(kernel))
            if uid is not None and gid is not None:
                _change_owner(home, uid, gid)
        except OSError as error:
            raise folder_error(error) from error
        return home

    def bind(self, task: Task) -> list[dict[str, Any]]:
        """Bind-mount the kernel's subpath mounts and return these mounts."""
        return self._binds.create(task.folder, task.mounts)

    def remove_stale_mount_points(self) -> None:
        """Remove mount points that an earlier agent process has left and on which nothing is
        mounted.
        """
        self._binds.remove_stale_mount_points()

    def all(self) -> list[KernelFolder]:
        """Return the existing folders that ``create`` has created, without unreadable ones."""
        folders = (self.find(path.name) for path in self._paths())
        return [folder for folder in folders if folder is not None]

    def find(self, name: str) -> KernelFolder | None:
        """Return the folder with this name, unless it does not exist or is unreadable."""
        try:
            kernel = json.loads((self.path(name) / KERNEL_FILE).read_text())
            folder = KernelFolder(
                str(kernel["session_id"]),
                str(kernel["kernel_id"]),
                str(kernel.get("hostname") or MAIN_HOST),
                kernel.get("is_kept") is True,
                int(kernel.get("attempt") or 0),
                kernel.get("fence_seconds"),
                kernel.get("is_fenced") is True,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return folder if folder.name == name else None

    def mark_fenced(self, name: str) -> None:
        """Record that a kernel was stopped because the manager could not be reached.

        Raises
        ------
        BaiError
            If the record cannot be stored.
        """
        path = self.path(name) / KERNEL_FILE
        try:
            kernel = json.loads(path.read_text())
            write_durably(path, json.dumps({**kernel, "is_fenced": True}))
        except OSError as error:
            raise folder_error(error) from error

    def marker(self, name: str) -> Marker | None:
        """Return the marker of the current start attempt of a kernel; None if there is none."""
        try:
            return Marker.from_json(json.loads((self.path(name) / LAUNCH_FILE).read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin_attempt(self, name: str, attempt: int) -> None:
        """Store the marker of a prepared attempt; delete exit status and log of an earlier one.

        Raises
        ------
        BaiError
            See ``set_marker``.
        """
        for file in (EXIT_FILE, LOG_FILE):
            (self.path(name) / file).unlink(missing_ok=True)
        self.set_marker(name, Marker(attempt))

    def set_marker(self, name: str, marker: Marker) -> None:
        """Store the marker of a start attempt, so that it survives a crash of the machine.

        Raises
        ------
        StorageFull
            If the disk is full.
        BaiError
            If the marker cannot be stored for another reason.
        """
        try:
            write_durably(self.path(name) / LAUNCH_FILE, json.dumps(marker.to_json()))
        except OSError as error:
            raise folder_error(error) from error

    def exit_code(self, name: str) -> int | None:
        """Return the exit code that the spawner's process engine has stored; None if there is
        none.
        """
        code = None
        decoder, position = json.JSONDecoder(), 0
        try:
            text = (self.path(name) / EXIT_FILE).read_text(errors="replace")
        except OSError:
            return None
        # The file is a sequence of JSON objects: bubblewrap first writes the pid of its child, and
        # the exit code at the end.
        while (position := text.find("{", position)) >= 0:
            try:
                values, position = decoder.raw_decode(text, position)
            except ValueError:
                break
            code = values.get("exit-code", code)
        return code if isinstance(code, int) else None

    def log(self, name: str) -> str | None:
        """Return the last ``LOG_LIMIT_BYTES`` of a kernel's output; None if there is no log."""
        try:
            with open(self.path(name) / LOG_FILE, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - LOG_LIMIT_BYTES))
                return file.read(LOG_LIMIT_BYTES).decode(errors="replace")
        except OSError:
            return None

    def write_log(self, name: str, text: str) -> None:
        """Store the output of a kernel whose container is removed.

        Raises
        ------
        BaiError
            If the output cannot be stored.
        """
        try:
            write_atomically(self.path(name) / LOG_FILE, text)
        except OSError as error:
            raise folder_error(error) from error

    def keep_home(self, name: str) -> bool:
        """Unmount a kernel's directories and delete all files in its folder except its home and its
        log; return whether this succeeded.

        The home is kept for the next run of the session.
        """
        path = self.path(name)
        if not self._binds.remove(name) or _has_mount(path):
            return False
        try:
            kernel = json.loads((path / KERNEL_FILE).read_text())
        except (OSError, ValueError):
            return False
        for entry in self._entries_except_kernel_file(path):
            if entry.name not in KEPT_ENTRIES:
                _delete(entry)
        if any(e.name not in KEPT_ENTRIES for e in self._entries_except_kernel_file(path)):
            return False
        write_atomically(path / KERNEL_FILE, json.dumps({**kernel, "is_kept": True}))
        return True

    def remove(self, name: str) -> bool:
        """Unmount a kernel's directories and delete its folder; return whether all of it is gone.

        The folder is not deleted if an unmount fails or if another mount is inside it.
        """
        path = self.path(name)
        if not self._binds.remove(name) or _has_mount(path):
            return False
        # Delete kernel.json last: if this attempt fails, the next attempt finds the folder by this
        # file.
        for entry in self._entries_except_kernel_file(path):
            _delete(entry)
        if self._entries_except_kernel_file(path):
            return False
        with contextlib.suppress(OSError):
            remove_tree(path)
        return not path.exists()

    def _entries_except_kernel_file(self, path: Path) -> list[Path]:
        entries = path.iterdir() if path.is_dir() else ()
        return [entry for entry in entries if entry.name != KERNEL_FILE]

    def _paths(self) -> Iterator[Path]:
        try:
            yield from sorted(self._root.iterdir())
        except OSError:
            return


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of a file in one step, so that no reader sees partial content."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)


def write_durably(path: Path, text: str) -> None:
    """Like ``write_atomically``, but return only when the content is on the disk."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _change_owner(home: Path, uid: int, gid: int) -> None:
    """Change the owner of a home; without permission, make it writable for all users."""
    stat = home.stat()
    if (stat.st_uid, stat.st_gid) == (uid, gid):
        return
    try:
        os.chown(home, uid, gid)
    except PermissionError:
        os.chmod(home, 0o777)


def _delete(entry: Path) -> None:
    if entry.is_symlink() or not entry.is_dir():
        entry.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        remove_tree(entry)


def _has_mount(path: Path) -> bool:
    inside = f"{path}/"
    try:
        return any(mount.point.startswith(inside) for mount in mounts())
    except OSError:
        return False


def folder_error(error: OSError) -> BaiError:
    """Convert an error of a kernel's folder to an error for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull("the disk of the chosen agent is full; the session was not started")
    return BaiError(f"the session's folder cannot be created on its agent: {error.strerror}")
