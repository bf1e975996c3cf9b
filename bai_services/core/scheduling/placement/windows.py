"""Even division of a share over several devices (compiled; see search.py).

Devices that may hold a part are sorted by room, largest first; a window is a run of neighbours in
that order. Within a window, parts are as even as the room on its devices permits.
"""

from __future__ import annotations

import numpy as np

from ...cluster.device_sharing import ANY_SHARE
from .columns import IN_FORCE, LEAST, MAX_SHARE, MIN_SHARE, NEED_AMOUNT, STEP, UNIT
from .device_selection import inlined, inner, serves, take_device


@inlined
def steps_on(free, j):  # type: ignore[no-untyped-def]
    return min(free[j], UNIT) // STEP


@inner
def line_up(free, facts, need, line):  # type: ignore[no-untyped-def]
    """Write the devices that may hold a part, largest room first; return their number."""
    count = 0
    for j in range(free.size):
        least = max(facts[j, MIN_SHARE], LEAST)
        if not serves(facts, j, need) or steps_on(free, j) * STEP < least:
            continue
        if facts[j, MAX_SHARE] < ANY_SHARE or facts[j, IN_FORCE] > 0:
            continue
        at = count
        # Among equal devices the last comes first, because windows are tried from the end.
        while at > 0 and free[line[at - 1]] <= free[j]:
            line[at] = line[at - 1]
            at -= 1
        line[at] = j
        count += 1
    return count


@inner
def divide(free, facts, amount, window, parts):  # type: ignore[no-untyped-def]
    """Divide a quantity over a window, in steps, largest part first; return whether it fits.

    If the quantity is not a multiple of a step, the largest part is smaller by the difference.
    """
    left = -(-amount // STEP)
    short = left * STEP - amount
    at = window.size - 1
    while at >= 0:
        room = steps_on(free, window[at])
        if at == 0:
            room = (min(free[window[at]], UNIT) + short) // STEP
        if room * (at + 1) >= left:
            break
        # This device is full; the others have more room and hold the rest.
        parts[at] = room * STEP
        left -= room
        at -= 1
    if at < 0:
        return False
    base, more = left // (at + 1), left % (at + 1)
    for i in range(at + 1):
        parts[i] = (base + (i < more)) * STEP
    parts[0] -= short
    is_large_enough = True
    for i in range(window.size):
        is_large_enough &= parts[i] >= max(facts[window[i], MIN_SHARE], LEAST)
    return is_large_enough


@inner
def pick_window(free, facts, need, may_be_uneven, spreads, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Take the best window for a share; return the number of picks, or -1.

    The best window is the most even one (parts that differ by one step are even), then the one with
    the fewest devices, then the one that leaves least free (``spreads``: most).
    """
    amount = need[NEED_AMOUNT]
    line, parts = np.empty(free.size, np.int64), np.empty(free.size, np.int64)
    count = line_up(free, facts, need, line)
    start, size, least_uneven, left = -1, 0, 0, 0
    for n in range(max(2, -(-amount // UNIT)), count + 1):
        if size and least_uneven == 0:
            break
        for first in range(count - n, -1, -1):
            window = line[first : first + n]
            if not divide(free, facts, amount, window, parts):
                continue
            uneven = max(0, parts[0] - parts[n - 1] - STEP)
            if uneven and not may_be_uneven:
                continue
            room = 0
            for k in range(n):
                room += free[window[k]]
            is_tighter = room > left if spreads else room < left
            is_better = uneven < least_uneven or (
                uneven == least_uneven and size == n and is_tighter
            )
            if size == 0 or is_better:
                start, size, least_uneven, left = first, n, uneven, room
    if size == 0:
        return -1
    window = line[start : start + size]
    divide(free, facts, amount, window, parts)
    for k in range(size):
        at = take_device(free, picks, at, kernel, i, window[k], parts[k])
    return at
