"""Columns of agents, requests and scores for compiled code, and their constants.

Names that recur in the compiled functions:

- ``columns``, ``costs``, ``cache``: the named tuples below; ``policy``: a policy number.
- ``n``: index of an agent; ``j``: index of one of its devices; ``facts``, ``free``: the rows of its
  devices in ``Columns.facts`` and ``Columns.free``.
- ``s``: index of a shape, which is an encoded request (``encode_request``); ``shape``: its row;
  ``i``: index of a need of the shape; ``need``: the columns of that need.
- ``picks``: the array that receives the chosen devices; ``at``: the index of the next pick.

Functions that append picks subtract the picked amounts from ``free``. They return the index after
their last pick, or -1 if the devices do not suffice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Placement policies as numbers.
PRICED, FGD, BEST_FIT, PACK, SPREAD, ROUND_ROBIN, RANDOM = range(7)

# Columns of an agent. CPU, MEM: free capacity in millicores and bytes. OPEN: 1 if it is alive and
# schedulable. ARCHITECTURE, ENGINE: numbers of the names (``NameTable.label``). DRIVER: see
# ``driver_number``. STORAGE: bits of the storage hosts that do not work there (see
# ``NameTable.hosts``). HAS_GRAPH: 1 if the links of its devices are known, or the devices belong to
# several NUMA nodes. KIND: equal for agents with equal static facts.
CPU, MEM, OPEN, ARCHITECTURE, ENGINE, DRIVER, STORAGE, HAS_GRAPH, KIND = range(9)
AGENT_WIDTH = 9
# Facts of a device. CAPACITY, MIN_SHARE, MAX_SHARE: thousandths; MAX_SHARE is 0 if no share can be
# allocated. FAMILY, MODEL: numbers of the names (``NameTable``). NUMA, LINK: numbers of the NUMA
# node and of the link group; -1: unknown. IN_FORCE: the share that all sessions on the device must
# have; 0 while the device is empty, ANY if the shares may differ.
CAPACITY, FAMILY, MODEL, NUMA, LINK, MIN_SHARE, MAX_SHARE, IN_FORCE = range(8)
DEVICE_WIDTH = 8
# Derived floats of an agent, recomputed when the agent changes. FREE_VALUE: value of the free
# capacity of its devices. MEASURE: a placement is scored by how much it changes this quantity
# (priced: expected use of the free capacity; fgd: fragmentation).
FREE_VALUE, MEASURE = range(2)
SUMS_WIDTH = 2
# Derived integers of an agent. ONLY_FAMILY: its device family (ANY: no devices; MIXED: several
# families). DEVICE_COUNT, WHOLE_COUNT: numbers of its devices, and of its wholly free devices.
# TOTAL_FREE: sum of the free thousandths. STATE_HASH: hash of its state.
ONLY_FAMILY, DEVICE_COUNT, WHOLE_COUNT, TOTAL_FREE, STATE_HASH = range(5)
TALLIES_WIDTH = 5
MIXED = -2
# Columns of a shape. CPU, MEM, ARCHITECTURE, ENGINE, DRIVER and STORAGE have the same indices as
# for an agent; CPU and MEM are the amounts of one kernel, and STORAGE has the bits of the storage
# hosts with its folders.
# KERNELS: the number of kernels that are placed together on one agent. MAY_FRAGMENT: see
# ``Request.allow_fragmentation``. IS_FILL: 1 for the strategy FILL. NEED_COUNT: number of needs.
# From NEED_START on: NEED_WIDTH columns for each requested device slot, at most MAX_NEEDS.
KERNELS, MAY_FRAGMENT, IS_FILL, NEED_COUNT = 7, 8, 9, 10
NEED_START, NEED_WIDTH = 11, 4
# Columns of a need. NEED_AMOUNT: whole devices if NEED_WHOLE is 1, thousandths of a device if it is
# 0. NEED_MODELS: bit mask of the accepted models; ANY: all models.
NEED_FAMILY, NEED_WHOLE, NEED_AMOUNT, NEED_MODELS = range(4)
MAX_NEEDS = 4
SHAPE_WIDTH = NEED_START + NEED_WIDTH * MAX_NEEDS
# Columns of a pick: number of the kernel, number of the need, number of the device, and thousandths
# taken from the device.
PICK_KERNEL, PICK_NEED, PICK_DEVICE, PICK_AMOUNT = range(4)
# State of the search.
(
    LOG_HEAD,  # write position of the log
    DERIVED_HEAD,  # derived values of agents are current up to this log position
    VISIT,  # number of the last refresh of scores
    LAST_AGENT,  # row of the agent chosen last; -1: none
    RANDOM_STATE,  # state of the random generator
    POLICY,  # number of the placement policy
    DESIGNATED_COUNT,  # number of designated agents
    STRICT,  # 1 if only designated agents are allowed
    AVOID_COUNT,  # number of agents to avoid
) = range(9)
STATE_WIDTH = 9
# Flag of a log entry: the free capacity of the agent may have grown. Without the flag, the capacity
# only shrank.
GREW = 2**40
# Rows of ``agent_lists``: agents that the current request designates, and agents to avoid.
DESIGNATED, AVOID = range(2)
# Rows of ``state_cache``: hashes of agent states, and their scores.
CACHED_HASH, CACHED_SCORE = range(2)

ANY = -1
UNIT = 1000  # thousandths of a whole device
UNMATCHABLE_SHARE = UNIT + 1  # a share in force that no request can match
PART_STEP = 10  # thousandths: step of the parts of a share; one part has the rest
MIN_PART = 50  # thousandths: smallest part of a divided share
BLOCK_SIZE = 64  # agents per block; the best score of each block is cached
STATE_CACHE_SIZE = 1024  # number of scores that are cached by agent state
UNFIT = -(2**62)  # score of an agent that does not fit
# Subtracted from the free thousandths of an unhealthy device, so that no request fits.
UNHEALTHY_PENALTY = 2**40


class Columns(NamedTuple):
    """The agents of a resource group; if several agents have the best score, the first row wins."""

    agents: Ints  # [agent, AGENT_WIDTH]
    free: Ints  # [agent, device] free thousandths; negative where unhealthy
    facts: Ints  # [agent, device, DEVICE_WIDTH]
    sums: Floats  # [agent, SUMS_WIDTH] derived; maintained by the search
    tallies: Ints  # [agent, TALLIES_WIDTH] derived; maintained by the search


class Costs(NamedTuple):
    """Precomputed inputs of the policies priced and fgd; see tables.py."""

    remainder_value: Floats  # [family, free thousandths 0..1000] value of a device
    capacity_value: Floats  # [table, cpu bin, mem bin, devices] expected use of free devices
    table: Ints  # [family, model] index into ``capacity_value``, or -1
    model_price: Floats  # [family, model] extra price of a model in demand
    whole_bonus: Floats  # [family, devices] correction for wholly free devices, at most 0
    bins: Ints  # size of a cpu bin (millicores) and of a mem bin (bytes)
    quantum: Floats  # one element: scores are rounded to its multiples
    typical: Ints  # [request, TYPICAL_WIDTH] the typical requests
    frequency: Floats  # [request] fraction of the typical requests; the sum is 1


# Columns of a typical request. TYPICAL_CPU: millicores. TYPICAL_SHARE: thousandths of each device.
# TYPICAL_MODELS: bit mask of the accepted models, or ANY.
(
    TYPICAL_CPU,
    TYPICAL_FAMILY,
    TYPICAL_DEVICES,
    TYPICAL_SHARE,
    TYPICAL_MODELS,
) = range(5)
TYPICAL_WIDTH = 5


class ScoreCache(NamedTuple):
    """Scores of earlier searches, the log of later changes, and scratch arrays."""

    scores: Ints  # [shape, agent]
    block_best: Ints  # [shape, block] best score in a block of agents
    read_at: Ints  # [shape] log position up to which the scores are current; -1: no scores yet
    log: Ints  # ring buffer (its length is a power of two): changed agents, with ``GREW``
    visited: Ints  # [agent] last refresh (VISIT) that processed the agent; prevents duplicates
    state: Ints  # [STATE_WIDTH]
    picks: Ints  # [pick, 4] devices chosen by the last search
    free_scratch: Ints  # [device] scratch: free thousandths while devices are chosen
    stale: Ints  # [agent] scratch: agents with outdated scores
    agent_lists: Ints  # [DESIGNATED or AVOID, agent]
    state_cache: Ints  # [CACHED_HASH or CACHED_SCORE, STATE_CACHE_SIZE] scratch


# Result of one search: row of the agent, or -1; number of picks; need, device and amount of the
# first pick.
SearchResult = tuple[int, int, int, int, int]
NO_AGENT: SearchResult = (-1, 0, 0, 0, 0)
