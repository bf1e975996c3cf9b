"""Disk space of sessions outside of folders: the home and the container's layer."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from traitlets import Enum, Unicode
from traitlets.config import Configurable

from bai_services.core.errors import BaiError
from bai_services.core.resources import MEM, parse_amount

from ..engine import Engine
from ..kernels import Kernel
from .kernel_folders import Folders

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 30.0
# Pause per second of counting, so that counting takes at most a tenth of the time.
PAUSE_PER_SECOND = 10.0
# Counting the files of one kernel ends after this time with what was found.
BUDGET_SECONDS = 20.0
WARN_PERCENT = 90
BLOCK_BYTES = 512
MAX_LINKED_FILES = 100_000
GIB = 2**30
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Excess(StrEnum):
    """What happens to a session that uses more disk space than allowed."""

    WARN = "warn"
    STOP = "stop"


class DiskSettings(Configurable):
    """Disk space that a session may use outside of its folders."""

    limit = Unicode(
        "50g",
        help="Disk space of one kernel for its home and the layer of its container together, like "
        "`50g`; 0: unlimited and not watched. The layer is limited by the storage driver where "
        "supported; all else is counted every 30 s. `BAI_AGENT_DISK_LIMIT` sets it too.",
    ).tag(config=True)

    excess = Enum(
        [action.value for action in Excess],
        Excess.STOP.value,
        help="What happens to a session with more than `limit`: it is stopped (stop), or its owner "
        "gets a notice (warn). `BAI_AGENT_DISK_EXCESS` sets it too.",
    ).tag(config=True)

    def limit_bytes(self) -> int:
        """Return the limit in bytes; 0: none.

        Raises
        ------
        InvalidRequest
            If it is not an amount.
        """
        return parse_amount(MEM, self.limit)


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes on the disk; ``is_complete`` False: there may be more."""

    used_bytes: int
    is_complete: bool = True


class DiskWatch:
    """Counts the disk space of each running kernel and reports excess.

    It reacts afterwards: between two counts a session may write more. Deleted files that are still
    open are not found. The manager stops a session because of the reason in its usage.
    """

    def __init__(self, engine: Engine, folders: Folders, limit_bytes: int, excess: Excess) -> None:
        """``limit_bytes`` 0 watches nothing."""
        self._engine = engine
        self._folders = folders
        self._limit_bytes = limit_bytes
        self._excess = excess
        self._running: dict[str, Kernel] = {}
        self._spaces: dict[str, Space] = {}

    def follow(self, kernels: Iterable[Kernel]) -> None:
        """Set the kernels that are running now."""
        self._running = {k.kernel_id: k for k in kernels if k.is_running}
        self._spaces = {key: s for key, s in self._spaces.items() if key in self._running}

    def facts(self) -> dict[str, Any]:
        return {
            "disk": {
                "limit_bytes": self._limit_bytes,
                "excess": self._excess.value,
                "home": "watched" if self._limit_bytes else "unlimited",
                "layer": self._engine.layer_limit() if self._limit_bytes else "unlimited",
            }
        }

    def usage(self, kernel_id: str) -> dict[str, Any]:
        """Return the heartbeat's facts about a kernel's disk space."""
        space = self._spaces.get(kernel_id)
        if space is None:
            return {}
        limit = self._limit_bytes
        said: dict[str, Any] = {"disk_bytes": space.used_bytes, "disk_limit_bytes": limit}
        if not space.is_complete:
            said["disk_is_partial"] = True
        if space.used_bytes * 100 < limit * WARN_PERCENT:
            return said
        used = f"{space.used_bytes / GIB:.2f} of {limit / GIB:.2f} GiB"
        if space.used_bytes <= limit:
            end = " It will be stopped if it uses more." if self._excess is Excess.STOP else ""
            said["disk_notice"] = f"The session uses {used} of disk outside of folders.{end}"
            return said
        said["disk_notice"] = (
            f"The session uses {used} of disk outside of folders, more than it may. Delete files "
            "in its home and in the container, or keep them in a folder."
        )
        if self._excess is Excess.STOP:
            said["stop_reason"] = (
                f"stopped for its disk space: it used {used} outside of folders; keep large files "
                "in a folder"
            )
        return said

    async def run(self) -> None:
        """Count in a loop; a failed count is logged and repeated."""
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except Exception:
                log.exception("the disk space of sessions cannot be counted")
            took = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL_SECONDS, took * PAUSE_PER_SECOND))

    async def look(self) -> None:
        """Count the disk space of every kernel, one after the other."""
        if not self._limit_bytes:
            return
        homes = await asyncio.to_thread(self._homes)
        for kernel_id, kernel in list(self._running.items()):
            home = homes.get(kernel_id)
            try:
                paths, more = await self._engine.writable(kernel)
            except BaiError as error:
                log.info("the layer of kernel %s cannot be counted: %s", kernel_id, error)
                paths, more = (), 0
            all_paths = [*([home] if home else []), *paths]
            space = await asyncio.to_thread(measure, all_paths, BUDGET_SECONDS)
            if kernel_id in self._running:
                self._spaces[kernel_id] = Space(space.used_bytes + more, space.is_complete)

    def _homes(self) -> Mapping[str, Path]:
        return {f.kernel_id: self._folders.home(f.name) for f in self._folders.all()}


