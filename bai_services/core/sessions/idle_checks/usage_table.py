"""Recent usage of many kernels as arrays: one row per kernel, one column per interval."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from ..usage_history import Resolution, Sample
from .checkers import CPU_UTIL, IO, MEM, MEM_SUFFIX, NET, UTIL_SUFFIX

Values = NDArray[np.float32]

# Row without values, for kernels without samples.
NO_ROW = 0
_FIRST_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    family: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel with its limits. A limit of 0 is unknown."""

    id: str
    session_id: str
    cpu_cores: float
    mem_bytes: int
    devices: Mapping[str, DeviceFacts] = field(default_factory=dict)


def measured(sample: Sample, kernel: KernelFacts) -> dict[str, float]:
    """Return the metrics of idle checkers in a sample; unknown metrics are missing.

    The metrics of a device family are means over the kernel's devices of the family. A metric that
    one of these devices does not report is missing.
    """
    values: dict[str, float] = {}
    metrics = sample.metrics
    if kernel.cpu_cores and "cpu_cores" in metrics:
        values[CPU_UTIL] = 100 * metrics["cpu_cores"] / kernel.cpu_cores
    if kernel.mem_bytes and "mem_bytes" in metrics:
        values[MEM] = 100 * metrics["mem_bytes"] / kernel.mem_bytes
    _add_rate(values, NET, metrics, "net_rx_bytes_per_second", "net_tx_bytes_per_second")
    _add_rate(values, IO, metrics, "io_read_bytes_per_second", "io_write_bytes_per_second")
    utilization: dict[str, list[float | None]] = {}
    memory: dict[str, list[float | None]] = {}
    for device_id, facts in kernel.devices.items():
        usage = sample.devices.get(device_id) or {}
        used, limit = usage.get("memory_bytes"), facts.memory_bytes
        percent = 100 * used / limit if used is not None and limit else None
        utilization.setdefault(facts.family, []).append(usage.get("utilization_percent"))
        memory.setdefault(facts.family, []).append(percent)
    for suffix, by_family in ((UTIL_SUFFIX, utilization), (MEM_SUFFIX, memory)):
        for family, reported in by_family.items():
            known = [value for value in reported if value is not None]
            if len(known) == len(reported):
                values[f"{family}{suffix}"] = sum(known) / len(known)
    return values


def _add_rate(
    values: dict[str, float], name: str, metrics: Mapping[str, float], first: str, second: str
) -> None:
    if first in metrics and second in metrics:
        values[name] = metrics[first] + metrics[second]


class UsageTable:
    """The samples of the last ``points`` intervals. A missing value is NaN.

    Column ``index % points`` has interval ``index``, counted from Unix time 0.
    """

    def __init__(self, resolution: Resolution, points: int) -> None:
        self.resolution = resolution
        self.points = points
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._capacity = _FIRST_CAPACITY
        self._used = NO_ROW + 1
        self._series: dict[str, Values] = {}
        self._newest: int | None = None

    def number_of(self, at: datetime) -> int:
        """Return the number of the interval that contains a time."""
        return int(at.timestamp()) // self.resolution.interval_seconds

    def has_metric(self, name: str) -> bool:
        """Return whether a kernel has reported a metric since the table was created."""
        return name in self._series

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._rows

    def add(self, samples: Iterable[Sample], kernels: Mapping[str, KernelFacts]) -> None:
        """Add the samples of known kernels. Samples older than the table are ignored."""
        for sample in samples:
            facts = kernels.get(sample.kernel_id)
            if facts is None:
                continue
            number = self.number_of(sample.at)
            self.advance(number)
            if self._newest is not None and number <= self._newest - self.points:
                continue
            row, column = self._row(sample.kernel_id), number % self.points
            for name, value in measured(sample, facts).items():
                self._array(name)[row, column] = value

    def advance(self, number: int) -> None:
        """Make ``number`` the newest interval, unless a later interval is known."""
        if self._newest is None:
            self._newest = number
        if number <= self._newest:
            return
        count = min(number - self._newest, self.points)
        columns = np.arange(number - count + 1, number + 1) % self.points
        for array in self._series.values():
            array[:, columns] = np.nan
        self._newest = number

    def keep(self, kernel_ids: Collection[str]) -> None:
        """Remove all kernels except these."""
        for kernel_id in [key for key in self._rows if key not in kernel_ids]:
            row = self._rows.pop(kernel_id)
            self._free.append(row)
            for array in self._series.values():
                array[row] = np.nan

    def clear(self) -> None:
        """Remove all samples."""
        self._newest = None
        for array in self._series.values():
            array.fill(np.nan)

    def rows_of(self, kernel_ids: Iterable[str]) -> list[int]:
        return [self._rows.get(kernel_id, NO_ROW) for kernel_id in kernel_ids]

    def window(self, name: str, rows: Sequence[int] | NDArray[np.intp], last: int) -> Values:
        """Return the values of kernels in the ``points`` intervals until ``last``, oldest first."""
        self.advance(last)
        array = self._series.get(name)
        if array is None or self._newest is None:
            return np.full((len(rows), self.points), np.nan, dtype=np.float32)
        values = np.roll(array[rows], self.points - 1 - last % self.points, axis=1)
        later = min(self._newest - last, self.points)  # columns of intervals after ``last``
        if later:
            values[:, :later] = np.nan
        return values

    def _row(self, kernel_id: str) -> int:
        row = self._rows.get(kernel_id)
        if row is None:
            if self._free:
                row = self._free.pop()
            else:
                row, self._used = self._used, self._used + 1
            self._rows[kernel_id] = row
            if row >= self._capacity:
                self._grow()
        return row

    def _grow(self) -> None:
        added = self._capacity
        self._capacity += added
        for name, array in self._series.items():
            more = np.full((added, self.points), np.nan, dtype=np.float32)
            self._series[name] = np.concatenate([array, more])

    def _array(self, name: str) -> Values:
        array = self._series.get(name)
        if array is None:
            array = np.full((self._capacity, self.points), np.nan, dtype=np.float32)
            self._series[name] = array
        return array
