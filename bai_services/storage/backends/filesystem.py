"""Detect the type of a mounted file system, and run file system tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bai_services.core.errors import Unavailable
from bai_services.system.procfs import Mount, mounts

TOOL_SECONDS = 60.0


def filesystem_of(path: Path) -> str:
    """Return the file system type of a directory, for example ``ext4``, ``btrfs`` or ``ceph``."""
    mount = mount_of(path)
    return "unknown" if mount is None else mount.filesystem


def mount_of(path: Path) -> Mount | None:
    """Return the mount that contains a directory; None if the mount table does not have it."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    best, found = -1, None
    for mount in mounts():
        is_above = os.path.join(str(path.absolute()), "").startswith(os.path.join(mount.point, ""))
        # Choose the longest mount point. The device number is used only to choose between mounts at
        # the same point, because the mount table does not contain the device numbers of btrfs
        # subvolumes.
        length = len(mount.point)
        is_better = length >= best if mount.device == wanted else length > best
        if is_above and is_better:
            best, found = length, mount
    return found


def require_filesystem(path: Path, kinds: tuple[str, ...], backend: str) -> None:
    """Raise ``Unavailable`` unless a directory is on a file system of one of these types."""
    kind = filesystem_of(path)
    if kind not in kinds:
        raise Unavailable(
            f"storage backend {backend} needs a file system of type {' or '.join(kinds)}, "
            f"but {path} is on {kind}: mount such a file system there, or use the backend local",
            backend=backend,
            filesystem=kind,
        )


def run_tool(*words: str) -> str:
    """Run a file system tool and return its output.

    Raises
    ------
    Unavailable
        If the tool is not installed, fails, or times out.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise Unavailable(
            f"{words[0]} is not installed; install it on the manager's machine"
        ) from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{words[0]} {words[1]} did not finish in {TOOL_SECONDS:g} s") from None
    if done.returncode:
        output = done.stderr.strip() or done.stdout.strip()
        raise Unavailable(f"{' '.join(words[:3])} failed: {output}")
    return done.stdout
