"""Integer columns for the hot loops of placement, and the meaning of their numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Placement policies as numbers.
PRICED, FGD, BEST_FIT, PACK, SPREAD, ROUND_ROBIN, RANDOM = range(7)

# Columns of an agent. HAS_GRAPH: the topology of its devices is known. KIND: agents with equal
# numbers have equal static facts.
CPU, MEM, OPEN, ARCHITECTURE, ENGINE, DRIVER, HAS_GRAPH, KIND = range(8)
AGENT_WIDTH = 8
# Facts of a device. IN_FORCE: the share that all its sessions must have; 0 while it is empty, ANY
# where shares may differ.
CAPACITY, FAMILY, MODEL, NUMA, LINK, MIN_SHARE, MAX_SHARE, IN_FORCE = range(8)
DEVICE_WIDTH = 8
# Derived values, recomputed when an agent changes: the value of the free capacity of its devices
# and the policy's measure of it; its only device family (or MIXED), the number of its devices, how
# many are wholly free, the free thousandths on all devices, a hash of its state.
VALUE, MEASURE = range(2)
SUMS_WIDTH = 2
ONLY_FAMILY, COUNT, WHOLE, LEFT, STATE_HASH = range(5)
TALLIES_WIDTH = 5
MIXED = -2
# Columns of a shape (the first six match those of an agent), then four for each device family.
TOGETHER, FRAGMENTS, FILLS, NEEDS = 6, 7, 8, 9
NEED_START, NEED_WIDTH = 10, 4
NEED_FAMILY, NEED_WHOLE, NEED_AMOUNT, NEED_MODELS = range(4)
MAX_NEEDS = 4
SHAPE_WIDTH = NEED_START + NEED_WIDTH * MAX_NEEDS
# One pick: kernel, need, device, and the quantity taken from it.
PICK_KERNEL, PICK_NEED, PICK_DEVICE, PICK_AMOUNT = range(4)
# State of the search: write position of the log, its read positions for sums and tallies; number of
# the last visit; the agent chosen last; the random sequence; the policy; the number of designated
# agents, whether only these may be used, the number of barred agents.
HEAD, SETTLED, VISIT, CURSOR, DRAWS, RULE, NAMED, STRICT, BARRED = range(9)
MEMORY_WIDTH = 9
# Flag of a log entry: the agent may have gained room; without it, it only lost room.
GREW = 2**40
# Agents that a request designates or bars.
AMONG, AGAINST = range(2)
# States with a known score: their hashes, and the scores.
HASHES, SCORES = range(2)

ANY = -1
UNIT = 1000  # a whole device
NOBODYS = UNIT + 1  # a share in force that no request can match
STEP = 10  # granularity of a divided share
LEAST = 50  # smallest part of a divided share
BLOCK = 64  # agents per block; the best score of each block is cached
KNOWN = 1024  # cached scores of equal agent states while many agents are scored
UNFIT = -(2**62)
# Subtracted from the free thousandths of an unhealthy device, so that nothing fits.
UNHEALTHY = 2**40


class Columns(NamedTuple):
    """The agents of a resource group; the order of the rows breaks ties."""

    agents: Ints  # [agent, AGENT_WIDTH], free cpu and mem
    free: Ints  # [agent, device], thousandths; negative where unhealthy
    facts: Ints  # [agent, device, DEVICE_WIDTH]
    sums: Floats  # [agent, SUMS_WIDTH], sums over the devices of an agent; maintained by the search
    tallies: Ints  # [agent, TALLIES_WIDTH], likewise


class Costs(NamedTuple):
    """Precomputed inputs of a policy; see tables.py."""

    value: Floats  # [family, 1001] value of the remaining part of a device
    worth: Floats  # [table, cpu, mem, devices] devices that an agent can still sell
    table: Ints  # [family, model] index of the table, or -1
    mu: Floats  # [family, model] price of a model in demand
    whole: Floats  # [family, devices] value of wholly free devices beyond their number
    bins: Ints  # cpu bin, mem bin
    quantum: Floats  # scores are rounded to multiples of it
    typical: Ints  # [request, (cpu, family, devices, thousandths, models)]
    portion: Floats  # [request] its fraction of all requests


class Memory(NamedTuple):
    """Scores of past searches and the log of changes since."""

    scores: Ints  # [shape, agent]
    best: Ints  # [shape, block]
    seen: Ints  # [shape] read position in the log; -1: nothing scored yet
    log: Ints  # ring buffer, its length a power of two: changed agents, with `GREW`
    mark: Ints  # [agent] last visit
    state: Ints  # MEMORY_WIDTH
    picks: Ints  # [pick, 4] of the last decision
    room: Ints  # [device] scratch
    stale: Ints  # [agent] scratch: agents whose score must be recomputed
    listed: Ints  # [AMONG or AGAINST, agent] agents that the current request designates or bars
    known: Ints  # [HASHES or SCORES, KNOWN] scratch
