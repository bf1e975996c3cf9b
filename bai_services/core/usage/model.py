"""Usage records, and their totals over an hour.

Times are Unix times in seconds. An amount is in the stored unit of its slot. A product of amount
and seconds is a float, because the bytes of a large cluster times the seconds of a day exceed 64
bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import itemgetter

from ..resources import CPU, MEM, MEM_SUFFIXES, slot_type
from ..sessions.usage_history import COARSE, Sample

HOUR = 3600
DAY = 24 * HOUR
# Slots that count sessions: the sessions that hold resources, and the sessions that wait.
SESSIONS = "sessions"
WAITING = "waiting"
# A measured interval with a lower utilization counts as idle.
IDLE_BELOW = 0.05


class Dimension(StrEnum):
    """The grouping of a report; ``TOTAL`` has one group, which contains everything."""

    TOTAL = "total"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    RESOURCE_GROUP = "resource-group"
    IMAGE = "image"
    SESSION_KIND = "session-kind"
    DEVICE_MODEL = "device-model"


# Totals are stored for these dimensions; ``TOTAL`` is the sum over the domains.
STORED_DIMENSIONS = tuple(d for d in Dimension if d is not Dimension.TOTAL)


class SessionKind(StrEnum):
    """The purpose of a session: its type, except that tasks of pipelines are a separate kind."""

    INTERACTIVE = "interactive"
    BATCH = "batch"
    INFERENCE = "inference"
    SYSTEM = "system"
    PIPELINE_TASK = "pipeline-task"


class EndpointDimension(StrEnum):
    """The grouping of a report about endpoints; ``TOTAL`` has one group."""

    TOTAL = "total"
    ENDPOINT = "endpoint"
    TOKEN = "token"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


# Dimensions in which each group has the requests of a single endpoint.
OF_ONE_OWNER = frozenset({EndpointDimension.ENDPOINT, EndpointDimension.TOKEN})


@dataclass(frozen=True, slots=True)
class Holder:
    """The groups to which usage belongs: the columns by which reports are grouped."""

    owner_id: str
    project_id: str
    domain: str
    resource_group: str
    image: str
    # A ``SessionKind``; "" for totals of hours before the kind was recorded.
    session_kind: str
    device_model: str = ""

    def key(self, dimension: Dimension) -> str:
        """Return the group of the usage in a dimension; "" if it belongs to no group."""
        match dimension:
            case Dimension.TOTAL:
                return ""
            case Dimension.USER:
                return self.owner_id
            case Dimension.PROJECT:
                return self.project_id
            case _:
                key: str = getattr(self, dimension.replace("-", "_"))
                return key


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """An amount of a slot that a kernel or session held, or a session that waited.

    ``ended_at`` is None until the end. ``kernel_id`` is empty in records of sessions; ``device_id``
    is empty in records of sessions, cpu and mem.
    """

    session_id: str
    kernel_id: str
    slot: str
    device_id: str
    amount: int
    started_at: int
    ended_at: int | None
    holder: Holder

    def seconds_in(self, start: int, end: int) -> int:
        """Return for how many seconds between two times the record lasts."""
        until = end if self.ended_at is None else min(self.ended_at, end)
        return max(0, until - max(self.started_at, start))


@dataclass(slots=True)
class Measures:
    """Sums of amount times seconds; see ``UsageRow`` for their meaning.

    ``used`` and ``wasted`` are parts of ``measured``. ``energy`` (joules) and ``cost`` are None if
    unknown.
    """

    allocated: float = 0.0
    waited: float = 0.0
    measured: float = 0.0
    used: float = 0.0
    wasted: float = 0.0
    energy: float | None = None
    cost: float | None = None

    def add(self, other: Measures) -> None:
        self.allocated += other.allocated
        self.waited += other.waited
        self.measured += other.measured
        self.used += other.used
        self.wasted += other.wasted
        self.energy = added(self.energy, other.energy)
        self.cost = added(self.cost, other.cost)


MEASURES = tuple(f.name for f in fields(Measures))


def added(one: float | None, other: float | None) -> float | None:
    """Return the sum of the known values; None if both are unknown."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one unit of a slot (a core, a GiB, a device or a session) for one hour.

    A price with ``resource_group`` "" applies to resource groups without a price for the slot.
    """

    resource_group: str
    slot: str
    per_hour: float


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices in force; ``currency`` is the text shown after costs."""

    currency: str = ""
    prices: Sequence[Price] = ()
    _of: Mapping[tuple[str, str], float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of = {(p.resource_group, p.slot): p.per_hour for p in self.prices}
        object.__setattr__(self, "_of", of)

    def cost(self, resource_group: str, slot: str, amount_seconds: float) -> float | None:
        """Return the cost of a usage; None if the slot has no price in the resource group."""
        price = self._of.get((resource_group, slot), self._of.get(("", slot)))
        return None if price is None else price * amount_seconds / unit_of(slot) / HOUR

    def cost_per_hour(self, resource_group: str, amounts: Mapping[str, int]) -> float | None:
        """Return the cost of a session that holds these amounts for one hour.

        None if no slot has a price in the resource group.
        """
        total = None
        for slot, amount in {**amounts, SESSIONS: 1}.items():
            total = added(total, self.cost(resource_group, slot, float(amount) * HOUR))
        return total


def unit_of(slot: str) -> int:
    """Return the amount that reports show as 1: a core, a GiB, a device or a session."""
    if slot == SESSIONS:
        return 1
    return MEM_SUFFIXES["g"] if slot == MEM else slot_type(slot).unit


FactKey = tuple[Holder, str]  # holder and slot
TotalKey = tuple[Dimension, str, str, str]  # dimension, domain, key, slot


class HourTotals:
    """Adds up the records of one hour."""

    def __init__(self, hour: int, prices: Prices) -> None:
        self._start, self._end = hour, hour + HOUR
        self._prices = prices
        self.facts: dict[FactKey, Measures] = {}

    def add(self, record: UsageRecord, samples: Iterable[Sample] = ()) -> None:
        """Add a record with the coarse samples of its kernel in this hour."""
        measures = measures_of(record, self._start, self._end, self._prices)
        if measures is None:
            return
        for sample in samples:
            self._measure(record, sample, measures)
        slot = SESSIONS if record.slot == WAITING else record.slot
        self.facts.setdefault((record.holder, slot), Measures()).add(measures)

    def _measure(self, record: UsageRecord, sample: Sample, measures: Measures) -> None:
        at = int(sample.at.timestamp())
        start, end = max(at, self._start), min(at + COARSE.interval_seconds, self._end)
        seconds = record.seconds_in(start, end)
        if not seconds:
            return
        if (utilization := utilization_of(record, sample)) is not None:
            amount_seconds = float(record.amount) * seconds
            measures.measured += amount_seconds
            measures.used += utilization * amount_seconds
            if utilization < IDLE_BELOW:
                measures.wasted += amount_seconds
        watts = sample.devices.get(record.device_id, {}).get("power_watts")
        if watts is not None:
            measures.energy = added(measures.energy, watts * seconds)

    def keep_measured(self, facts: Mapping[FactKey, Measures]) -> None:
        """Copy the measured values from earlier facts of the hour, because the samples of the hour
        no longer exist.

        Measured values are limited to the allocated amounts.
        """
        for key, earlier in facts.items():
            measures = self.facts.get(key)
            if measures is None:
                continue
            measures.measured = min(earlier.measured, measures.allocated)
            measures.used = min(earlier.used, measures.measured)
            measures.wasted = min(earlier.wasted, measures.measured)
            measures.energy = earlier.energy

    def totals(self) -> dict[TotalKey, Measures]:
        """Return the sums for each group of each stored dimension, within each domain."""
        totals: dict[TotalKey, Measures] = {}
        for (holder, slot), measures in self.facts.items():
            for dimension in STORED_DIMENSIONS:
                if key := holder.key(dimension):
                    total = totals.setdefault((dimension, holder.domain, key, slot), Measures())
                    total.add(measures)
        return totals


def measures_of(record: UsageRecord, start: int, end: int, prices: Prices) -> Measures | None:
    """Return the usage of a record between two times, without samples; None for no usage."""
    seconds = record.seconds_in(start, end)
    if not seconds:
        return None
    amount_seconds = float(record.amount) * seconds
    if record.slot == WAITING:
        return Measures(waited=amount_seconds)
    cost = prices.cost(record.holder.resource_group, record.slot, amount_seconds)
    return Measures(allocated=amount_seconds, cost=cost)


def utilization_of(record: UsageRecord, sample: Sample) -> float | None:
    """Return the utilization (0 to 1) of a record's amount in a sample; None if not measured."""
    if not record.amount:
        return None
    unit, whole = 1, record.amount
    if record.slot == CPU:
        used, unit = sample.metrics.get("cpu_cores"), slot_type(CPU).unit
    elif record.slot == MEM:
        used = sample.metrics.get("mem_bytes")
    else:
        used = sample.devices.get(record.device_id, {}).get("utilization_percent")
        whole = 100
    return None if used is None else min(1.0, used * unit / whole)


def largest_first(sums: Mapping[str, float], limit: int) -> Iterator[str]:
    """Return the keys with the largest sums; ties in the order of the keys."""
    ranked = sorted(sorted(sums.items()), key=itemgetter(1), reverse=True)
    return (key for key, _ in ranked[:limit])
