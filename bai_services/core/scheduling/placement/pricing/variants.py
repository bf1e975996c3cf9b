"""Build the placement tables of a resource group.

The mix of requests is learned from the group's latest requests. The tables have several variants:
the variant that places the largest part of the mix is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ..compiled import columns as c
from ..compiled.bundle import bundle
from ..compiled.columns import Floats, Ints
from ..compiled.search import place_sequence
from ..encode import NameTable, build_columns, encode_request_kind, new_score_cache
from ..model import AgentState, Request
from .mix import Mix, RequestKind, learn_mix, mean_runtime_seconds, shares_of
from .tables import Fleet, Tables, Variant, costs_for, tables_of

# Maximum number of agents in a trial.
_MAX_AGENTS = 1_500
# Trial without departures: total demand of a list of requests, as a fraction of capacity.
_LOAD = 1.3
# Trial without departures: number of lists of requests.
_LISTS = 3
# Trial without departures: maximum number of requests in a list.
_MAX_LIST = 30_000
# Trial with departures: loads. A load is the mean demand of the running sessions if every session
# is placed, as a fraction of capacity.
_LOADS = (0.9, 1.0, 1.1)
# Trial with departures: duration, as a multiple of the mean run time.
_MEAN_RUNTIMES = 5
# Trial with departures: limits of the number of arrivals, which take precedence over the duration.
_MIN_ARRIVALS, _MAX_ARRIVALS = 2_000, 40_000
# A variant replaces the first variant only if its measure is higher by at least this fraction.
_MARGIN = 0.001

# Mean run time of each kind of request, in seconds.
MeanRuntimes = Mapping[RequestKind, float]
NO_RUNTIMES: MeanRuntimes = {}


def build_tables(
    recent: Sequence[Request],
    agents: Sequence[AgentState],
    seconds: Sequence[float | None] = (),
) -> Tables:
    """Return the tables of a group, learned from its latest requests.

    This takes up to several seconds, so NEVER call it inside a pass. It releases the GIL most of
    the time. ``recent`` are the group's latest requests; 2,000 are enough. With few requests, the
    default mix of the agents is added. ``seconds`` contains the run time of each request's session,
    or None if the session has not ended.
    """
    return choose_tables(learn_mix(recent, agents), agents, mean_runtime_seconds(recent, seconds))


def choose_tables(
    mix: Mix, agents: Sequence[AgentState], runtimes: MeanRuntimes = NO_RUNTIMES
) -> Tables:
    """Return the tables of the best variant for the mix on the agents.

    If run times are known, the best variant places the largest part of the demand while sessions
    start and end. Otherwise, the best variant allocates the most devices on empty agents.
    """
    fleet = Fleet.of(agents)
    has_shares = any(shares_of(mix, family) for family in fleet.families)
    variants = [v for v in Variant if has_shares or v.bundles_weight == 0]
    measure = measure_served if runtimes else measure_allocated
    tried = [tables_of(mix, fleet, v) for v in variants if runtimes or not v.has_reserve]
    if len(tried) == 1 or not fleet.families:
        return tried[0]
    sample = _sample(agents)
    best, best_measure = tried[0], measure(tried[0], sample, runtimes) * (1 + _MARGIN)
    for tables in tried[1:]:
        measured = measure(tables, sample, runtimes)
        if measured > best_measure:
            best, best_measure = tables, measured
    return best


def measure_allocated(
    tables: Tables, agents: Sequence[AgentState], runtimes: MeanRuntimes = NO_RUNTIMES
) -> float:
    """Return how many thousandths of devices of the mix fit on empty agents with these tables.

    The result is the sum over several lists of requests that are drawn from the mix. ``runtimes``
    is not used: the signature must match that of ``measure_served``.
    """
    trial = _Trial(tables, agents)
    wanted = _LOAD * trial.capacity
    total = 0
    for number in range(_LISTS):
        arrivals = _arrivals(tables.mix, trial.demand, wanted, number)
        agents_found = trial.place(arrivals, np.full(arrivals.size, arrivals.size))
        total += int(trial.demand[arrivals[agents_found >= 0]].sum())
    return float(total)


def measure_served(tables: Tables, agents: Sequence[AgentState], runtimes: MeanRuntimes) -> float:
    """Return how much of the demand is placed while sessions start and end.

    The result is the sum of the placed fractions at several loads near full capacity.
    """
    trial = _Trial(tables, agents)
    kinds = list(tables.mix)
    mean_seconds = sum(runtimes.values()) / len(runtimes)
    seconds = np.array([runtimes.get(kind, mean_seconds) for kind in kinds])
    weights = np.array([tables.mix[kind] for kind in kinds])
    work = float((weights * trial.demand * seconds).sum() / weights.sum())
    if not work:
        return 0.0
    total = 0.0
    for load in _LOADS:
        # Run times in steps; one session arrives per step.
        run_steps = seconds * (load * trial.capacity / work)
        mean_steps = float((weights * run_steps).sum() / weights.sum())
        count = int(min(_MAX_ARRIVALS, max(_MIN_ARRIVALS, _MEAN_RUNTIMES * mean_steps)))
        kind_numbers, length_numbers = _pseudo_random(2 * count).reshape(2, count)
        bounds = np.cumsum(weights)
        arrivals = np.searchsorted(bounds, kind_numbers * bounds[-1], side="right")
        lengths = run_steps[arrivals] * -np.log1p(-length_numbers)  # exponentially distributed
        ends = np.arange(1, count + 1) + lengths.astype(np.int64)
        agents_found = trial.place(arrivals, np.minimum(ends, count))
        # Measure the second half only, because the agents fill up during the first half.
        demand, placed = trial.demand[arrivals[count // 2 :]], agents_found[count // 2 :] >= 0
        total += float(demand[placed].sum() / demand.sum())
    return total


def _pseudo_random(count: int) -> Floats:
    """Return pseudo-random numbers from 0 to below 1, always the same (splitmix64)."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Floats = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) / 2.0**53
    return drawn


