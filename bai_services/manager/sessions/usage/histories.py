"""Resource usage of sessions as time series, read from usage samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.resources import CPU, MEM
from bai_services.core.sessions.usage_history import (
    COARSE,
    FINE,
    KERNEL_METRICS,
    DeviceSeries,
    Grid,
    Sample,
    UsageHistory,
    UsageTrend,
    device_series_of,
    mean_device_utilization,
    mean_of_kernels,
    percent_series,
    series_of,
)
from bai_services.db.sessions.rows import KernelRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.sessions.usage_samples import SampledKernel, UsageSampleStore

from ...accounts import authorizer
from ...clock import Clock
from ..devices import devices_of
from ..sessions import Sessions
from .sampling import UsageSampling

# CPU amounts are integers in thousandths of a core.
_CORE = 1000
_TREND_PERIOD = timedelta(minutes=15)
_TREND_INTERVAL_SECONDS = 60
MAX_TREND_SESSIONS = 100
MIN_PERIOD_SECONDS = 60
MAX_PERIOD_SECONDS = int(COARSE.kept_for.total_seconds())


class UsageHistories:
    """Returns the usage of one kernel over a period, and the latest usage of many sessions."""

    def __init__(
        self,
        sessions: Sessions,
        store: SessionStore,
        samples: UsageSampleStore,
        sampling: UsageSampling,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._samples = samples
        self._sampling = sampling
        self._clock = clock

    async def get(
        self, caller: Caller, key: str, hostname: str, period_seconds: int
    ) -> UsageHistory:
        """Return the usage of one kernel in a period that ends now, or at the end of the session.

        Raises
        ------
        NotFound
            If the session is not visible, or has no such kernel.
        InvalidRequest
            If the period is too short or longer than samples are kept.
        """
        if not MIN_PERIOD_SECONDS <= period_seconds <= MAX_PERIOD_SECONDS:
            raise InvalidRequest(
                f"period={period_seconds} must be a number of seconds from {MIN_PERIOD_SECONDS} "
                f"to {MAX_PERIOD_SECONDS} (30 days)",
                field="period",
            )
        row = await self._sessions.find_visible(caller, key)
        kernels = (await self._store.with_kernels(row.id)).kernels
        kernel = next((kernel for kernel in kernels if kernel.hostname == hostname), None)
        if kernel is None:
            names = ", ".join(kernel.hostname for kernel in kernels)
            raise NotFound(f"session {row.name} has no kernel {hostname!r}; it has {names}")
        now = self._clock()
        end, period = row.terminated_at or now, timedelta(seconds=period_seconds)
        resolution = FINE if end - period >= now - FINE.kept_for else COARSE
        grid = Grid.until(end, period, resolution)
        samples = await self._sampling.samples([kernel.id], resolution, grid.start, grid.end)
        points = grid.merged(samples)
        slots = row.requested_slots
        return UsageHistory(
            session_id=row.id,
            kernel=hostname,
            start=grid.start,
            end=grid.end,
            interval_seconds=grid.interval_seconds,
            cpu_limit_cores=slots[CPU] / _CORE if slots.get(CPU) else None,
            mem_limit_bytes=slots.get(MEM) or None,
            metrics={name: series_of(points, name) for name in KERNEL_METRICS},
            devices=_device_series(kernel, points),
        )

    async def trends(self, caller: Caller, session_ids: Sequence[str]) -> list[UsageTrend]:
        """Return the usage of sessions in the last 15 minutes.

        Sessions that the caller may not read are omitted. Without ids, return the usage of the
        caller's newest running sessions.

        Raises
        ------
        InvalidRequest
            If there are more than ``MAX_TREND_SESSIONS`` ids.
        """
        if len(session_ids) > MAX_TREND_SESSIONS:
            raise InvalidRequest(
                f"{len(session_ids)} sessions were requested; the limit is {MAX_TREND_SESSIONS}",
                field="session",
            )
        visible = authorizer.visibility(caller, "session.read")
        if session_ids:
            kernels = await self._samples.kernels_of(session_ids, visible)
        elif caller.user_id is None:
            kernels = []
        else:
            kernels = await self._samples.running_kernels_of(caller.user_id, MAX_TREND_SESSIONS)
        count = int(_TREND_PERIOD.total_seconds()) // _TREND_INTERVAL_SECONDS
        grid = Grid(self._clock() - _TREND_PERIOD, _TREND_INTERVAL_SECONDS, count)
        ids = [kernel.kernel_id for kernel in kernels]
        samples = await self._sampling.samples(ids, FINE, grid.start, grid.end)
        return _trends(kernels, samples, grid)


def _trends(
    kernels: Iterable[SampledKernel], samples: Iterable[Sample], grid: Grid
) -> list[UsageTrend]:
    """Return one trend for each session; the kernels of a cluster session are averaged."""
    by_kernel: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kernel[sample.kernel_id].append(sample)
    by_session: dict[str, list[SampledKernel]] = defaultdict(list)
    for kernel in kernels:
        by_session[kernel.session_id].append(kernel)
    trends = []
    for of_session in by_session.values():
        points = mean_of_kernels([grid.merged(by_kernel[k.kernel_id]) for k in of_session])
        kernel = of_session[0]
        cores = kernel.requested_slots.get(CPU, 0) / _CORE
        trends.append(
            UsageTrend(
                session_id=kernel.session_id,
                cpu_percent=percent_series(series_of(points, "cpu_cores"), cores),
                mem_percent=percent_series(
                    series_of(points, "mem_bytes"), kernel.requested_slots.get(MEM)
                ),
                device_percent=mean_device_utilization(points),
            )
        )
    return trends


def _device_series(kernel: KernelRow, points: Sequence[Sample | None]) -> list[DeviceSeries]:
    return [
        DeviceSeries(
            id=device.id,
            model=device.model or "",
            limit_bytes=device.memory_bytes,
            utilization_percent=device_series_of(points, device.id, "utilization_percent"),
            memory_bytes=device_series_of(points, device.id, "memory_bytes"),
        )
        for device in devices_of([kernel])
        if device.id is not None
    ]
