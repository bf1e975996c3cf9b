"""Compute the number of replicas of an endpoint from recent samples of its load.

The formula comes from Knative: the mean load over a stable window, divided by the target load of
one replica. A short panic window reacts to bursts. All functions are pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum, unique
from itertools import accumulate, pairwise
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.schedules.rules import WEEKDAYS, parse_rule
from bai_services.core.usage.periods import zone_of
from bai_services.core.wall_clock import instant_of

# A load is a burst if the panic window needs at least this multiple of the ready replicas.
PANIC_FACTOR = 2
# The load is unknown if the last sample is older than this. Gateways report at least every 10 s.
SAMPLE_SECONDS = 30
UNKNOWN = TextTemplate.SCALING_UNKNOWN.text()
# Tolerance for rounding errors: nearly equal loads need the same number of replicas.
_ROUNDING = 1e-9


@unique
class Measure(StrEnum):
    """How the load of an endpoint is measured.

    ``requests``: requests in flight and queued, in all gateways. ``cpu``: used percentage of the
    requested CPU cores. ``metric-total``: sum of a runtime metric over the replicas, such as
    tokens/s. ``metric-mean``: mean of a runtime metric, such as the use of the KV cache. ``query``:
    result of a Prometheus query for all replicas.
    """

    REQUESTS = "requests"
    CPU = "cpu"
    METRIC_TOTAL = "metric-total"
    METRIC_MEAN = "metric-mean"
    QUERY = "query"


# Measures with values from replicas: without a replica, the load is unknown.
MEASURED_IN_REPLICAS = (Measure.CPU, Measure.METRIC_TOTAL, Measure.METRIC_MEAN)
MAX_PERIODS = 20


@dataclass(frozen=True, slots=True)
class ScheduledBounds:
    """Bounds that replace the bounds of the rule at certain times."""

    days: frozenset[int]  # 0 is Monday; the days on which the period starts
    starts: time  # in `zone`
    ends: time  # on the next day if it is not after `starts`
    zone: str
    min_replicas: int
    max_replicas: int

    def contains(self, now: datetime) -> bool:
        """Return whether ``now`` lies in a period, also when daylight saving time changes."""
        zone = ZoneInfo(self.zone)
        today = now.astimezone(zone).date()
        for day in (today, today - timedelta(days=1)):
            if day.weekday() not in self.days:
                continue
            last = day if self.ends > self.starts else day + timedelta(days=1)
            begin = instant_of(datetime.combine(day, self.starts), zone)
            # When clocks are set back, the end occurs twice; use the later instant, so that no hour
            # is missing.
            end = instant_of(datetime.combine(last, self.ends), zone, fold=1)
            if begin <= now < end:
                return True
        return False

    def as_json(self) -> dict[str, Any]:
        return {
            "days": ",".join(WEEKDAYS[day] for day in sorted(self.days)),
            "starts": self.starts.strftime("%H:%M"),
            "ends": self.ends.strftime("%H:%M"),
            "zone": self.zone,
            "min_replicas": self.min_replicas,
            "max_replicas": self.max_replicas,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ScheduledBounds:
        """Return the period from the values of ``as_json``.

        Raises
        ------
        InvalidRequest
            If the days, the times or the time zone are not valid.
        """
        (starts, days), (ends, _) = (
            _daily_time(f"{values['days']} {values[name]}") for name in ("starts", "ends")
        )
        return cls(
            days,
            starts,
            ends,
            zone_of(values["zone"]).key,
            values["min_replicas"],
            values["max_replicas"],
        )


def _daily_time(text: str) -> tuple[time, frozenset[int]]:
    """Return the time of day and the days of a text such as ``mon-fri 08:00``."""
    rule = parse_rule(text, "schedule")
    if len(rule.times) != 1 or len(text.split()) != 2:
        raise InvalidRequest(f"{text!r} is not one time per day", field="schedule")
    return time(*divmod(rule.times[0], 60)), rule.weekdays


@dataclass(frozen=True, slots=True)
class ScalingRule:
    min_replicas: int = 1
    max_replicas: int = 1
    measure: Measure = Measure.REQUESTS
    metric: str = ""  # name of the metric, or its role: the runtime variant maps roles to names
    query: str = ""  # PromQL
    target: float = 10.0  # load of one replica
    utilization: float = 0.7  # part of the target that is planned; the rest is a reserve for bursts
    stable_seconds: int = 60
    panic_seconds: int = 6
    idle_seconds: int = 300  # time without load before the last replica ends
    schedule: tuple[ScheduledBounds, ...] = ()

    @property
    def load_per_replica(self) -> float:
        return self.target * self.utilization

    @property
    def window_seconds(self) -> int:
        """Return how long samples must be kept, in seconds."""
        return max(self.stable_seconds, self.idle_seconds) + SAMPLE_SECONDS

    def at(self, now: float) -> ScalingRule:
        """Return the rule with the bounds of the first scheduled period that contains ``now``."""
        instant = datetime.fromtimestamp(now, UTC)
        for bounds in self.schedule:
            if bounds.contains(instant):
                return replace(
                    self, min_replicas=bounds.min_replicas, max_replicas=bounds.max_replicas
                )
        return self


def defaults_of(measure: Measure) -> dict[str, Any]:
    """Return the default values of a rule that depend on its measure."""
    if measure is Measure.REQUESTS:
        return {}
    defaults = {"measure": measure, "utilization": 1.0}
    return {**defaults, "target": 70.0} if measure is Measure.CPU else defaults


def rule_as_json(rule: ScalingRule) -> dict[str, Any]:
    values = {each.name: getattr(rule, each.name) for each in fields(rule)}
    return {**values, "schedule": [each.as_json() for each in rule.schedule]}


def rule_from_json(values: Mapping[str, Any]) -> ScalingRule:
    """Return the rule from the values of ``rule_as_json``; missing values have their defaults.

    Raises
    ------
    InvalidRequest
        If a period of the schedule is not valid.
    """
    given = dict(values)
    if "measure" in given:
        given["measure"] = Measure(given["measure"])
    given["schedule"] = tuple(map(ScheduledBounds.from_json, given.get("schedule", ())))
    return ScalingRule(**given)


def check_rule(rule: ScalingRule, field: str) -> None:
    """Check that the values of a rule are consistent; ``field`` is the field name in errors.

    Raises
    ------
    InvalidRequest
        If two values contradict each other, or a required value is missing.
    """
    own = (rule.min_replicas, rule.max_replicas)
    for low, high in (own, *((each.min_replicas, each.max_replicas) for each in rule.schedule)):
        if high < max(1, low):
            raise InvalidRequest("max must be at least 1, and at least min", field=field)
        if rule.measure in MEASURED_IN_REPLICAS and low < 1:
            raise InvalidRequest(
                f"min must be at least 1 with the measure {rule.measure}: without a replica, "
                "nothing can be measured",
                field=field,
            )
    if len(rule.schedule) > MAX_PERIODS:
        raise InvalidRequest(f"the schedule has more than {MAX_PERIODS} periods", field=field)
    if rule.measure in (Measure.METRIC_TOTAL, Measure.METRIC_MEAN) and not rule.metric:
        raise InvalidRequest(f"the measure {rule.measure} needs a metric", field=field)
    if rule.measure is Measure.QUERY and not rule.query.strip():
        raise InvalidRequest("the measure query needs a query", field=field)
    if rule.utilization > 1:
        raise InvalidRequest("utilization must not exceed 1", field=field)
    if rule.panic_seconds > rule.stable_seconds:
        raise InvalidRequest("panic must not exceed stable", field=field)


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Load of an endpoint from ``at`` until the next sample."""

    at: float  # seconds since the epoch
    load: float


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    replicas: int
    reason: CodedText


