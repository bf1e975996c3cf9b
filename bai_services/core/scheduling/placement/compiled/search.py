"""Search for the best agent of a shape (compiled).

Scores are cached for each shape and agent. A log lists the agents that have changed, so a search
recomputes only their scores. columns.py explains recurring names.
"""

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
    ANY,
    AVOID,
    AVOID_COUNT,
    BLOCK_SIZE,
    CACHED_HASH,
    CACHED_SCORE,
    CAPACITY,
    CPU,
    DERIVED_HEAD,
    DESIGNATED,
    DESIGNATED_COUNT,
    FGD,
    GREW,
    IN_FORCE,
    KERNELS,
    LAST_AGENT,
    LOG_HEAD,
    MEM,
    NEED_START,
    NEED_WHOLE,
    NEED_WIDTH,
    PICK_AMOUNT,
    PICK_DEVICE,
    PICK_NEED,
    POLICY,
    RANDOM,
    RANDOM_STATE,
    ROUND_ROBIN,
    SPREAD,
    STATE_CACHE_SIZE,
    STATE_HASH,
    STRICT,
    UNFIT,
    VISIT,
)
from .device_selection import count_devices_for, inner, is_suitable, may_hold_part, spliced
from .scores import fill, is_plain, plain_score, recompute_agent, score


@inner
def rescan_block(cache, s, block):  # type: ignore[no-untyped-def]
    """Recompute the best score of a block of agents."""
    best = UNFIT
    scores = cache.scores[s]
    for n in range(block * BLOCK_SIZE, min((block + 1) * BLOCK_SIZE, scores.size)):
        best = max(best, scores[n])
    cache.block_best[s, block] = best


@spliced
def recompute_derived(columns, costs, cache, policy):  # type: ignore[no-untyped-def]
    """Recompute the derived values of changed agents; of all agents at the first call, or if the
    log has overflowed.
    """
    start, end = cache.state[DERIVED_HEAD], cache.state[LOG_HEAD]
    cache.state[DERIVED_HEAD] = end
    is_all = False
    if start < 0 or end - start > cache.log.size:
        start, end = 0, columns.agents.shape[0]
        is_all = True
    for position in range(start, end):
        n = position if is_all else cache.log[position & (cache.log.size - 1)] & ~GREW
        recompute_agent(columns, costs, policy, n)


@spliced
def score_stale(columns, costs, cache, policy, s, shape, count):  # type: ignore[no-untyped-def]
    """Score the first ``count`` agents of ``cache.stale``.

    If ``count`` exceeds one block, agents in equal states can reuse a cached score. If the best
    score of a block may have decreased, the entry of its agent in ``cache.stale`` becomes -1 minus
    the number of the block.
    """
    is_many = count > BLOCK_SIZE
    hashes, scores = cache.state_cache[CACHED_HASH], cache.state_cache[CACHED_SCORE]
    if is_many:
        hashes[:] = 0
    for i in range(count):
        n = cache.stale[i]
        digest = columns.tallies[n, STATE_HASH]
        slot = digest & (STATE_CACHE_SIZE - 1)
        if is_many and hashes[slot] == digest and digest != 0:
            new = scores[slot]
        elif policy <= SPREAD and policy != FGD and is_plain(columns, n, shape):
            new = plain_score(columns, costs, policy, n, shape)
        else:
            new = score(columns, costs, policy, n, shape, cache.free_scratch, cache.picks)
        hashes[slot], scores[slot] = digest, new
        block = n // BLOCK_SIZE
        if new < cache.scores[s, n] == cache.block_best[s, block]:
            cache.stale[i] = -1 - block
        cache.scores[s, n] = new


