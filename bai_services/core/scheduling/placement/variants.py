"""Tables for a group: learned from its requests, in the variant that serves its mix best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from . import columns as c
from .bundle import bundle
from .columns import Floats, Ints
from .encode import Names, build_columns, kind_row, new_memory
from .mix import Mix, RequestKind, learn_mix, shares_of, stays_of
from .model import AgentState, Request
from .search import decide_all
from .tables import Fleet, Tables, Variant, costs_for, tables_of

# Size of a trial: maximum number of agents, load, number of request lists.
_AGENTS = 1_500
_LOAD = 1.3
_LISTS = 3
_ARRIVALS = 30_000
# The same with departures: number of agents, loads, duration in mean run times.
_LEAVING_AGENTS = 1_500
_LOADS = (0.9, 1.0, 1.1)
_STAYS = 5
_MIN_ARRIVALS, _MAX_ARRIVALS = 2_000, 40_000
# Another variant must place more by this fraction to replace requests for whole devices.
_MARGIN = 0.001

# Mean run time of each kind of request, in seconds.
Stays = Mapping[RequestKind, float]
NOTHING_ENDS: Stays = {}


def build_tables(
    recent: Sequence[Request],
    agents: Sequence[AgentState],
    seconds: Sequence[float | None] = (),
) -> Tables:
    """Return the tables for a group: pure, takes up to some seconds, NEVER call it inside a pass.

    ``recent`` are the group's own latest requests (the newest 2,000 are enough; none: defaults from
    the agents' proportions), ``seconds`` how long each ran, None where it has not ended. Run it in
    a thread: most of it releases the GIL.
    """
    return choose_tables(learn_mix(recent, agents), agents, stays_of(recent, seconds))


def choose_tables(mix: Mix, agents: Sequence[AgentState], stays: Stays = NOTHING_ENDS) -> Tables:
    """Return the tables of the variant that serves the mix best on these agents.

    Where run times are known, that is the variant which rejects least while sessions come and go;
    else the one that fills empty agents most.
    """
    fleet = Fleet.of(agents)
    has_shares = any(shares_of(mix, family) for family in fleet.families)
    variants = [v for v in Variant if has_shares or v.bundles_part == 0]
    measure = served if stays else allocated
    tried = [tables_of(mix, fleet, v) for v in variants if stays or not v.has_reserve]
    if len(tried) == 1 or not fleet.families:
        return tried[0]
    sample = _spread(agents, stays)
    best, most = tried[0], measure(tried[0], sample, stays) * (1 + _MARGIN)
    for tables in tried[1:]:
        good = measure(tables, sample, stays)
        if good > most:
            best, most = tables, good
    return best


def allocated(tables: Tables, agents: Sequence[AgentState], stays: Stays = NOTHING_ENDS) -> float:
    """Return how much of their mix empty agents hold, placed with these tables.

    In thousandths of devices, summed over several lists of requests drawn from the mix.
    """
    world = _World(tables, agents)
    wanted = _LOAD * world.capacity
    total = 0
    for number in range(_LISTS):
        arrivals = _arrivals(tables.mix, world.demand, wanted, number)
        found = world.place(arrivals, np.full(arrivals.size, arrivals.size))
        total += int(world.demand[arrivals[found >= 0]].sum())
    return float(total)


def served(tables: Tables, agents: Sequence[AgentState], stays: Stays) -> float:
    """Return how much of the demand is placed while sessions also end, with these tables.

    A fraction of the demand, summed over several loads near that which fills all agents.
    """
    world = _World(tables, agents)
    kinds = list(tables.mix)
    usual = sum(stays.values()) / len(stays)
    seconds = np.array([stays.get(kind, usual) for kind in kinds])
    weights = np.array([tables.mix[kind] for kind in kinds])
    work = float((weights * world.demand * seconds).sum() / weights.sum())
    if not work:
        return 0.0
    total = 0.0
    for load in _LOADS:
        stay = seconds * (load * world.capacity / work)
        mean = float((weights * stay).sum() / weights.sum())
        count = int(min(_MAX_ARRIVALS, max(_MIN_ARRIVALS, _STAYS * mean)))
        kinds_drawn, stays_drawn = _draws(2 * count).reshape(2, count)
        bounds = np.cumsum(weights)
        arrivals = np.searchsorted(bounds, kinds_drawn * bounds[-1], side="right")
        lengths = stay[arrivals] * -np.log1p(-stays_drawn)
        ends = np.arange(1, count + 1) + lengths.astype(np.int64)
        found = world.place(arrivals, np.minimum(ends, count))
        # Measure the second half only: the first half fills the agents.
        asked, found = world.demand[arrivals[count // 2 :]], found[count // 2 :]
        total += float(asked[found >= 0].sum() / asked.sum())
    return total


def _draws(count: int) -> Floats:
    """Return quasi-random numbers from 0 to below 1, always the same (splitmix64)."""
    x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Floats = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) / 2.0**53
    return drawn


class _World:
    """Empty healthy agents and the kinds of a mix, encoded for the search."""

    def __init__(self, tables: Tables, agents: Sequence[AgentState]) -> None:
        names = Names(tables.families, tables.models)
        empty = [replace(a.at_best(), architecture="", engine="") for a in agents]
        self._columns = build_columns(empty, names)
        # Treat devices that require equal shares like any others in a trial.
        self._columns.facts[:, :, c.IN_FORCE] = c.ANY
        kinds = list(tables.mix)
        self._shapes = np.stack([kind_row(kind, names) for kind in kinds])
        self._shapes[:, c.ARCHITECTURE] = names.other("")
        self._costs = costs_for(tables, names)
        self.demand = np.array([round(kind.demand * c.UNIT) for kind in kinds])
        self.capacity = int(self._columns.facts[:, :, c.CAPACITY].clip(0).sum())

    def place(self, arrivals: Ints, ends: Ints) -> Ints:
        """Return the agent of each arrival, or -1; ``ends``: the arrival before which each
        leaves.
        """
        count, devices = self._columns.free.shape
        memory = new_memory(count, devices, len(self._shapes), 0, c.PRICED)
        columns = self._columns
        columns = columns._replace(agents=columns.agents.copy(), free=columns.free.copy())
        found = np.zeros(arrivals.size, np.int64)
        world = bundle(columns, self._costs, memory, self._shapes)
        decide_all(world.places, arrivals, ends.astype(np.int64), found)
        return found


def _arrivals(mix: Mix, demand: Ints, wanted: float, number: int) -> Ints:
    """Return a list of kinds in the proportions of the mix, with ``wanted`` as total demand.

    The sequence is fixed and needs no random generator.
    """
    bounds = np.array(list(accumulate(mix.values())))
    # Multiples of the golden ratio are evenly spread; a shuffle by another irrational number keeps
    # neighbours from repeating a pattern.
    steps = np.arange(1, _ARRIVALS + 1) + number * _ARRIVALS
    order = np.argsort(steps * 2**0.5 % 1.0, kind="stable")
    drawn = (steps * 0.6180339887498949 % 1.0)[order] * bounds[-1]
    arrivals: Ints = np.searchsorted(bounds, drawn, side="right").astype(np.int64)
    length = int(np.searchsorted(np.cumsum(demand[arrivals]), wanted)) + 1
    return arrivals[:length]


def _spread(agents: Sequence[AgentState], stays: Stays) -> Sequence[AgentState]:
    """Return a limited number of agents, spread evenly over all of them."""
    stride = -(-len(agents) // (_LEAVING_AGENTS if stays else _AGENTS))
    return agents[:: max(1, stride)]
