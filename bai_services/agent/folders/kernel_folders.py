"""The folder of each kernel on this machine: its scratch home, log and exit code.

``$BAI_HOME/sessions/<session id>/`` (for sub1: ``<session id>.sub1``) contains ``kernel.json``
(ours), ``home/``, and for the process engine ``session.log`` and ``exit.json`` (both written by the
spawner). All methods block.
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
from bai_services.core.sessions.kernel_group import MAIN_HOST, folder_name
from bai_services.descent import remove_tree

from ..kernels import Task
from .bind_mounts import BindMounts

LOG_LIMIT_BYTES = 256 * 1024
MARK = "kernel.json"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """A kernel that was prepared here and not removed yet."""

    session_id: str
    kernel_id: str
    hostname: str = MAIN_HOST

    @property
    def name(self) -> str:
        return folder_name(self.session_id, self.hostname)


class Folders:
    """Creates and removes the folders of kernels, isolated from each other."""

    def __init__(self, home: Path, opens_directories: bool = False) -> None:
        """``opens_directories``: the engine makes the bind mounts that an agent without root
        cannot.
        """
        self._root = home.absolute() / "sessions"
        self._binds = BindMounts(home, opens_directories)

    def facts(self) -> dict[str, Any]:
        """Return facts that the manager needs before it places a session with folders here."""
        return {"binds_subpaths": self._binds.works()}

    def path(self, name: str) -> Path:
        return self._root / name

    def home(self, name: str) -> Path:
        return self.path(name) / "home"

    def make(self, task: Task, uid: int | None, gid: int | None) -> Path:
        """Create the folder of a kernel and return its home; idempotent.

        The home belongs to ``uid`` and ``gid`` if they are given and this process may change
        owners. Otherwise everybody may write to the home, and only this process's user can pass the
        folder around it.

        Raises
        ------
        StorageFull
            If the disk is full.
        """
        folder, home = self.path(task.folder), self.home(task.folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.mkdir(mode=0o700, exist_ok=True)
            mark = {
                "kernel_id": task.kernel_id,
                "session_id": task.session_id,
                "hostname": task.hostname,
            }
            written = folder / f".{MARK}"
            written.write_text(json.dumps(mark))
            written.replace(folder / MARK)
            if uid is not None and gid is not None:
                _give(home, uid, gid)
        except OSError as error:
            raise _failure(error) from error
        return home

    def bind(self, task: Task) -> list[dict[str, Any]]:
        """Bind the directories inside folders that a session requests, and return them as
        mounts.
        """
        return self._binds.make(task.folder, task.mounts)

    def tidy(self) -> None:
        """Remove what an earlier agent process has left in an unusable state."""
        self._binds.tidy()

    def all(self) -> list[SessionFolder]:
        """Return every folder that ``make`` has created."""
        found = []
        for path in self._paths():
            try:
                mark = json.loads((path / MARK).read_text())
                folder = SessionFolder(
                    str(mark["session_id"]),
                    str(mark["kernel_id"]),
                    str(mark.get("hostname") or MAIN_HOST),
                )
                if folder.name == path.name:
                    found.append(folder)
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def exit_code(self, name: str) -> int | None:
        """Return the exit code written by the spawner's process engine; None if there is none."""
        code = None
        decoder, position = json.JSONDecoder(), 0
        try:
            text = (self.path(name) / "exit.json").read_text(errors="replace")
        except OSError:
            return None
        # Several JSON objects in a row: the sandbox writes its first process, later the exit code.
        while (position := text.find("{", position)) >= 0:
            try:
                values, position = decoder.raw_decode(text, position)
            except ValueError:
                break
            code = values.get("exit-code", code)
        return code if isinstance(code, int) else None

    def log(self, name: str) -> str | None:
        """Return the end of a session's output; None if it has no log."""
        try:
            with open(self.path(name) / "session.log", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - LOG_LIMIT_BYTES))
                return file.read(LOG_LIMIT_BYTES).decode(errors="replace")
        except OSError:
            return None

    def remove(self, name: str) -> bool:
        """Delete the folder of a session; return whether nothing of it is left.

        Mounts below it, and a folder that contains one, are left alone.
        """
        path = self.path(name)
        if not self._binds.remove(name) or _has_mount(path):
            return False
        # kernel.json last: until then the folder is found again, and the next try removes it.
        for entry in list(path.iterdir()) if path.is_dir() else []:
            if entry.name != MARK:
                _delete(entry)
        if [entry for entry in (path.iterdir() if path.is_dir() else ()) if entry.name != MARK]:
            return False
        with contextlib.suppress(OSError):
            remove_tree(path)
        return not path.exists()

    def _paths(self) -> Iterator[Path]:
        try:
            yield from sorted(self._root.iterdir())
        except OSError:
            return


def _give(home: Path, uid: int, gid: int) -> None:
    about = home.stat()
    if (about.st_uid, about.st_gid) == (uid, gid):
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
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return any(line.split(" ")[4].startswith(inside) for line in lines)


def _failure(error: OSError) -> BaiError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull("the disk of the chosen agent is full; nothing was started")
    return BaiError(f"the session's folder cannot be created on its agent: {error.strerror}")
