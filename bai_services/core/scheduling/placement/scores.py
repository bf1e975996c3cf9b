"""Score one agent for one shape under a policy (compiled; see search.py)."""

from __future__ import annotations

import math

# ---- Scores of a policy ----
from .columns import (
    ANY,
    ARCHITECTURE,
    BEST_FIT,
    CAPACITY,
    COUNT,
    CPU,
    DRIVER,
    ENGINE,
    FAMILY,
    FGD,
    FILLS,
    FRAGMENTS,
    HAS_GRAPH,
    IN_FORCE,
    KIND,
    LEFT,
    MEASURE,
    MEM,
    MIXED,
    MODEL,
    NEED_AMOUNT,
    NEED_FAMILY,
    NEED_MODELS,
    NEED_START,
    NEED_WHOLE,
    NEED_WIDTH,
    NEEDS,
    ONLY_FAMILY,
    OPEN,
    PACK,
    PRICED,
    SPREAD,
    STATE_HASH,
    TOGETHER,
    UNFIT,
    UNIT,
    VALUE,
    WHOLE,
)
from .device_selection import (
    allowed,
    bears,
    closeness,
    inlined,
    inner,
    is_whole,
    pick_filling,
    pick_whole,
    serves,
    spliced,
    take_device,
)
from .windows import pick_window