@spliced
def refresh_scores(columns, costs, cache, policy, s, shape):  # type: ignore[no-untyped-def]
    """Update the scores of a shape for the agents that have changed since its last search."""
    recompute_derived(columns, costs, cache, policy)
    start, end = cache.read_at[s], cache.state[LOG_HEAD]
    cache.read_at[s] = end
    is_all = start < 0 or end - start > cache.log.size
    count = 0
    if is_all:
        count = columns.agents.shape[0]
        for n in range(count):
            cache.stale[n] = n
    else:
        cache.state[VISIT] += 1
        for position in range(start, end):
            entry = cache.log[position & (cache.log.size - 1)]
            n = entry & ~GREW
            # An agent that did not fit can fit again only after its free capacity grew.
            may_fit = entry & GREW or cache.scores[s, n] != UNFIT
            if may_fit and cache.visited[n] != cache.state[VISIT]:
                cache.visited[n] = cache.state[VISIT]
                cache.stale[count] = n
                count += 1
    score_stale(columns, costs, cache, policy, s, shape, count)
    for i in range(count):
        n = cache.stale[i]
        if n >= 0:
            block = n // BLOCK_SIZE
            cache.block_best[s, block] = max(cache.block_best[s, block], cache.scores[s, n])
    for block in range(cache.block_best.shape[1] if is_all else 0):
        rescan_block(cache, s, block)
    for i in range(0 if is_all else count):
        if cache.stale[i] < 0:
            rescan_block(cache, s, -1 - cache.stale[i])


@inner
def best_agent(cache, s):  # type: ignore[no-untyped-def]
    """Return the first agent with the highest score, or -1 if none fits."""
    best_block, best = -1, UNFIT
    for block in range(cache.block_best.shape[1]):
        if cache.block_best[s, block] > best:
            best_block, best = block, cache.block_best[s, block]
    if best_block < 0:
        return -1
    n = best_block * BLOCK_SIZE
    while cache.scores[s, n] != best:
        n += 1
    return n


@inner
def draw_number(cache, below):  # type: ignore[no-untyped-def]
    """Return a pseudo-random number from 0 to ``below`` - 1 (xorshift)."""
    x = cache.state[RANDOM_STATE]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    cache.state[RANDOM_STATE] = x
    return (x >> 11) % below


@inner
def next_fit_or_random(cache, policy, s):  # type: ignore[no-untyped-def]
    """Return the first fitting agent after the agent chosen last; for RANDOM, a random fitting one.

    Return -1 if no agent fits.
    """
    scores = cache.scores[s]
    count = 0
    for n in range(scores.size):
        count += scores[n] != UNFIT
    if count == 0:
        return -1
    start, skip = cache.state[LAST_AGENT] + 1, 0
    if policy == RANDOM:
        start, skip = 0, draw_number(cache, count)
    for step in range(scores.size):
        n = (start + step) % scores.size
        if scores[n] != UNFIT:
            if skip == 0:
                return n
            skip -= 1
    return -1


@inner
def best_listed(cache, s, designated, avoid):  # type: ignore[no-untyped-def]
    """Return the best agent of ``designated`` that is not in ``avoid``, or -1. If ``designated`` is
    empty, all agents are considered.
    """
    best_agent, best = -1, UNFIT
    for index in range(designated.size if designated.size else cache.scores.shape[1]):
        n = designated[index] if designated.size else index
        if cache.scores[s, n] <= best:
            continue
        is_avoided = False
        for other in avoid:
            is_avoided = is_avoided or other == n
        if not is_avoided:
            best_agent, best = n, cache.scores[s, n]
    return best_agent


@spliced
def choose_agent(cache, policy, s):  # type: ignore[no-untyped-def]
    """Choose the agent for a shape, or -1 if none fits.

    Designated agents come first, then (unless ``STRICT``) all agents; agents to avoid come last.
    """
    state = cache.state
    designated = cache.agent_lists[DESIGNATED, : state[DESIGNATED_COUNT]]
    avoid = cache.agent_lists[AVOID, : state[AVOID_COUNT]]
    no_agents = avoid[:0]
    if designated.size:
        n = best_listed(cache, s, designated, avoid)
        if n >= 0 or state[STRICT]:
            return n if n >= 0 else best_listed(cache, s, designated, no_agents)
    if avoid.size:
        n = best_listed(cache, s, no_agents, avoid)
        if n >= 0:
            return n
    return next_fit_or_random(cache, policy, s) if policy >= ROUND_ROBIN else best_agent(cache, s)


@inner
def move_pick_to_random_device(columns, cache, n, shape):  # type: ignore[no-untyped-def]
    """Move the single picked share to a random device on which it fits."""
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    part = cache.picks[0, PICK_AMOUNT]
    free, facts = columns.free[n], columns.facts[n]
    skip = draw_number(cache, count_devices_for(free, facts, need, part))
    for j in range(free.size):
        if free[j] >= part and is_suitable(facts, j, need) and may_hold_part(facts, j, need, part):
            if skip == 0:
                cache.picks[0, PICK_DEVICE] = j
                return
            skip -= 1


