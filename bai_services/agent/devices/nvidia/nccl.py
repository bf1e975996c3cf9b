"""NCCL settings derived from a machine's topology."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import GrantedDevice
from ..host_access import HostAccess

ADAPTERS = "/sys/class/infiniband/*"
PORTS = "/ports/*"
ACTIVE = "ACTIVE"
ROCE_V2 = "RoCE v2"


def nccl_defaults(
    granted: Sequence[GrantedDevice], host: HostAccess, engine: str
) -> dict[str, str]:
    """Return the NCCL variables for a session with several whole GPUs; {} for other sessions.

    The variables name the InfiniBand adapters on the NUMA nodes of the GPUs, or all adapters if
    these nodes have none. Only adapters with an active port count. Without an adapter, NCCL's
    search for one is disabled. It is also disabled in a container, which cannot use an adapter.
    """
    if len(granted) < 2 or any(g.is_share or g.device.slot for g in granted):
        return {}
    variables = {}
    if _all_linked(granted):
        variables["NCCL_P2P_LEVEL"] = "NVL"
    adapters = [] if engine == "docker" else _adapters(granted, host)
    if not adapters:
        return {**variables, "NCCL_IB_DISABLE": "1"}
    variables["NCCL_IB_HCA"] = ",".join(adapter.rpartition("/")[2] for adapter in adapters)
    index = _roce_index(adapters, host)
    return variables if index is None else {**variables, "NCCL_IB_GID_INDEX": str(index)}


def _all_linked(granted: Sequence[GrantedDevice]) -> bool:
    ids = {g.device.id for g in granted}
    return all(
        ids - {g.device.id}
        <= {peer for peer, n in (g.device.facts.get("links") or {}).items() if n}
        for g in granted
    )


def _adapters(granted: Sequence[GrantedDevice], host: HostAccess) -> list[str]:
    """Return the paths of the adapters with an active port on the NUMA nodes of the GPUs; if there
    are none, of all adapters with an active port.
    """
    active = [adapter for adapter in host.paths(ADAPTERS, 0) if _active_ports(adapter, host)]
    nodes = {str(g.device.numa_node) for g in granted if g.device.numa_node is not None}
    near = [a for a in active if host.read(f"{a}/device/numa_node") in nodes]
    return near or active


def _active_ports(adapter: str, host: HostAccess) -> list[str]:
    """Return the paths of the active ports of an adapter."""
    ports = host.paths(adapter + PORTS, 0)
    return [port for port in ports if ACTIVE in (host.read(f"{port}/state") or "")]


def _roce_index(adapters: Sequence[str], host: HostAccess) -> int | None:
    """Return the lowest index at which each active port with RoCE v2 GIDs has such a GID.

    Return None on InfiniBand, and if these ports have no such index in common.
    """
    indexes = [
        {
            int(path.rpartition("/")[2])
            for path in host.paths(f"{port}/gid_attrs/types/*", 0)
            if host.read(path) == ROCE_V2
        }
        for adapter in adapters
        for port in _active_ports(adapter, host)
    ]
    roce_indexes = [found for found in indexes if found]
    return min(set.intersection(*roce_indexes), default=None) if roce_indexes else None
