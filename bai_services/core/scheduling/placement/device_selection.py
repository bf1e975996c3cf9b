"""Choose the devices of one agent (compiled; search.py explains why nothing is cached here)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...cluster.device_sharing import ANY_SHARE
from .columns import (
    ANY,
    CAPACITY,
    FAMILY,
    IN_FORCE,
    LEAST,
    LINK,
    MAX_SHARE,
    MIN_SHARE,
    MODEL,
    NEED_AMOUNT,
    NEED_FAMILY,
    NEED_MODELS,
    NUMA,
    PICK_AMOUNT,
    PICK_DEVICE,
    PICK_KERNEL,
    PICK_NEED,
    STEP,
    UNIT,
)

# Exact search limit: devices whose minimum parts differ; 16 devices give 65,536 subsets.
MAX_EXACT = 16


def inner(function: Any) -> Any:
    """Compile a function that only compiled code calls; search.py caches the outermost ones on
    disk.
    """
    return njit(function, nogil=True, error_model="numpy")


def inlined(function: Any) -> Any:
    """Compile a small function into its callers."""
    return njit(function, nogil=True, error_model="numpy", forceinline=True)


def spliced(function: Any) -> Any:
    """Inline a function into its only caller before compilation.

    A function that is compiled by itself is optimised again in each caller up to the outermost.
    """
    return njit(function, nogil=True, error_model="numpy", inline="always")


@inlined
def allowed(models, model):  # type: ignore[no-untyped-def]
    return models == ANY or (model < 62 and (models >> model) & 1 == 1)


@inlined
def bears(facts, j, need, part):  # type: ignore[no-untyped-def]
    """Return whether a device may serve ``part`` of a request for that much of it."""
    amount, most, in_force = need[NEED_AMOUNT], facts[j, MAX_SHARE], facts[j, IN_FORCE]
    is_split_at_will = part == amount or most >= ANY_SHARE
    is_alike = in_force <= 0 or in_force == part
    return facts[j, MIN_SHARE] <= part and amount <= most and is_split_at_will and is_alike


@inlined
def serves(facts, j, need):  # type: ignore[no-untyped-def]
    return facts[j, FAMILY] == need[NEED_FAMILY] and allowed(need[NEED_MODELS], facts[j, MODEL])


@inlined
def is_whole(free, facts, j):  # type: ignore[no-untyped-def]
    return free[j] == facts[j, CAPACITY] and free[j] >= UNIT


@inner
def count_whole(free, facts, need, column, key):  # type: ignore[no-untyped-def]
    """Return how many wholly free devices serve a need (of one NUMA node or link group)."""
    count = 0
    for j in range(free.size):
        if (key == ANY or facts[j, column] == key) and serves(facts, j, need):
            count += is_whole(free, facts, j)
    return count


@inner
def nearest(free, facts, need, column):  # type: ignore[no-untyped-def]
    """Return the smallest group of close devices that can hold the whole need, or ANY."""
    chosen, least = ANY, free.size + 1
    for j in range(free.size):
        key = facts[j, column]
        if key >= 0 and serves(facts, j, need) and is_whole(free, facts, j):
            count = count_whole(free, facts, need, column, key)
            if need[NEED_AMOUNT] <= count < least:
                chosen, least = key, count
    return chosen


@inner
def largest(free, facts, need):  # type: ignore[no-untyped-def]
    """Return the NUMA node with the most wholly free devices, to span as few nodes as possible."""
    chosen, most = ANY, 0
    for j in range(free.size):
        if serves(facts, j, need) and is_whole(free, facts, j):
            count = count_whole(free, facts, need, NUMA, facts[j, NUMA])
            if count > most:
                chosen, most = facts[j, NUMA], count
    return chosen


@inner
def take_device(free, picks, at, kernel, need, j, amount):  # type: ignore[no-untyped-def]
    picks[at, PICK_KERNEL], picks[at, PICK_NEED] = kernel, need
    picks[at, PICK_DEVICE], picks[at, PICK_AMOUNT] = j, amount
    free[j] -= amount
    return at + 1


@inner
def pick_whole(free, facts, has_graph, need, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Take wholly free devices, close to each other; return the number of picks, or -1."""
    left = need[NEED_AMOUNT]
    if count_whole(free, facts, need, NUMA, ANY) < left:
        return -1
    column, key = NUMA, ANY
    if has_graph:
        column, key = LINK, nearest(free, facts, need, LINK)
        if key == ANY:
            column, key = NUMA, nearest(free, facts, need, NUMA)
        if key == ANY:
            key = largest(free, facts, need)
    while left > 0:
        for j in range(free.size):
            close = key == ANY or facts[j, column] == key
            if left > 0 and close and serves(facts, j, need) and is_whole(free, facts, j):
                at = take_device(free, picks, at, kernel, i, j, UNIT)
                left -= 1
        if left > 0:
            column, key = NUMA, largest(free, facts, need)
    return at