def desired_replicas(
    rule: ScalingRule,
    samples: Sequence[LoadSample],
    ready: int,
    now: float,
    wanted: int | None = None,
    unknown: CodedText = UNKNOWN,
) -> ScalingDecision:
    """Return the number of replicas that the load needs, within the bounds of the rule.

    ``samples`` are in order of time and cover at least ``rule.window_seconds``, if available.
    ``ready`` is the number of replicas that serve requests. ``wanted`` is the result of the
    previous call, which also counts starting replicas; None: ``ready`` is used. ``unknown`` is the
    reason if there is no recent sample; the result is then ``wanted``.
    """
    rule = rule.at(now)
    before = ready if wanted is None else wanted
    known = [sample for sample in samples if sample.at <= now]
    if not known or known[-1].at < now - SAMPLE_SECONDS:
        return _clamped(rule, before, unknown)
    stable_load = mean_load(known, now - rule.stable_seconds, now)
    stable = _needed(rule, stable_load)
    panic_load = mean_load(known, now - rule.panic_seconds, now)
    panic = _needed(rule, panic_load)
    if before > 0 and stable == 0:
        return _clamped(rule, *_quiet(rule, known, before, now))
    if before == 0 and known[-1].load > 0:
        # The first request waits for a replica, so do not wait until the window is full.
        panic, panic_load = max(panic, 1), max(panic_load, known[-1].load)
    if panic >= PANIC_FACTOR * max(ready, 1) or (before == 0 and panic > 0):
        return _clamped(
            rule, max(panic, before, stable), _reason(TextTemplate.SCALING_BURST, panic_load)
        )
    if stable >= before:
        return _clamped(rule, stable, _reason(TextTemplate.SCALING_LOAD, stable_load))
    # Keep the replicas that a recent burst needed. Otherwise, they would end and start again while
    # the mean of the stable window still rises.
    peak_load = _peak_load(rule, known, now)
    peak = min(before, _needed(rule, peak_load))
    if peak > stable:
        return _clamped(rule, peak, _reason(TextTemplate.SCALING_RECENT_BURST, peak_load))
    return _clamped(rule, stable, _reason(TextTemplate.SCALING_LOAD, stable_load))


