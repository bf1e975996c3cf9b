"""Choose devices of one agent for a request (compiled; columns.py explains recurring names).

These functions are not cached on disk separately; see ``compile_entry_points`` in search.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ....cluster.device_sharing import ANY_SHARE
from .columns import (
    ANY,
    CAPACITY,
    FAMILY,
    IN_FORCE,
    LINK,
    MAX_SHARE,
    MIN_PART,
    MIN_SHARE,
    MODEL,
    NEED_AMOUNT,
    NEED_FAMILY,
    NEED_MODELS,
    NUMA,
    PART_STEP,
    PICK_AMOUNT,
    PICK_DEVICE,
    PICK_KERNEL,
    PICK_NEED,
    UNIT,
)

# Maximum number of devices for the exact search of ``choose_split``: 16 devices have 65,536
# subsets.
MAX_EXACT = 16


def inner(function: Any) -> Any:
    """Compile a function that only compiled code calls."""
    return njit(function, nogil=True, error_model="numpy")


def inlined(function: Any) -> Any:
    """Compile a small function that the compiler always inlines into its callers."""
    return njit(function, nogil=True, error_model="numpy", forceinline=True)


def spliced(function: Any) -> Any:
    """Inline a function into its callers before compilation (Numba's ``inline="always"``).

    Use it for functions with one or two call sites. This saves compile time: a separately compiled
    function is optimized again in each caller.
    """
    return njit(function, nogil=True, error_model="numpy", inline="always")


@inlined
def is_model_allowed(models, model):  # type: ignore[no-untyped-def]
    """Return whether a bit mask of models contains a model number; ANY contains all models."""
    return models == ANY or (model < 62 and (models >> model) & 1 == 1)


@inlined
def may_hold_part(facts, j, need, part):  # type: ignore[no-untyped-def]
    """Return whether the sharing rules of a device permit ``part`` thousandths of a need.

    ``part`` is less than the requested amount if the need is divided over several devices.
    """
    amount, max_share, in_force = need[NEED_AMOUNT], facts[j, MAX_SHARE], facts[j, IN_FORCE]
    may_divide = part == amount or max_share >= ANY_SHARE
    is_equal_share = in_force <= 0 or in_force == part
    return facts[j, MIN_SHARE] <= part and amount <= max_share and may_divide and is_equal_share


@inlined
def is_suitable(facts, j, need):  # type: ignore[no-untyped-def]
    """Return whether a device has the family and a model of a need."""
    return facts[j, FAMILY] == need[NEED_FAMILY] and is_model_allowed(
        need[NEED_MODELS], facts[j, MODEL]
    )


@inlined
def is_whole(free, facts, j):  # type: ignore[no-untyped-def]
    return free[j] == facts[j, CAPACITY] and free[j] >= UNIT


@inner
def count_whole(free, facts, need, column, key):  # type: ignore[no-untyped-def]
    """Return the number of wholly free devices that suit a need.

    ``column`` (NUMA or LINK) and ``key`` select a NUMA node or link group; ANY: all devices.
    """
    count = 0
    for j in range(free.size):
        if (key == ANY or facts[j, column] == key) and is_suitable(facts, j, need):
            count += is_whole(free, facts, j)
    return count


@inner
def smallest_close_group(free, facts, need, column):  # type: ignore[no-untyped-def]
    """Return the link group or NUMA node (``column``) with the fewest wholly free devices that are
    enough for the need; ANY if no group or node has enough.
    """
    best_key, best_count = ANY, free.size + 1
    for j in range(free.size):
        key = facts[j, column]
        if key >= 0 and is_suitable(facts, j, need) and is_whole(free, facts, j):
            count = count_whole(free, facts, need, column, key)
            if need[NEED_AMOUNT] <= count < best_count:
                best_key, best_count = key, count
    return best_key


@inner
def largest_numa_node(free, facts, need):  # type: ignore[no-untyped-def]
    """Return the NUMA node with the most wholly free devices, so that few nodes are used."""
    best_node, best_count = ANY, 0
    for j in range(free.size):
        if is_suitable(facts, j, need) and is_whole(free, facts, j):
            count = count_whole(free, facts, need, NUMA, facts[j, NUMA])
            if count > best_count:
                best_node, best_count = facts[j, NUMA], count
    return best_node


@inner
def add_pick(free, picks, at, kernel, i, j, amount):  # type: ignore[no-untyped-def]
    """Append a pick, subtract it from ``free`` and return the next index."""
    picks[at, PICK_KERNEL], picks[at, PICK_NEED] = kernel, i
    picks[at, PICK_DEVICE], picks[at, PICK_AMOUNT] = j, amount
    free[j] -= amount
    return at + 1


@inner
def pick_whole(free, facts, has_graph, need, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Pick wholly free devices; with ``has_graph``, prefer devices that are close to each other.

    Return the next index, or -1.
    """
    left = need[NEED_AMOUNT]
    if count_whole(free, facts, need, NUMA, ANY) < left:
        return -1
    column, key = NUMA, ANY
    if has_graph:
        column, key = LINK, smallest_close_group(free, facts, need, LINK)
        if key == ANY:
            column, key = NUMA, smallest_close_group(free, facts, need, NUMA)
        if key == ANY:
            key = largest_numa_node(free, facts, need)
    while left > 0:
        for j in range(free.size):
            is_close = key == ANY or facts[j, column] == key
            if left > 0 and is_close and is_suitable(facts, j, need) and is_whole(free, facts, j):
                at = add_pick(free, picks, at, kernel, i, j, UNIT)
                left -= 1
        if left > 0:
            column, key = NUMA, largest_numa_node(free, facts, need)
    return at


@inner
def closeness(facts, picks, count):  # type: ignore[no-untyped-def]
    """Return the lowest closeness grade among the groups of picks, one group per kernel and need.

    2: the devices are in one link group. 1: they are in one NUMA node, or the topology is unknown.
    0: they are in several NUMA nodes.
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
def find_device(free, facts, need, part, picks, first, at, largest_first):  # type: ignore[no-untyped-def]
    """Return the device with the least (``largest_first``: most) free capacity on which a part
    fits, or -1; exclude the devices of picks ``first`` to ``at``.
    """
    best_device = -1
    for j in range(free.size):
        if (
            free[j] < part
            or not is_suitable(facts, j, need)
            or not may_hold_part(facts, j, need, part)
        ):
            continue
        is_picked = False
        for earlier in range(first, at):
            is_picked = is_picked or picks[earlier, PICK_DEVICE] == j
        if is_picked:
            continue
        if best_device < 0 or (
            free[j] > free[best_device] if largest_first else free[j] < free[best_device]
        ):
            best_device = j
    return best_device


@inner
def count_devices_for(free, facts, need, part):  # type: ignore[no-untyped-def]
    """Return the number of devices on which a part fits."""
    count = 0
    for j in range(free.size):
        count += (
            free[j] >= part and is_suitable(facts, j, need) and may_hold_part(facts, j, need, part)
        )
    return count


@inner
def undo_picks(free, picks, first, at):  # type: ignore[no-untyped-def]
    """Return the amounts of the picks from ``first`` to ``at`` (exclusive) to ``free``."""
    for pick in range(first, at):
        free[picks[pick, PICK_DEVICE]] += picks[pick, PICK_AMOUNT]


@inner
def choose_split(low, high, count, amount):  # type: ignore[no-untyped-def]
    """Return a bit mask of the fewest devices over which an amount can be divided; 0 if impossible.

    ``low`` and ``high`` are the smallest and largest part of each device, by descending ``high``.
    With more than ``MAX_EXACT`` devices that differ in ``low``, a solution may exist although 0 is
    returned.
    """
    lows, highs, is_uniform = 0, 0, True
    for k in range(min(count, 62)):
        lows, highs = lows + low[k], highs + high[k]
        is_uniform = is_uniform and low[k] == low[0]
        if lows <= amount <= highs:
            return (1 << (k + 1)) - 1
    if highs < amount or is_uniform or count > MAX_EXACT:
        return 0
    best_bits, best_size = 0, count + 1
    for bits in range(1, 1 << count):
        lows, highs, size = 0, 0, 0
        for k in range(count):
            if (bits >> k) & 1:
                lows, highs, size = lows + low[k], highs + high[k], size + 1
        if size < best_size and lows <= amount <= highs:
            best_bits, best_size = bits, size
    return best_bits


@inner
def pick_split(free, facts, need, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Divide a share into parts of any permitted sizes on the fewest devices; return the next
    index, or -1.
    """
    amount, count = need[NEED_AMOUNT], 0
    device = np.empty(free.size, np.int64)
    low, high = np.empty(free.size, np.int64), np.empty(free.size, np.int64)
    for j in range(free.size):
        smallest = -(-max(MIN_PART, facts[j, MIN_SHARE]) // PART_STEP) * PART_STEP
        largest = min(UNIT, free[j] // PART_STEP * PART_STEP)
        if facts[j, IN_FORCE] > 0:
            smallest, largest = max(smallest, facts[j, IN_FORCE]), min(largest, facts[j, IN_FORCE])
        if (
            largest < smallest
            or not is_suitable(facts, j, need)
            or not may_hold_part(facts, j, need, smallest)
        ):
            continue
        k = count
        while k > 0 and high[k - 1] < largest:
            device[k], low[k], high[k] = device[k - 1], low[k - 1], high[k - 1]
            k -= 1
        device[k], low[k], high[k] = j, smallest, largest
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
            at = add_pick(free, picks, at, kernel, i, device[k], part)
            left -= part
    return at


@inner
def pick_filling(free, facts, need, wholly, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Fill devices one after the other; if that fails and ``wholly`` is False, call ``pick_split``.

    Return the next index, or -1.
    """
    end = fill_in_order(free, facts, need, wholly, picks, at, kernel, i)
    if end < 0 and not wholly:
        end = pick_split(free, facts, need, picks, at, kernel, i)
    return end


@inner
def fill_in_order(free, facts, need, wholly, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Fill one device after the other; return the next index, or -1.

    Fill the device with the most free capacity first. When the remaining amount is at most one
    device, pick the fullest device that has room for all of it. ``wholly``: all devices except the
    last are picked whole.
    """
    left, first = need[NEED_AMOUNT], at
    while left > 0:
        is_last = left <= UNIT
        part = left if is_last else UNIT
        j = find_device(free, facts, need, part, picks, first, at, not is_last)
        if j < 0 and not wholly:
            j = find_device(free, facts, need, MIN_PART, picks, first, at, True)
            part = min(part, free[j] // PART_STEP * PART_STEP) if j >= 0 else 0
        if 0 < left - part < MIN_PART:
            part = left - MIN_PART
        if j < 0 or part < MIN_PART < left or not may_hold_part(facts, j, need, part):
            undo_picks(free, picks, first, at)
            return -1
        at = add_pick(free, picks, at, kernel, i, j, part)
        left -= part
    return at
