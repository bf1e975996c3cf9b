"""Cluster sessions: sessions with several kernels, which start and end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..resources import ResourceSlots

MAIN, SUB = "main", "sub"
MAIN_HOST = "main1"
# Limits the number of database rows per request, independently of the policy.
MAX_KERNELS = 256


@dataclass(frozen=True, slots=True)
class KernelName:
    """Role, index and host name of a kernel; the main kernel has the index 0."""

    role: str
    index: int
    hostname: str


def kernel_names(size: int) -> tuple[KernelName, ...]:
    """Return main1, sub1, sub2 … for a session of ``size`` kernels."""
    subs = (KernelName(SUB, n, f"{SUB}{n}") for n in range(1, size))
    return (KernelName(MAIN, 0, MAIN_HOST), *subs)


def folder_name(session_id: str, hostname: str) -> str:
    """Return the name of a kernel's folder on its agent.

    This is the session's id for the main kernel, and ``ID.HOSTNAME`` for a sub kernel.
    """
    return session_id if hostname in ("", MAIN_HOST) else f"{session_id}.{hostname}"


def kernel_end_text(hostname: str, how: str, code: int | None) -> str:
    """Return the end reason of a cluster session in which one kernel ended before the others.

    ``how`` is a verb in the past tense, such as ``exited``. With any exit code, the session fails
    and its other kernels are stopped.
    """
    with_code = "" if code is None else f" with exit code {code}"
    return f"{hostname} {how}{with_code}; a cluster session requires all of its kernels"


def total_slots(slots: Mapping[str, int], size: int) -> ResourceSlots:
    """Return the total resources of ``size`` kernels with ``slots`` each."""
    return ResourceSlots({slot: amount * size for slot, amount in slots.items()})


def cluster_environ(
    name: KernelName, hostnames: Sequence[str], mode: str, local_rank: int
) -> dict[str, str]:
    """Return the environment variables of one kernel that describe its cluster session.

    ``hostnames`` are the host names of all kernels in order. ``local_rank`` numbers the session's
    kernels on the same agent from 0.
    """
    return {
        "BAI_CLUSTER_SIZE": str(len(hostnames)),
        "BAI_CLUSTER_MODE": mode,
        "BAI_CLUSTER_HOSTS": ",".join(hostnames),
        "BAI_CLUSTER_REPLICAS": f"{MAIN}:1,{SUB}:{len(hostnames) - 1}",
        "BAI_CLUSTER_HOST": name.hostname,
        "BAI_CLUSTER_ROLE": name.role,
        "BAI_CLUSTER_INDEX": str(name.index),
        "BAI_CLUSTER_LOCAL_RANK": str(local_rank),
    }
