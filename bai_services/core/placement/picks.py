"""Which devices of one agent are taken (compiled; search.py says why nothing is cached here)."""

from __future__ import annotations

from typing import Any

from numba import njit

from ..sharing import ANY_SHARE
from .columns import (
    ANY,
    CAPACITY,
    FAMILY,
    IN_FORCE,
    LEAST,
    LEAST_SHARE,
    LINK,
    MODEL,
    MOST_SHARE,
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


def inner(function: Any) -> Any:
    """Compile a function that others call; only the outermost are cached, by search.py."""
    return njit(function, nogil=True, error_model="numpy")


def inlined(function: Any) -> Any:
    """Compile a small function into its callers."""
    return njit(function, nogil=True, error_model="numpy", forceinline=True)


def spliced(function: Any) -> Any:
    """Make a function part of its only caller before anything is compiled.

    What is compiled by itself is optimised again in each caller up to the outermost.
    """
    return njit(function, nogil=True, error_model="numpy", inline="always")


@inlined
def allowed(models, model):  # type: ignore[no-untyped-def]
    return models == ANY or (model < 62 and (models >> model) & 1 == 1)


@inlined
def bears(facts, j, need, part):  # type: ignore[no-untyped-def]
    """Return whether a device may be shared so: ``part`` of it, for one that asks so much."""
    amount, most, in_force = need[NEED_AMOUNT], facts[j, MOST_SHARE], facts[j, IN_FORCE]
    is_split_at_will = part == amount or most >= ANY_SHARE
    is_alike = in_force <= 0 or in_force == part
    return facts[j, LEAST_SHARE] <= part and amount <= most and is_split_at_will and is_alike


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
    """Return the smallest group of close devices that holds the whole need, or ANY."""
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
    """Return the NUMA node with most wholly free devices: what must span, spans little."""
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
    """Take wholly free devices, close to each other; return how many picks there are, or -1."""
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
    """Return 2 if devices of one kernel share a link group, 1 a NUMA node (or none is known)."""
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
    """Return the device with the least (or most) room for a part, none twice; -1: there is none."""
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
def pick_filling(free, facts, need, wholly, picks, at, kernel, i):  # type: ignore[no-untyped-def]
    """Fill one device after the other, the roomiest first; ``wholly``: all but the last whole."""
    left, first = need[NEED_AMOUNT], at
    while left > 0:
        last = left <= UNIT
        part = left if last else UNIT
        j = pick_room(free, facts, need, part, picks, first, at, not last)
        if j < 0 and not wholly:
            j = pick_room(free, facts, need, LEAST, picks, first, at, True)
            part = min(part, free[j] // STEP * STEP) if j >= 0 else 0
        if j < 0:
            return -1
        if 0 < left - part < LEAST:
            part = left - LEAST
        if part < LEAST < left:
            return -1
        at = take_device(free, picks, at, kernel, i, j, part)
        left -= part
    return at
