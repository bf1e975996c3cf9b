"""The integer columns that the hot loops of placement work on, and what their numbers mean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rules, as numbers.
PRICED, FGD, BEST_FIT, PACK, SPREAD, ROUND_ROBIN, RANDOM = range(7)

# Columns of an agent. HAS_GRAPH: something is known of how close its devices are. KIND: equal
# numbers, equal facts.
CPU, MEM, OPEN, ARCHITECTURE, ENGINE, DRIVER, HAS_GRAPH, KIND = range(8)
AGENT_WIDTH = 8
# Facts of a device. IN_FORCE: the share that all on it must have, 0 while it is empty; ANY where
# shares may differ.
CAPACITY, FAMILY, MODEL, NUMA, LINK, LEAST_SHARE, MOST_SHARE, IN_FORCE = range(8)
DEVICE_WIDTH = 8
# What the search works out of an agent whenever it has changed: the worth of what is free on its
# devices and the rule's measure of it; its only family (or MIXED), how many devices it has, how
# many of them are wholly free, how many thousandths are free on all, a hash of its state.
VALUE, MEASURE = range(2)
SUMS_WIDTH = 2
ONLY_FAMILY, COUNT, WHOLE, LEFT, STATE_HASH = range(5)
TALLIES_WIDTH = 5
MIXED = -2
# Columns of a shape (its first six as those of an agent), then four for each family it needs.
TOGETHER, FRAGMENTS, FILLS, NEEDS = 6, 7, 8, 9
NEED_START, NEED_WIDTH = 10, 4
NEED_FAMILY, NEED_WHOLE, NEED_AMOUNT, NEED_MODELS = range(4)
MAX_NEEDS = 4
SHAPE_WIDTH = NEED_START + NEED_WIDTH * MAX_NEEDS
# One device taken: for which kernel, for which need, which device, how much of it.
PICK_KERNEL, PICK_NEED, PICK_DEVICE, PICK_AMOUNT = range(4)
# The memory of a search: how far the log is written and how far read for sums and tallies; the
# number of the last visit; the agent chosen last; the random sequence; the rule; how many agents
# are named, whether no other will do, how many are barred.
HEAD, SETTLED, VISIT, CURSOR, DRAWS, RULE, NAMED, STRICT, BARRED = range(9)
MEMORY_WIDTH = 9
# In the log, beside the number of an agent: it may have got room, not only lost some.
GREW = 2**40
# Agents that a request names or bars.
AMONG, AGAINST = range(2)
# States whose score is known: their hashes, and the scores.
HASHES, SCORES = range(2)

ANY = -1
UNIT = 1000  # a whole device
NOBODYS = UNIT + 1  # a share in force that nobody can ask for
STEP = 10  # a share is divided no finer
LEAST = 50  # and no part is smaller
BLOCK = 64  # agents whose best score is kept together
KNOWN = 1024  # states of agents whose score is remembered while many are scored
UNFIT = -(2**62)
# What is free on a device that is not healthy is lowered by this, so that nothing fits.
UNHEALTHY = 2**40


class Columns(NamedTuple):
    """The agents of a group; the order of the rows decides ties."""

    agents: Ints  # [agent, AGENT_WIDTH], free cpu and mem
    free: Ints  # [agent, device], thousandths; below 0 where not healthy
    facts: Ints  # [agent, device, DEVICE_WIDTH]
    sums: Floats  # [agent, SUMS_WIDTH], of all devices of the agent; kept by the search
    tallies: Ints  # [agent, TALLIES_WIDTH], likewise


class Costs(NamedTuple):
    """What a rule knows beforehand; see tables.py."""

    value: Floats  # [family, 1001] worth of a remainder of a device
    worth: Floats  # [table, cpu, mem, devices] devices that an agent can still sell
    table: Ints  # [family, model] which table, or -1
    mu: Floats  # [family, model] price of a sought-after model
    whole: Floats  # [family, devices] what wholly free devices are worth beyond their number
    bins: Ints  # cpu bin, mem bin
    quantum: Floats  # scores are rounded to it
    typical: Ints  # [request, (cpu, family, devices, thousandths, models)]
    portion: Floats  # [request] its part of all


class Memory(NamedTuple):
    """Scores of past searches and what has changed since."""

    scores: Ints  # [shape, agent]
    best: Ints  # [shape, block]
    seen: Ints  # [shape] how far it has read the log; -1: nothing scored yet
    log: Ints  # ring, as long as a power of two: the agents that have changed, and `GREW`
    mark: Ints  # [agent] last visit
    state: Ints  # MEMORY_WIDTH
    picks: Ints  # [pick, 4] of the last decision
    room: Ints  # [device] scratch
    stale: Ints  # [agent] scratch: those to be scored anew
    listed: Ints  # [AMONG or AGAINST, agent] whom the request of this decision names or bars
    known: Ints  # [HASHES or SCORES, KNOWN] scratch