@inner
def closeness(facts, picks, count):  # type: ignore[no-untyped-def]
    """Return 2 if a kernel's devices share a link group, 1 if they share a NUMA node or none is
    known.
    """
    grade, first = 2, 0
    for at in range(1, count):
        if (
            picks[at, PICK_KERNEL] != picks[first, PICK_KERNEL]
            or picks[at, PICK_NEED] != picks[first, PICK_NEED]
        ):
            first = at
            continue
        a, b = picks[first, PICK_DEVICE], picks[at, PICK_DEVICE]
        if facts[a, LINK] < 0 or facts[a, LINK] != facts[b, LINK]:
            grade = min(grade, 1)
            if facts[a, NUMA] != facts[b, NUMA]:
                grade = 0
    return grade


@inner
def pick_room(free, facts, need, part, picks, first, at, largest_first):  # type: ignore[no-untyped-def]
    """Return the unused device with the least (or most) room for a part, or -1 if there is none."""
    chosen = -1
    for j in range(free.size):
        if free[j] < part or not serves(facts, j, need) or not bears(facts, j, need, part):
            continue
        is_taken = False
        for earlier in range(first, at):
            is_taken = is_taken or picks[earlier, PICK_DEVICE] == j
        if is_taken:
            continue
        if chosen < 0 or (free[j] > free[chosen] if largest_first else free[j] < free[chosen]):
            chosen = j
    return chosen


@inner
def count_rooms(free, facts, need, part):  # type: ignore[no-untyped-def]
    count = 0
    for j in range(free.size):
        count += free[j] >= part and serves(facts, j, need) and bears(facts, j, need, part)
    return count


@inner
def give_back_picks(free, picks, first, at):  # type: ignore[no-untyped-def]
    for taken in range(first, at):
        free[picks[taken, PICK_DEVICE]] += picks[taken, PICK_AMOUNT]


@inner
def choose_split(low, high, count, amount):  # type: ignore[no-untyped-def]
    """Return as a bit mask the fewest devices that can share a quantity; 0 if none can.

    ``low`` and ``high`` bound the part of each device, ordered by descending ``high``. Exact for up
    to ``MAX_EXACT`` devices, and for any number where all have the same ``low``.
    """
    lows, highs, is_uniform = 0, 0, True
    for k in range(min(count, 62)):
        lows, highs = lows + low[k], highs + high[k]
        is_uniform = is_uniform and low[k] == low[0]
        if lows <= amount <= highs:
            return (1 << (k + 1)) - 1
    if highs < amount or is_uniform or count > MAX_EXACT:
        return 0
    chosen, fewest = 0, count + 1
    for bits in range(1, 1 << count):
        lows, highs, size = 0, 0, 0
        for k in range(count):
            if (bits >> k) & 1:
                lows, highs, size = lows + low[k], highs + high[k], size + 1
        if size < fewest and lows <= amount <= highs:
            chosen, fewest = bits, size
    return chosen


@inner
def pick_split(free, facts, need, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Divide a share over devices if that is possible at all; return the number of picks, or -1."""
    amount, count = need[NEED_AMOUNT], 0
    which = np.empty(free.size, np.int64)
    low, high = np.empty(free.size, np.int64), np.empty(free.size, np.int64)
    for j in range(free.size):
        least = -(-max(LEAST, facts[j, MIN_SHARE]) // STEP) * STEP
        most = min(UNIT, free[j] // STEP * STEP)
        if facts[j, IN_FORCE] > 0:
            least, most = max(least, facts[j, IN_FORCE]), min(most, facts[j, IN_FORCE])
        if most < least or not serves(facts, j, need) or not bears(facts, j, need, least):
            continue
        k = count
        while k > 0 and high[k - 1] < most:
            which[k], low[k], high[k] = which[k - 1], low[k - 1], high[k - 1]
            k -= 1
        which[k], low[k], high[k] = j, least, most
        count += 1
    bits = choose_split(low, high, count, amount)
    if bits == 0:
        return -1
    left, lows = amount, 0
    for k in range(min(count, 62)):
        lows += low[k] if (bits >> k) & 1 else 0
    for k in range(min(count, 62)):
        if (bits >> k) & 1:
            lows -= low[k]
            part = min(high[k], left - lows)
            at = take_device(free, picks, at, kernel, i, which[k], part)
            left -= part
    return at


@inner
def pick_filling(free, facts, need, wholly, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Fill devices one after the other, else divide in any possible way; return -1 if
    impossible.
    """
    found = fill_in_order(free, facts, need, wholly, picks, at, kernel, i)
    if found < 0 and not wholly:
        found = pick_split(free, facts, need, picks, at, kernel, i)
    return found


@inner
def fill_in_order(free, facts, need, wholly, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Fill one device after the other, the emptiest first; ``wholly``: all but the last whole."""
    left, first = need[NEED_AMOUNT], at
    while left > 0:
        last = left <= UNIT
        part = left if last else UNIT
        j = pick_room(free, facts, need, part, picks, first, at, not last)
        if j < 0 and not wholly:
            j = pick_room(free, facts, need, LEAST, picks, first, at, True)
            part = min(part, free[j] // STEP * STEP) if j >= 0 else 0
        if 0 < left - part < LEAST:
            part = left - LEAST
        if j < 0 or part < LEAST < left or not bears(facts, j, need, part):
            give_back_picks(free, picks, first, at)
            return -1
        at = take_device(free, picks, at, kernel, i, j, part)
        left -= part
    return at