def measure(paths: Iterable[Path], budget_seconds: float) -> Space:
    """Return the disk space of directory trees, without mounts inside them; it blocks.

    Trees of any depth are walked with two descriptors. No link is followed, even if the session
    changes the tree meanwhile.
    """
    deadline = time.monotonic() + budget_seconds
    linked: set[tuple[int, int]] = set()
    total, is_complete = 0, True
    for path in paths:
        space = _measure_tree(path, deadline, linked)
        total += space.used_bytes
        is_complete &= space.is_complete
    return Space(total, is_complete)


def _measure_tree(path: Path, deadline: float, linked: set[tuple[int, int]]) -> Space:
    try:
        here = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return Space(0)
    except OSError:
        return Space(0, is_complete=False)
    try:
        device = os.fstat(here).st_dev
        total, below = _list(here, linked)
        # Of each directory on the path: its identity, and the names that remain.
        way = [(_identity(here), below)]
        is_complete = True
        while way:
            if time.monotonic() > deadline:
                return Space(total, is_complete=False)
            identity, names = way[-1]
            if names:
                child = _open_below(here, names.pop(), device)
                if child is not None:
                    os.close(here)
                    here = child
                    found, below = _list(here, linked)
                    total += found
                    way.append((_identity(here), below))
                continue
            way.pop()
            if way:
                parent = os.open("..", _DIRECTORY, dir_fd=here)
                os.close(here)
                here = parent
                if _identity(here) != way[-1][0]:
                    # The directory was moved meanwhile: the next count starts again.
                    return Space(total, is_complete=False)
        return Space(total, is_complete)
    except OSError:
        return Space(total, is_complete=False)
    finally:
        os.close(here)


def _open_below(parent: int, name: str, device: int) -> int | None:
    """Open a directory on the same file system; None if it is gone, a link or a mount."""
    try:
        child = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError:
        return None
    if os.fstat(child).st_dev == device:
        return child
    os.close(child)
    return None


def _list(directory: int, linked: set[tuple[int, int]]) -> tuple[int, list[str]]:
    """Return the disk space of a directory's own entries, and its subdirectories."""
    total, below = os.fstat(directory).st_blocks * BLOCK_BYTES, []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                    continue
                about = entry.stat(follow_symlinks=False)
                key = (about.st_dev, about.st_ino)
                if about.st_nlink > 1 and key in linked:
                    continue
                if about.st_nlink > 1 and len(linked) < MAX_LINKED_FILES:
                    linked.add(key)
                total += about.st_blocks * BLOCK_BYTES
    return total, below


def _identity(directory: int) -> tuple[int, int]:
    about = os.fstat(directory)
    return about.st_dev, about.st_ino
