"""Values of shares and remainders of a device, from the dual prices of a cutting-stock problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....resources import SHARE_STEP, SHARE_UNIT
from ..compiled.columns import Floats, Ints

# Factor on the value of parts: a whole device is worth more than the sum of its parts, so
# placements first fill devices that are already partly used.
PART_DISCOUNT = 0.95

_EPSILON = 1e-9
_DEVICE_STEPS = SHARE_UNIT // SHARE_STEP

# A pattern: the count of each share on one device, and the number of devices with this pattern.
Pattern = tuple[dict[int, int], float]


def share_prices(demand: Mapping[int, float]) -> tuple[dict[int, float], list[Pattern]]:
    """Return the price of each share as a fraction of a device, and the patterns of the solution.

    A linear program over all patterns (ways to cut a device) minimizes the number of devices for
    the demand. Its dual values are the prices. Column generation creates patterns when needed.
    Shares are multiples of ``SHARE_STEP``.
    """
    sizes = [s for s in sorted(demand) if demand[s] > 0]
    if not sizes:
        return {}, []
    widths = np.array([s // SHARE_STEP for s in sizes])
    wanted = np.array([demand[s] for s in sizes], np.float64)
    # Perturb the demands: with equal demands, the simplex method could cycle.
    wanted = wanted / wanted.sum() * (1 + 1e-7 * np.arange(len(sizes)))
    basis = np.diag((_DEVICE_STEPS // widths).astype(np.float64))
    costs = np.ones(len(sizes))
    prices: Any = np.zeros(len(sizes))
    for _ in range(100 * len(sizes)):
        prices = np.linalg.solve(basis.T, costs)
        column, cost = _entering(prices, widths)
        if column is None:
            break
        direction = np.linalg.solve(basis, column)
        amounts = np.linalg.solve(basis, wanted)
        ratios = np.where(
            direction > _EPSILON, amounts / np.where(direction > _EPSILON, direction, 1), np.inf
        )
        leaving = int(np.argmin(ratios))
        basis[:, leaving], costs[leaving] = column, cost
    amounts = np.linalg.solve(basis, wanted) * sum(demand.values())
    patterns = [
        ({s: round(n) for s, n in zip(sizes, basis[:, i], strict=True) if n > 0}, float(amounts[i]))
        for i in range(len(sizes))
        if costs[i] > 0 and amounts[i] > _EPSILON
    ]
    clipped = np.clip(prices, 0.0, 1.0)
    return {s: float(p) for s, p in zip(sizes, clipped, strict=True)}, patterns


def _entering(prices: Floats, widths: Ints) -> tuple[Floats | None, float]:
    """Return the column that enters the basis, and its cost in devices; None at the optimum."""
    lowest = int(np.argmin(prices))
    if prices[lowest] < -_EPSILON:
        surplus = np.zeros(prices.size)
        surplus[lowest] = -1.0
        return surplus, 0.0
    pattern, value = _most_valuable_pattern(prices, widths)
    return (pattern, 1.0) if value > 1 + _EPSILON else (None, 0.0)


def _most_valuable_pattern(prices: Floats, widths: Ints) -> tuple[Floats, float]:
    """Return the most valuable way to cut a device at these prices (a knapsack problem)."""
    best = np.zeros(_DEVICE_STEPS + 1)
    last = np.full(_DEVICE_STEPS + 1, -1)
    for steps in range(1, _DEVICE_STEPS + 1):
        best[steps] = best[steps - 1]
        fitting = np.flatnonzero(widths <= steps)
        if fitting.size:
            values = best[steps - widths[fitting]] + prices[fitting]
            index = int(np.argmax(values))
            if values[index] > best[steps] + _EPSILON:
                best[steps], last[steps] = values[index], fitting[index]
    pattern = np.zeros(prices.size)
    steps = _DEVICE_STEPS
    while steps > 0:
        if last[steps] < 0:
            steps -= 1
            continue
        pattern[last[steps]] += 1
        steps -= int(widths[last[steps]])
    return pattern, float(best[_DEVICE_STEPS])


def remainder_values(prices: Mapping[int, float]) -> Floats:
    """Return the value of a device for 0 to 1000 free thousandths; the last value is 1."""
    value = np.zeros(SHARE_UNIT + 1)
    for free in range(1, SHARE_UNIT):
        best = value[free - 1]
        for size, price in prices.items():
            if size <= free:
                best = max(best, value[free - size] + PART_DISCOUNT * price)
        value[free] = min(1.0, best)
    value[SHARE_UNIT] = 1.0
    return value
