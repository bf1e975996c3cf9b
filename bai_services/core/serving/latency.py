"""Histograms of latency: counts of requests by the upper bound of their class in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping

# Gateways have fewer classes; further classes are ignored.
MAX_CLASSES = 50
_ROUNDING = 1e-9


def merged(stored: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of two histograms; bounds that are not numbers are omitted."""
    total = {key: count for key, count in stored.items() if _bound(key) is not None}
    for key, count in new.items():
        if _bound(key) is not None and (key in total or len(total) < MAX_CLASSES):
            total[key] = total.get(key, 0) + count
    return total


def quantile(histogram: Mapping[str, int], share: float) -> float | None:
    """Return the latency quantile for a share of the requests; None if there are no requests.

    Requests are assumed to be spread evenly within a class, as in Prometheus.
    """
    classes = sorted(
        (bound, count)
        for key, count in histogram.items()
        if count > 0 and (bound := _bound(key)) is not None
    )
    rank = share * sum(count for _, count in classes)
    below, seen = 0.0, 0
    for bound, count in classes:
        if seen + count >= rank - _ROUNDING:
            return below + (bound - below) * (rank - seen) / count
        below, seen = bound, seen + count
    return classes[-1][0] if classes else None


def _bound(key: str) -> float | None:
    try:
        bound = float(key)
    except ValueError:
        return None
    return bound if math.isfinite(bound) and bound > 0 else None
