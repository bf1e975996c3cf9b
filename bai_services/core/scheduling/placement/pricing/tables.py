"""Tables of prices and values for the policies priced and fgd, computed from a group's mix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ....resources import CPU, MEM, SHARE_UNIT
from ...placement_options import Policy
from ..compiled.columns import ANY, TYPICAL_WIDTH, Costs, Floats
from ..encode import NameTable
from ..model import AgentState
from .capacity_value import (
    allows,
    capacity_value_table,
    filled_device_items,
    split_multi_device_items,
    whole_device_items,
    with_reserve,
)
from .mix import Mix, RequestKind, default_mix, shares_of
from .prices import Pattern, remainder_values, share_prices

# Weight of the prices of models with high demand.
MODEL_PRICE_WEIGHT = 0.05
# Weight of the bonus for wholly free devices.
WHOLE_DEVICE_WEIGHT = 0.05
# Step, in devices, to which scores are rounded. Nearly equal agents then have equal scores, so the
# first agent is chosen and agents are filled in order.
QUANTUM = 0.04
# Fraction of all requests that fgd considers, the most frequent ones first.
_TYPICAL_FRACTION = 0.95
# Sizes of the bins of capacity values, in millicores and bytes. If the largest agent of the group
# exceeds the regular size, the bins are larger by a whole factor.
_CPU_BIN, _MEM_BIN = 500, 4 * 2**30
# Regular size of an agent, in millicores and bytes.
_REGULAR_CPU, _REGULAR_MEM = 128_000, 2**40
# Maximum number of devices of one agent for which the tables have values.
_MAX_DEVICES = 16


class Variant(StrEnum):
    """The requests that a capacity value counts as future use of a device.

    ``rows``: requests for (nearly) whole devices. ``bundles``: also devices filled with shares.
    ``blend``: three quarters of ``rows``, one quarter of ``bundles``. Variants with a reserve also
    count the multi-device requests that still fit: without a reserve, short sessions would keep
    every agent partly used, and multi-device requests would never fit.
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
    def bundles_weight(self) -> float:
        """Weight (0 to 1) of devices filled with shares."""
        return _BUNDLES_WEIGHT[self.removesuffix("-reserve")]


_BUNDLES_WEIGHT = {"rows": 0.0, "blend": 0.25, "bundles": 1.0}