@inner
def log_change(cache, entry):  # type: ignore[no-untyped-def]
    """Append ``entry`` to the log.

    An entry is the row of a changed agent, plus ``GREW`` if the free capacity may have grown.
    """
    cache.log[cache.state[LOG_HEAD] & (cache.log.size - 1)] = entry
    cache.state[LOG_HEAD] += 1


@spliced
def allocate_picks(columns, costs, cache, policy, n, shape):  # type: ignore[no-untyped-def]
    """Allocate a shape on an agent; return the number of picks in ``cache.picks``, or -1 if the
    shape does not fit.
    """
    count = fill(columns, costs, policy, n, shape, cache.free_scratch, cache.picks)
    if count < 0:
        return count
    if policy == RANDOM and count == 1 and shape[NEED_START + NEED_WHOLE] == 0:
        move_pick_to_random_device(columns, cache, n, shape)
    for at in range(count):
        j, amount = cache.picks[at, PICK_DEVICE], cache.picks[at, PICK_AMOUNT]
        columns.free[n, j] -= amount
        if columns.facts[n, j, IN_FORCE] == 0:
            columns.facts[n, j, IN_FORCE] = amount
    columns.agents[n, CPU] -= shape[CPU] * shape[KERNELS]
    columns.agents[n, MEM] -= shape[MEM] * shape[KERNELS]
    cache.state[LAST_AGENT] = n
    log_change(cache, n)
    return count


@inner
def release_shape(columns, cache, n, shape, allocated):  # type: ignore[no-untyped-def]
    """Release a shape on an agent; ``allocated`` holds a device and an amount per row."""
    for i in range(allocated.shape[0]):
        columns.free[n, allocated[i, 0]] += allocated[i, 1]
    columns.agents[n, CPU] += shape[CPU] * shape[KERNELS]
    columns.agents[n, MEM] += shape[MEM] * shape[KERNELS]
    log_change(cache, n | GREW)


@inner
def search_one(pointers, s, is_allocating):  # type: ignore[no-untyped-def]
    """Search for an agent for the shape in row ``s``; return a ``SearchResult``.

    ``pointers`` belong to a ``Bundle``. With ``is_allocating``, the shape is also allocated, and
    ``cache.picks`` holds the devices. Otherwise no capacity changes, and the picks are undefined.
    """
    columns, costs, cache, shapes = unbundle(pointers)
    policy, shape = cache.state[POLICY], shapes[s]
    random_state = cache.state[RANDOM_STATE]
    refresh_scores(columns, costs, cache, policy, s, shape)
    n, count = choose_agent(cache, policy, s), 0
    if not is_allocating:
        cache.state[RANDOM_STATE] = random_state
    elif n >= 0:
        count = allocate_picks(columns, costs, cache, policy, n, shape)
        if count < 0:  # happens only if two different agent states have the same hash
            n = -1
    pick = cache.picks[0]
    return n, count, pick[PICK_NEED], pick[PICK_DEVICE], pick[PICK_AMOUNT]


def source_stamp() -> str:
    """Return a hash of the compiled functions and the integer constants of this package."""
    digest = hashlib.sha256()
    for module in (
        columns_module,
        bundle,
        device_selection,
        windows,
        scores,
        sys.modules[__name__],
    ):
        for name, value in sorted(vars(module).items()):
            if isinstance(value, int):
                digest.update(f"{name}={value}".encode())
            elif hasattr(value, "py_func"):
                code = value.py_func.__code__
                digest.update(f"{name}{code.co_consts}{code.co_names}".encode() + code.co_code)
    return digest.hexdigest()


@spliced
def place_each(pointers, rows, release_steps, agents):  # type: ignore[no-untyped-def]
    """At each step, allocate the shape in row ``rows[step]``; write its agent, or -1, to
    ``agents``.

    The shape of a step is released before step ``release_steps[step]``.
    """
    columns, _, cache, shapes = unbundle(pointers)
    # Linked lists of releases: ``heads[t]`` is the first step with a release before step t,
    # ``following[step]`` is the next step in the same list; -1 ends a list.
    heads = np.full(rows.size + 1, -1, np.int64)
    following = np.full(rows.size, -1, np.int64)
    allocated = np.zeros((rows.size, cache.picks.shape[0], 2), np.int64)  # device, amount
    counts = np.zeros(rows.size, np.int64)
    for step in range(rows.size):
        ended = heads[step]
        while ended >= 0:
            shape = shapes[rows[ended]]
            release_shape(columns, cache, agents[ended], shape, allocated[ended, : counts[ended]])
            ended = following[ended]
        result = search_one(pointers, rows[step], True)
        agents[step], counts[step] = result[0], result[1]
        for i in range(counts[step]):
            allocated[step, i, 0] = cache.picks[i, PICK_DEVICE]
            allocated[step, i, 1] = cache.picks[i, PICK_AMOUNT]
        end = release_steps[step]
        if agents[step] >= 0 and end < rows.size:
            following[step], heads[end] = heads[end], step


