"""Precomputed tables of a group's typical requests, for the policies priced and fgd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...resources import CPU, MEM, SHARE_UNIT
from .capacity_value import allows, bundle_items, multi_items, row_items, with_reserve, worth_table
from .columns import ANY, Costs, Floats
from .encode import Names
from .mix import Mix, RequestKind, shares_of, starting_mix
from .model import AgentState, Policy
from .prices import Pattern, remainder_values, share_prices

# Price of a model that is requested more than others; weight of wholly free agents.
KAPPA, LAMBDA = 0.05, 0.05
# Scores are rounded to this, so that nearly equal agents tie and the first is taken, which packs.
QUANTUM = 0.04
# fgd considers the most frequent requests up to this fraction of all requests.
_TYPICAL_PART = 0.95
# Bins of the table W, where no agent has more than 128 cores and 1 TiB.
_CPU_BIN, _MEM_BIN = 500, 4 * 2**30
_CPU_USUAL, _MEM_USUAL = 128_000, 2**40
_MAX_DEVICES = 16


class Variant(StrEnum):
    """What the table W sells: whole requests, devices filled with shares too, or a blend.

    With a reserve it also counts the multi-device requests that an agent could still take. Where
    sessions also end, a table without reserve leaves no room for such requests.
    """

    ROWS = "rows"
    BLEND = "blend"
    BUNDLES = "bundles"
    ROWS_RESERVE = "rows-reserve"
    BLEND_RESERVE = "blend-reserve"
    BUNDLES_RESERVE = "bundles-reserve"

    @property
    def has_reserve(self) -> bool:
        return self.endswith("-reserve")

    @property
    def bundles_part(self) -> float:
        return _BUNDLES_PART[self.removesuffix("-reserve")]


_BUNDLES_PART = {"rows": 0.0, "blend": 0.25, "bundles": 1.0}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Facts of a group's agents that tables depend on: models per family, agent sizes."""

    devices: tuple[tuple[str, str, int], ...]  # family, model, count
    most_devices: int
    bins: tuple[int, int]

    @classmethod
    def of(cls, agents: Sequence[AgentState]) -> Fleet:
        """Return the facts of agents, independent of what runs on them."""
        counts: dict[tuple[str, str], int] = {}
        for agent in agents:
            for d in agent.devices:
                counts[d.pool, d.model] = counts.get((d.pool, d.model), 0) + 1
        cpu = max((a.capacity.get(CPU, 0) for a in agents), default=0)
        mem = max((a.capacity.get(MEM, 0) for a in agents), default=0)
        bins = (
            _CPU_BIN * max(1, -(-cpu // _CPU_USUAL)),
            _MEM_BIN * max(1, -(-mem // _MEM_USUAL)),
        )
        most = max((len(a.devices) for a in agents), default=0)
        return cls(
            tuple((f, m, n) for (f, m), n in sorted(counts.items())),
            max(1, min(most, _MAX_DEVICES)),
            bins,
        )

    @property
    def families(self) -> list[str]:
        return sorted({family for family, _, _ in self.devices})

    @property
    def models(self) -> list[str]:
        return sorted({model for _, model, _ in self.devices})


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Prices, values and tables of one group; immutable, shared by placers.

    Families and models are numbered in the order of these lists; ``costs`` use these numbers.
    """

    families: tuple[str, ...]
    models: tuple[str, ...]
    costs: Costs
    variant: Variant
    mix: Mix


def tables_of(mix: Mix, fleet: Fleet, variant: Variant = Variant.ROWS) -> Tables:
    """Return the tables of one variant for a mix on such agents."""
    names = Names(fleet.families, fleet.models)
    value = np.ones((max(1, len(fleet.families)), SHARE_UNIT + 1))
    table = np.full((value.shape[0], max(1, len(fleet.models))), ANY, np.int64)
    mu = np.zeros(table.shape)
    whole = np.zeros((value.shape[0], fleet.most_devices + 1))
    worths: list[Floats] = []
    for family, f in names.families.items():
        prices, patterns = share_prices(shares_of(mix, family))
        value[f] = remainder_values(prices)
        whole[f] = LAMBDA * _whole_bonus(mix, family, fleet.most_devices)
        known: dict[frozenset[RequestKind], int] = {}
        for model, price in _model_prices(mix, fleet, family).items():
            m = names.models[model]
            mu[f, m] = KAPPA * price
            users = frozenset(kind for kind in mix if allows(kind, family, model))
            if users not in known:
                worth = _worth(mix, family, model, fleet, patterns, variant)
                known[users] = ANY if worth is None else len(worths)
                worths += [] if worth is None else [worth]
            table[f, m] = known[users]
    typical, portion = _typical(mix, names)
    costs = Costs(
        value=value,
        worth=np.stack(worths) if worths else np.zeros((1, 1, 1, 1)),
        table=table,
        mu=mu,
        whole=whole,
        bins=np.array(fleet.bins, np.int64),
        quantum=np.array([QUANTUM]),
        typical=typical,
        portion=portion,
    )
    return Tables(tuple(names.families), tuple(names.models), costs, variant, mix)


def _worth(
    mix: Mix,
    family: str,
    model: str,
    fleet: Fleet,
    patterns: Sequence[Pattern],
    variant: Variant,
) -> Floats | None:
    """Return the table W of one model, or None when no known request uses it."""
    rows = row_items(mix, family, model, fleet.bins)
    bundles = bundle_items(mix, family, model, fleet.bins, patterns)
    bundles = bundles or rows or multi_items(mix, family, model, fleet.bins)
    if not bundles:
        return None
    part = variant.bundles_part if rows else 1.0
    worth: Floats = np.zeros((1, 1, 1))
    if part < 1:
        worth = np.add(worth, (1 - part) * worth_table(rows, fleet.most_devices))
    if part > 0:
        worth = np.add(worth, part * worth_table(bundles, fleet.most_devices))
    return with_reserve(worth, mix, family, model, fleet.bins) if variant.has_reserve else worth


def _whole_bonus(mix: Mix, family: str, most: int) -> Floats:
    """Return for n wholly free devices how many more, or fewer, than n they can sell."""
    demand: dict[int, float] = {}
    for kind in mix:
        if kind.family == family:
            demand[kind.devices] = demand.get(kind.devices, 0.0) + mix[kind] * kind.demand
    total = sum(demand.values())
    n = np.arange(most + 1)
    if not total:
        return np.zeros(most + 1)
    bonus = -n.astype(np.float64)
    for k, part in demand.items():
        bonus += part / total * k * (n // k)
    return bonus


def _model_prices(mix: Mix, fleet: Fleet, family: str) -> dict[str, float]:
    """Return how much more each model is requested than the least requested one.

    The measure is the ratio of demand to supply when total demand equals the size of the fleet.
    """
    supply = {model: n for f, model, n in fleet.devices if f == family}
    total = sum(mix[kind] * kind.demand for kind in mix if kind.family == family)
    ratio = dict.fromkeys(supply, 0.0)
    for kind, weight in mix.items():
        allowed = [model for model in supply if allows(kind, family, model)]
        share = weight * kind.demand * sum(supply.values()) / total if allowed else 0.0
        for model in allowed:
            ratio[model] += share / sum(supply[m] for m in allowed)
    least = min(ratio.values())
    return {model: r - least for model, r in ratio.items()}


def _typical(mix: Mix, names: Names) -> tuple[np.ndarray, Floats]:
    """Return the requests that fgd considers, and the frequency of each."""
    counts: dict[tuple[int, int, int, int, int], float] = {}
    for kind, weight in mix.items():
        family = names.family(kind.family) if kind.devices else ANY
        key = (kind.cpu, family, kind.devices, kind.share, names.mask(kind.models))
        counts[key] = counts.get(key, 0.0) + weight
    kept: list[tuple[int, int, int, int, int]] = []
    covered = 0.0
    for key in sorted(counts, key=lambda k: (-counts[k], k)):
        if covered >= _TYPICAL_PART * sum(counts.values()):
            break
        kept.append(key)
        covered += counts[key]
    portion = np.array([counts[key] / covered for key in kept])
    return np.array(kept, np.int64).reshape(len(kept), 5), portion


def costs_for(tables: Tables, names: Names) -> Costs:
    """Return the costs of tables with rows for every family and model known by now.

    ``names`` must begin with the names of the tables. A family or model missing from the tables is
    valued by its size, on any model, with any cpu and memory.
    """
    costs = tables.costs
    families = max(1, len(names.families))
    models = max(1, len(names.models), costs.table.shape[1])
    value = np.tile(np.arange(SHARE_UNIT + 1) / SHARE_UNIT, (families, 1))
    value[: costs.value.shape[0]] = costs.value
    table = np.full((families, models), ANY, np.int64)
    mu = np.zeros((families, models))
    whole = np.zeros((families, costs.whole.shape[1]))
    known = (slice(costs.table.shape[0]), slice(costs.table.shape[1]))
    table[known], mu[known] = costs.table, costs.mu
    whole[: costs.whole.shape[0]] = costs.whole
    return costs._replace(value=value, table=table, mu=mu, whole=whole)


NO_TABLES = Tables(
    (),
    (),
    Costs(
        value=np.zeros((0, SHARE_UNIT + 1)),
        worth=np.zeros((1, 1, 1, 1)),
        table=np.zeros((0, 0), np.int64),
        mu=np.zeros((0, 0)),
        whole=np.zeros((0, 1)),
        bins=np.array([_CPU_BIN, _MEM_BIN], np.int64),
        quantum=np.array([QUANTUM]),
        typical=np.zeros((0, 5), np.int64),
        portion=np.zeros(0),
    ),
    Variant.ROWS,
    {},
)


def plain_tables(agents: Sequence[AgentState], policy: Policy) -> Tables:
    """Return default tables: from the agents' proportions, where the policy uses tables at all."""
    if policy in (Policy.PRICED, Policy.FGD):
        return tables_of(starting_mix(agents), Fleet.of(agents))
    return NO_TABLES
