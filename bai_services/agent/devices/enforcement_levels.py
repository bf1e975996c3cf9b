"""The enforcement level that a machine reaches for shares of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bai_services.core.cluster.device_sharing import ANY_SHARE, Level, Sharing
from bai_services.core.resources import SHARE_MINIMUM, SHARE_UNIT

from .host_files import HostFiles

CGROUP_FILE = "/sys/fs/cgroup/cgroup.controllers"
# Specifications of the Container Device Interface, written by NVIDIA's toolkit.
CDI_FILES = ("/etc/cdi/*", "/var/run/cdi/*")
LIMIT_HOOK = "apply-cuda-memory-limits"
# Compute modes of NVIDIA GPUs, by the driver's numbers: who may create a context.
COMPUTE_MODES: Mapping[int, str] = {
    0: "DEFAULT",
    1: "EXCLUSIVE_THREAD",
    2: "PROHIBITED",
    3: "EXCLUSIVE_PROCESS",
}
DEFAULT, PROHIBITED, EXCLUSIVE = COMPUTE_MODES[0], COMPUTE_MODES[2], COMPUTE_MODES[3]


@dataclass(frozen=True, slots=True)
class ReachedLevel:
    """The highest level of a device, and why it is not higher."""

    level: Level
    why_not: Mapping[str, str]


def highest_level(cgroup: str, process: str, soft: str) -> ReachedLevel:
    """Return the highest level without an obstacle; each text names the obstacle to one level."""
    why_not: dict[str, str] = {}
    for level, problem in (
        (Level.CGROUP, cgroup),
        (Level.PROCESS, process),
        (Level.SOFT, soft),
    ):
        if not problem:
            return ReachedLevel(level, why_not)
        why_not[level.value] = problem
    return ReachedLevel(Level.NONE, why_not)


def sharing_of(level: Level, only_share: int) -> Sharing:
    """Return which shares a device can have at a level; ``only_share`` 0: as the first session
    requests.

    With MPS only equal ones, because its daemon has one limit for all programs of a GPU, so a
    smaller share could not be enforced. The driver's limit of a container covers one GPU.
    """
    if level is Level.PROCESS:
        least, most = only_share or SHARE_MINIMUM, only_share or SHARE_UNIT
        return Sharing(level, least, most, is_uniform=True)
    return Sharing(level, most=1000) if level is Level.CGROUP else Sharing(level, most=ANY_SHARE)


def mode_problem(mode: str | None, may_set: bool) -> str:
    """Return why programs can bypass MPS in a GPU's compute mode, or an empty text."""
    if mode == EXCLUSIVE or may_set:
        return ""
    return (
        f"the compute mode is {mode or 'unknown'}: a program can bypass MPS and its limits; "
        f"set {EXCLUSIVE}, or let the agent do it (SharingSettings.set_compute_mode)"
    )


def cgroup_problem(engine: str, host: HostFiles, has_limits: bool) -> str:
    """Return why the driver cannot limit the memory of a container here, or an empty text."""
    if engine != "docker":
        return "the driver can limit containers only"
    if not has_limits:
        return "the driver is older than R615, or has no limits for this GPU"
    if host.read(CGROUP_FILE) is None:
        return "the machine has no cgroup v2"
    specs = [path for pattern in CDI_FILES for path in host.paths(pattern, 0)]
    if not any(LIMIT_HOOK in (host.read(path) or "") for path in specs):
        return f"NVIDIA's container toolkit has no hook {LIMIT_HOOK}"
    return ""
