"""Search for an agent; cached scores are recomputed only for changed agents (compiled)."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
from numba import njit

from . import bundle, device_selection, scores, windows
from . import columns as columns_module
from .bundle import unbundle
from .columns import (
    AGAINST,
    AMONG,
    ANY,
    BARRED,
    BLOCK,
    CAPACITY,
    CPU,
    CURSOR,
    DRAWS,
    FGD,
    GREW,
    HASHES,
    HEAD,
    IN_FORCE,
    KNOWN,
    MEM,
    NAMED,
    NEED_START,
    NEED_WHOLE,
    NEED_WIDTH,
    PICK_AMOUNT,
    PICK_DEVICE,
    PICK_NEED,
    RANDOM,
    ROUND_ROBIN,
    RULE,
    SCORES,
    SETTLED,
    SPREAD,
    STATE_HASH,
    STRICT,
    TOGETHER,
    UNFIT,
    VISIT,
)
from .device_selection import bears, count_rooms, inner, serves, spliced
from .scores import fill, is_plain, plain_score, score, settle


@inner
def renew_block(memory, s, block):  # type: ignore[no-untyped-def]
    best = UNFIT
    scores = memory.scores[s]
    for n in range(block * BLOCK, min((block + 1) * BLOCK, scores.size)):
        best = max(best, scores[n])
    memory.best[s, block] = best


@spliced
def settle_all(columns, costs, memory, rule):  # type: ignore[no-untyped-def]
    """Recompute the cached values of the agents that have changed."""
    head, settled = memory.state[HEAD], memory.state[SETTLED]
    memory.state[SETTLED] = head
    is_all = False
    if settled < 0 or head - settled > memory.log.size:
        settled, head = 0, columns.agents.shape[0]
        is_all = True
    for at in range(settled, head):
        n = at if is_all else memory.log[at & (memory.log.size - 1)] & ~GREW
        settle(columns, costs, rule, n)


@spliced
def score_stale(columns, costs, memory, rule, s, shape, count):  # type: ignore[no-untyped-def]
    """Score the first ``count`` agents of ``memory.stale``; agents in equal state are scored
    once.
    """
    is_many = count > BLOCK
    hashes, scores = memory.known[HASHES], memory.known[SCORES]
    if is_many:
        hashes[:] = 0
    for i in range(count):
        n = memory.stale[i]
        digest = columns.tallies[n, STATE_HASH]
        at = digest & (KNOWN - 1)
        if is_many and hashes[at] == digest and digest != 0:
            new = scores[at]
        elif rule <= SPREAD and rule != FGD and is_plain(columns, n, shape):
            new = plain_score(columns, costs, rule, n, shape)
        else:
            new = score(columns, costs, rule, n, shape, memory.room, memory.picks)
        hashes[at], scores[at] = digest, new
        block = n // BLOCK
        # A block whose best score has dropped must be rescanned: mark it with a negative number.
        if new < memory.scores[s, n] == memory.best[s, block]:
            memory.stale[i] = -1 - block
        memory.scores[s, n] = new


@spliced
def renew(columns, costs, memory, rule, s, shape):  # type: ignore[no-untyped-def]
    """Update the scores of a shape for the agents that have changed since."""
    settle_all(columns, costs, memory, rule)
    head, seen = memory.state[HEAD], memory.seen[s]
    memory.seen[s] = head
    is_all = seen < 0 or head - seen > memory.log.size
    count = 0
    if is_all:
        count = columns.agents.shape[0]
        for n in range(count):
            memory.stale[n] = n
    else:
        memory.state[VISIT] += 1
        for at in range(seen, head):
            entry = memory.log[at & (memory.log.size - 1)]
            n = entry & ~GREW
            # An agent without room still has none after something more was taken.
            may_fit = entry & GREW or memory.scores[s, n] != UNFIT
            if may_fit and memory.mark[n] != memory.state[VISIT]:
                memory.mark[n] = memory.state[VISIT]
                memory.stale[count] = n
                count += 1
    score_stale(columns, costs, memory, rule, s, shape, count)
    for i in range(count):
        n = memory.stale[i]
        if n >= 0:
            memory.best[s, n // BLOCK] = max(memory.best[s, n // BLOCK], memory.scores[s, n])
    for block in range(memory.best.shape[1] if is_all else 0):
        renew_block(memory, s, block)
    for i in range(0 if is_all else count):
        if memory.stale[i] < 0:
            renew_block(memory, s, -1 - memory.stale[i])


@inner
def best_of(memory, s):  # type: ignore[no-untyped-def]
    """Return the first agent with the highest score, or -1."""
    chosen, best = -1, UNFIT
    for block in range(memory.best.shape[1]):
        if memory.best[s, block] > best:
            chosen, best = block, memory.best[s, block]
    if chosen < 0:
        return -1
    n = chosen * BLOCK
    while memory.scores[s, n] != best:
        n += 1
    return n


@inner
def draw(memory, below):  # type: ignore[no-untyped-def]
    """Return the next number below a limit from a fixed pseudo-random sequence (xorshift)."""
    x = memory.state[DRAWS]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    memory.state[DRAWS] = x
    return (x >> 11) % below


@inner
def fitting(memory, rule, s):  # type: ignore[no-untyped-def]
    """Return the next agent in turn, or a random one, of those that fit; -1 if none does."""
    scores = memory.scores[s]
    count = 0
    for n in range(scores.size):
        count += scores[n] != UNFIT
    if count == 0:
        return -1
    start, skip = memory.state[CURSOR] + 1, 0
    if rule == RANDOM:
        start, skip = 0, draw(memory, count)
    for step in range(scores.size):
        n = (start + step) % scores.size
        if scores[n] != UNFIT:
            if skip == 0:
                return n
            skip -= 1
    return -1


@inner
def best_among(memory, s, among, barred):  # type: ignore[no-untyped-def]
    """Return the best agent of a list (empty: of all) that is not barred, or -1."""
    chosen, best = -1, UNFIT
    for at in range(among.size if among.size else memory.scores.shape[1]):
        n = among[at] if among.size else at
        if memory.scores[s, n] <= best:
            continue
        is_barred = False
        for other in barred:
            is_barred = is_barred or other == n
        if not is_barred:
            chosen, best = n, memory.scores[s, n]
    return chosen


@spliced
def choose(memory, rule, s):  # type: ignore[no-untyped-def]
    """Choose the agent for a shape: designated agents first, then all; barred ones last."""
    state = memory.state
    among = memory.listed[AMONG, : state[NAMED]]
    barred = memory.listed[AGAINST, : state[BARRED]]
    no_agents = barred[:0]
    if among.size:
        n = best_among(memory, s, among, barred)
        if n >= 0 or state[STRICT]:
            return n if n >= 0 else best_among(memory, s, among, no_agents)
    if barred.size:
        n = best_among(memory, s, no_agents, barred)
        if n >= 0:
            return n
    return fitting(memory, rule, s) if rule >= ROUND_ROBIN else best_of(memory, s)


@inner
def redraw(columns, memory, n, shape):  # type: ignore[no-untyped-def]
    """Move the single picked share to a random device that has room for it."""
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    part = memory.picks[0, PICK_AMOUNT]
    free, facts = columns.free[n], columns.facts[n]
    skip = draw(memory, count_rooms(free, facts, need, part))
    for j in range(free.size):
        if free[j] >= part and serves(facts, j, need) and bears(facts, j, need, part):
            if skip == 0:
                memory.picks[0, PICK_DEVICE] = j
                return
            skip -= 1


@inner
def note(memory, entry):  # type: ignore[no-untyped-def]
    """Log that an agent has changed: its number, with `GREW` where it may have gained room."""
    memory.log[memory.state[HEAD] & (memory.log.size - 1)] = entry
    memory.state[HEAD] += 1


@spliced
def take_picks(columns, costs, memory, rule, n, shape):  # type: ignore[no-untyped-def]
    """Place a shape on an agent; return the number of rows of ``memory.picks`` that name
    devices.
    """
    count = fill(columns, costs, rule, n, shape, memory.room, memory.picks)
    if count < 0:
        return count
    if rule == RANDOM and count == 1 and shape[NEED_START + NEED_WHOLE] == 0:
        redraw(columns, memory, n, shape)
    for at in range(count):
        j, amount = memory.picks[at, PICK_DEVICE], memory.picks[at, PICK_AMOUNT]
        columns.free[n, j] -= amount
        if columns.facts[n, j, IN_FORCE] == 0:
            columns.facts[n, j, IN_FORCE] = amount
    columns.agents[n, CPU] -= shape[CPU] * shape[TOGETHER]
    columns.agents[n, MEM] -= shape[MEM] * shape[TOGETHER]
    memory.state[CURSOR] = n
    note(memory, n)
    return count


@inner
def give_back(columns, memory, n, shape, held):  # type: ignore[no-untyped-def]
    """Release what a shape held on an agent: devices and quantities."""
    for i in range(held.shape[0]):
        columns.free[n, held[i, 0]] += held[i, 1]
    columns.agents[n, CPU] += shape[CPU] * shape[TOGETHER]
    columns.agents[n, MEM] += shape[MEM] * shape[TOGETHER]
    note(memory, n | GREW)


@inner
def decide_one(places, s, takes):  # type: ignore[no-untyped-def]
    """Return the agent for the shape of a row, or -1; ``places`` belongs to a bundle.

    With ``takes`` the placement is recorded. The second number returned is the number of rows of
    ``memory.picks`` that name the devices; the others are the first row: need, device, quantity.
    """
    columns, costs, memory, shapes = unbundle(places)
    rule, shape = memory.state[RULE], shapes[s]
    draws = memory.state[DRAWS]
    renew(columns, costs, memory, rule, s, shape)
    n, count = choose(memory, rule, s), 0
    if not takes:
        memory.state[DRAWS] = draws
    elif n >= 0:
        count = take_picks(columns, costs, memory, rule, n, shape)
        if count < 0:  # only if two different agent states had the same hash
            n = -1
    pick = memory.picks[0]
    return n, count, pick[PICK_NEED], pick[PICK_DEVICE], pick[PICK_AMOUNT]


def source_stamp() -> str:
    """Return a value that changes with any compiled function or constant of this package."""
    digest = hashlib.sha256()
    for module in (
        columns_module,
        bundle,
        device_selection,
        windows,
        scores,
        sys.modules[__name__],
    ):
        for name, thing in sorted(vars(module).items()):
            if isinstance(thing, int):
                digest.update(f"{name}={thing}".encode())
            elif hasattr(thing, "py_func"):
                code = thing.py_func.__code__
                digest.update(f"{name}{code.co_consts}{code.co_names}".encode() + code.co_code)
    return digest.hexdigest()


def _outer(stamp: str) -> Any:
    """Compile the functions that Python calls, with a cache on disk.

    numba invalidates its cache when the file of the outermost function, or a value in its closure,
    has changed; it does not notice changes of the functions called. So the outermost functions have
    a stamp of all functions in their closure. They do not refer to each other, because the name of
    a cached function differs from process to process.
    """

    @njit(cache=True, nogil=True, error_model="numpy")
    def decide(places, s, takes):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        return decide_one(places, s, takes)

    @njit(cache=True, nogil=True, error_model="numpy")
    def decide_all(places, asked, ends, found):  # type: ignore[no-untyped-def]
        """Place shapes one after the other: ``found`` receives the agent of each, or -1.

        ``ends`` holds, for each shape, the index of the shape before which it leaves.
        """
        stamp  # noqa: B018
        columns, _, memory, shapes = unbundle(places)
        leaving = np.full(asked.size + 1, -1, np.int64)  # the last shape that leaves at that time
        before = np.full(asked.size, -1, np.int64)  # the next shape that leaves at the same time
        held = np.zeros((asked.size, memory.picks.shape[0], 2), np.int64)
        counts = np.zeros(asked.size, np.int64)
        for at in range(asked.size):
            one = leaving[at]
            while one >= 0:
                give_back(columns, memory, found[one], shapes[asked[one]], held[one, : counts[one]])
                one = before[one]
            decided = decide_one(places, asked[at], True)
            found[at], counts[at] = decided[0], decided[1]
            for i in range(counts[at]):
                held[at, i, 0] = memory.picks[i, PICK_DEVICE]
                held[at, i, 1] = memory.picks[i, PICK_AMOUNT]
            if found[at] >= 0 and ends[at] < asked.size:
                before[at], leaving[ends[at]] = leaving[ends[at]], at

    @njit(cache=True, nogil=True, error_model="numpy")
    def fit_all(places, rows, found):  # type: ignore[no-untyped-def]
        """Set ``found`` for each shape to whether any agent fits, ignoring designated and barred
        agents.
        """
        stamp  # noqa: B018
        columns, costs, memory, shapes = unbundle(places)
        for at in range(rows.size):
            s = rows[at]
            renew(columns, costs, memory, memory.state[RULE], s, shapes[s])
            found[at] = memory.best[s].max() != UNFIT

    @njit(cache=True, nogil=True, error_model="numpy")
    def book(places, n, j, cpu, mem, amount, is_last):  # type: ignore[no-untyped-def]
        """Release (take, if negative) room on an agent, and on one of its devices unless j is -1.

        ``is_last``: no more devices of the same placement follow.
        """
        stamp  # noqa: B018
        columns, _, memory, _ = unbundle(places)
        columns.agents[n, CPU] += cpu
        columns.agents[n, MEM] += mem
        if j >= 0:
            columns.free[n, j] += amount
            # Until the device is empty, all further shares must equal the first.
            facts = columns.facts[n, j]
            if facts[IN_FORCE] != ANY:
                if columns.free[n, j] >= facts[CAPACITY]:
                    facts[IN_FORCE] = 0
                elif facts[IN_FORCE] == 0:
                    facts[IN_FORCE] = max(0, -amount)
        if is_last:
            note(memory, n | GREW)

    @njit(cache=True, nogil=True, error_model="numpy")
    def copy_state(source, target):  # type: ignore[no-untyped-def]
        """Copy what searches and placements change, except scratch arrays; sizes must be equal."""
        stamp  # noqa: B018
        columns, _, memory, shapes = unbundle(source)
        own_columns, _, own_memory, own_shapes = unbundle(target)
        own_columns.agents[:] = columns.agents
        own_columns.free[:] = columns.free
        if source[2, 0] != target[2, 0]:
            own_columns.facts[:] = columns.facts
        own_columns.sums[:] = columns.sums
        own_columns.tallies[:] = columns.tallies
        own_memory.scores[:] = memory.scores
        own_memory.best[:] = memory.best
        own_memory.seen[:] = memory.seen
        own_memory.log[:] = memory.log
        own_memory.mark[:] = memory.mark
        own_memory.state[:] = memory.state
        own_shapes[:] = shapes

    return decide, decide_all, fit_all, book, copy_state


decide, decide_all, fit_all, book, copy_state = _outer(source_stamp())
