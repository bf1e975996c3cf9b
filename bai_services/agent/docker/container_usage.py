"""Resource usage of containers, from Docker's statistics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

NANOSECONDS = 1_000_000_000


class Meter:
    """Computes usage from samples of Docker's statistics.

    Unknown values are left out, because 0 would count as idle. ``cpu_cores`` needs two samples.
    """

    def __init__(self) -> None:
        self._cpu: dict[str, tuple[float, float]] = {}

    def read(self, container_id: str, stats: Mapping[str, Any]) -> dict[str, Any]:
        """Return the usage in a sample of ``/containers/ID/stats``."""
        cpu_seconds = _number(stats, "cpu_stats", "cpu_usage", "total_usage") / NANOSECONDS
        now = time.monotonic()
        before = self._cpu.get(container_id)
        self._cpu[container_id] = (now, cpu_seconds)
        usage: dict[str, Any] = {"cpu_seconds": round(cpu_seconds, 2)}
        if before is not None and now > before[0] and cpu_seconds >= before[1]:
            usage["cpu_cores"] = round((cpu_seconds - before[1]) / (now - before[0]), 3)
        memory = stats.get("memory_stats") or {}
        usage |= {
            "mem_bytes": memory_bytes(stats),
            "mem_limit_bytes": int(memory.get("limit") or 0),
            "processes": int(_number(stats, "pids_stats", "current")),
        }
        if networks := stats.get("networks"):
            for name in ("rx_bytes", "tx_bytes"):
                usage[f"net_{name}"] = sum(int(n.get(name) or 0) for n in networks.values())
        # The list is empty before the first access, and on kernels that do not measure block I/O.
        if entries := (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive"):
            for name in ("read", "write"):
                usage[f"io_{name}_bytes"] = _blocks(entries, name)
        return usage

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


def _blocks(entries: Iterable[Mapping[str, Any]], operation: str) -> int:
    return sum(int(e["value"]) for e in entries if str(e.get("op")).lower() == operation)


def _number(stats: Mapping[str, Any], *path: str) -> float:
    value: Any = stats
    for name in path:
        value = (value or {}).get(name)
    return float(value or 0)
