"""The rule of utilization checkers, computed for many sessions at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checkers import MEM_SUFFIX, UTIL_SUFFIX, CheckerSettings, Operator, metric_family
from .usage_table import UsageTable, Values

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SessionRows:
    """The rows of the kernels of several sessions in a usage table.

    ``starts`` has the position of each session's first kernel in ``rows``. ``families`` has a flag
    per device family and session: whether the session has devices of the family.
    """

    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    families: Mapping[str, Flags]

    @property
    def count(self) -> int:
        return len(self.starts)

    def window(self, table: UsageTable, metric: str, last: int) -> Values:
        """Return the means over the kernels of each session; NaN if one kernel has no value."""
        values = table.window(metric, self.rows, last)
        if len(self.rows) == len(self.starts):
            return values
        sums = np.add.reduceat(values, self.starts, axis=0)
        counts = np.diff(np.append(self.starts, len(self.rows)))
        return np.asarray(sums / counts[:, None], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class IdlePoints:
    """Masks of the intervals of each session: known to be idle, and known not to be idle."""

    idle: Flags
    active: Flags
    values: Mapping[str, Values]


def idle_points(
    table: UsageTable, sessions: SessionRows, settings: CheckerSettings, last: int
) -> IdlePoints:
    """Return which intervals of the table, up to ``last``, are idle for each session.

    Thresholds for devices that a session does not have are skipped. A missing value is neither
    below nor above its threshold. If a device family has thresholds for memory and utilization, but
    the table has only its memory, the threshold for utilization is skipped.
    """
    shape = (sessions.count, table.points)
    has_any = np.zeros(sessions.count, dtype=np.bool_)
    all_below, any_below = np.ones(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    all_above, any_above = np.ones(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    windows: dict[str, Values] = {}
    for metric, limit in settings.thresholds.items():
        if _is_judged_by_memory(table, metric, settings):
            continue
        family = metric_family(metric)
        has = None if family is None else sessions.families.get(family)
        if family is not None and has is None:
            continue
        values = windows[metric] = sessions.window(table, metric, last)
        below, above = values < limit, values >= limit
        if has is None:
            has_any[:] = True
            all_below &= below
            all_above &= above
        else:
            has_any |= has
            lacks = ~has[:, None]
            all_below &= below | lacks
            all_above &= above | lacks
            below &= ~lacks
            above &= ~lacks
        any_below |= below
        any_above |= above
    if settings.operator is Operator.AND:
        idle, active = all_below, any_above
    else:
        idle, active = any_below, all_above
    return IdlePoints(idle & has_any[:, None], active & has_any[:, None], windows)


def _is_judged_by_memory(table: UsageTable, metric: str, settings: CheckerSettings) -> bool:
    family = metric_family(metric)
    if family is None or not metric.endswith(UTIL_SUFFIX):
        return False
    memory = f"{family}{MEM_SUFFIX}"
    return (
        memory in settings.thresholds and table.has_metric(memory) and not table.has_metric(metric)
    )


def needed_points(points: int, idle_percent: int) -> int:
    """Return the number of ``points`` intervals that must be idle."""
    return max(math.ceil(points * idle_percent / 100), 1)


def points_left(idle: Flags, points: Counts, needed: Counts) -> Counts:
    """Return, for each session, the number of further idle intervals that make its window idle.

    The window of a session has the last ``points`` columns. It is idle if at least ``needed``
    columns are idle.
    """
    tail = np.zeros((len(idle), idle.shape[1] + 1), dtype=np.int32)
    np.cumsum(idle[:, ::-1], axis=1, out=tail[:, 1:])
    each = np.arange(len(idle))
    low, high = np.zeros(len(idle), dtype=np.int64), needed.copy()
    # Each further interval adds one idle interval to the window and removes at most one. The number
    # of idle intervals therefore never decreases, and a binary search finds the first solution.
    while np.any(low < high):
        middle = (low + high) // 2
        is_enough = tail[each, points - middle] + middle >= needed
        high = np.where(is_enough, middle, high)
        low = np.where(is_enough, low, np.minimum(middle + 1, high))
    return low
