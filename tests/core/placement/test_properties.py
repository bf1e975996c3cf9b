"""Property tests of placement under every policy, and comparisons with the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.devices import Device, DeviceAmount, max_share, thousandths
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import (
    AgentState,
    Mode,
    Placement,
    Placer,
    Policy,
    Request,
)
from bai_services.core.scheduling.placement.pricing.mix import RequestKind, default_mix
from bai_services.core.scheduling.placement.pricing.prices import share_prices
from bai_services.core.scheduling.placement.pricing.tables import Fleet, Tables, Variant, tables_of

from .factories import GIB, agent
from .reference import MIX, acceptable, with_parts

sizes = st.sampled_from([50, 160, 200, 250, 330, 470, 500, 650, 810])
hosts = st.sampled_from([(), (), ("home",), ("home", "shared"), ("shared",)])
used = st.lists(st.sampled_from([0, 0, 0, None, 190, 250, 500, 670, 1000]), max_size=4)


# Policies whose choice does not depend on a random number.
DETERMINISTIC = [policy for policy in Policy if policy is not Policy.RANDOM]


@st.composite
def agent_lists(draw: st.DrawFn) -> list[AgentState]:
    agents = []
    for i in range(draw(st.integers(1, 5))):
        devices = tuple(draw(used))
        agents.append(
            agent(
                f"a{i}",
                devices,
                cpu=draw(st.sampled_from([2, 8, 16, 48])),
                mem=draw(st.sampled_from([4, 16, 96])),
                model=draw(st.sampled_from(["T4", "A100"])),
                numa=tuple(draw(st.sampled_from([None, 0, 1])) for _ in devices),
                is_schedulable=draw(st.sampled_from([True, True, True, False])),
            )
        )
    return agents


@st.composite
def requests(draw: st.DrawFn) -> Request:
    slots = {"cpu": draw(st.sampled_from([500, 1000, 4000])), "mem": draw(st.integers(1, 8)) * GIB}
    kind = draw(st.sampled_from(["none", "share", "share", "several", "whole"]))
    if kind == "share":
        slots["cuda.shares"] = draw(sizes)
    elif kind == "several":
        slots["cuda.shares"] = draw(st.sampled_from([1010, 1500, 2200]))
    elif kind == "whole":
        slots["cuda.device"] = draw(st.integers(1, 3))
    return Request(
        ResourceSlots(slots),
        "main",
        "x86_64",
        kernels=draw(st.sampled_from([1, 1, 1, 2, 3])),
        mode=draw(st.sampled_from(list(Mode))),
        avoid=draw(st.sampled_from([(), (), ("a0",)])),
        allow_fragmentation=draw(st.booleans()),
        device_models=draw(st.sampled_from([(), (), ("T4",)])),
    )


def check_usage(placer: Placer) -> None:
    for state in placer.agents():
        assert all(0 <= state.used[slot] <= state.capacity[slot] for slot in ("cpu", "mem"))
        assert all(0 <= d.used <= d.capacity for d in state.devices)


def check_cluster_session(wanted: Request, placements: tuple[Placement, ...]) -> None:
    assert len(placements) == wanted.kernels
    if wanted.mode == Mode.SINGLE_NODE:
        assert len({p.agent_id for p in placements}) == 1
    for placement in placements:
        got: dict[str, int] = dict(placement.slots)
        for device in placement.devices:
            got[device.slot] = got.get(device.slot, 0) + device.amount
        assert got == dict(wanted.slots)
        assert len({d.device_id for d in placement.devices}) == len(placement.devices)


@settings(max_examples=60, deadline=None)
@given(
    agent_lists(),
    st.lists(st.tuples(requests(), hosts), min_size=1, max_size=12),
    st.sampled_from(DETERMINISTIC),
    st.data(),
)
def test_folders_are_placed_as_if_agents_without_their_storage_did_not_exist(
    agents: list[AgentState],
    requests: list[tuple[Request, tuple[str, ...]]],
    policy: Policy,
    data: st.DataObject,
) -> None:
    tables = tables_of(default_mix(agents), Fleet.of(agents))
    placer = Placer(agents, policy, tables)
    for request, hosts_of_folders in requests:
        # A storage host may fail and recover between any two placements.
        changed = data.draw(st.sampled_from(placer.agents()))
        placer.update(replace(changed, unusable_hosts=data.draw(hosts)))
        working = [a for a in placer.agents() if not {*a.unusable_hosts} & {*hosts_of_folders}]
        fresh = Placer(working, policy, tables, last_agent=placer.last_agent)
        shape = placer.prepare(replace(request, storage_hosts=hosts_of_folders))
        fits = placer.fits_each([shape]) == [True]
        placements = placer.place(shape)
        assert fits == (placements is not None)
        if placements is None:
            assert not fresh.fits(fresh.prepare(request))
            text = str(placer.refusal(shape).text)
            excluded = [a for a in placer.agents() if a.is_schedulable and a not in working]
            assert ("storage host" in text) == bool(excluded), text
            continue
        assert {p.agent_id for p in placements} <= {a.id for a in working}
        if policy is not Policy.ROUND_ROBIN:  # the previous agent may be missing
            assert placements == fresh.place(fresh.prepare(request))


@settings(max_examples=60, deadline=None)
@given(
    agent_lists(),
    st.lists(requests(), min_size=1, max_size=12),
    st.sampled_from(list(Policy)),
    st.data(),
)
def test_placements_and_releases_are_consistent(
    agents: list[AgentState], requests: list[Request], policy: Policy, data: st.DataObject
) -> None:
    placer, other = Placer(agents, policy, seed=3), Placer(agents, policy, seed=3)
    start = placer.agents()
    placed: list[tuple[Placement, ...]] = []
    for request in requests:
        shape = placer.prepare(request)
        fits, version = placer.fits(shape), placer.version
        before = placer.agents()
        placements = placer.place(shape)
        assert other.place(other.prepare(request)) == placements
        assert fits == (placements is not None)
        if placements is None:
            assert placer.agents() == before
            assert placer.version == version
            assert str(placer.refusal(shape).text)
        else:
            check_cluster_session(request, placements)
            placed.append(placements)
        check_usage(placer)
        releases_one: bool = data.draw(st.booleans())
        if placed and releases_one:
            released = placed.pop(data.draw(st.integers(0, len(placed) - 1)))
            placer.release(released)
            other.release(released)
    for placements in placed:
        placer.release(placements)
    assert placer.agents() == start


@settings(max_examples=40, deadline=None)
@given(agent_lists(), st.lists(requests(), min_size=1, max_size=10), st.sampled_from(DETERMINISTIC))
def test_cached_scores_do_not_change_decisions(
    agents: list[AgentState], requests: list[Request], policy: Policy
) -> None:
    tables = tables_of(default_mix(agents), Fleet.of(agents))
    placer = Placer(agents, policy, tables)
    for request in requests:
        fresh = Placer(placer.agents(), policy, tables, last_agent=placer.last_agent)
        assert placer.place(placer.prepare(request)) == fresh.place(fresh.prepare(request))


agent_tuples = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 0, 190, 250, 500, 530, 1000]), min_size=1, max_size=4),
        st.sampled_from([2000, 5000, 9000, 16000]),
        st.sampled_from([4, 12, 40]),
        st.sampled_from(["T4", "A100"]),
    ),
    min_size=1,
    max_size=4,
)


def agents_from(drawn: list[tuple[list[int], int, int, str]]) -> list[AgentState]:
    return [
        AgentState(
            f"a{i}",
            "main",
            "x86_64",
            "docker",
            {"cpu": cpu, "mem": mem * GIB},
            devices=tuple(
                Device(f"a{i}-g{j}", "cuda", used=n, model=model) for j, n in enumerate(used_shares)
            ),
        )
        for i, (used_shares, cpu, mem, model) in enumerate(drawn)
    ]


def request_of(kind: RequestKind, beside: tuple[str, ...] = ()) -> Request:
    slots = {"cpu": kind.cpu, "mem": kind.mem}
    if kind.devices:
        slots |= {"cuda.shares": kind.share} if kind.share < 1000 else {"cuda.device": kind.devices}
    return Request(ResourceSlots(slots), "main", "x86_64", device_models=kind.models, beside=beside)


@settings(max_examples=100, deadline=None)
@given(
    agent_tuples,
    st.lists(st.sampled_from(list(MIX)), min_size=2, max_size=6),
    st.sampled_from(list(Policy)),
    st.data(),
)
def test_requests_beside_withheld_parts_match_the_reference(
    drawn: list[Any], kinds: list[RequestKind], policy: Policy, data: st.DataObject
) -> None:
    """A part of some agents is withheld from every second request."""
    agents = agents_from(drawn)
    tables = tables_of(MIX, Fleet.of(agents))
    placer = Placer(agents, policy, tables)
    parts = [
        Placement(
            a.id,
            ResourceSlots({"cpu": data.draw(st.integers(0, a.capacity["cpu"]))}),
            tuple(
                DeviceAmount(
                    d.id, "cuda.shares", min(d.free, data.draw(st.sampled_from([0, 250, 1000])))
                )
                for d in a.devices
            ),
        )
        for a in agents
    ]
    placer.withhold(("r1",), tuple(parts))
    for n, kind in enumerate(kinds):
        beside = ("r1",) if n % 2 == 0 else ()
        before, ids = placer.agents(), [a.id for a in agents]
        last = ids.index(placer.last_agent) if placer.last_agent else -1
        seen = with_parts(before, parts) if beside else before
        handle = placer.prepare(request_of(kind, beside))
        fits = placer.fits_each([handle])
        placements = placer.place(handle)
        chosen = ids.index(placements[0].agent_id) if placements else None
        assert chosen in acceptable(policy, seen, kind, last)
        assert fits == [placements is not None]
        if placements is None:
            assert placer.agents() == before
        else:
            placer.release(placements)
            assert placer.agents() == before
            if beside:  # the withheld parts must not exceed the free capacity
                placer.allocate(placements)


@settings(max_examples=100, deadline=None)
@given(agent_tuples, st.sampled_from(list(MIX)), st.sampled_from(list(Policy)), st.integers(-1, 3))
def test_compiled_code_matches_the_reference(
    drawn: list[Any], kind: RequestKind, policy: Policy, last: int
) -> None:
    agents = agents_from(drawn)
    last = min(last, len(agents) - 1)
    last_agent = agents[last].id if last >= 0 else ""
    tables = tables_of(MIX, Fleet.of(agents))
    placer = Placer(agents, policy, tables, last_agent=last_agent)
    placements = placer.place(placer.prepare(request_of(kind)))
    chosen = [a.id for a in agents].index(placements[0].agent_id) if placements else None
    assert chosen in acceptable(policy, agents, kind, last)


@settings(max_examples=40, deadline=None)
@given(
    agent_tuples,
    st.lists(st.sampled_from(list(MIX)), min_size=1, max_size=6),
    st.sampled_from([Policy.BEST_FIT, Policy.PACK, Policy.SPREAD]),
)
def test_both_score_functions_choose_the_same_agent(
    drawn: list[Any], kinds: list[RequestKind], policy: Policy
) -> None:
    """One score function is for agents with one device family, the other for several families.

    A fully used device of a second family selects the other function, but does not change which
    requests fit.
    """
    agents = agents_from(drawn)
    mixed = [
        replace(a, devices=(*a.devices, Device(f"{a.id}-x", "rocm", used=1000))) for a in agents
    ]
    one, two = Placer(agents, policy), Placer(mixed, policy)
    for kind in kinds:
        assert one.place(one.prepare(request_of(kind))) == two.place(two.prepare(request_of(kind)))


def test_share_prices_are_exact_and_patterns_cover_the_demand() -> None:
    prices, patterns = share_prices({500: 2, 250: 1, 810: 3, 190: 1})
    assert prices == pytest.approx({190: 0, 250: 0.25, 500: 0.5, 810: 1})
    for size, wanted in {500: 2, 250: 1, 810: 3, 190: 1}.items():
        covered = sum(times * pattern.get(size, 0) for pattern, times in patterns)
        assert covered >= wanted - 1e-4
    assert share_prices({}) == ({}, [])


@given(st.dictionaries(st.integers(5, 99).map(lambda n: n * 10), st.integers(1, 50), min_size=1))
@settings(max_examples=40, deadline=None)
def test_price_of_shares_on_one_device_is_at_most_the_price_of_the_device(
    demand: dict[int, int],
) -> None:
    prices, patterns = share_prices(demand)
    # best[n] is the highest total price of shares that fit on n hundredths of a device.
    best = np.zeros(101)
    for n in range(1, 101):
        prices_with_share = [best[n - s // 10] + p for s, p in prices.items() if s <= 10 * n]
        best[n] = max([best[n - 1], *prices_with_share])
    assert best[100] <= 1 + 1e-6
    # By strong duality of the linear program, the number of devices equals the price of the demand.
    devices = sum(times for _, times in patterns)
    assert devices == pytest.approx(sum(demand[s] * p for s, p in prices.items()), rel=1e-4)


@given(st.lists(st.integers(0, 100).map(lambda n: n * 10), max_size=5))
@settings(deadline=None)
def test_max_share_is_the_largest_share_that_fits(free: list[int]) -> None:
    most = max_share(free)
    placer = Placer([agent("a", tuple(1000 - f for f in free))], Policy.BEST_FIT)

    def fits(shares: int) -> bool:
        request = Request(ResourceSlots({"cpu": 1, "cuda.shares": shares}), "main", "x86_64")
        return placer.fits(placer.prepare(request))

    assert most < 50 or fits(most)
    assert not fits(max(50, most + 10))


def test_capacity_values_do_not_decrease_with_free_capacity() -> None:
    agents = [agent(f"a{i}", (0,) * 8, cpu=96, mem=384) for i in range(3)]
    for variant in Variant:
        tables: Tables = tables_of(MIX, Fleet.of(agents), variant)
        values = tables.costs.capacity_value
        for axis in (1, 2, 3):
            assert (np.diff(values, axis=axis) >= -1e-6).all()
        # The reserve adds at most 2: the only request of MIX for several devices is for two.
        assert values.max() <= 8 + (2 if variant.has_reserve else 0) + 1e-6
    assert thousandths("cuda.device", 2) == 2000
