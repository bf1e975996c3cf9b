"""Facts about this machine: capacity for sessions, system versions, isolation of sessions."""

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

BUBBLEWRAP_TIMEOUT_SECONDS = 10
# A limit of at least this size counts as no limit: cgroup v1 reports "no limit" as a number near
# 2**63.
NO_LIMIT_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class Capacity:
    """Total capacity of this machine for sessions."""

    cpu_millis: int
    mem_bytes: int


def detect_capacity(root: Path = Path("/")) -> Capacity:
    """Return the CPUs and memory that the CPU affinity and the cgroup allow this process to use."""
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

    Blocking: it starts a real sandbox, which takes about 50 ms.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    reason = ""
    # For root, also try without a user namespace: some containers forbid only user namespaces.
    for user_options in (["--unshare-user"], []) if os.geteuid() == 0 else (["--unshare-user"],):
        args = [program, *user_options, "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
        args += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        try:
            # A new PID namespace begins at 1, so a small process id proves that there is one.
            probe = subprocess.run(
                [*args, "--", "/bin/sh", "-c", "test $$ -lt 100"],
                capture_output=True,
                text=True,
                timeout=BUBBLEWRAP_TIMEOUT_SECONDS,
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            reason = str(error)
            continue
        if probe.returncode == 0:
            return None
        reason = probe.stderr.strip()[:300] or "it does not create a PID namespace"
    return f"bubblewrap cannot be used here: {reason}"


@dataclass(frozen=True, slots=True)
class Isolation:
    """How sessions of this machine are isolated: ``docker``, ``bubblewrap`` or ``none``."""

    isolation: str
    notices: tuple[str, ...] = ()
    """Notices for administrators."""


def detect_isolation(engine: str) -> Isolation:
    """Return how the engine isolates sessions; blocking for the process engine."""
    if engine == "docker":
        return Isolation("docker")
    problem = bubblewrap_problem()
    if problem is None:
        return Isolation("bubblewrap")
    notice = f"Sessions on this machine are not isolated from each other: {problem}."
    return Isolation("none", (notice,))


def hostname_slug(name: str) -> str:
    """Return a host name as an agent id: unsupported characters become ``-``."""
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name)
    while ".." in slug:
        slug = slug.replace("..", ".")
    return slug[:64].strip("-_.") or "agent"


def _os_name() -> str:
    try:
        release: Mapping[str, str] = platform.freedesktop_os_release()
    except OSError:
        return sys.platform
    return release.get("PRETTY_NAME") or release.get("NAME", sys.platform)


def _cpu_limits(root: Path) -> list[int]:
    """Return the CPU limit of the cgroup in millicores as a list; [] without a limit."""
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:
        quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return []
    return [max(1, int(quota) * 1000 // int(period))]


def _mem_limits(root: Path) -> list[int]:
    """Return the memory limits of the cgroup in bytes; [] without a limit."""
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