@inlined
def cpu_bin(costs, cpu):  # type: ignore[no-untyped-def]
    return min(max(cpu, 0) // costs.bins[0], costs.worth.shape[1] - 1)


@inlined
def mem_bin(costs, mem):  # type: ignore[no-untyped-def]
    return min(max(mem, 0) // costs.bins[1], costs.worth.shape[2] - 1)


@inlined
def potential(costs, table, c, m, g, count):  # type: ignore[no-untyped-def]
    """Return how many of ``g`` free devices are expected to be sold.

    ``c`` and ``m`` are bins of free cpu and memory, ``count`` the devices of the agent.
    """
    if table < 0 or g <= 0.0:
        return g
    count = min(count, costs.worth.shape[3] - 1)
    k = int(g)
    f = g - k
    if k >= count:
        return costs.worth[table, c, m, count]
    return (1.0 - f) * costs.worth[table, c, m, k] + f * costs.worth[table, c, m, k + 1]


@inlined
def value_of(costs, family, free):  # type: ignore[no-untyped-def]
    return costs.value[family, min(max(free, 0), UNIT)]


@inlined
def beside_potential(costs, family, model, g_taken, whole_before, whole_after):  # type: ignore[no-untyped-def]
    """Return the cost of a placement beyond potential: models in demand, whole devices broken."""
    most = costs.whole.shape[1] - 1
    whole = (
        costs.whole[family, min(whole_before, most)] - costs.whole[family, min(whole_after, most)]
    )
    return costs.mu[family, model] * g_taken + whole


@inner
def price(columns, costs, n, after, shape):  # type: ignore[no-untyped-def]
    """Return the change of an agent's potential minus the value of its model and whole devices.

    ``after`` is what would be free on its devices afterwards.
    """
    facts, before = columns.facts[n], columns.free[n]
    cpu, mem = columns.agents[n, CPU], columns.agents[n, MEM]
    cpu_after = cpu - shape[CPU] * shape[TOGETHER]
    mem_after = mem - shape[MEM] * shape[TOGETHER]
    score = 0.0
    done = 0
    for first in range(before.size):
        family = facts[first, FAMILY]
        if family < 0 or done >> family & 1:
            continue
        done |= 1 << family
        count = whole_before = whole_after = 0
        g_before = g_after = 0.0
        for j in range(first, before.size):
            if facts[j, FAMILY] != family:
                continue
            count += 1
            g_before += value_of(costs, family, before[j])
            g_after += value_of(costs, family, after[j])
            whole_before += is_whole(before, facts, j)
            whole_after += is_whole(after, facts, j)
        model = facts[first, MODEL]
        table = costs.table[family, model]
        c, m = cpu_bin(costs, cpu_after), mem_bin(costs, mem_after)
        score += potential(costs, table, c, m, g_after, count)
        c, m = cpu_bin(costs, cpu), mem_bin(costs, mem)
        score -= potential(costs, table, c, m, g_before, count)
        score -= beside_potential(
            costs, family, model, g_before - g_after, whole_before, whole_after
        )
    return score


@inner
def fragments(costs, facts, free, cpu):  # type: ignore[no-untyped-def]
    """Return the free thousandths that typical requests cannot use, averaged over the requests."""
    total = 0
    for j in range(free.size):
        total += max(free[j], 0)
    lost = 0.0
    for t in range(costs.portion.size):
        ask = costs.typical[t]
        able = unusable = 0
        if ask[2] > 0 and ask[0] <= cpu:
            for j in range(free.size):
                serving = facts[j, FAMILY] == ask[1] and (
                    ask[4] == ANY or (facts[j, MODEL] < 62 and (ask[4] >> facts[j, MODEL]) & 1)
                )
                if serving and free[j] >= ask[3]:
                    able += 1
                else:
                    unusable += max(free[j], 0)
        lost += costs.portion[t] * (unusable if 0 < ask[2] <= able else total)
    return lost


@inner
def gradient(columns, costs, n, after, shape):  # type: ignore[no-untyped-def]
    """Return the published score: 0 to 100, higher where less capacity becomes unusable."""
    cpu_after = columns.agents[n, CPU] - shape[CPU] * shape[TOGETHER]
    lost = fragments(costs, columns.facts[n], after, cpu_after)
    return int(100.0 / (1.0 + math.exp(-(columns.sums[n, MEASURE] - lost) / 1000.0)))


@inlined
def left_on(free):  # type: ignore[no-untyped-def]
    """Return the free thousandths of all devices together."""
    left = 0
    for j in range(free.size):
        left += max(free[j], 0)
    return left


@inlined
def best_fit(left, cpu_left):  # type: ignore[no-untyped-def]
    """Return the published score, which takes 128 cores and 8 devices as a full machine."""
    return int(100.0 * (1.0 - 0.5 * cpu_left / 128_000.0 - 0.5 * left / 8_000.0))


@inner
def unasked_families(facts, free, shape):  # type: ignore[no-untyped-def]
    """Return how many families that the shape does not request have something free."""
    unasked = done = 0
    for j in range(free.size):
        family = facts[j, FAMILY]
        if family < 0 or free[j] <= 0:
            continue
        is_asked = False
        for i in range(shape[NEEDS]):
            is_asked = is_asked or shape[NEED_START + NEED_WIDTH * i] == family
        if not is_asked and not done >> family & 1:
            done |= 1 << family
            unasked += 1
    return unasked


@inlined
def concentration(rule, unasked, left, cpu_left, mem_left):  # type: ignore[no-untyped-def]
    """Return the score of pack and spread.

    pack prefers the fewest families not requested, then the least devices, cpu and mem left; spread
    prefers the most left.
    """
    devices = min(left, 2**20 - 1)
    cpu = min(max(cpu_left, 0), 2**21 - 1)
    mem = min(max(mem_left, 0) // 2**28, 2**16 - 1)
    room = (devices * 2**21 + cpu) * 2**16 + mem
    return (room if rule == SPREAD else -room) - unasked * 2**58


# ---- One agent and one shape ----


@inlined
def rounded(change, costs):  # type: ignore[no-untyped-def]
    return int(math.floor(change / costs.quantum[0] + 0.5))


@inlined
def is_plain(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether a shape on an agent is the common case: one kernel, at most one family."""
    family = columns.tallies[n, ONLY_FAMILY]
    if shape[TOGETHER] != 1 or shape[NEEDS] > 1 or shape[FRAGMENTS] == 1 or family == MIXED:
        return False
    amount = shape[NEED_START + NEED_AMOUNT]
    if shape[NEED_START + NEED_WHOLE] == 1:
        return amount == 1 or columns.agents[n, HAS_GRAPH] == 0
    return amount <= UNIT


@inlined
def best_share(columns, costs, n, shape, table, c, m):  # type: ignore[no-untyped-def]
    """Return the cheapest device for a share on one device, and the potential afterwards.

    For a plain shape; the device is -1 if there is no room.
    """
    family, whole = columns.tallies[n, ONLY_FAMILY], columns.tallies[n, WHOLE]
    g, count = columns.sums[n, VALUE], columns.tallies[n, COUNT]
    model, amount = columns.facts[n, 0, MODEL], shape[NEED_START + NEED_AMOUNT]
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    models = need[NEED_MODELS]
    best, chosen, has_tried_whole = 0.0, (-1), False
    for j in range(columns.free.shape[1]):
        free = columns.free[n, j]
        if free < amount or not allowed(models, columns.facts[n, j, MODEL]):
            continue
        if not bears(columns.facts[n], j, need, amount):
            continue
        breaks = free >= UNIT and free == columns.facts[n, j, CAPACITY]
        if breaks and has_tried_whole:
            continue
        has_tried_whole = has_tried_whole or breaks
        taken = value_of(costs, family, free) - value_of(costs, family, free - amount)
        left = potential(costs, table, c, m, g - taken, count)
        left -= beside_potential(costs, family, model, taken, whole, whole - breaks)
        if chosen < 0 or left > best:
            best, chosen = left, j
    return chosen, best


@spliced
def pick_one(columns, costs, rule, n, free, shape, need):  # type: ignore[no-untyped-def]
    """Return the device for a share that fits on one, by the policy, or -1 if there is none."""
    facts = columns.facts[n]
    amount = need[NEED_AMOUNT]
    if rule == PRICED and is_plain(columns, n, shape):
        table = costs.table[need[NEED_FAMILY], facts[0, MODEL]]
        c = cpu_bin(costs, columns.agents[n, CPU] - shape[CPU])
        m = mem_bin(costs, columns.agents[n, MEM] - shape[MEM])
        return best_share(columns, costs, n, shape, table, c, m)[0]
    chosen = -1
    best = 0.0
    for j in range(free.size):
        if free[j] < amount or not serves(facts, j, need) or not bears(facts, j, need, amount):
            continue
        score = 0.0
        if rule in (PRICED, FGD):
            free[j] -= amount
            if rule == PRICED:
                score = price(columns, costs, n, free, shape)
            else:
                score = float(gradient(columns, costs, n, free, shape))
            free[j] += amount
        else:
            score = float(free[j] if rule == SPREAD else -free[j])
        if chosen < 0 or score > best:
            chosen, best = j, score
    return chosen


@inner
def pick_share(columns, costs, rule, n, free, shape, i, picks, at, kernel):  # type: ignore[no-untyped-def]
    """Take a share by the shape's strategy; return the number of picks, or -1."""
    need = shape[NEED_START + NEED_WIDTH * i : NEED_START + NEED_WIDTH * (i + 1)]
    facts = columns.facts[n]
    may_fragment = shape[FRAGMENTS] == 1
    if need[NEED_AMOUNT] <= UNIT:
        j = pick_one(columns, costs, rule, n, free, shape, need)
        if j >= 0:
            return take_device(free, picks, at, kernel, i, j, need[NEED_AMOUNT])
        if not may_fragment:
            return -1
    if shape[FILLS] == 0:
        spreads = rule == SPREAD
        return pick_window(free, facts, need, may_fragment, spreads, picks, at, kernel, i)
    return pick_filling(free, facts, need, not may_fragment, picks, at, kernel, i)


@inlined
def admits(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether an agent may take a shape and has enough cpu and memory for it."""
    agents = columns.agents
    return (
        agents[n, OPEN] == 1
        and agents[n, CPU] >= shape[CPU] * shape[TOGETHER]
        and agents[n, MEM] >= shape[MEM] * shape[TOGETHER]
        and agents[n, ARCHITECTURE] == shape[ARCHITECTURE]
        and (shape[ENGINE] == ANY or agents[n, ENGINE] == shape[ENGINE])
        and (agents[n, DRIVER] == ANY or agents[n, DRIVER] >= shape[DRIVER])
    )


@inner
def fill(columns, costs, rule, n, shape, free, picks):  # type: ignore[no-untyped-def]
    """Choose devices for all kernels that go together; return the number of picks, or -1.

    ``free`` becomes what is free on the agent's devices afterwards.
    """
    agent = columns.agents[n]
    if not admits(columns, n, shape):
        return -1
    for j in range(free.size):
        free[j] = columns.free[n, j]
    at = 0  # a variable: a literal would make numba compile the functions below for both types
    for kernel in range(shape[TOGETHER]):
        for i in range(shape[NEEDS]):
            need = shape[NEED_START + NEED_WIDTH * i : NEED_START + NEED_WIDTH * (i + 1)]
            if need[NEED_WHOLE] == 1:
                at = pick_whole(
                    free, columns.facts[n], agent[HAS_GRAPH], need, picks, at, kernel, i
                )
            else:
                at = pick_share(columns, costs, rule, n, free, shape, i, picks, at, kernel)
            if at < 0:
                return -1
    return at


@inlined
def able_whole(columns, n, models):  # type: ignore[no-untyped-def]
    """Return the number of wholly free devices of the models on an agent of one family."""
    if models == ANY:
        return columns.tallies[n, WHOLE]
    able = 0
    for j in range(columns.free.shape[1]):
        is_free = columns.free[n, j] >= UNIT and columns.free[n, j] == columns.facts[n, j, CAPACITY]
        able += is_free and allowed(models, columns.facts[n, j, MODEL])
    return able


@inlined
def has_room(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether a share of a plain shape fits on some device."""
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    amount = need[NEED_AMOUNT]
    facts, free = columns.facts[n], columns.free[n]
    for j in range(free.size):
        if free[j] >= amount and serves(facts, j, need) and bears(facts, j, need, amount):
            return True
    return False


@spliced
def plain_score(columns, costs, rule, n, shape):  # type: ignore[no-untyped-def]
    """Return ``score`` for a plain shape, faster: from the cached values of the agent."""
    family = columns.tallies[n, ONLY_FAMILY]
    has_need, amount = shape[NEEDS] == 1, shape[NEED_START + NEED_AMOUNT]
    takes_whole = shape[NEED_START + NEED_WHOLE] == 1
    if not admits(columns, n, shape):
        return int(UNFIT)
    if has_need and shape[NEED_START + NEED_FAMILY] != family:
        return int(UNFIT)
    # Cheap check before any single device: whether all devices together have enough.
    if has_need and columns.tallies[n, WHOLE if takes_whole else LEFT] < amount:
        return int(UNFIT)
    if has_need and takes_whole:
        if able_whole(columns, n, shape[NEED_START + NEED_MODELS]) < amount:
            return int(UNFIT)
        amount *= UNIT
    elif has_need and rule != PRICED and not has_room(columns, n, shape):
        return int(UNFIT)
    close = 1 if amount > UNIT else 2
    if rule == PRICED:
        return plain_price(columns, costs, n, shape, close)
    cpu_left = columns.agents[n, CPU] - shape[CPU]
    left = columns.tallies[n, LEFT] - amount
    if rule == BEST_FIT:
        return best_fit(left, cpu_left) * 4 + close
    mem_left = columns.agents[n, MEM] - shape[MEM]
    unasked = int(left > 0 and not has_need)
    return concentration(rule, unasked, left, cpu_left, mem_left)


@spliced
def plain_price(columns, costs, n, shape, close):  # type: ignore[no-untyped-def]
    """Return the priced score of an agent for a plain shape, or UNFIT if a share does not fit."""
    family = columns.tallies[n, ONLY_FAMILY]
    if family < 0:
        return close
    model, g = columns.facts[n, 0, MODEL], columns.sums[n, VALUE]
    count, whole = columns.tallies[n, COUNT], columns.tallies[n, WHOLE]
    table = costs.table[family, model]
    c = cpu_bin(costs, columns.agents[n, CPU] - shape[CPU])
    m = mem_bin(costs, columns.agents[n, MEM] - shape[MEM])
    if shape[NEEDS] == 0:
        left = potential(costs, table, c, m, g, count)
    elif shape[NEED_START + NEED_WHOLE] == 1:
        amount = shape[NEED_START + NEED_AMOUNT]
        left = potential(costs, table, c, m, g - amount, count)
        left -= beside_potential(costs, family, model, float(amount), whole, whole - amount)
    else:
        chosen, left = best_share(columns, costs, n, shape, table, c, m)
        if chosen < 0:
            return int(UNFIT)
    return int(rounded(left - columns.sums[n, MEASURE], costs) * 4 + close)


@spliced
def score(columns, costs, rule, n, shape, free, picks):  # type: ignore[no-untyped-def]
    """Return the policy's score of an agent for a shape: higher is better, or UNFIT."""
    count = fill(columns, costs, rule, n, shape, free, picks)
    if count < 0:
        return UNFIT
    agent, facts = columns.agents[n], columns.facts[n]
    cpu_left = agent[CPU] - shape[CPU] * shape[TOGETHER]
    close = closeness(facts, picks, count)
    if rule == PRICED:
        return rounded(price(columns, costs, n, free, shape), costs) * 4 + close
    if rule == FGD:
        return gradient(columns, costs, n, free, shape) * 4 + close
    if rule == BEST_FIT:
        return best_fit(left_on(free), cpu_left) * 4 + close
    if rule in (PACK, SPREAD):
        mem_left = agent[MEM] - shape[MEM] * shape[TOGETHER]
        unasked = unasked_families(facts, free, shape)
        return concentration(rule, unasked, left_on(free), cpu_left, mem_left)
    return 0


@inner
def settle(columns, costs, rule, n):  # type: ignore[no-untyped-def]
    """Recompute the cached values of an agent that has changed."""
    facts, free = columns.facts[n], columns.free[n]
    only, whole, count = int(ANY), 0, 0
    g = 0.0
    digest = mixed(columns.agents[n, KIND], columns.agents[n, OPEN])
    digest = mixed(mixed(digest, columns.agents[n, CPU]), columns.agents[n, MEM])
    for j in range(free.size):
        digest = mixed(digest, free[j])
        family = facts[j, FAMILY]
        if family < 0:
            continue
        digest = mixed(digest, facts[j, IN_FORCE])
        only = family if only in (ANY, family) else MIXED
        count += 1
        whole += is_whole(free, facts, j)
        g += value_of(costs, family, free[j])
    columns.tallies[n, ONLY_FAMILY], columns.tallies[n, COUNT] = only, count
    columns.tallies[n, WHOLE], columns.tallies[n, STATE_HASH] = whole, digest
    columns.tallies[n, LEFT] = left_on(free)
    columns.sums[n, VALUE] = g
    cpu, mem = columns.agents[n, CPU], columns.agents[n, MEM]
    if rule == FGD:
        columns.sums[n, MEASURE] = fragments(costs, facts, free, cpu)
    elif rule == PRICED and only >= 0:
        c, m = cpu_bin(costs, cpu), mem_bin(costs, mem)
        table = costs.table[only, facts[0, MODEL]]
        columns.sums[n, MEASURE] = potential(costs, table, c, m, g, count)


@inlined
def mixed(digest, number):  # type: ignore[no-untyped-def]
    """Mix a number into a hash."""
    digest = (digest ^ number) * 0x2127599BF4325C37
    return digest ^ (digest >> 29)
