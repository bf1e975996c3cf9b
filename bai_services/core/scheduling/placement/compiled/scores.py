"""Score one agent for one shape under a policy (compiled; columns.py explains recurring names).

``score`` handles every shape and policy. ``plain_score`` returns the same result for a plain shape
(see ``is_plain``) under the policies priced, best-fit, pack and spread. It is faster, because it
uses the derived values of the agent.
"""

from __future__ import annotations

import math

from .columns import (
    ANY,
    ARCHITECTURE,
    BEST_FIT,
    CAPACITY,
    CPU,
    DEVICE_COUNT,
    DRIVER,
    ENGINE,
    FAMILY,
    FGD,
    FREE_VALUE,
    HAS_GRAPH,
    IN_FORCE,
    IS_FILL,
    KERNELS,
    KIND,
    MAY_FRAGMENT,
    MEASURE,
    MEM,
    MIXED,
    MODEL,
    NEED_AMOUNT,
    NEED_COUNT,
    NEED_FAMILY,
    NEED_MODELS,
    NEED_START,
    NEED_WHOLE,
    NEED_WIDTH,
    ONLY_FAMILY,
    OPEN,
    PACK,
    PRICED,
    SPREAD,
    STATE_HASH,
    STORAGE,
    TOTAL_FREE,
    TYPICAL_CPU,
    TYPICAL_DEVICES,
    TYPICAL_FAMILY,
    TYPICAL_MODELS,
    TYPICAL_SHARE,
    UNFIT,
    UNIT,
    WHOLE_COUNT,
)
from .device_selection import (
    add_pick,
    closeness,
    inlined,
    inner,
    is_model_allowed,
    is_suitable,
    is_whole,
    may_hold_part,
    pick_filling,
    pick_whole,
    spliced,
)
from .windows import pick_window


