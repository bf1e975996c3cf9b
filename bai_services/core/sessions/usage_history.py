"""Samples of the resource usage of kernels, and the time series computed from them.

A heartbeat reports gauges (memory in use, utilization) and counters (bytes since the start). A
sample contains the mean of each gauge and the mean rate of each counter over one interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Maps the names of metrics in heartbeats to their names in samples.
GAUGES = {"cpu_cores": "cpu_cores", "mem_bytes": "mem_bytes"}
COUNTERS = {
    "net_rx_bytes": "net_rx_bytes_per_second",
    "net_tx_bytes": "net_tx_bytes_per_second",
    "io_read_bytes": "io_read_bytes_per_second",
    "io_write_bytes": "io_write_bytes_per_second",
}
KERNEL_METRICS = (*GAUGES.values(), *COUNTERS.values())
DEVICE_METRICS = ("utilization_percent", "memory_bytes", "power_watts")
MAX_POINTS = 300
# Maximum number of devices in the sample of a kernel; other devices are ignored.
MAX_DEVICES = 64

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Resolution:
    """Length of the sampled intervals, and retention time of their samples."""

    interval_seconds: int
    kept_for: timedelta

    def start_of(self, at: datetime) -> datetime:
        """Return the start of the interval that contains a time."""
        seconds = int((at - _EPOCH).total_seconds())
        return _EPOCH + timedelta(seconds=seconds - seconds % self.interval_seconds)


FINE = Resolution(15, timedelta(hours=1))
COARSE = Resolution(300, timedelta(days=30))


@dataclass(frozen=True, slots=True)
class Sample:
    """Means over one interval. Metrics that the agent did not report are missing."""

    kernel_id: str
    at: datetime  # start of the interval
    metrics: Metrics
    devices: Mapping[str, Metrics] = field(default_factory=dict)  # by device id


class _Means:
    """Running means by name."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._sums[name] += value
            self._counts[name] += 1

    def means(self) -> dict[str, float]:
        return {name: total / self._counts[name] for name, total in self._sums.items()}


class SampleMean:
    """Mean of several readings or samples of one kernel."""

    def __init__(self) -> None:
        self._kernel = _Means()
        self._devices: dict[str, _Means] = defaultdict(_Means)

    def add(self, metrics: Metrics, devices: Mapping[str, Metrics]) -> None:
        self._kernel.add(metrics)
        for device_id, values in devices.items():
            self._devices[device_id].add(values)

    def sample(self, kernel_id: str, at: datetime) -> Sample:
        devices = {device_id: means.means() for device_id, means in self._devices.items()}
        return Sample(kernel_id, at, self._kernel.means(), devices)


@dataclass(frozen=True, slots=True)
class Reading:
    """The usage of one kernel in a heartbeat, reduced to numbers.

    ``seconds`` is the monotonic time, to measure the time between two readings.
    """

    at: datetime
    seconds: float
    gauges: Metrics
    counters: Metrics
    devices: Mapping[str, Metrics]

    @classmethod
    def of(cls, usage: Mapping[str, Any], at: datetime, seconds: float) -> Reading:
        """Return the numbers in a heartbeat's usage; ignore other values."""
        reported = usage.get("devices")
        devices: dict[str, Metrics] = {}
        for device in (reported if isinstance(reported, list) else [])[:MAX_DEVICES]:
            if isinstance(device, Mapping) and isinstance(device.get("id"), str):
                devices[device["id"]] = _numbers(device, {name: name for name in DEVICE_METRICS})
        return cls(at, seconds, _numbers(usage, GAUGES), _numbers(usage, COUNTERS), devices)

    def metrics_since(self, before: Reading | None) -> dict[str, float]:
        """Return the gauges, and the rates of the counters since the reading ``before``.

        The rate of a counter that has decreased (after a restart) is unknown.
        """
        metrics = dict(self.gauges)
        if before is None:
            return metrics
        seconds = self.seconds - before.seconds
        for name, value in self.counters.items():
            last = before.counters.get(name)
            if seconds > 0 and last is not None and value >= last:
                metrics[name] = (value - last) / seconds
        return metrics


class Sampler:
    """Collects readings and returns the samples of completed intervals."""

    def __init__(self, resolution: Resolution = FINE) -> None:
        self._resolution = resolution
        self._last: dict[str, Reading] = {}
        self._open: dict[tuple[datetime, str], SampleMean] = {}

    def add(self, kernel_id: str, reading: Reading) -> None:
        """Add a reading; counters are compared with the kernel's previous reading."""
        start = self._resolution.start_of(reading.at)
        metrics = reading.metrics_since(self._last.get(kernel_id))
        self._last[kernel_id] = reading
        self._open.setdefault((start, kernel_id), SampleMean()).add(metrics, reading.devices)

    def ended(self, now: datetime) -> list[Sample]:
        """Return and remove the samples of all intervals except the current one.

        After the clock was set back, this includes intervals that begin later.
        """
        current = self._resolution.start_of(now)
        return self._take(key for key in list(self._open) if key[0] != current)

    def all(self) -> list[Sample]:
        """Return and remove all samples, including samples of the current interval."""
        return self._take(list(self._open))

    def unfinished(self, kernel_ids: Collection[str]) -> list[Sample]:
        """Return the samples of these kernels that ``ended`` has not returned yet, without removing
        them.
        """
        return [
            mean.sample(kernel_id, start)
            for (start, kernel_id), mean in self._open.items()
            if kernel_id in kernel_ids
        ]

    def drop_silent(self, now: datetime) -> None:
        """Drop the last readings of kernels without a report for four intervals."""
        oldest = now - 4 * timedelta(seconds=self._resolution.interval_seconds)
        self._last = {key: reading for key, reading in self._last.items() if reading.at >= oldest}

    def _take(self, keys: Iterable[tuple[datetime, str]]) -> list[Sample]:
        return [self._open.pop(key).sample(key[1], key[0]) for key in keys]


