"""Disk usage of kernels outside of virtual folders: the home and the container's layer."""

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
# Pause in seconds per second of measuring, so that measuring takes at most a tenth of the time.
PAUSE_PER_SECOND = 10.0
# Time limit for measuring one kernel. If it is exceeded, the usage is reported as incomplete.
BUDGET_SECONDS = 20.0
WARN_PERCENT = 90
BLOCK_BYTES = 512
MAX_LINKED_FILES = 100_000
GIB = 2**30
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ExcessAction(StrEnum):
    """Action on a session that uses more disk space than its limit."""

    WARN = "warn"
    STOP = "stop"


class DiskSettings(Configurable):
    """Disk space that a session may use outside of its folders."""

    limit = Unicode(
        "50g",
        help="Disk space of one kernel for its home and its container's layer together, such as "
        "`50g`; 0: unlimited and not measured. Docker's storage driver limits the layer where it "
        "supports that; all other usage is measured every 30 s or less often. "
        "Environment: `BAI_AGENT_DISK_LIMIT`.",
    ).tag(config=True)

    excess = Enum(
        [action.value for action in ExcessAction],
        ExcessAction.STOP.value,
        help="Action on a session that uses more than `limit`: `stop` stops it, `warn` notifies "
        "its owner. Environment: `BAI_AGENT_DISK_EXCESS`.",
    ).tag(config=True)

    def limit_bytes(self) -> int:
        """Return the limit in bytes; 0: no limit.

        Raises
        ------
        InvalidRequest
            If ``limit`` is not an amount of memory such as ``50g``.
        """
        return parse_amount(MEM, self.limit)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Measured disk usage; if not ``is_complete``, the real usage may be higher."""

    used_bytes: int
    is_complete: bool = True


class DiskWatch:
    """Measures the disk usage of running kernels periodically and reports usage over the limit.

    Between two measurements a session can exceed its limit. Deleted files that are still open are
    not counted. The manager stops a session if its usage has a ``stop_reason``.
    """

    def __init__(
        self, engine: Engine, folders: Folders, limit_bytes: int, excess: ExcessAction
    ) -> None:
        """``limit_bytes``: 0 disables the measurement."""
        self._engine = engine
        self._folders = folders
        self._limit_bytes = limit_bytes
        self._excess = excess
        self._running: dict[str, Kernel] = {}
        self._usages: dict[str, DiskUsage] = {}

    def set_kernels(self, kernels: Iterable[Kernel]) -> None:
        """Set the kernels to measure: the running kernels in ``kernels``."""
        self._running = {k.kernel_id: k for k in kernels if k.is_running}
        self._usages = {key: u for key, u in self._usages.items() if key in self._running}

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
        """Return the heartbeat's facts about a kernel's disk usage; {} before the first
        measurement.
        """
        usage = self._usages.get(kernel_id)
        if usage is None:
            return {}
        limit = self._limit_bytes
        facts: dict[str, Any] = {"disk_bytes": usage.used_bytes, "disk_limit_bytes": limit}
        if not usage.is_complete:
            facts["disk_is_partial"] = True
        if usage.used_bytes * 100 < limit * WARN_PERCENT:
            return facts
        is_stopped = self._excess is ExcessAction.STOP
        used = f"{usage.used_bytes / GIB:.2f} of {limit / GIB:.2f} GiB"
        if usage.used_bytes <= limit:
            warning = " It is stopped if it exceeds the limit." if is_stopped else ""
            facts["disk_notice"] = (
                f"The session uses {used} of disk space outside of folders.{warning}"
            )
            return facts
        facts["disk_notice"] = (
            f"The session uses {used} of disk space outside of folders, which is over its limit. "
            "Delete files in its home and in the container, or move them to a folder."
        )
        if is_stopped:
            facts["stop_reason"] = (
                f"stopped because it exceeded its disk space: it used {used} outside of folders; "
                "store large files in a folder"
            )
        return facts

    async def run(self) -> None:
        """Measure in a loop; a failed measurement is logged and repeated."""
        while True:
            began = time.monotonic()
            try:
                await self.check()
            except Exception:
                log.exception("the disk usage of sessions cannot be measured")
            took = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL_SECONDS, took * PAUSE_PER_SECOND))

    async def check(self) -> None:
        """Measure the disk usage of the running kernels, one after the other."""
        if not self._limit_bytes:
            return
        homes = await asyncio.to_thread(self._homes)
        for kernel_id, kernel in list(self._running.items()):
            home = homes.get(kernel_id)
            has_layer = True
            try:
                paths, other_bytes = await self._engine.writable_layer(kernel)
            except BaiError as error:
                log.info("the layer of kernel %s cannot be measured: %s", kernel_id, error)
                paths, other_bytes, has_layer = (), 0, False
            all_paths = [*([home] if home else []), *paths]
            usage = await asyncio.to_thread(measure, all_paths, BUDGET_SECONDS)
            if kernel_id in self._running:
                total = usage.used_bytes + other_bytes
                self._usages[kernel_id] = DiskUsage(total, usage.is_complete and has_layer)

    def _homes(self) -> Mapping[str, Path]:
        return {f.kernel_id: self._folders.home(f.name) for f in self._folders.all()}


def measure(paths: Iterable[Path], budget_seconds: float) -> DiskUsage:
    """Return the disk usage of directory trees, without other file systems mounted inside them.

    It blocks for up to ``budget_seconds``. Trees of any depth need at most two open descriptors.
    No link is followed, even if the session changes the tree concurrently.
    """
    deadline = time.monotonic() + budget_seconds
    linked: set[tuple[int, int]] = set()
    total, is_complete = 0, True
    for path in paths:
        usage = _measure_tree(path, deadline, linked)
        total += usage.used_bytes
        is_complete &= usage.is_complete
    return DiskUsage(total, is_complete)


def _measure_tree(path: Path, deadline: float, linked: set[tuple[int, int]]) -> DiskUsage:
    """Return the disk usage of one tree; ``linked`` collects files with hard links, to count each
    one once.
    """
    try:
        here = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return DiskUsage(0)
    except OSError:
        return DiskUsage(0, is_complete=False)
    try:
        device = os.fstat(here).st_dev
        total, subdirectories = _list(here, linked)
        # Identity and remaining subdirectories of each directory from the root to ``here``.
        stack = [(_identity(here), subdirectories)]
        while stack:
            if time.monotonic() > deadline:
                return DiskUsage(total, is_complete=False)
            names = stack[-1][1]
            if names:
                child = _open_child(here, names.pop(), device)
                if child is not None:
                    os.close(here)
                    here = child
                    own_bytes, subdirectories = _list(here, linked)
                    total += own_bytes
                    stack.append((_identity(here), subdirectories))
                continue
            stack.pop()
            if stack:
                parent = os.open("..", _DIRECTORY, dir_fd=here)
                os.close(here)
                here = parent
                if _identity(here) != stack[-1][0]:
                    # The session has moved the directory. Stop here; the next measurement starts
                    # again.
                    return DiskUsage(total, is_complete=False)
        return DiskUsage(total)
    except OSError:
        return DiskUsage(total, is_complete=False)
    finally:
        os.close(here)


def _open_child(parent: int, name: str, device: int) -> int | None:
    """Return a descriptor of a subdirectory on the file system ``device``.

    Return None if the subdirectory is missing, a link or a mount point.
    """
    try:
        child = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError:
        return None
    if os.fstat(child).st_dev == device:
        return child
    os.close(child)
    return None


def _list(directory: int, linked: set[tuple[int, int]]) -> tuple[int, list[str]]:
    """Return the bytes that a directory and its files use, and the names of its subdirectories."""
    total, subdirectories = os.fstat(directory).st_blocks * BLOCK_BYTES, []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    subdirectories.append(entry.name)
                    continue
                stat = entry.stat(follow_symlinks=False)
                key = (stat.st_dev, stat.st_ino)
                if stat.st_nlink > 1 and key in linked:
                    continue
                if stat.st_nlink > 1 and len(linked) < MAX_LINKED_FILES:
                    linked.add(key)
                total += stat.st_blocks * BLOCK_BYTES
    return total, subdirectories


def _identity(directory: int) -> tuple[int, int]:
    stat = os.fstat(directory)
    return stat.st_dev, stat.st_ino