def total_load(values: Sequence[float], ready: int) -> float | None:
    """Extrapolate the load of ``ready`` replicas from reported ``values``; None if unknown."""
    return sum(values) / len(values) * ready if values and ready else None


def mean_load(samples: Sequence[LoadSample], start: float, end: float) -> float:
    """Return the mean load over a window, weighted by time; 0 before the first sample."""
    return _LoadOverTime(samples).mean(start, end)


class _LoadOverTime:
    """Computes means over many windows of the same samples."""

    def __init__(self, samples: Sequence[LoadSample]) -> None:
        self._times = [sample.at for sample in samples]
        self._loads = [sample.load for sample in samples]
        parts = [before.load * (after.at - before.at) for before, after in pairwise(samples)]
        self._sums = [0.0, *accumulate(parts)]

    def mean(self, start: float, end: float) -> float:
        return (self._until(end) - self._until(start)) / (end - start)

    def _until(self, at: float) -> float:
        """Return the integral of the load over time from the first sample to ``at``."""
        index = bisect_right(self._times, at) - 1
        if index < 0:
            return 0.0
        return self._sums[index] + self._loads[index] * (at - self._times[index])


def _spans(samples: Sequence[LoadSample], end: float) -> list[tuple[LoadSample, float]]:
    spans = [(sample, following.at) for sample, following in pairwise(samples)]
    return [*spans, (samples[-1], end)] if samples else spans


def _peak_load(rule: ScalingRule, samples: Sequence[LoadSample], now: float) -> float:
    """Return the largest mean of a panic window within the stable window.

    The mean of a moving window has its maximum where the window starts or ends at a sample.
    """
    first = now - rule.stable_seconds
    recent = [index for index, sample in enumerate(samples) if sample.at >= first]
    # Include the last sample before the window, because its load applies at the start of the
    # window.
    inside = samples[max(0, (recent[0] if recent else len(samples)) - 1) :]
    ends = {now}
    for sample in inside:
        ends |= {sample.at, sample.at + rule.panic_seconds}
    lowest = first + rule.panic_seconds
    over_time = _LoadOverTime(inside)
    return max(
        over_time.mean(end - rule.panic_seconds, end)
        for end in ends | {lowest}
        if lowest <= end <= now
    )


def _quiet(
    rule: ScalingRule, samples: Sequence[LoadSample], before: int, now: float
) -> tuple[int, CodedText]:
    """Return the number of replicas after a stable window without load.

    The last replica ends only after the whole idle period without load.
    """
    start = now - rule.idle_seconds
    covers = samples[0].at <= start
    is_idle = all(
        sample.load <= 0 for sample, until in _spans(samples, now) if until > start or until == now
    )
    if covers and is_idle:
        text = TextTemplate.SCALING_IDLE.text(idle_seconds=rule.idle_seconds)
        return 0, text
    return min(before, 1), TextTemplate.SCALING_QUIET.text(idle_seconds=rule.idle_seconds)


def _needed(rule: ScalingRule, load: float) -> int:
    return max(0, ceil(load / rule.load_per_replica - _ROUNDING))


def _reason(template: TextTemplate, load: float) -> CodedText:
    return template.text(load=f"{load:.4g}")


def _clamped(rule: ScalingRule, replicas: int, reason: CodedText) -> ScalingDecision:
    low = max(0, rule.min_replicas)
    high = max(low, rule.max_replicas)
    if replicas > high:
        return ScalingDecision(high, TextTemplate.SCALING_MAXIMUM.text(reason, count=high))
    if replicas < low:
        return ScalingDecision(low, TextTemplate.SCALING_MINIMUM.text(reason, count=low))
    return ScalingDecision(replicas, reason)
