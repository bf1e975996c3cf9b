"""Replay recorded arrivals against a simulated fleet of replicas."""

from __future__ import annotations

import csv
import json
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from bai_services.core.durations import parse_duration
from bai_services.core.errors import InvalidRequest
from bai_services.core.user_input import number_text, read_decimal, read_whole, shown

from .autoscaling import LoadSample, ScalingRule, check_rule, desired_replicas

MAX_ARRIVALS = 1_000_000
MAX_SPAN_SECONDS = 7 * 86400
MAX_REQUEST_SECONDS = 3600
MAX_REPLICAS = 10_000
# Maximum time from the last arrival to the end of the last request; the replay fails if it is
# exceeded.
MAX_BACKLOG_SECONDS = 7200
TICK_SECONDS = 2.0
COLUMNS = ("at", "seconds")


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float  # seconds from any origin
    seconds: float  # time that a replica needs for the request


@dataclass(frozen=True, slots=True)
class Fleet:
    """Properties of each replica."""

    startup_seconds: float
    concurrency: int  # requests that it serves at the same time
    gpus: float


@dataclass(frozen=True, slots=True)
class ScalingReport:
    requests: int
    cold_starts: int  # starts while the fleet had no replica
    starts: int
    max_replicas: int
    mean_wait_seconds: float
    p99_wait_seconds: float
    gpu_hours: float


def parse_scaling_rule(text: str) -> ScalingRule:
    """Return the rule in a text such as ``min=0,max=8,target=4,utilization=0.7,idle=5min``.

    Raises
    ------
    InvalidRequest
        If a name or a value is invalid.
    """
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in RULE_FIELDS:
            known = ", ".join(RULE_FIELDS)
            raise InvalidRequest(f"{shown(name)!r} is not one of {known}", field="rule")
        field = RULE_FIELDS[name]
        if field in ("min_replicas", "max_replicas"):
            whole = read_whole(value)
            if whole is None or whole > MAX_REPLICAS:
                raise _invalid(name, value, f"a number up to {MAX_REPLICAS}")
            values[field] = whole
        elif field.endswith("_seconds"):
            seconds = parse_duration(value, "rule")
            if not 1 <= seconds <= 86400:
                raise _invalid(name, value, "a duration from 1s to 24h")
            values[field] = seconds
        else:
            number = read_decimal(value)
            if number is None or not 1e-6 <= number <= 1e9:
                raise _invalid(name, value, "a positive number")
            values[field] = float(number)
    rule = ScalingRule(**values)
    check_rule(rule, "rule")
    return rule


# Names in the text of a rule, and fields of ``ScalingRule``.
RULE_FIELDS = {
    "min": "min_replicas", "max": "max_replicas", "target": "target", "utilization": "utilization",
    "stable": "stable_seconds", "panic": "panic_seconds", "idle": "idle_seconds",
}  # fmt: skip


def _invalid(name: str, value: str, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name}: {shown(value)!r} is not {expected}", field="rule")


def read_arrivals(text: str, name: str) -> list[Arrival]:
    """Return the arrivals in CSV with the columns ``at`` and ``seconds``, or in JSON lines.

    Other columns are ignored. The result is in order of time. ``name`` appears in errors.

    Raises
    ------
    InvalidRequest
        If a row is invalid, there are no rows, or there are too many.
    """
    lines = text.splitlines()
    rows = _json_rows(lines, name) if text.lstrip()[:1] == "{" else _csv_rows(lines, name)
    found: list[Arrival] = []
    for number, row in rows:
        if len(found) >= MAX_ARRIVALS:
            raise InvalidRequest(f"{name} has more than {MAX_ARRIVALS} arrivals")
        at, seconds = (_number(row.get(column), name, number, column) for column in COLUMNS)
        if seconds > MAX_REQUEST_SECONDS:
            raise InvalidRequest(
                f"{name}, row {number}: seconds is larger than {MAX_REQUEST_SECONDS}"
            )
        found.append(Arrival(at, seconds))
    if not found:
        raise InvalidRequest(f"{name} contains no arrivals")
    found.sort(key=lambda arrival: arrival.at)
    if found[-1].at - found[0].at > MAX_SPAN_SECONDS:
        raise InvalidRequest(f"{name} spans more than {MAX_SPAN_SECONDS // 86400} days")
    return found


