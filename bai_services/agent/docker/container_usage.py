"""Resource usage of containers, from Docker's statistics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

NANOSECONDS = 1_000_000_000


class Meter:
    """Computes usage from samples of Docker's statistics; ``cpu_cores`` needs two samples."""

    def __init__(self) -> None:
        self._cpu: dict[str, tuple[float, float]] = {}

    def read(self, container_id: str, stats: Mapping[str, Any]) -> dict[str, Any]:
        """Return the usage in a sample of ``/containers/ID/stats``."""
        cpu_seconds = _number(stats, "cpu_stats", "cpu_usage", "total_usage") / NANOSECONDS
        now = time.monotonic()
        before = self._cpu.get(container_id)
        self._cpu[container_id] = (now, cpu_seconds)
        cores = 0.0
        if before is not None and now > before[0]:
            cores = max(0.0, (cpu_seconds - before[1]) / (now - before[0]))
        memory = stats.get("memory_stats") or {}
        networks = (stats.get("networks") or {}).values()
        return {
            "cpu_seconds": round(cpu_seconds, 2),
            "cpu_cores": round(cores, 3),
            "mem_bytes": memory_bytes(stats),
            "mem_limit_bytes": int(memory.get("limit") or 0),
            "net_rx_bytes": sum(int(n.get("rx_bytes") or 0) for n in networks),
            "net_tx_bytes": sum(int(n.get("tx_bytes") or 0) for n in networks),
            "io_read_bytes": _blocks(stats, "read"),
            "io_write_bytes": _blocks(stats, "write"),
            "processes": int(_number(stats, "pids_stats", "current")),
        }

    def retain(self, container_ids: Iterable[str]) -> None:
        """Drop the samples of all other containers."""
        self._cpu = {key: self._cpu[key] for key in set(container_ids) & self._cpu.keys()}


def memory_bytes(stats: Mapping[str, Any]) -> int:
    """Return the bytes of memory in use, without reclaimable page cache."""
    memory = stats.get("memory_stats") or {}
    details = memory.get("stats") or {}
    # cgroup v2 has inactive_file, v1 total_inactive_file.
    cache = int(details.get("total_inactive_file") or details.get("inactive_file") or 0)
    used = int(memory.get("usage") or 0)
    return max(0, used - cache) if cache < used else used


def _blocks(stats: Mapping[str, Any], operation: str) -> int:
    entries = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or ()
    return sum(int(e["value"]) for e in entries if str(e.get("op")).lower() == operation)


def _number(stats: Mapping[str, Any], *path: str) -> float:
    value: Any = stats
    for name in path:
        value = (value or {}).get(name)
    return float(value or 0)
