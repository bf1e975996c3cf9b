"""Expected number of devices that an agent can still sell, given its free cpu and memory: table
W.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from .columns import Floats, Ints
from .mix import Mix, RequestKind
from .prices import Pattern

# Discount factor per arrival that is skipped while waiting for a suitable one.
GAMMA = 0.93
# Thousandths of a device from which a request counts as one for the whole device.
_NEARLY_WHOLE = 800
_DRAWS = 8
CPU_BINS, MEM_BINS = 192, 96
# Enough for 128 cores and 1 TiB, so that a request for a whole machine is still representable.
RESERVE_BINS = 256

# One item that occupies a device: cpu bins, mem bins, frequency.
Item = tuple[int, int, float]


def row_items(mix: Mix, family: str, model: str, bins: tuple[int, int]) -> list[Item]:
    """Return the requests for (nearly) one whole device that may use a model."""
    return [
        (-(-kind.cpu // bins[0]), -(-kind.mem // bins[1]), weight)
        for kind, weight in mix.items()
        if kind.devices == 1 and kind.share >= _NEARLY_WHOLE and allows(kind, family, model)
    ]


def bundle_items(
    mix: Mix, family: str, model: str, bins: tuple[int, int], patterns: Sequence[Pattern]
) -> list[Item]:
    """Return the ways to fill one device: whole requests, and shares combined by the patterns."""
    mine = [(k, w) for k, w in mix.items() if k.devices == 1 and allows(k, family, model)]
    items = [
        (-(-kind.cpu // bins[0]), -(-kind.mem // bins[1]), weight)
        for kind, weight in mine
        if kind.share == 1000
    ]
    state = 1
    for shares, times in patterns:
        pools = {s: [(k, w) for k, w in mine if k.share == s] for s in shares}
        if not all(pools.values()):
            continue
        for _ in range(_DRAWS):
            cpu = mem = 0
            for share, count in shares.items():
                for _ in range(count):
                    # A fixed sequence, so that the same mix always gives the same table.
                    state = state * 6364136223846793005 % 2**64 + 1442695040888963407
                    kind = _draw(pools[share], (state >> 11) % 2**32 / 2**32)
                    cpu, mem = cpu + kind.cpu, mem + kind.mem
            items.append((-(-cpu // bins[0]), -(-mem // bins[1]), times / _DRAWS))
    return items


def multi_items(mix: Mix, family: str, model: str, bins: tuple[int, int]) -> list[Item]:
    """Return each request for n devices as n items of one device; used when there are no others."""
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


def _draw(pool: Sequence[tuple[RequestKind, float]], at: float) -> RequestKind:
    left = at * sum(weight for _, weight in pool)
    for kind, weight in pool:
        left -= weight
        if left < 0:
            return kind
    return pool[-1][0]


def worth_table(items: Sequence[Item], devices: int) -> Floats:
    """Return W[cpu bins][mem bins][devices] for items that take one device each."""
    merged: dict[tuple[int, int], float] = {}
    for cpu, mem, weight in items:
        merged[cpu, mem] = merged.get((cpu, mem), 0.0) + weight
    keys = sorted(merged)
    weights = np.array([merged[key] for key in keys])
    table: Floats = _solve(
        np.array(keys, np.int64), weights / weights.sum(), devices, CPU_BINS, MEM_BINS
    )
    return table


def with_reserve(worth: Floats, mix: Mix, family: str, model: str, bins: tuple[int, int]) -> Floats:
    """Return W plus the number of multi-device requests that could still be placed.

    The added term is an expectation: every multi-device request of the mix that fits counts its
    devices, weighted by its frequency among these requests. The bins are extended to the largest of
    these requests.
    """
    several = {k: w for k, w in mix.items() if k.devices > 1 and allows(k, family, model)}
    total = sum(several.values())
    shape = (RESERVE_BINS + 1, RESERVE_BINS + 1)
    margins = [(0, most - size) for most, size in zip(shape, worth.shape[:2], strict=True)]
    table: Floats = np.pad(worth, [*margins, (0, 0)], mode="edge")
    for kind, weight in several.items():
        cpu = min(-(-kind.cpu // bins[0]), RESERVE_BINS)
        mem = min(-(-kind.mem // bins[1]), RESERVE_BINS)
        table[cpu:, mem:, kind.devices :] += weight / total * kind.devices
    return table


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(keys: Ints, weights: Floats, devices: int, cpu_bins: int, mem_bins: int) -> Floats:
    """Solve W = sum of p times max(a, gamma W), cell by cell, by fixed-point iteration."""
    table = np.zeros((cpu_bins + 1, mem_bins + 1, devices + 1))
    gains = np.zeros(weights.size)
    for k in range(1, devices + 1):
        for cpu in range(cpu_bins + 1):
            for mem in range(mem_bins + 1):
                most = 0.0
                for i in range(weights.size):
                    gains[i] = 0.0
                    if keys[i, 0] <= cpu and keys[i, 1] <= mem:
                        gains[i] = 1.0 + table[cpu - keys[i, 0], mem - keys[i, 1], k - 1]
                    most = max(most, gains[i])
                worth, change = most, 1.0
                while change > 1e-6:
                    new = 0.0
                    for i in range(weights.size):
                        new += weights[i] * max(gains[i], GAMMA * worth)
                    change, worth = worth - new, new
                table[cpu, mem, k] = worth
    return table
