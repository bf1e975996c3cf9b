"""The current load of endpoints by the measure of their rules, or why it is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.resources import CPU
from bai_services.core.serving.autoscaling import UNKNOWN, Measure, ScalingRule, total_load
from bai_services.core.serving.rollout import Phase
from bai_services.core.serving.variants import VARIANTS
from bai_services.core.sessions.usage_history import FINE
from bai_services.db.serving.replicas import EndpointState, ReplicaRow
from bai_services.db.serving.scaling import ScalingStore

from ..clock import Clock, monotonic_of
from ..sessions.usage.sampling import UsageSampling
from .metric_readings import MetricReadings

# Interval at which the CPU usage of all replicas is read.
CPU_INTERVAL_SECONDS = 5.0
# Usage is stored as 15 s means, up to 15 s after the end of each interval.
_CPU_PERIOD = timedelta(seconds=3 * FINE.interval_seconds)
# CPU amounts are integers in thousandths of a core.
_CORE = 1000

Load = float | CodedText


class EndpointLoads:
    def __init__(
        self,
        store: ScalingStore,
        usage: UsageSampling,
        readings: MetricReadings,
        clock: Clock,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self.readings = readings
        self._monotonic = monotonic or monotonic_of(clock)
        self._cpu: Mapping[str, float] = {}  # percent by replica
        self._cpu_at: float | None = None

    async def read(
        self,
        scaled: Sequence[tuple[EndpointState, ScalingRule, str]],
        gateways: set[str],
        now: datetime,
    ) -> dict[str, Load]:
        """Return the loads of endpoints with a rule, each given with its runtime variant.

        ``gateways`` are the reporting gateways. If there are none, the number of requests is
        unknown.
        """
        measures = {rule.measure for _, rule, _ in scaled}
        requests: Mapping[str, int] = {}
        if Measure.REQUESTS in measures and gateways:
            requests = await self._store.loads(now)
        if Measure.CPU in measures:
            cpu = [state for state, rule, _ in scaled if rule.measure is Measure.CPU]
            await self._read_cpu(cpu, now)
        found: dict[str, Load] = {}
        for state, rule, variant in scaled:
            row = state.row
            if rule.measure is Measure.REQUESTS:
                found[row.id] = requests.get(row.id, 0) if gateways else UNKNOWN
            elif rule.measure is Measure.CPU:
                values = [self._cpu[each.id] for each in _ready(state) if each.id in self._cpu]
                load = total_load(values, row.ready_replicas)
                found[row.id] = TextTemplate.SCALING_NO_CPU.text() if load is None else load
            elif rule.measure is Measure.QUERY:
                answer = self.readings.of_query(row.id, row.owner_id, rule.query)
                found[row.id] = (
                    TextTemplate.SCALING_QUERY_FAILED.text(message=answer)
                    if isinstance(answer, str)
                    else answer
                )
            else:
                found[row.id] = self._metric(state, rule, variant)
        replicas = {each.id for state, _, _ in scaled for each in state.replicas}
        self.readings.keep(replicas | found.keys())
        return found

    def _metric(self, state: EndpointState, rule: ScalingRule, variant: str) -> Load:
        runtime = VARIANTS.get(variant)
        path = runtime.metrics_path if runtime else ""
        name = metric_name(variant, rule.metric)
        values = []
        if path:
            owner = state.row.owner_id
            read = (self.readings.of_replica(each, owner, path, name) for each in _ready(state))
            values = [value for value in read if value is not None]
        load = total_load(values, state.row.ready_replicas)
        return TextTemplate.SCALING_NO_METRIC.text(metric=name) if load is None else load

    async def _read_cpu(self, states: Sequence[EndpointState], now: datetime) -> None:
        """Read the CPU usage of the ready replicas, if a read is due."""
        at = self._monotonic()
        if self._cpu_at is not None and 0 <= at - self._cpu_at < CPU_INTERVAL_SECONDS:
            return
        self._cpu_at = at
        ids = [each.id for state in states for each in _ready(state)]
        kernels = {each.kernel_id: each for each in await self._store.kernels_of(ids)}
        samples = await self._usage.samples(list(kernels), FINE, now - _CPU_PERIOD, now)
        cpu = {}
        # In order of time, so that the newest sample of each kernel remains.
        for sample in sorted(samples, key=lambda sample: sample.at):
            kernel = kernels[sample.kernel_id]
            cores = kernel.requested_slots.get(CPU, 0) / _CORE
            if cores and "cpu_cores" in sample.metrics:
                cpu[kernel.session_id] = 100 * sample.metrics["cpu_cores"] / cores
        self._cpu = cpu


def metric_name(variant: str, metric: str) -> str:
    """Return the name of a rule's metric in the runtime; the rule may use a generic name that the
    variant defines.
    """
    runtime = VARIANTS.get(variant)
    return ((runtime.metrics if runtime else None) or {}).get(metric, metric)


def load_or_reason(load: Load) -> tuple[float | None, CodedText]:
    """Return a known load, or the reason why it is unknown."""
    return (None, load) if isinstance(load, CodedText) else (load, UNKNOWN)


def _ready(state: EndpointState) -> list[ReplicaRow]:
    return [each for each in state.replicas if each.phase is Phase.READY and each.url]
