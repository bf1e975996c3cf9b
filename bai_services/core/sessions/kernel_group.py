"""Cluster sessions: one session of several kernels that start and end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..cluster.group_options import GroupOptions
from ..errors import InvalidRequest
from ..resources import ResourceSlots
from ..scheduling.placement import Designation, Mode, Request

MAIN, SUB = "main", "sub"
MAIN_HOST = "main1"
# More than any policy should allow; it bounds the rows written for one request.
MAX_KERNELS = 256


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel of a session; ``index`` counts from 0, the main kernel first."""

    role: str
    index: int
    hostname: str


def kernel_names(size: int) -> tuple[KernelName, ...]:
    """Return main1, sub1, sub2 … for a session of ``size`` kernels."""
    subs = (KernelName(SUB, n, f"{SUB}{n}") for n in range(1, size))
    return (KernelName(MAIN, 0, MAIN_HOST), *subs)


def folder_name(session_id: str, hostname: str) -> str:
    """Return the name of a kernel's folder on its agent; the main kernel has the session's name."""
    return session_id if hostname in ("", MAIN_HOST) else f"{session_id}.{hostname}"


def gang_end(hostname: str, how: str, code: int | None) -> str:
    """Return the end reason of a cluster session after the end of a sub kernel.

    Whatever the exit code, the session has failed, and its other kernels are stopped.
    """
    with_code = "" if code is None else f" with exit code {code}"
    whole = "a cluster session runs with all of its kernels or not at all"
    return f"{hostname} {how}{with_code}; {whole}"


def check_cluster(size: int, mode: str) -> Mode:
    """Return the mode of a session of ``size`` kernels.

    Raises
    ------
    InvalidRequest
        If there is no such mode, or the size is below 1 or above ``MAX_KERNELS``.
    """
    if mode not in set(Mode):
        raise InvalidRequest(
            f"{mode[:40]!r} is not a valid cluster_mode; valid are {', '.join(Mode)}",
            field="cluster_mode",
        )
    if not 1 <= size <= MAX_KERNELS:
        raise InvalidRequest(
            f"cluster_size must be 1 to {MAX_KERNELS}, not {size}", field="cluster_size"
        )
    return Mode(mode)


def total_slots(slots: Mapping[str, int], size: int) -> ResourceSlots:
    """Return the total resources of all kernels of a session."""
    return ResourceSlots({slot: amount * size for slot, amount in slots.items()})


def request_of(
    plain: Request, group: GroupOptions, size: int, mode: str, options: Mapping[str, Any]
) -> Request:
    """Return a request with the placement options of its group and of the session."""
    fragments = options.get("allow_fractional_resource_fragmentation")
    return replace(
        plain,
        kernels=size,
        mode=Mode(mode),
        designated_agents=tuple(options.get("agent_list") or ()),
        designation=Designation(options.get("agent_selection") or Designation.STRICT),
        allow_fragmentation=(
            group.allow_fractional_resource_fragmentation if fragments is None else fragments
        ),
        strategy=group.strategy,
    )


def cluster_environ(
    name: KernelName, hostnames: Sequence[str], mode: str, local_rank: int
) -> dict[str, str]:
    """Return the environment that describes its cluster to a kernel.

    ``hostnames`` are those of all kernels in order, ``local_rank`` counts the kernels of the
    session on one agent from 0.
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
