"""Current load of this machine: CPUs, memory, disk and network, for administrators."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

# psutil's named tuple, whose fields depend on the system.
CpuTimes = Any


class MachineLoad:
    """Measures the load since the previous measurement; one measurement takes about 1 ms."""

    def __init__(self, home: Path) -> None:
        """``home`` is on the disk whose usage is reported."""
        self._home = home
        self._started_at = datetime.now(UTC)
        # psutil.cpu_percent cannot be used: it compares with the last call of the same thread, but
        # ``facts`` is called in different threads.
        self._cpus = psutil.cpu_times(percpu=True)
        self._network = _network_bytes()
        self._measured_at = time.monotonic()

    def facts(self) -> dict[str, Any]:
        """Return the start time of the agent and the load; None stands for unknown values."""
        before, self._cpus = self._cpus, psutil.cpu_times(percpu=True)
        # If the number of CPUs has changed, the old times cannot be assigned to CPUs; report 0 %.
        known = before if len(before) == len(self._cpus) else self._cpus
        cpus = [busy_percent(*pair) for pair in zip(known, self._cpus, strict=True)]
        memory = psutil.virtual_memory()
        disk_used, disk_total = _disk_bytes(self._home)
        received, sent = self._network_rates()
        return {
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "load": {
                "cpu_percent": round(sum(cpus) / len(cpus), 1) if cpus else None,
                "cpus_percent": [round(each) for each in cpus],
                "memory_used_bytes": memory.total - memory.available,
                "memory_bytes": memory.total,
                "disk_used_bytes": disk_used,
                "disk_bytes": disk_total,
                "network_received_bytes_per_second": received,
                "network_sent_bytes_per_second": sent,
            },
        }

    def _network_rates(self) -> tuple[int | None, int | None]:
        """Return the bytes per second that were received and sent since the last call."""
        before, self._network = self._network, _network_bytes()
        begin, self._measured_at = self._measured_at, time.monotonic()
        seconds = self._measured_at - begin
        if before is None or self._network is None or seconds <= 0:
            return None, None
        rates = (
            max(0, round((now - then) / seconds))
            for now, then in zip(self._network, before, strict=True)
        )
        received, sent = rates
        return received, sent


def busy_percent(before: CpuTimes, after: CpuTimes) -> float:
    """Return how much of the time between two measurements a CPU was busy, in percent."""
    total = _total_seconds(after) - _total_seconds(before)
    idle = _idle_seconds(after) - _idle_seconds(before)
    return min(100.0, max(0.0, 100 * (total - idle) / total)) if total > 0 else 0.0


def _total_seconds(times: CpuTimes) -> float:
    # The time of guests is also part of "user" and "nice".
    return sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def _idle_seconds(times: CpuTimes) -> float:
    return float(times.idle) + float(getattr(times, "iowait", 0.0))


def _network_bytes() -> tuple[int, int] | None:
    """Return the bytes received and sent by all interfaces except loopback; None if unknown."""
    try:
        interfaces = psutil.net_io_counters(pernic=True)
    except OSError:
        return None
    found = [counters for name, counters in interfaces.items() if name != "lo"]
    return sum(each.bytes_recv for each in found), sum(each.bytes_sent for each in found)


def _disk_bytes(path: Path) -> tuple[int | None, int | None]:
    try:
        usage = psutil.disk_usage(str(path))
    except OSError:
        return None, None
    return usage.used, usage.total
