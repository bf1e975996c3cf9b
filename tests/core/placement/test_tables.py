"""Learned tables of the priced policy: request mix of a group, default mix, and variants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bai_services.core.scheduling.placement import (
    Mode,
    Placer,
    Policy,
    Request,
    build_tables,
    warm_up,
)
from bai_services.core.scheduling.placement.compiled import scores, search
from bai_services.core.scheduling.placement.pricing.mix import (
    RequestKind,
    default_mix,
    learn_mix,
    mean_runtime_seconds,
    request_kinds,
)
from bai_services.core.scheduling.placement.pricing.tables import Fleet, Variant, tables_of
from bai_services.core.scheduling.placement.pricing.variants import (
    choose_tables,
    measure_allocated,
    measure_served,
)

from .factories import GIB, agent, place_request, request

ROOT = Path(__file__).resolve().parents[3]
AGENTS = [agent(f"a{i}", (0,) * 4, cpu=32, mem=128, model="T4") for i in range(6)]


@pytest.mark.parametrize(
    "wanted, kinds",
    [
        pytest.param(request(), [(RequestKind(1000, GIB), 1)], id="no device"),
        pytest.param(
            request(shares="0.5"),
            [(RequestKind(1000, GIB, "cuda", 1, 500), 1)],
            id="a share of one device",
        ),
        pytest.param(
            request(cpu="2", mem="2g", shares="1.5"),
            [(RequestKind(1000, GIB, "cuda", 1, 750), 1)] * 2,
            id="a share of several devices counts as equal parts",
        ),
        pytest.param(
            request(device=2, device_models=("T4",)),
            [(RequestKind(1000, GIB, "cuda", 2, 1000, ("T4",)), 1)],
            id="whole devices of a model",
        ),
        pytest.param(
            request(device=1, kernels=3),
            [(RequestKind(3000, 3 * GIB, "cuda", 3, 1000), 1)],
            id="kernels on one agent count as one request",
        ),
        pytest.param(
            request(device=1, kernels=3, mode=Mode.MULTI_NODE),
            [(RequestKind(1000, GIB, "cuda", 1, 1000), 3)],
            id="separately placed kernels count as several requests",
        ),
    ],
)
def test_request_counts_as_the_expected_kinds_in_the_mix(
    wanted: Request, kinds: list[tuple[RequestKind, int]]
) -> None:
    assert request_kinds(wanted) == kinds


def test_default_mix_is_replaced_by_recent_requests() -> None:
    default = default_mix(AGENTS)
    own = RequestKind(1000, GIB, "cuda", 1, 300)
    assert learn_mix([], AGENTS).keys() == default.keys()
    some = learn_mix([request(shares="0.3")] * 100, AGENTS)
    assert some[own] == 100 and 30 < sum(some.values()) - 100 < 50
    assert learn_mix([request(shares="0.3")] * 500, AGENTS) == {own: 500}


def test_tables_are_built_for_agents_without_devices() -> None:
    tables = build_tables([], [agent("a"), agent("b")])
    placer = Placer([agent("a"), agent("b")], Policy.PRICED, tables)
    assert place_request(placer, request()) == [("a", {})]
    assert build_tables([], []).families == ()


def test_tables_are_deterministic() -> None:
    recent = [request(shares="0.5"), request(cpu="4", device=1), request(shares="0.25")] * 50
    one, other = build_tables(recent, AGENTS), build_tables(list(reversed(recent)), AGENTS)
    assert one.variant == other.variant
    for mine, theirs in zip(one.costs, other.costs, strict=True):
        assert np.array_equal(mine, theirs)


def test_variant_that_allocates_most_of_the_mix_is_chosen() -> None:
    """CPU is scarce in this mix, so the variants allocate different amounts.

    A request for a share of 0.25 needs 12 of an agent's 32 cores.
    """
    mix = {
        RequestKind(12_000, 8 * GIB, "cuda", 1, 250): 4.0,
        RequestKind(500, 8 * GIB, "cuda", 1, 500): 4.0,
        RequestKind(4_000, 16 * GIB, "cuda", 1, 1000): 1.0,
    }
    plain = [v for v in Variant if not v.has_reserve]
    placed = {v: measure_allocated(tables_of(mix, Fleet.of(AGENTS), v), AGENTS) for v in plain}
    best = choose_tables(mix, AGENTS).variant
    assert placed[best] * 1.001 >= max(placed.values())


def test_variant_that_places_most_demand_is_chosen_if_run_times_are_known() -> None:
    """In this mix, a request for four devices fits only 8 of the 32 agents.

    Requests without devices are more frequent and can occupy these agents. The variant with a
    reserve therefore serves more demand.
    """
    large = [agent(f"b{i}", (0,) * 4, cpu=128, mem=512) for i in range(8)]
    small = [agent(f"s{i}", (0,) * 4, cpu=48, mem=192) for i in range(24)]
    whole = RequestKind(100_000, 64 * GIB, "cuda", 4, 1000)
    mix = {
        RequestKind(8_000, 8 * GIB): 6.0,
        RequestKind(4_000, 8 * GIB, "cuda", 1, 1000): 9.0,
        whole: 0.3,
    }
    runtimes = dict.fromkeys(mix, 3600.0)
    agents = [*large, *small]
    fleet = Fleet.of(agents)
    served = {v: measure_served(tables_of(mix, fleet, v), agents, runtimes) for v in Variant}
    assert served[Variant.ROWS_RESERVE] > served[Variant.ROWS] * 1.001
    chosen = choose_tables(mix, agents, runtimes)
    assert chosen.variant == Variant.ROWS_RESERVE
    without_times = choose_tables(mix, agents).variant
    assert not without_times.has_reserve, "a reserve was chosen without run times"


def test_reserve_adds_value_for_multi_device_requests() -> None:
    mix = {
        RequestKind(1000, GIB, "cuda", 1, 1000): 8.0,
        RequestKind(100_000, 64 * GIB, "cuda", 4, 1000): 1.0,
        RequestKind(8_000, 8 * GIB, "cuda", 2, 1000): 3.0,
    }
    fleet = Fleet.of([agent("a", (0,) * 4, cpu=128, mem=512)])
    plain = tables_of(mix, fleet, Variant.ROWS).costs.capacity_value[0]
    more = tables_of(mix, fleet, Variant.ROWS_RESERVE).costs.capacity_value[0]
    rows = [
        ("too little cpu for either request", 15, 8, 4, 0.0),
        ("capacity for the request for two devices", 16, 8, 2, 0.75 * 2),
        ("half a core too few for the request for four devices", 199, 8, 4, 0.75 * 2),
        ("capacity for both requests", 200, 16, 4, 0.75 * 2 + 0.25 * 4),
        ("one device too few for the request for four devices", 200, 16, 3, 0.75 * 2),
    ]
    for what, cpu, mem, devices, reserve in rows:
        base = plain[min(cpu, plain.shape[0] - 1), mem, devices]
        assert more[cpu, mem, devices] - base == pytest.approx(reserve), what


def test_run_times_are_learned_from_ended_sessions() -> None:
    recent = [request(device=1), request(device=1), request(device=2), request()]
    assert mean_runtime_seconds(recent, [100.0, 300.0, None, 0.0]) == {
        RequestKind(1000, GIB, "cuda", 1, 1000): 200.0
    }
    assert mean_runtime_seconds(recent, []) == {}
    tables = build_tables(recent * 50, AGENTS, [60.0, 60.0, 120.0, 30.0] * 50)
    assert place_request(Placer(AGENTS, Policy.PRICED, tables), request(device=2)) is not None


def test_request_for_a_device_family_without_tables_is_placed() -> None:
    tables = build_tables([request(shares="0.5")], AGENTS)
    placer = Placer(AGENTS[:1], Policy.PRICED, tables)
    placer.update(agent("new", (0, 0), family="rocm", model="MI300"))
    assert place_request(placer, request(family="rocm", device=2)) == [("new", {"g0": 1, "g1": 1})]
    placer.set_tables(build_tables([request(device=1)], AGENTS))
    assert place_request(placer, request(family="rocm", device=1)) is None
    assert place_request(placer, request(device=4)) is not None


def test_second_warm_up_compiles_nothing() -> None:
    warm_up()
    compiled = list(search.find_agent.signatures)
    assert compiled
    warm_up()
    assert search.find_agent.signatures == compiled


def test_compiled_code_is_cached_across_processes() -> None:
    code = (
        "from bai_services.core.scheduling.placement import warm_up\n"
        "from bai_services.core.scheduling.placement.compiled import search\n"
        "warm_up()\n"
        "both = (search.find_agent, search.place_sequence)\n"
        "print(sum(sum(one.stats.cache_misses.values()) for one in both))\n"
    )

    def count_compilations() -> int:
        return int(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True))

    count_compilations()
    assert count_compilations() == 0


def _other_function() -> int:
    return 1


@pytest.mark.parametrize("is_function", [False, True], ids=["changed constant", "changed function"])
def test_source_stamp_changes_with_constants_and_functions(is_function: bool) -> None:
    values = vars(scores)
    if is_function:
        name = next(name for name, value in values.items() if hasattr(value, "py_func"))
        new: object = SimpleNamespace(py_func=_other_function)
    else:
        name, new = "UNIT", scores.UNIT + 1
    stamp, old = search.source_stamp(), values[name]
    try:
        values[name] = new
        assert search.source_stamp() != stamp
    finally:
        values[name] = old
    assert search.source_stamp() == stamp
