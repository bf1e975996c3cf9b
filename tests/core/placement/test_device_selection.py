"""Selection of an agent's devices: strategies, fragmentation, topology."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.scheduling.placement import AgentState, Placer, Policy, Strategy
from bai_services.core.scheduling.placement.compiled.device_selection import choose_split

from .factories import agent, place_request, request

FILL = Strategy.FILL


def devices_of(
    on: AgentState, policy: Policy = Policy.BEST_FIT, **spec: Any
) -> dict[str, int] | None:
    selected = place_request(Placer([on], policy), request(**spec))
    return None if selected is None else selected[0][1]


@pytest.mark.parametrize(
    "used, spec, devices",
    [
        pytest.param(
            (0, 500),
            {"shares": "0.5"},
            {"g1": 500},
            id="the fullest device with enough free capacity",
        ),
        pytest.param((500, 500), {"shares": "0.5"}, {"g0": 500}, id="ties: the first device"),
        pytest.param(
            (None, 500), {"shares": "0.5"}, {"g1": 500}, id="an unhealthy device is not selected"
        ),
        pytest.param((0, 0), {"shares": "1"}, {"g0": 1000}, id="a share of 1 takes a whole device"),
        pytest.param(
            (10, 0, 0),
            {"device": 2},
            {"g1": 1, "g2": 1},
            id="unused devices are selected as whole devices",
        ),
        pytest.param((10, 0), {"device": 2}, None, id="a partly used device is not a whole device"),
        pytest.param(
            (0, 0, 0), {"shares": "1.5"}, {"g0": 750, "g1": 750}, id="evenly: two equal parts"
        ),
        pytest.param(
            (0, 300, 0),
            {"shares": "1.3"},
            {"g1": 650, "g0": 650},
            id="evenly: the fullest devices with enough free capacity",
        ),
        pytest.param(
            (240, 250),
            {"shares": "1.51"},
            {"g0": 760, "g1": 750},
            id="evenly: parts differ by one step",
        ),
        pytest.param(
            (600, 600, 600, 600),
            {"shares": "1.2"},
            {"g0": 400, "g1": 400, "g2": 400},
            id="evenly: three devices, because two do not have enough capacity",
        ),
        pytest.param(
            (0, 0, 0),
            {"shares": "1.5", "strategy": FILL},
            {"g0": 1000, "g1": 500},
            id="fill: one whole device, and the rest on another device",
        ),
        pytest.param(
            (0, 0, 400),
            {"shares": "1.5", "strategy": FILL},
            {"g0": 1000, "g2": 500},
            id="fill: the rest on the fullest device with enough free capacity",
        ),
        pytest.param(
            (0, 0),
            {"shares": "1.02", "strategy": FILL},
            {"g0": 970, "g1": 50},
            id="fill: the first part is reduced, so that the second is not below 0.05",
        ),
        pytest.param(
            (100, 100),
            {"shares": "1.5", "strategy": FILL},
            None,
            id="fill: without an unused device, the share does not fit",
        ),
    ],
)
def test_strategy_selects_the_expected_devices(
    used: tuple[int | None, ...], spec: dict[str, Any], devices: dict[str, int] | None
) -> None:
    assert devices_of(agent("a", used), **spec) == devices


@pytest.mark.parametrize(
    "used, spec, unfragmented, fragmented",
    [
        pytest.param(
            (600, 600),
            {"shares": "0.5"},
            None,
            {"g0": 250, "g1": 250},
            id="share fits on no single device",
        ),
        pytest.param(
            (600, 400), {"shares": "0.5"}, {"g1": 500}, {"g1": 500}, id="share fits on one device"
        ),
        pytest.param(
            (0, 600),
            {"shares": "1.4"},
            None,
            {"g0": 1000, "g1": 400},
            id="equal parts do not fit, unequal parts do",
        ),
        pytest.param(
            (0, 980),
            {"shares": "1.02"},
            None,
            None,
            id="unequal parts would need a part below 0.05",
        ),
        pytest.param(
            (500, 900),
            {"shares": "0.6", "strategy": FILL},
            None,
            {"g0": 500, "g1": 100},
            id="fill starts on the device with the most free capacity",
        ),
        pytest.param(
            (600, 600), {"shares": "0.9"}, None, None, id="share exceeds the total free capacity"
        ),
        pytest.param(
            (440, 950, 950),
            {"shares": "0.62", "strategy": FILL},
            None,
            {"g0": 520, "g1": 50, "g2": 50},
            id="fill reduces the first part, so that the other parts are not below 0.05",
        ),
    ],
)
def test_share_is_fragmented_only_if_allowed(
    used: tuple[int, ...],
    spec: dict[str, Any],
    unfragmented: dict[str, int] | None,
    fragmented: dict[str, int] | None,
) -> None:
    assert devices_of(agent("a", used), **spec) == unfragmented
    assert devices_of(agent("a", used), allow_fragmentation=True, **spec) == fragmented


@pytest.mark.parametrize(
    "policy, device",
    [
        pytest.param(Policy.PACK, "g1", id="pack: least free capacity"),
        pytest.param(Policy.SPREAD, "g0", id="spread: most free capacity"),
        pytest.param(Policy.BEST_FIT, "g1", id="best fit: least free capacity"),
        pytest.param(Policy.ROUND_ROBIN, "g1", id="round robin: least free capacity on the agent"),
        pytest.param(Policy.PRICED, "g1", id="priced: the device that already has a share"),
    ],
)
def test_policy_selects_the_device_of_a_share(policy: Policy, device: str) -> None:
    assert devices_of(agent("a", (0, 500)), policy, shares="0.5") == {device: 500}


FOUR_UNUSED = (0, 0, 0, 0)


@pytest.mark.parametrize(
    "on, spec, devices",
    [
        pytest.param(
            agent("a", FOUR_UNUSED, numa=(0, 1, 1, 0)),
            {"device": 2},
            "g0 g3",
            id="both devices of one NUMA node",
        ),
        pytest.param(
            agent("a", (0, 0, 500, 0), numa=(0, 1, 1, 0)),
            {"device": 1},
            "g1",
            id="the device on the partly used NUMA node",
        ),
        pytest.param(
            agent("a", FOUR_UNUSED, numa=(0, 0, 1, 1), links=((3,), (2,), (1,), (0,))),
            {"device": 2},
            "g0 g3",
            id="NVLink takes precedence over NUMA",
        ),
        pytest.param(
            agent("a", FOUR_UNUSED, numa=(0, 1, 1, 1)),
            {"device": 4},
            "g0 g1 g2 g3",
            id="all devices of the agent",
        ),
        pytest.param(
            agent("a", (0, 0, 0, 0, 0), numa=(0, 1, 0, 1, 1)),
            {"device": 4},
            "g0 g1 g3 g4",
            id="two NUMA nodes: all devices of the larger node",
        ),
        pytest.param(
            agent("a", FOUR_UNUSED),
            {"device": 2},
            "g0 g1",
            id="unknown topology: the first devices",
        ),
        pytest.param(
            agent("a", FOUR_UNUSED, links=((), (3,), (), (1,))),
            {"device": 2},
            "g1 g3",
            id="two devices with an NVLink",
        ),
    ],
)
def test_whole_devices_are_selected_by_locality(
    on: AgentState, spec: dict[str, Any], devices: str
) -> None:
    for policy in (Policy.BEST_FIT, Policy.PRICED, Policy.SPREAD):
        selected = devices_of(on, policy, **spec)
        assert selected is not None
        assert sorted(selected) == devices.split()


def test_agent_with_free_devices_on_one_numa_node_is_preferred() -> None:
    apart = agent("a", (0, 1000, 0, 1000), numa=(0, 0, 1, 1))
    close = agent("b", (0, 0, 1000, 1000), numa=(0, 0, 1, 1))
    for policy in (Policy.PRICED, Policy.BEST_FIT, Policy.FGD):
        selected = place_request(Placer([apart, close], policy), request(device=2))
        assert selected == [("b", {"g0": 1, "g1": 1})]


@given(
    used=st.lists(st.integers(0, 100).map(lambda n: n * 10), min_size=1, max_size=5),
    shares=st.integers(5, 300).map(lambda n: n * 10),
)
@settings(max_examples=150, deadline=None)
def test_fill_finds_a_division_if_one_is_possible(used: list[int], shares: int) -> None:
    free = [1000 - n for n in used]
    selected = devices_of(
        agent("a", tuple(used)),
        shares=f"{shares / 1000:g}",
        strategy=FILL,
        allow_fragmentation=True,
    )
    # Each part can be any multiple of 0.01, from 0.05 to the free capacity of its device. Therefore
    # a set of devices can provide each amount between the sums of these bounds.
    possible = any(
        50 * len(subset) <= shares <= sum(subset)
        for size in range(1, len(free) + 1)
        for subset in combinations([n for n in free if n >= 50], size)
    )
    assert (selected is not None) == possible
    if selected is not None:
        assert sum(selected.values()) == shares
        assert all(50 <= part <= free[int(name[1:])] for name, part in selected.items())


@given(
    st.lists(st.tuples(st.integers(5, 40), st.integers(0, 60)), min_size=1, max_size=8),
    st.integers(1, 300),
)
@settings(max_examples=300, deadline=None)
def test_split_has_the_fewest_parts_that_satisfy_the_bounds(
    pairs: list[tuple[int, int]], amount: int
) -> None:
    bounds = sorted(((low, low + more) for low, more in pairs), key=lambda b: -b[1])
    low, high = (np.array(column, np.int64) for column in zip(*bounds, strict=True))
    subsets = [
        subset
        for size in range(1, len(bounds) + 1)
        for subset in combinations(bounds, size)
        if sum(b[0] for b in subset) <= amount <= sum(b[1] for b in subset)
    ]
    bits = int(choose_split(low, high, len(bounds), amount))
    assert bits.bit_count() == min(map(len, subsets), default=0)
    chosen = [b for k, b in enumerate(bounds) if bits >> k & 1]
    assert not bits or sum(b[0] for b in chosen) <= amount <= sum(b[1] for b in chosen)
