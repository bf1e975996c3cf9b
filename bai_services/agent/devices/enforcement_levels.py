"""Enforcement levels that are available for the shares of a GPU on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from bai_services.core.cluster.device_sharing import ANY_SHARE, Level, Sharing
from bai_services.core.resources import SHARE_MINIMUM, SHARE_UNIT

from .host_access import HostAccess

CGROUP_FILE = "/sys/fs/cgroup/cgroup.controllers"
# Specifications of the Container Device Interface (CDI), written by NVIDIA's container toolkit.
CDI_FILES = ("/etc/cdi/*", "/var/run/cdi/*")
LIMIT_HOOK = "apply-cuda-memory-limits"


class ComputeMode(IntEnum):
    """NVIDIA compute mode of a GPU: which processes may create a CUDA context on the GPU."""

    DEFAULT = 0
    EXCLUSIVE_THREAD = 1
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


@dataclass(frozen=True, slots=True)
class AvailableLevel:
    """The highest available enforcement level, and the reason why each higher level is not
    available.
    """

    level: Level
    problems: Mapping[str, str]
    """Maps the names of higher levels to the reasons why they are not available."""


def highest_level(problems: Mapping[Level, str]) -> AvailableLevel:
    """Return the highest available level in ``problems``, else ``Level.NONE``.

    ``problems`` maps each level to the reason why it is not available; empty: it is available.
    """
    reasons: dict[str, str] = {}
    for level in sorted(problems, key=lambda level: level.rank, reverse=True):
        if not problems[level]:
            return AvailableLevel(level, reasons)
        reasons[level.value] = problems[level]
    return AvailableLevel(Level.NONE, reasons)


def allowed_shares(level: Level, only_share: int) -> Sharing:
    """Return the shares allowed at an enforcement level, in thousandths.

    Under MPS (``Level.PROCESS``) all shares of a GPU are equal, because the MPS daemon applies one
    limit to all its clients. ``only_share`` is the share of every session under MPS; 0: the first
    session on the GPU sets it. At ``Level.CGROUP`` a share is at most one GPU, because the driver's
    memory limit of a container applies to one GPU.
    """
    if level is Level.PROCESS:
        least, most = only_share or SHARE_MINIMUM, only_share or SHARE_UNIT
        return Sharing(level, least, most, is_uniform=True)
    return Sharing(level, most=SHARE_UNIT if level is Level.CGROUP else ANY_SHARE)


def compute_mode_problem(mode: str | None, may_set: bool) -> str:
    """Return why programs can bypass MPS in a GPU's compute mode; empty if they cannot."""
    exclusive = ComputeMode.EXCLUSIVE_PROCESS.name
    if mode == exclusive or may_set:
        return ""
    return (
        f"the compute mode is {mode or 'unknown'}: a program can bypass MPS and its limits; "
        f"set {exclusive}, or let the agent set it (SharingSettings.set_compute_mode)"
    )


def cgroup_problem(engine: str, host: HostAccess, has_limits: bool) -> str:
    """Return why the driver cannot limit the memory of a container here; empty if it can."""
    if engine != "docker":
        return "the driver can limit containers only"
    if not has_limits:
        return "the driver is older than R615, or cannot limit the memory of this GPU"
    if host.read(CGROUP_FILE) is None:
        return "the machine has no cgroup v2"
    specs = [path for pattern in CDI_FILES for path in host.paths(pattern, 0)]
    if not any(LIMIT_HOOK in (host.read(path) or "") for path in specs):
        return f"NVIDIA's container toolkit has no hook {LIMIT_HOOK}"
    return ""