@dataclass(frozen=True, slots=True)
class Fleet:
    """The properties of a group's agents that determine its tables."""

    devices: tuple[tuple[str, str, int], ...]  # family, model, count
    max_devices: int  # of one agent; from 1 to ``_MAX_DEVICES``
    bins: tuple[int, int]  # sizes of the cpu and memory bins of capacity values

    @classmethod
    def of(cls, agents: Sequence[AgentState]) -> Fleet:
        """Return the properties of agents; running sessions do not influence the result."""
        counts: dict[tuple[str, str], int] = {}
        for agent in agents:
            for d in agent.devices:
                counts[d.pool, d.model] = counts.get((d.pool, d.model), 0) + 1
        cpu = max((a.capacity.get(CPU, 0) for a in agents), default=0)
        mem = max((a.capacity.get(MEM, 0) for a in agents), default=0)
        bins = (
            _CPU_BIN * max(1, -(-cpu // _REGULAR_CPU)),
            _MEM_BIN * max(1, -(-mem // _REGULAR_MEM)),
        )
        max_devices = max((len(a.devices) for a in agents), default=0)
        return cls(
            tuple((f, m, n) for (f, m), n in sorted(counts.items())),
            max(1, min(max_devices, _MAX_DEVICES)),
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
    """The costs of one group and the mix from which they were computed; immutable, shared by
    placers.

    ``costs`` numbers families and models in the order of ``families`` and ``models``.
    """

    families: tuple[str, ...]
    models: tuple[str, ...]
    costs: Costs
    variant: Variant
    mix: Mix


def tables_of(mix: Mix, fleet: Fleet, variant: Variant = Variant.ROWS) -> Tables:
    """Return the tables of a variant for a mix and a fleet."""
    names = NameTable(fleet.families, fleet.models)
    remainder_value = np.ones((max(1, len(fleet.families)), SHARE_UNIT + 1))
    table = np.full((remainder_value.shape[0], max(1, len(fleet.models))), ANY, np.int64)
    model_price = np.zeros(table.shape)
    whole_bonus = np.zeros((remainder_value.shape[0], fleet.max_devices + 1))
    value_tables: list[Floats] = []
    for family, f in names.families.items():
        prices, patterns = share_prices(shares_of(mix, family))
        remainder_value[f] = remainder_values(prices)
        whole_bonus[f] = WHOLE_DEVICE_WEIGHT * _whole_device_bonus(mix, family, fleet.max_devices)
        # Models that are allowed for the same kinds of requests share a table.
        table_of: dict[frozenset[RequestKind], int] = {}
        for model, price in _model_prices(mix, fleet, family).items():
            m = names.models[model]
            model_price[f, m] = MODEL_PRICE_WEIGHT * price
            kinds = frozenset(kind for kind in mix if allows(kind, family, model))
            if kinds not in table_of:
                values = _capacity_value(mix, family, model, fleet, patterns, variant)
                table_of[kinds] = ANY if values is None else len(value_tables)
                value_tables += [] if values is None else [values]
            table[f, m] = table_of[kinds]
    typical, frequency = _typical_requests(mix, names)
    costs = Costs(
        remainder_value=remainder_value,
        capacity_value=np.stack(value_tables) if value_tables else np.zeros((1, 1, 1, 1)),
        table=table,
        model_price=model_price,
        whole_bonus=whole_bonus,
        bins=np.array(fleet.bins, np.int64),
        quantum=np.array([QUANTUM]),
        typical=typical,
        frequency=frequency,
    )
    return Tables(tuple(names.families), tuple(names.models), costs, variant, mix)


def _capacity_value(
    mix: Mix,
    family: str,
    model: str,
    fleet: Fleet,
    patterns: Sequence[Pattern],
    variant: Variant,
) -> Floats | None:
    """Return the capacity values of one model, or None if no kind of the mix may use it."""
    rows = whole_device_items(mix, family, model, fleet.bins)
    bundles = filled_device_items(mix, family, model, fleet.bins, patterns)
    bundles = bundles or rows or split_multi_device_items(mix, family, model, fleet.bins)
    if not bundles:
        return None
    weight = variant.bundles_weight if rows else 1.0
    values: Floats = np.zeros((1, 1, 1))
    if weight < 1:
        values = np.add(values, (1 - weight) * capacity_value_table(rows, fleet.max_devices))
    if weight > 0:
        values = np.add(values, weight * capacity_value_table(bundles, fleet.max_devices))
    return with_reserve(values, mix, family, model, fleet.bins) if variant.has_reserve else values


def _whole_device_bonus(mix: Mix, family: str, max_devices: int) -> Floats:
    """Return the bonus for n = 0 to ``max_devices`` wholly free devices of one agent: the mean
    number of devices that future requests can use, minus n.
    """
    demand: dict[int, float] = {}
    for kind in mix:
        if kind.family == family:
            demand[kind.devices] = demand.get(kind.devices, 0.0) + mix[kind] * kind.demand
    total = sum(demand.values())
    n = np.arange(max_devices + 1)
    if not total:
        return np.zeros(max_devices + 1)
    bonus = -n.astype(np.float64)
    for devices, part in demand.items():
        bonus += part / total * devices * (n // devices)
    return bonus


def _model_prices(mix: Mix, fleet: Fleet, family: str) -> dict[str, float]:
    """Return, for each model, its demand minus the lowest demand of any model.

    Demand is measured per device of the model, scaled so that total demand equals the number of
    devices. A kind that allows several models counts equally for each of their devices.
    """
    supply = {model: n for f, model, n in fleet.devices if f == family}
    total = sum(mix[kind] * kind.demand for kind in mix if kind.family == family)
    ratio = dict.fromkeys(supply, 0.0)
    for kind, weight in mix.items():
        allowed = [model for model in supply if allows(kind, family, model)]
        share = weight * kind.demand * sum(supply.values()) / total if allowed else 0.0
        for model in allowed:
            ratio[model] += share / sum(supply[m] for m in allowed)
    lowest = min(ratio.values())
    return {model: r - lowest for model, r in ratio.items()}


def _typical_requests(mix: Mix, names: NameTable) -> tuple[np.ndarray, Floats]:
    """Return the typical requests that fgd considers, and the frequency of each."""
    counts: dict[tuple[int, int, int, int, int], float] = {}
    for kind, weight in mix.items():
        family = names.family(kind.family) if kind.devices else ANY
        key = (kind.cpu, family, kind.devices, kind.share, names.mask(kind.models))
        counts[key] = counts.get(key, 0.0) + weight
    considered: list[tuple[int, int, int, int, int]] = []
    covered = 0.0
    for key in sorted(counts, key=lambda k: (-counts[k], k)):
        if covered >= _TYPICAL_FRACTION * sum(counts.values()):
            break
        considered.append(key)
        covered += counts[key]
    frequency = np.array([counts[key] / covered for key in considered])
    rows = np.array(considered, np.int64).reshape(len(considered), TYPICAL_WIDTH)
    return rows, frequency


def costs_for(tables: Tables, names: NameTable) -> Costs:
    """Return the costs of tables, extended to every family and model in ``names``.

    ``names`` must begin with the names of the tables. For a family or model that is not in
    the tables, the free cpu and memory do not influence the value of a device.
    """
    costs = tables.costs
    families = max(1, len(names.families))
    models = max(1, len(names.models), costs.table.shape[1])
    remainder_value = np.tile(np.arange(SHARE_UNIT + 1) / SHARE_UNIT, (families, 1))
    remainder_value[: costs.remainder_value.shape[0]] = costs.remainder_value
    table = np.full((families, models), ANY, np.int64)
    model_price = np.zeros((families, models))
    whole_bonus = np.zeros((families, costs.whole_bonus.shape[1]))
    known = (slice(costs.table.shape[0]), slice(costs.table.shape[1]))
    table[known], model_price[known] = costs.table, costs.model_price
    whole_bonus[: costs.whole_bonus.shape[0]] = costs.whole_bonus
    return costs._replace(
        remainder_value=remainder_value,
        table=table,
        model_price=model_price,
        whole_bonus=whole_bonus,
    )


NO_TABLES = Tables(
    (),
    (),
    Costs(
        remainder_value=np.zeros((0, SHARE_UNIT + 1)),
        capacity_value=np.zeros((1, 1, 1, 1)),
        table=np.zeros((0, 0), np.int64),
        model_price=np.zeros((0, 0)),
        whole_bonus=np.zeros((0, 1)),
        bins=np.array([_CPU_BIN, _MEM_BIN], np.int64),
        quantum=np.array([QUANTUM]),
        typical=np.zeros((0, TYPICAL_WIDTH), np.int64),
        frequency=np.zeros(0),
    ),
    Variant.ROWS,
    {},
)


def default_tables(agents: Sequence[AgentState], policy: Policy) -> Tables:
    """Return the tables of a group without requests; empty if the policy uses no tables."""
    if policy in (Policy.PRICED, Policy.FGD):
        return tables_of(default_mix(agents), Fleet.of(agents))
    return NO_TABLES
