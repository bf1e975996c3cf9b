"""Measures of a replay: wait times, slowdowns, utilization, fairness and fragmentation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.devices import thousandths
from ...resources import CPU
from ..placement import AgentState
from .simulate import Outcome, Replay

Floats = NDArray[np.float64]

# Minimum divisor of the bounded slowdown, in seconds. Without it, a very short job with a short
# wait would dominate the mean.
SHORTEST_SECONDS = 10
# Maximum length of the report's list of jobs that never started.
_MAX_NAMED = 20


def report(replayed: Replay) -> dict[str, Any]:
    """Return the measures of a replay as one JSON object; times are in seconds."""
    started = [o for o in replayed.outcomes if o.started is not None]
    never = [o.job.id for o in replayed.outcomes if o.started is None]
    waits = np.array([o.waited for o in started], np.float64)
    first = min((o.job.submitted for o in replayed.outcomes), default=0)
    last = max((_end(o) for o in started), default=first)
    return {
        "jobs": len(replayed.outcomes),
        "started": len(started),
        "never_started": len(never),
        "never_started_first": [
            {"id": name, "reasons": list(replayed.reasons.get(name, ()))}
            for name in never[:_MAX_NAMED]
        ],
        "passes": replayed.passes,
        "makespan_seconds": last - first,
        "wait_seconds": spread(waits),
        "bounded_slowdown": spread(np.array([slowdown(o) for o in started], np.float64)),
        "utilization_percent": _utilization(replayed.agents, started, last - first),
        "fragmentation_percent": _fragmentation(replayed),
        "fairness": _fairness(started),
    }


def slowdown(outcome: Outcome) -> float:
    """Return the bounded slowdown of a started job.

    It is (wait + run time) / max(run time, ``SHORTEST_SECONDS``), but at least 1.
    """
    wait = outcome.waited or 0
    run = outcome.job.seconds
    return max(1.0, (wait + run) / max(run, SHORTEST_SECONDS))


def _end(outcome: Outcome) -> int:
    return (outcome.started or 0) + outcome.job.seconds


def spread(values: Floats) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum of values."""
    if not values.size:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0, "max": 0.0}
    return {
        "mean": round(float(values.mean()), 3),
        "median": round(float(np.median(values)), 3),
        "p95": round(float(np.quantile(values, 0.95)), 3),
        "max": round(float(values.max()), 3),
    }


def use_of(outcome: Outcome) -> dict[str, int]:
    """Return the usage of a running job: cpu in millicores, devices in thousandths by family."""
    used: dict[str, int] = defaultdict(int)
    for placement in outcome.placements:
        used[CPU] += placement.slots.get(CPU, 0)
        for device in placement.devices:
            used[device.slot.partition(".")[0]] += thousandths(device.slot, device.amount)
    return used


def total_capacity_of(agents: Iterable[AgentState]) -> dict[str, int]:
    """Return the capacity of all agents, in the units of ``use_of``."""
    capacity: dict[str, int] = defaultdict(int)
    for agent in agents:
        capacity[CPU] += agent.capacity.get(CPU, 0)
        for device in agent.devices:
            capacity[device.family] += device.capacity
    return capacity


def _utilization(
    agents: Sequence[AgentState], started: Iterable[Outcome], span: int
) -> dict[str, float]:
    held: dict[str, int] = defaultdict(int)
    for outcome in started:
        for name, amount in use_of(outcome).items():
            held[name] += amount * outcome.job.seconds
    return {
        name: round(100 * held[name] / (amount * span), 2) if amount and span else 0.0
        for name, amount in sorted(total_capacity_of(agents).items())
    }


def _fragmentation(replayed: Replay) -> dict[str, float]:
    """Return the mean and maximum percentage of device capacity that is free but unusable for a
    typical request.
    """
    highest = max((100 * sample.fragmentation for sample in replayed.samples), default=0.0)
    return {"mean": mean_fragmentation(replayed), "max": round(highest, 2)}


def mean_fragmentation(replayed: Replay) -> float:
    """Return the mean percentage, weighted by time; see ``_fragmentation``."""
    samples = replayed.samples
    if not samples:
        return 0.0
    values = [100 * sample.fragmentation for sample in samples]
    spans = [after.seconds - before.seconds for before, after in pairwise(samples)]
    total = sum(spans)
    mean = sum(v * s for v, s in zip(values, spans, strict=False)) / total if total else values[0]
    return round(mean, 2)


def _fairness(started: Iterable[Outcome]) -> dict[str, float]:
    """Return Jain's index of the mean bounded slowdowns of the users (1: all equal), and the
    largest of these means.
    """
    by_user: dict[str, list[float]] = defaultdict(list)
    for outcome in started:
        by_user[outcome.job.user].append(slowdown(outcome))
    means = np.array([sum(values) / len(values) for values in by_user.values()], np.float64)
    if not means.size:
        return {"users": 0, "jain_index": 1.0, "worst_user_slowdown": 0.0}
    index = float(means.sum() ** 2 / (means.size * (means**2).sum()))
    return {
        "users": int(means.size),
        "jain_index": round(index, 4),
        "worst_user_slowdown": round(float(means.max()), 3),
    }


def use_over_time(replayed: Replay) -> Mapping[str, tuple[list[int], list[float]]]:
    """Return usage as a step function per resource: times in seconds, and the percentage used from
    each time on.
    """
    changes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for outcome in replayed.outcomes:
        if outcome.started is None:
            continue
        for name, amount in use_of(outcome).items():
            changes[name][outcome.started] += amount
            changes[name][_end(outcome)] -= amount
    capacity = total_capacity_of(replayed.agents)
    percentages = {}
    for name, steps in sorted(changes.items()):
        times = sorted(steps)
        used = np.cumsum([steps[at] for at in times])
        percentages[name] = (times, (100 * used / max(1, capacity[name])).tolist())
    return percentages
