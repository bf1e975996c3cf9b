"""Facts about this machine, and the capacity for its sessions."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

BUBBLEWRAP_SECONDS = 10
# cgroup v1 expresses "no limit" by a number near the largest one.
NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of this machine for all sessions together."""

    cpu_millis: int
    mem_bytes: int


def capacity(root: Path = Path("/")) -> Capacity:
    """Return the cpus and the memory that this process may use, by affinity and cgroup."""
    cpus = len(os.sched_getaffinity(0)) * 1000
    mem = int(psutil.virtual_memory().total)
    return Capacity(
        cpu_millis=min([cpus, *_cpu_limits(root)]),
        mem_bytes=min([mem, *_mem_limits(root)]),
    )


def machine_facts() -> dict[str, Any]:
    """Return host name, system and versions, for administrators."""
    return {
        "hostname": platform.node(),
        "os": _os_name(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def bubblewrap_problem() -> str | None:
    """Return why bubblewrap cannot isolate processes here; None if it can.

    It starts a real sandbox, which takes some hundredths of a second.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    reason = ""
    # A container with root but without user namespaces still has mount namespaces.
    for users in (["--unshare-user"], []) if os.geteuid() == 0 else (["--unshare-user"],):
        words = [program, *users, "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
        words += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        try:
            tried = subprocess.run(
                [*words, "--", "/bin/sh", "-c", "test $$ -lt 100"],
                capture_output=True,
                text=True,
                timeout=BUBBLEWRAP_SECONDS,
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            reason = str(error)
            continue
        if tried.returncode == 0:
            return None
        reason = tried.stderr.strip()[:300] or "its processes are not isolated"
    return f"bubblewrap does not run here: {reason}"


def isolation_facts(engine: str) -> dict[str, Any]:
    """Return how sessions are isolated (``isolation``) and notices about it (``notices``).

    ``docker``, ``bubblewrap`` or ``none``.
    """
    if engine == "docker":
        return {"isolation": "docker", "notices": []}
    problem = bubblewrap_problem()
    if problem is None:
        return {"isolation": "bubblewrap", "notices": []}
    notice = f"Sessions of this machine are not isolated from one another: {problem}."
    return {"isolation": "none", "notices": [notice]}


def hostname_slug(name: str) -> str:
    """Return a machine's name as an agent id: unsupported characters become ``-``."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name)
    while ".." in kept:
        kept = kept.replace("..", ".")
    return kept[:64].strip("-_.") or "agent"


def _os_name() -> str:
    try:
        release: Mapping[str, str] = platform.freedesktop_os_release()
    except OSError:
        return sys.platform
    return release.get("PRETTY_NAME") or release.get("NAME", sys.platform)


def _cpu_limits(root: Path) -> list[int]:
    """Return the cpu limits of the cgroup, in millicores; [] if there is none."""
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return []
    return [max(1, int(quota) * 1000 // int(period))]


def _mem_limits(root: Path) -> list[int]:
    texts = (
        _read(root / "sys/fs/cgroup/memory.max"),
        _read(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    )
    return [int(text) for text in texts if text.isdecimal() and int(text) < NO_LIMIT_BYTES]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
