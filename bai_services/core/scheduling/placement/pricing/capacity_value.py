"""Capacity values: the expected number of an agent's free devices that future requests will use,
given its free cpu and memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ..compiled.columns import Floats, Ints
from .mix import Mix, RequestKind
from .prices import Pattern

# Discount factor for each request that is skipped because a later request has more value.
SKIP_DISCOUNT = 0.93
# Minimum thousandths of a device that count as a request for the whole device.
_NEARLY_WHOLE = 800
# Number of cpu and memory combinations that are drawn for each way to fill a device with shares.
_DRAWS = 8
CPU_BINS, MEM_BINS = 192, 96
# Bins of tables with a reserve. Bins of the regular size cover 128 cores and 1 TiB, the size of a
# regular agent.
RESERVE_BINS = 256

# An item that occupies one device: cpu bins, memory bins, frequency.
Item = tuple[int, int, float]


def whole_device_items(mix: Mix, family: str, model: str, bins: tuple[int, int]) -> list[Item]:
    """Return the items of requests for one (nearly) whole device of a model."""
    return [
        (-(-kind.cpu // bins[0]), -(-kind.mem // bins[1]), weight)
        for kind, weight in mix.items()
        if kind.devices == 1 and kind.share >= _NEARLY_WHOLE and allows(kind, family, model)
    ]


def filled_device_items(
    mix: Mix, family: str, model: str, bins: tuple[int, int], patterns: Sequence[Pattern]
) -> list[Item]:
    """Return the ways to fill one device: requests for the whole device, and the patterns of
    shares.
    """
    usable = [
        (k, weight) for k, weight in mix.items() if k.devices == 1 and allows(k, family, model)
    ]
    items = [
        (-(-kind.cpu // bins[0]), -(-kind.mem // bins[1]), weight)
        for kind, weight in usable
        if kind.share == 1000
    ]
    state = 1
    for shares, times in patterns:
        kinds_by_share = {s: [(k, weight) for k, weight in usable if k.share == s] for s in shares}
        if not all(kinds_by_share.values()):
            continue
        for _ in range(_DRAWS):
            cpu = mem = 0
            for share, count in shares.items():
                for _ in range(count):
                    # A fixed pseudo-random sequence: equal mixes must result in equal tables.
                    state = state * 6364136223846793005 % 2**64 + 1442695040888963407
                    kind = _draw(kinds_by_share[share], (state >> 11) % 2**32 / 2**32)
                    cpu, mem = cpu + kind.cpu, mem + kind.mem
            items.append((-(-cpu // bins[0]), -(-mem // bins[1]), times / _DRAWS))
    return items


def split_multi_device_items(
    mix: Mix, family: str, model: str, bins: tuple[int, int]
) -> list[Item]:
    """Return each request for n devices as an item of one device with n times its frequency.

    Used if the mix has no other requests for the model.
    """
    return [
        (
            -(-kind.cpu // (kind.devices * bins[0])),
            -(-kind.mem // (kind.devices * bins[1])),
            weight * kind.devices,
        )
        for kind, weight in mix.items()
        if kind.devices > 1 and allows(kind, family, model)
    ]


def allows(kind: RequestKind, family: str, model: str) -> bool:
    """Return whether a kind of request may use a device model."""
    return kind.family == family and (not kind.models or model in kind.models)


def _draw(kinds: Sequence[tuple[RequestKind, float]], number: float) -> RequestKind:
    """Return a kind of request, drawn by weight; ``number`` is a random number in [0, 1)."""
    left = number * sum(weight for _, weight in kinds)
    for kind, weight in kinds:
        left -= weight
        if left < 0:
            return kind
    return kinds[-1][0]


def capacity_value_table(items: Sequence[Item], devices: int) -> Floats:
    """Return capacity values [cpu bins, memory bins, devices] for items of one device each."""
    merged: dict[tuple[int, int], float] = {}
    for cpu, mem, weight in items:
        merged[cpu, mem] = merged.get((cpu, mem), 0.0) + weight
    keys = sorted(merged)
    weights = np.array([merged[key] for key in keys])
    table: Floats = _solve(
        np.array(keys, np.int64), weights / weights.sum(), devices, CPU_BINS, MEM_BINS
    )
    return table


def with_reserve(
    values: Floats, mix: Mix, family: str, model: str, bins: tuple[int, int]
) -> Floats:
    """Return capacity values increased by the value of one multi-device request.

    Each kind of multi-device request adds its number of devices, weighted by its frequency among
    these kinds, to the cells in which it fits. The table is extended to ``RESERVE_BINS`` bins of
    cpu and memory.
    """
    several = {k: weight for k, weight in mix.items() if k.devices > 1 and allows(k, family, model)}
    total = sum(several.values())
    shape = (RESERVE_BINS + 1, RESERVE_BINS + 1)
    margins = [(0, new - old) for new, old in zip(shape, values.shape[:2], strict=True)]
    table: Floats = np.pad(values, [*margins, (0, 0)], mode="edge")
    for kind, weight in several.items():
        cpu = min(-(-kind.cpu // bins[0]), RESERVE_BINS)
        mem = min(-(-kind.mem // bins[1]), RESERVE_BINS)
        table[cpu:, mem:, kind.devices :] += weight / total * kind.devices
    return table


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(keys: Ints, weights: Floats, devices: int, cpu_bins: int, mem_bins: int) -> Floats:
    """Solve V = sum over items of weight * max(gain, SKIP_DISCOUNT * V) for each cell, by
    fixed-point iteration; the gain is one device plus the value of the remaining capacity.
    """
    table = np.zeros((cpu_bins + 1, mem_bins + 1, devices + 1))
    gains = np.zeros(weights.size)
    for k in range(1, devices + 1):
        for cpu in range(cpu_bins + 1):
            for mem in range(mem_bins + 1):
                max_gain = 0.0
                for i in range(weights.size):
                    gains[i] = 0.0
                    if keys[i, 0] <= cpu and keys[i, 1] <= mem:
                        gains[i] = 1.0 + table[cpu - keys[i, 0], mem - keys[i, 1], k - 1]
                    max_gain = max(max_gain, gains[i])
                value, change = max_gain, 1.0
                while change > 1e-6:
                    new = 0.0
                    for i in range(weights.size):
                        new += weights[i] * max(gains[i], SKIP_DISCOUNT * value)
                    change, value = value - new, new
                table[cpu, mem, k] = value
    return table