class _Trial:
    """Empty healthy agents and the kinds of a mix, encoded for trial placements."""

    def __init__(self, tables: Tables, agents: Sequence[AgentState]) -> None:
        names = NameTable(tables.families, tables.models)
        empty = [replace(a.fully_available(), architecture="", engine="") for a in agents]
        self._columns = build_columns(empty, names)
        # A trial ignores that some devices require equal shares.
        self._columns.facts[:, :, c.IN_FORCE] = c.ANY
        kinds = list(tables.mix)
        self._shapes = np.stack([encode_request_kind(kind, names) for kind in kinds])
        self._shapes[:, c.ARCHITECTURE] = names.label("")
        self._costs = costs_for(tables, names)
        self.demand = np.array([round(kind.demand * c.UNIT) for kind in kinds])
        self.capacity = int(self._columns.facts[:, :, c.CAPACITY].clip(0).sum())

    def place(self, arrivals: Ints, ends: Ints) -> Ints:
        """Return the agent of each arrival, or -1; the i-th arrival ends before arrival
        ``ends[i]``.
        """
        agents, devices = self._columns.free.shape
        shapes = len(self._shapes)
        cache = new_score_cache(
            agents=agents, devices=devices, shapes=shapes, picks=0, policy=c.PRICED
        )
        columns = self._columns
        columns = columns._replace(agents=columns.agents.copy(), free=columns.free.copy())
        agents_found = np.zeros(arrivals.size, np.int64)
        pointers = bundle(columns, self._costs, cache, self._shapes).pointers
        place_sequence(pointers, arrivals, ends.astype(np.int64), agents_found)
        return agents_found


def _arrivals(mix: Mix, demand: Ints, wanted: float, number: int) -> Ints:
    """Return a list of kinds in the proportions of the mix.

    The list ends when its total demand reaches ``wanted`` thousandths, or after ``_MAX_LIST``
    kinds. ``number`` selects one of several lists, which are the same in every run.
    """
    bounds = np.array(list(accumulate(mix.values())))
    # Multiples of the golden ratio modulo 1 are evenly spread; sorting by multiples of another
    # irrational number avoids a repeating pattern of neighbors.
    steps = np.arange(1, _MAX_LIST + 1) + number * _MAX_LIST
    order = np.argsort(steps * 2**0.5 % 1.0, kind="stable")
    drawn = (steps * 0.6180339887498949 % 1.0)[order] * bounds[-1]
    arrivals: Ints = np.searchsorted(bounds, drawn, side="right").astype(np.int64)
    length = int(np.searchsorted(np.cumsum(demand[arrivals]), wanted)) + 1
    return arrivals[:length]


def _sample(agents: Sequence[AgentState]) -> Sequence[AgentState]:
    """Return at most ``_MAX_AGENTS`` agents at equal distances in the sequence."""
    stride = -(-len(agents) // _MAX_AGENTS)
    return agents[:: max(1, stride)]
