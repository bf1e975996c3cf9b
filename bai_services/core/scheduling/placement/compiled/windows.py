"""Divide a share evenly over several devices (compiled; columns.py explains recurring names).

Devices that may hold a part are sorted by free capacity, largest first. A window is a sequence of
neighbors in this order. Within a window, parts are as even as the free capacity permits.
"""

from __future__ import annotations

import numpy as np

from ....cluster.device_sharing import ANY_SHARE
from .columns import IN_FORCE, MAX_SHARE, MIN_PART, MIN_SHARE, NEED_AMOUNT, PART_STEP, UNIT
from .device_selection import add_pick, inlined, inner, is_suitable


@inlined
def free_steps(free, j):  # type: ignore[no-untyped-def]
    """Return the free capacity of a device in steps of ``PART_STEP``."""
    return min(free[j], UNIT) // PART_STEP


@inner
def sort_candidates(free, facts, need, line):  # type: ignore[no-untyped-def]
    """Write the devices that may hold a part to ``line``, most free first; return their number."""
    count = 0
    for j in range(free.size):
        least = max(facts[j, MIN_SHARE], MIN_PART)
        if not is_suitable(facts, j, need) or free_steps(free, j) * PART_STEP < least:
            continue
        if facts[j, MAX_SHARE] < ANY_SHARE or facts[j, IN_FORCE] > 0:
            continue
        at = count
        # Among equal devices, the last one is sorted first, because windows are tried from the end.
        while at > 0 and free[line[at - 1]] <= free[j]:
            line[at] = line[at - 1]
            at -= 1
        line[at] = j
        count += 1
    return count


@inner
def divide(free, facts, amount, window, parts):  # type: ignore[no-untyped-def]
    """Divide an amount over a window, largest part first; return False if no valid parts exist.

    ``parts`` receives the thousandths of each device, in multiples of ``PART_STEP``. If the amount
    is not a multiple of ``PART_STEP``, the largest part is reduced until the sum is the amount.
    """
    left = -(-amount // PART_STEP)
    short = left * PART_STEP - amount
    at = window.size - 1
    while at >= 0:
        steps = free_steps(free, window[at])
        if at == 0:
            steps = (min(free[window[at]], UNIT) + short) // PART_STEP
        if steps * (at + 1) >= left:
            break
        # Fill this device; the others have more free capacity and hold the rest.
        parts[at] = steps * PART_STEP
        left -= steps
        at -= 1
    if at < 0:
        return False
    base, more = left // (at + 1), left % (at + 1)
    for i in range(at + 1):
        parts[i] = (base + (i < more)) * PART_STEP
    parts[0] -= short
    is_large_enough = True
    for i in range(window.size):
        is_large_enough &= parts[i] >= max(facts[window[i], MIN_SHARE], MIN_PART)
    return is_large_enough


@inner
def pick_window(free, facts, need, may_be_uneven, is_spread, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Pick the devices of the best window for a share; return the next index, or -1.

    The best window has the most even parts (a difference of one step counts as even), then the
    fewest devices, then the least free capacity (``is_spread``: the most).
    """
    amount = need[NEED_AMOUNT]
    line, parts = np.empty(free.size, np.int64), np.empty(free.size, np.int64)
    count = sort_candidates(free, facts, need, line)
    start, size, best_uneven, best_free = -1, 0, 0, 0
    for n in range(max(2, -(-amount // UNIT)), count + 1):
        if size and best_uneven == 0:
            break
        for first in range(count - n, -1, -1):
            window = line[first : first + n]
            if not divide(free, facts, amount, window, parts):
                continue
            uneven = max(0, parts[0] - parts[n - 1] - PART_STEP)
            if uneven and not may_be_uneven:
                continue
            window_free = 0
            for k in range(n):
                window_free += free[window[k]]
            is_preferred = window_free > best_free if is_spread else window_free < best_free
            is_better = uneven < best_uneven or (
                uneven == best_uneven and size == n and is_preferred
            )
            if size == 0 or is_better:
                start, size, best_uneven, best_free = first, n, uneven, window_free
    if size == 0:
        return -1
    window = line[start : start + size]
    divide(free, facts, amount, window, parts)
    for k in range(size):
        at = add_pick(free, picks, at, kernel, i, window[k], parts[k])
    return at