@inlined
def cpu_bin(costs, cpu):  # type: ignore[no-untyped-def]
    """Return the index of free cpu (millicores) in ``costs.capacity_value``."""
    return min(max(cpu, 0) // costs.bins[0], costs.capacity_value.shape[1] - 1)


@inlined
def mem_bin(costs, mem):  # type: ignore[no-untyped-def]
    """Return the index of free memory (bytes) in ``costs.capacity_value``."""
    return min(max(mem, 0) // costs.bins[1], costs.capacity_value.shape[2] - 1)


@inlined
def expected_use(costs, table, cpu_at, mem_at, value, count):  # type: ignore[no-untyped-def]
    """Return the expected number of an agent's free devices that future requests will use.

    ``value`` is the value of the free capacity, in devices. ``count`` is the number of devices of
    the agent. ``cpu_at`` and ``mem_at`` are the bins of its free cpu and memory. The result is
    interpolated between whole numbers of devices. Without a table, the result is ``value``.
    """
    if table < 0 or value <= 0.0:
        return value
    count = min(count, costs.capacity_value.shape[3] - 1)
    whole = int(value)
    part = value - whole
    if whole >= count:
        return costs.capacity_value[table, cpu_at, mem_at, count]
    low = costs.capacity_value[table, cpu_at, mem_at, whole]
    return (1.0 - part) * low + part * costs.capacity_value[table, cpu_at, mem_at, whole + 1]


@inlined
def value_of(costs, family, free):  # type: ignore[no-untyped-def]
    """Return the value of a device with ``free`` free thousandths; 1 if all 1000 are free."""
    return costs.remainder_value[family, min(max(free, 0), UNIT)]


@inlined
def extra_cost(costs, family, model, value_taken, whole_before, whole_after):  # type: ignore[no-untyped-def]
    """Return the costs of a placement that ``expected_use`` does not include: the price of the
    model, and the lost bonus for devices that are no longer wholly free.
    """
    last = costs.whole_bonus.shape[1] - 1
    lost_bonus = (
        costs.whole_bonus[family, min(whole_before, last)]
        - costs.whole_bonus[family, min(whole_after, last)]
    )
    return costs.model_price[family, model] * value_taken + lost_bonus


@inner
def price(columns, costs, n, after, shape):  # type: ignore[no-untyped-def]
    """Return the change of an agent's expected use minus the extra cost, summed over families.

    ``after`` holds the free thousandths of its devices after the placement. ``best_share_device``
    and ``plain_price`` contain the same formula for plain shapes: keep the three consistent.
    """
    facts, before = columns.facts[n], columns.free[n]
    cpu, mem = columns.agents[n, CPU], columns.agents[n, MEM]
    cpu_after = cpu - shape[CPU] * shape[KERNELS]
    mem_after = mem - shape[MEM] * shape[KERNELS]
    score = 0.0
    done = 0
    for first in range(before.size):
        family = facts[first, FAMILY]
        if family < 0 or done >> family & 1:
            continue
        done |= 1 << family
        count = whole_before = whole_after = 0
        value_before = value_after = 0.0
        for j in range(first, before.size):
            if facts[j, FAMILY] != family:
                continue
            count += 1
            value_before += value_of(costs, family, before[j])
            value_after += value_of(costs, family, after[j])
            whole_before += is_whole(before, facts, j)
            whole_after += is_whole(after, facts, j)
        model = facts[first, MODEL]
        table = costs.table[family, model]
        cpu_at, mem_at = cpu_bin(costs, cpu_after), mem_bin(costs, mem_after)
        score += expected_use(costs, table, cpu_at, mem_at, value_after, count)
        cpu_at, mem_at = cpu_bin(costs, cpu), mem_bin(costs, mem)
        score -= expected_use(costs, table, cpu_at, mem_at, value_before, count)
        taken = value_before - value_after
        score -= extra_cost(costs, family, model, taken, whole_before, whole_after)
    return score


@inner
def fragmentation(costs, facts, free, cpu):  # type: ignore[no-untyped-def]
    """Return the mean number of free thousandths that a typical request cannot use.

    The mean over the typical requests is weighted by their frequency.

    ``free`` and ``cpu`` are the free capacity of the agent. All free thousandths are unusable for a
    request that does not fit, and for a request without devices.
    """
    total = total_free(free)
    lost = 0.0
    for t in range(costs.frequency.size):
        request = costs.typical[t]
        fitting = unusable = 0
        if request[TYPICAL_DEVICES] > 0 and request[TYPICAL_CPU] <= cpu:
            for j in range(free.size):
                is_usable = facts[j, FAMILY] == request[TYPICAL_FAMILY] and is_model_allowed(
                    request[TYPICAL_MODELS], facts[j, MODEL]
                )
                if is_usable and free[j] >= request[TYPICAL_SHARE]:
                    fitting += 1
                else:
                    unusable += max(free[j], 0)
        is_fitting = 0 < request[TYPICAL_DEVICES] <= fitting
        lost += costs.frequency[t] * (unusable if is_fitting else total)
    return lost


@inner
def fgd_score(columns, costs, n, after, shape):  # type: ignore[no-untyped-def]
    """Return the published score of fragmentation gradient descent: 0 to 100, higher if the
    placement adds less fragmentation.
    """
    cpu_after = columns.agents[n, CPU] - shape[CPU] * shape[KERNELS]
    lost = fragmentation(costs, columns.facts[n], after, cpu_after)
    return int(100.0 / (1.0 + math.exp(-(columns.sums[n, MEASURE] - lost) / 1000.0)))


@inlined
def total_free(free):  # type: ignore[no-untyped-def]
    """Return the sum of the free thousandths of all devices."""
    left = 0
    for j in range(free.size):
        left += max(free[j], 0)
    return left


@inlined
def best_fit_score(left, cpu_left):  # type: ignore[no-untyped-def]
    """Return the published best-fit score, normalized to 128 cores and 8 devices: up to 100,
    higher if less capacity remains free.
    """
    return int(100.0 * (1.0 - 0.5 * cpu_left / 128_000.0 - 0.5 * left / 8_000.0))


@inner
def unrequested_families(facts, free, shape):  # type: ignore[no-untyped-def]
    """Return the number of device families with free capacity that the shape does not request."""
    unrequested = done = 0
    for j in range(free.size):
        family = facts[j, FAMILY]
        if family < 0 or free[j] <= 0:
            continue
        is_requested = False
        for i in range(shape[NEED_COUNT]):
            is_requested = is_requested or shape[NEED_START + NEED_WIDTH * i] == family
        if not is_requested and not done >> family & 1:
            done |= 1 << family
            unrequested += 1
    return unrequested


@inlined
def pack_or_spread_score(policy, unrequested, left, cpu_left, mem_left):  # type: ignore[no-untyped-def]
    """Return the score of the policies pack and spread.

    Both prefer the agent with the fewest unrequested device families: a request without devices
    should not occupy an agent with devices. Among equal agents, pack prefers the least free device
    capacity, then the least cpu and mem; spread prefers the most. The score combines these values
    in one integer, mem in units of 256 MiB.
    """
    devices = min(left, 2**20 - 1)
    cpu = min(max(cpu_left, 0), 2**21 - 1)
    mem = min(max(mem_left, 0) // 2**28, 2**16 - 1)
    sort_key = (devices * 2**21 + cpu) * 2**16 + mem
    return (sort_key if policy == SPREAD else -sort_key) - unrequested * 2**58


@inlined
def round_score(change, costs):  # type: ignore[no-untyped-def]
    """Return a price rounded to units of the quantum: nearly equal agents get equal scores."""
    return int(math.floor(change / costs.quantum[0] + 0.5))


@inlined
def is_plain(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether ``plain_score`` can score a shape on an agent.

    A shape is plain for an agent if it has one kernel and at most one need, and the agent has at
    most one device family. The need must not require several devices that are chosen by topology,
    or a share that may be divided over several devices.
    """
    family = columns.tallies[n, ONLY_FAMILY]
    if shape[KERNELS] != 1 or shape[NEED_COUNT] > 1 or shape[MAY_FRAGMENT] == 1 or family == MIXED:
        return False
    amount = shape[NEED_START + NEED_AMOUNT]
    if shape[NEED_START + NEED_WHOLE] == 1:
        return amount == 1 or columns.agents[n, HAS_GRAPH] == 0
    return amount <= UNIT


@inlined
def best_share_device(columns, costs, n, shape, table, cpu_at, mem_at):  # type: ignore[no-untyped-def]
    """Return the best device for the share of a plain shape, or -1, and the resulting score.

    The score is the expected use after the placement, minus the extra cost. All wholly free devices
    give equal scores, so only the first of them is tried.
    """
    family, whole = columns.tallies[n, ONLY_FAMILY], columns.tallies[n, WHOLE_COUNT]
    free_value, count = columns.sums[n, FREE_VALUE], columns.tallies[n, DEVICE_COUNT]
    model, amount = columns.facts[n, 0, MODEL], shape[NEED_START + NEED_AMOUNT]
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    models = need[NEED_MODELS]
    best_score, best_device, has_split = 0.0, (-1), False
    for j in range(columns.free.shape[1]):
        free = columns.free[n, j]
        if free < amount or not is_model_allowed(models, columns.facts[n, j, MODEL]):
            continue
        if not may_hold_part(columns.facts[n], j, need, amount):
            continue
        is_split = free >= UNIT and free == columns.facts[n, j, CAPACITY]
        if is_split and has_split:
            continue
        has_split = has_split or is_split
        taken = value_of(costs, family, free) - value_of(costs, family, free - amount)
        score = expected_use(costs, table, cpu_at, mem_at, free_value - taken, count)
        score -= extra_cost(costs, family, model, taken, whole, whole - is_split)
        if best_device < 0 or score > best_score:
            best_score, best_device = score, j
    return best_device, best_score


@spliced
def pick_share_device(columns, costs, policy, n, free, shape, need):  # type: ignore[no-untyped-def]
    """Return the device that the policy chooses for a share of at most one device, or -1.

    ``free`` is changed during the call and restored before the return.
    """
    facts = columns.facts[n]
    amount = need[NEED_AMOUNT]
    if policy == PRICED and is_plain(columns, n, shape):
        table = costs.table[need[NEED_FAMILY], facts[0, MODEL]]
        cpu_at = cpu_bin(costs, columns.agents[n, CPU] - shape[CPU])
        mem_at = mem_bin(costs, columns.agents[n, MEM] - shape[MEM])
        return best_share_device(columns, costs, n, shape, table, cpu_at, mem_at)[0]
    best_device = -1
    best_score = 0.0
    for j in range(free.size):
        if (
            free[j] < amount
            or not is_suitable(facts, j, need)
            or not may_hold_part(facts, j, need, amount)
        ):
            continue
        score = 0.0
        if policy in (PRICED, FGD):
            free[j] -= amount
            if policy == PRICED:
                score = price(columns, costs, n, free, shape)
            else:
                score = float(fgd_score(columns, costs, n, free, shape))
            free[j] += amount
        else:
            score = float(free[j] if policy == SPREAD else -free[j])
        if best_device < 0 or score > best_score:
            best_device, best_score = j, score
    return best_device


@inner
def pick_share(columns, costs, policy, n, free, shape, i, picks, at, kernel):  # type: ignore[no-untyped-def]
    """Pick devices for a share by the shape's strategy; return the next index, or -1."""
    need = shape[NEED_START + NEED_WIDTH * i : NEED_START + NEED_WIDTH * (i + 1)]
    facts = columns.facts[n]
    may_fragment = shape[MAY_FRAGMENT] == 1
    if need[NEED_AMOUNT] <= UNIT:
        j = pick_share_device(columns, costs, policy, n, free, shape, need)
        if j >= 0:
            return add_pick(free, picks, at, kernel, i, j, need[NEED_AMOUNT])
        if not may_fragment:
            return -1
    if shape[IS_FILL] == 0:
        is_spread = policy == SPREAD
        return pick_window(free, facts, need, may_fragment, is_spread, picks, at, kernel, i)
    return pick_filling(free, facts, need, not may_fragment, picks, at, kernel, i)


@inlined
def may_run(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether the state, cpu, mem, architecture, engine, driver and storage hosts of an
    agent suit a shape.

    Devices are not checked.
    """
    agents = columns.agents
    return (
        agents[n, OPEN] == 1
        and agents[n, CPU] >= shape[CPU] * shape[KERNELS]
        and agents[n, MEM] >= shape[MEM] * shape[KERNELS]
        and agents[n, ARCHITECTURE] == shape[ARCHITECTURE]
        and (shape[ENGINE] == ANY or agents[n, ENGINE] == shape[ENGINE])
        and (agents[n, DRIVER] == ANY or agents[n, DRIVER] >= shape[DRIVER])
        and agents[n, STORAGE] & shape[STORAGE] == 0
    )


@inner
def fill(columns, costs, policy, n, shape, free, picks):  # type: ignore[no-untyped-def]
    """Choose devices for all kernels of the shape on one agent; return the number of picks, or -1
    if the kernels do not fit.

    ``free`` is overwritten with the free thousandths of the agent's devices after the placement.
    """
    agent = columns.agents[n]
    if not may_run(columns, n, shape):
        return -1
    for j in range(free.size):
        free[j] = columns.free[n, j]
    # Use a variable, because numba would compile the callees a second time for the literal 0.
    at = 0
    for kernel in range(shape[KERNELS]):
        for i in range(shape[NEED_COUNT]):
            need = shape[NEED_START + NEED_WIDTH * i : NEED_START + NEED_WIDTH * (i + 1)]
            if need[NEED_WHOLE] == 1:
                at = pick_whole(
                    free, columns.facts[n], agent[HAS_GRAPH], need, picks, at, kernel, i
                )
            else:
                at = pick_share(columns, costs, policy, n, free, shape, i, picks, at, kernel)
            if at < 0:
                return -1
    return at


@inlined
def count_whole_devices(columns, n, models):  # type: ignore[no-untyped-def]
    """Return the number of wholly free devices of the given models on an agent of one family."""
    if models == ANY:
        return columns.tallies[n, WHOLE_COUNT]
    count = 0
    for j in range(columns.free.shape[1]):
        is_free = columns.free[n, j] >= UNIT and columns.free[n, j] == columns.facts[n, j, CAPACITY]
        count += is_free and is_model_allowed(models, columns.facts[n, j, MODEL])
    return count


@inlined
def share_fits(columns, n, shape):  # type: ignore[no-untyped-def]
    """Return whether the share of a plain shape fits on any device."""
    need = shape[NEED_START : NEED_START + NEED_WIDTH]
    amount = need[NEED_AMOUNT]
    facts, free = columns.facts[n], columns.free[n]
    for j in range(free.size):
        if (
            free[j] >= amount
            and is_suitable(facts, j, need)
            and may_hold_part(facts, j, need, amount)
        ):
            return True
    return False


@spliced
def plain_score(columns, costs, policy, n, shape):  # type: ignore[no-untyped-def]
    """Return the result of ``score`` for a plain shape, from the derived values of the agent."""
    family = columns.tallies[n, ONLY_FAMILY]
    has_need, amount = shape[NEED_COUNT] == 1, shape[NEED_START + NEED_AMOUNT]
    takes_whole = shape[NEED_START + NEED_WHOLE] == 1
    if not may_run(columns, n, shape):
        return int(UNFIT)
    if has_need and shape[NEED_START + NEED_FAMILY] != family:
        return int(UNFIT)
    # The check of the total is fast, so it precedes the checks of single devices.
    if has_need and columns.tallies[n, WHOLE_COUNT if takes_whole else TOTAL_FREE] < amount:
        return int(UNFIT)
    if has_need and takes_whole:
        if count_whole_devices(columns, n, shape[NEED_START + NEED_MODELS]) < amount:
            return int(UNFIT)
        amount *= UNIT
    elif has_need and policy != PRICED and not share_fits(columns, n, shape):
        return int(UNFIT)
    locality = 1 if amount > UNIT else 2
    if policy == PRICED:
        return plain_price(columns, costs, n, shape, locality)
    cpu_left = columns.agents[n, CPU] - shape[CPU]
    left = columns.tallies[n, TOTAL_FREE] - amount
    if policy == BEST_FIT:
        return best_fit_score(left, cpu_left) * 4 + locality
    mem_left = columns.agents[n, MEM] - shape[MEM]
    unrequested = int(left > 0 and not has_need)
    return pack_or_spread_score(policy, unrequested, left, cpu_left, mem_left)


@spliced
def plain_price(columns, costs, n, shape, locality):  # type: ignore[no-untyped-def]
    """Return the score of the policy priced for a plain shape; UNFIT if a share does not fit."""
    family = columns.tallies[n, ONLY_FAMILY]
    if family < 0:
        return locality
    model, free_value = columns.facts[n, 0, MODEL], columns.sums[n, FREE_VALUE]
    count, whole = columns.tallies[n, DEVICE_COUNT], columns.tallies[n, WHOLE_COUNT]
    table = costs.table[family, model]
    cpu_at = cpu_bin(costs, columns.agents[n, CPU] - shape[CPU])
    mem_at = mem_bin(costs, columns.agents[n, MEM] - shape[MEM])
    if shape[NEED_COUNT] == 0:
        use_after = expected_use(costs, table, cpu_at, mem_at, free_value, count)
    elif shape[NEED_START + NEED_WHOLE] == 1:
        amount = shape[NEED_START + NEED_AMOUNT]
        use_after = expected_use(costs, table, cpu_at, mem_at, free_value - amount, count)
        use_after -= extra_cost(costs, family, model, float(amount), whole, whole - amount)
    else:
        device, use_after = best_share_device(columns, costs, n, shape, table, cpu_at, mem_at)
        if device < 0:
            return int(UNFIT)
    return int(round_score(use_after - columns.sums[n, MEASURE], costs) * 4 + locality)


@spliced
def score(columns, costs, policy, n, shape, free, picks):  # type: ignore[no-untyped-def]
    """Return the policy's score of an agent for a shape (higher is better), or UNFIT."""
    count = fill(columns, costs, policy, n, shape, free, picks)
    if count < 0:
        return UNFIT
    agent, facts = columns.agents[n], columns.facts[n]
    cpu_left = agent[CPU] - shape[CPU] * shape[KERNELS]
    locality = closeness(facts, picks, count)
    if policy == PRICED:
        return round_score(price(columns, costs, n, free, shape), costs) * 4 + locality
    if policy == FGD:
        return fgd_score(columns, costs, n, free, shape) * 4 + locality
    if policy == BEST_FIT:
        return best_fit_score(total_free(free), cpu_left) * 4 + locality
    if policy in (PACK, SPREAD):
        mem_left = agent[MEM] - shape[MEM] * shape[KERNELS]
        unrequested = unrequested_families(facts, free, shape)
        return pack_or_spread_score(policy, unrequested, total_free(free), cpu_left, mem_left)
    return 0


@inner
def recompute_agent(columns, costs, policy, n):  # type: ignore[no-untyped-def]
    """Recompute the derived values of an agent."""
    facts, free = columns.facts[n], columns.free[n]
    only, whole, count = int(ANY), 0, 0
    free_value = 0.0
    digest = mix_hash(columns.agents[n, KIND], columns.agents[n, OPEN])
    digest = mix_hash(mix_hash(digest, columns.agents[n, CPU]), columns.agents[n, MEM])
    for j in range(free.size):
        digest = mix_hash(digest, free[j])
        family = facts[j, FAMILY]
        if family < 0:
            continue
        digest = mix_hash(digest, facts[j, IN_FORCE])
        only = family if only in (ANY, family) else MIXED
        count += 1
        whole += is_whole(free, facts, j)
        free_value += value_of(costs, family, free[j])
    columns.tallies[n, ONLY_FAMILY], columns.tallies[n, DEVICE_COUNT] = only, count
    columns.tallies[n, WHOLE_COUNT], columns.tallies[n, STATE_HASH] = whole, digest
    columns.tallies[n, TOTAL_FREE] = total_free(free)
    columns.sums[n, FREE_VALUE] = free_value
    cpu, mem = columns.agents[n, CPU], columns.agents[n, MEM]
    if policy == FGD:
        columns.sums[n, MEASURE] = fragmentation(costs, facts, free, cpu)
    elif policy == PRICED and only >= 0:
        cpu_at, mem_at = cpu_bin(costs, cpu), mem_bin(costs, mem)
        table = costs.table[only, facts[0, MODEL]]
        columns.sums[n, MEASURE] = expected_use(costs, table, cpu_at, mem_at, free_value, count)


@inlined
def mix_hash(digest, number):  # type: ignore[no-untyped-def]
    """Return ``digest`` combined with one more number."""
    digest = (digest ^ number) * 0x2127599BF4325C37
    return digest ^ (digest >> 29)