def downsampled(samples: Iterable[Sample], resolution: Resolution) -> list[Sample]:
    """Return the samples averaged over the longer intervals of ``resolution``."""
    means: dict[tuple[datetime, str], SampleMean] = defaultdict(SampleMean)
    for sample in samples:
        key = (resolution.start_of(sample.at), sample.kernel_id)
        means[key].add(sample.metrics, sample.devices)
    return [mean.sample(kernel_id, at) for (at, kernel_id), mean in sorted(means.items())]


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """Values of one device; ``limit_bytes`` is the device memory that the kernel may use."""

    id: str
    model: str
    limit_bytes: int | None
    utilization_percent: Sequence[float | None]
    memory_bytes: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """Usage of one kernel in equal intervals, oldest first.

    Each series has one value for each interval from ``start`` to ``end``, None for an interval
    without a measurement. A metric that was never measured has an empty series.
    """

    session_id: str
    kernel: str
    start: datetime
    end: datetime
    interval_seconds: int
    cpu_limit_cores: float | None
    mem_limit_bytes: int | None
    metrics: Mapping[str, Sequence[float | None]]
    devices: Sequence[DeviceSeries]


@dataclass(frozen=True, slots=True)
class UsageTrend:
    """Usage of a session in percent of the requested resources, in equal intervals, oldest first.

    ``device_percent`` is the mean utilization of the session's devices. A value is None for an
    interval without a measurement.
    """

    session_id: str
    cpu_percent: Sequence[float | None]
    mem_percent: Sequence[float | None]
    device_percent: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal intervals of a period."""

    start: datetime
    interval_seconds: int
    count: int

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.count * self.interval_seconds)

    @classmethod
    def until(cls, end: datetime, period: timedelta, resolution: Resolution) -> Grid:
        """Return at most ``MAX_POINTS`` intervals that cover a period before ``end``.

        The last interval contains ``end``. The length is a multiple of the resolution's interval.
        """
        count = math.ceil(period.total_seconds() / resolution.interval_seconds)
        # Subtract one point, because the period may begin and end inside an interval.
        interval = resolution.interval_seconds * math.ceil(count / (MAX_POINTS - 1))
        last = Resolution(interval, resolution.kept_for).start_of(end)
        before = math.ceil((last - (end - period)).total_seconds() / interval)
        return cls(last - timedelta(seconds=before * interval), interval, before + 1)

    def index_of(self, at: datetime) -> int | None:
        """Return the index of the interval that contains a time; None outside of the grid."""
        index = int((at - self.start).total_seconds() // self.interval_seconds)
        return index if 0 <= index < self.count else None

    def merged(self, samples: Iterable[Sample]) -> list[Sample | None]:
        """Return the mean of the samples in each interval; None if there are no samples."""
        means: dict[int, SampleMean] = defaultdict(SampleMean)
        for sample in samples:
            if (index := self.index_of(sample.at)) is not None:
                means[index].add(sample.metrics, sample.devices)
        starts = (
            self.start + timedelta(seconds=i * self.interval_seconds) for i in range(self.count)
        )
        return [
            means[index].sample("", start) if index in means else None
            for index, start in enumerate(starts)
        ]


def mean_of_kernels(kernels: Sequence[Sequence[Sample | None]]) -> list[Sample | None]:
    """Return the mean of several kernels at each point of a grid; None if there are no samples.

    Kernels with a metric have equal weights, independent of their numbers of samples.
    """
    means: list[Sample | None] = []
    for of_kernels in zip(*kernels, strict=True):
        mean = SampleMean()
        measured = [sample for sample in of_kernels if sample is not None]
        for sample in measured:
            mean.add(sample.metrics, sample.devices)
        means.append(mean.sample("", measured[0].at) if measured else None)
    return means


def series_of(points: Sequence[Sample | None], name: str) -> list[float | None]:
    """Return the values of one metric; empty if no point has it."""
    values = [_rounded(point.metrics.get(name)) if point else None for point in points]
    return values if any(value is not None for value in values) else []


def device_series_of(
    points: Sequence[Sample | None], device_id: str, name: str
) -> list[float | None]:
    """Return the values of one metric of a device; empty if no point has it."""
    values = [
        _rounded(point.devices.get(device_id, {}).get(name)) if point else None for point in points
    ]
    return values if any(value is not None for value in values) else []


def percent_series(values: Sequence[float | None], limit: float | None) -> list[float | None]:
    """Return values in percent of a limit; empty if there is no limit."""
    if not limit:
        return []
    return [None if value is None else round(100 * value / limit, 1) for value in values]


def mean_device_utilization(points: Sequence[Sample | None]) -> list[float | None]:
    """Return the mean utilization of all devices at each point; empty if no device reports it."""
    means: list[float | None] = []
    for point in points:
        used = [
            device["utilization_percent"]
            for device in (point.devices.values() if point else ())
            if "utilization_percent" in device
        ]
        means.append(round(sum(used) / len(used), 1) if used else None)
    return means if any(value is not None for value in means) else []


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _numbers(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """Return the named values that are valid (0 to below 2**63), under their new names."""
    numbers = {}
    for name, new_name in names.items():
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 <= value < 2**63:
            numbers[new_name] = float(value)
    return numbers