@spliced
def check_each(pointers, rows, fits):  # type: ignore[no-untyped-def]
    """Set ``fits`` for each shape in ``rows`` to whether any agent fits; ignore designated agents
    and agents to avoid.
    """
    columns, costs, cache, shapes = unbundle(pointers)
    for index in range(rows.size):
        s = rows[index]
        refresh_scores(columns, costs, cache, cache.state[POLICY], s, shapes[s])
        fits[index] = cache.block_best[s].max() != UNFIT


@spliced
def add_free(pointers, n, j, cpu, mem, amount, is_last):  # type: ignore[no-untyped-def]
    """Add to the free capacity of an agent and of its device ``j`` (-1: none).

    Negative values allocate. ``is_last``: no more devices of the same placement follow.
    """
    columns, _, cache, _ = unbundle(pointers)
    columns.agents[n, CPU] += cpu
    columns.agents[n, MEM] += mem
    if j >= 0:
        columns.free[n, j] += amount
        # If all shares of the device must be equal, the first share is in force until the device is
        # empty again.
        facts = columns.facts[n, j]
        if facts[IN_FORCE] != ANY:
            if columns.free[n, j] >= facts[CAPACITY]:
                facts[IN_FORCE] = 0
            elif facts[IN_FORCE] == 0:
                facts[IN_FORCE] = max(0, -amount)
    if is_last:
        log_change(cache, n | GREW)


@spliced
def copy_arrays(source, target):  # type: ignore[no-untyped-def]
    """Copy the arrays that searches and allocations change, except scratch; sizes must be equal."""
    columns, _, cache, shapes = unbundle(source)
    own_columns, _, own_cache, own_shapes = unbundle(target)
    own_columns.agents[:] = columns.agents
    own_columns.free[:] = columns.free
    if source[2, 0] != target[2, 0]:  # the facts are not shared with the other cache
        own_columns.facts[:] = columns.facts
    own_columns.sums[:] = columns.sums
    own_columns.tallies[:] = columns.tallies
    own_cache.scores[:] = cache.scores
    own_cache.block_best[:] = cache.block_best
    own_cache.read_at[:] = cache.read_at
    own_cache.log[:] = cache.log
    own_cache.visited[:] = cache.visited
    own_cache.state[:] = cache.state
    own_shapes[:] = shapes


def compile_entry_points(stamp: str) -> Any:
    """Compile the functions that Python calls, with a cache on disk.

    numba recompiles a cached function if its file or a value in its closure has changed, but not if
    a function that it calls has changed. Therefore, the closure of each entry point contains
    ``stamp``, the hash of all compiled functions. Entry points must not call each other: numba
    would not find the callee in its cache, because the name of a cached function differs between
    processes.
    """

    @njit(cache=True, nogil=True, error_model="numpy")
    def find_agent(pointers, s, is_allocating):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        return search_one(pointers, s, is_allocating)

    @njit(cache=True, nogil=True, error_model="numpy")
    def place_sequence(pointers, rows, release_steps, agents):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        place_each(pointers, rows, release_steps, agents)

    @njit(cache=True, nogil=True, error_model="numpy")
    def check_fits(pointers, rows, fits):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        check_each(pointers, rows, fits)

    @njit(cache=True, nogil=True, error_model="numpy")
    def adjust_free(pointers, n, j, cpu, mem, amount, is_last):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        add_free(pointers, n, j, cpu, mem, amount, is_last)

    @njit(cache=True, nogil=True, error_model="numpy")
    def copy_state(source, target):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        copy_arrays(source, target)

    return find_agent, place_sequence, check_fits, adjust_free, copy_state


find_agent, place_sequence, check_fits, adjust_free, copy_state = compile_entry_points(
    source_stamp()
)