def _csv_rows(lines: Sequence[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines)
    try:
        if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
            raise InvalidRequest(f"{name} has no column {missing[0]}; it needs: at,seconds")
        yield from enumerate(reader, 2)
    except csv.Error as error:
        raise InvalidRequest(f"{name} is not valid CSV: {error}") from None


def _json_rows(lines: Sequence[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InvalidRequest(f"{name}, row {number} is not a JSON object")
        yield number, row


def _number(value: object, name: str, row: int, column: str) -> float:
    text = number_text(value)
    number = None if text is None else read_decimal(text)
    if number is None or number > 10**12:
        raise InvalidRequest(
            f"{name}, row {row}, column {column}: {shown(value)!r} is not a number of seconds"
        )
    return float(number)


def replay_scaling(
    arrivals: Sequence[Arrival], rule: ScalingRule, fleet: Fleet
) -> dict[str, ScalingReport]:
    """Return reports for the rule, for the rule without panic window, and for a fixed fleet.

    The fixed fleet has the largest number of replicas that the rule used.
    """
    scaled = _Simulation(arrivals, rule, fleet).run()
    plain = replace(rule, panic_seconds=rule.stable_seconds)
    size = max(1, scaled.max_replicas)
    fixed = replace(rule, min_replicas=size, max_replicas=size, schedule=())
    return {
        "rule": scaled,
        "without panic window": _Simulation(arrivals, plain, fleet).run(),
        "fixed fleet": _Simulation(arrivals, fixed, fleet).run(),
    }


class _Simulation:
    """Simulated fleet, which starts with the minimum and serves requests in order of arrival."""

    def __init__(self, arrivals: Sequence[Arrival], rule: ScalingRule, fleet: Fleet) -> None:
        self._arrivals = arrivals
        self._rule = rule
        self._fleet = fleet
        self._ready = self._wanted = rule.min_replicas
        self._serving = 0
        self._queue: deque[Arrival] = deque()
        self._ends: list[float] = []
        self._starting: deque[float] = deque()  # times at which replicas become ready
        self._samples: deque[LoadSample] = deque()
        self._waits: list[float] = []
        self._starts = self._cold_starts = 0
        self._most = self._ready
        self._replica_seconds = 0.0

    def run(self) -> ScalingReport:
        began = now = self._arrivals[0].at
        following = 0
        next_tick = began
        while following < len(self._arrivals) or self._queue or self._ends:
            at = min(
                next_tick,
                self._arrivals[following].at if following < len(self._arrivals) else math.inf,
                self._ends[0] if self._ends else math.inf,
                self._starting[0] if self._starting else math.inf,
            )
            self._replica_seconds += self._replicas() * (at - now)
            now = at
            if now > self._arrivals[-1].at + MAX_BACKLOG_SECONDS:
                raise InvalidRequest(
                    f"the replicas need more than {MAX_BACKLOG_SECONDS // 3600} hours after "
                    "the last arrival; raise max or the target",
                    field="rule",
                )
            while self._ends and self._ends[0] <= now:
                heappop(self._ends)
                self._serving -= 1
            while self._starting and self._starting[0] <= now:
                self._starting.popleft()
                self._ready += 1
            while following < len(self._arrivals) and self._arrivals[following].at <= now:
                self._queue.append(self._arrivals[following])
                following += 1
            self._serve(now)
            if now >= next_tick:
                self._scale(now)
                next_tick = now + TICK_SECONDS
        return self._report()

    def _replicas(self) -> int:
        """Return the number of replicas, including replicas that start or finish their requests."""
        finishing = math.ceil(self._serving / self._fleet.concurrency)
        return max(self._ready, finishing) + len(self._starting)

    def _serve(self, now: float) -> None:
        while self._queue and self._serving < self._ready * self._fleet.concurrency:
            arrival = self._queue.popleft()
            self._waits.append(now - arrival.at)
            self._serving += 1
            heappush(self._ends, now + arrival.seconds)

    def _scale(self, now: float) -> None:
        self._samples.append(LoadSample(now, self._serving + len(self._queue)))
        # Keep the last sample before the window, because its load applies at the start of the
        # window.
        oldest = now - self._rule.window_seconds
        while len(self._samples) > 1 and self._samples[1].at < oldest:
            self._samples.popleft()
        decision = desired_replicas(self._rule, self._samples, self._ready, now, self._wanted)
        self._wanted = decision.replicas
        existing = self._ready + len(self._starting)
        if self._wanted > existing:
            self._cold_starts += existing == 0
            self._starts += self._wanted - existing
            ready_at = now + self._fleet.startup_seconds
            self._starting.extend([ready_at] * (self._wanted - existing))
        for _ in range(existing - self._wanted):
            # Replicas that have not started yet are removed first.
            if self._starting:
                self._starting.pop()
            else:
                self._ready -= 1
        self._most = max(self._most, self._replicas())

    def _report(self) -> ScalingReport:
        waits = sorted(self._waits)
        return ScalingReport(
            requests=len(waits),
            cold_starts=self._cold_starts,
            starts=self._starts,
            max_replicas=self._most,
            mean_wait_seconds=round(sum(waits) / len(waits), 3),
            p99_wait_seconds=round(waits[math.ceil(0.99 * len(waits)) - 1], 3),
            gpu_hours=round(self._replica_seconds * self._fleet.gpus / 3600, 3),
        )
