"""Properties of placement for any agents and requests under every policy; scores against
references.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.devices import Device, most_shares, thousandths
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import (
    AgentState,
    Mode,
    Placement,
    Placer,
    Policy,
    Request,
)
from bai_services.core.scheduling.placement.mix import Mix, RequestKind, starting_mix
from bai_services.core.scheduling.placement.prices import remainder_values, share_prices
from bai_services.core.scheduling.placement.tables import Fleet, Tables, Variant, tables_of

from .worlds import GIB, agent

sizes = st.sampled_from([50, 160, 200, 250, 330, 470, 500, 650, 810])
used = st.lists(st.sampled_from([0, 0, 0, None, 190, 250, 500, 670, 1000]), max_size=4)


@st.composite
def groups(draw: st.DrawFn) -> list[AgentState]:
    found = []
    for i in range(draw(st.integers(1, 5))):
        devices = tuple(draw(used))
        found.append(
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
    return found


@st.composite
def requests(draw: st.DrawFn) -> Request:
    slots = {"cpu": draw(st.sampled_from([500, 1000, 4000])), "mem": draw(st.integers(1, 8)) * GIB}
    kind = draw(st.sampled_from(["none", "share", "share", "much", "whole"]))
    if kind == "share":
        slots["cuda.shares"] = draw(sizes)
    elif kind == "much":
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


def check_sums(placer: Placer) -> None:
    for state in placer.agents():
        assert all(0 <= state.used[slot] <= state.capacity[slot] for slot in ("cpu", "mem"))
        assert all(0 <= d.used <= d.capacity for d in state.devices)


def check_gang(wanted: Request, placements: tuple[Placement, ...]) -> None:
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
    groups(),
    st.lists(requests(), min_size=1, max_size=12),
    st.sampled_from(list(Policy)),
    st.data(),
)
def test_sums_gangs_and_exact_release(
    agents: list[AgentState], wanted: list[Request], policy: Policy, data: st.DataObject
) -> None:
    placer, twin = Placer(agents, policy, seed=3), Placer(agents, policy, seed=3)
    start = placer.agents()
    held: list[tuple[Placement, ...]] = []
    for ask in wanted:
        shape = placer.prepare(ask)
        fits, version = placer.fits(shape), placer.version
        before = placer.agents()
        placements = placer.place(shape)
        assert twin.place(twin.prepare(ask)) == placements
        assert fits == (placements is not None)
        if placements is None:
            assert placer.agents() == before
            assert placer.version == version
            assert placer.refusal(shape).message
        else:
            check_gang(ask, placements)
            held.append(placements)
        check_sums(placer)
        leaves: bool = data.draw(st.booleans())
        if held and leaves:
            leaving = held.pop(data.draw(st.integers(0, len(held) - 1)))
            placer.release(leaving)
            twin.release(leaving)
    for placements in held:
        placer.release(placements)
    assert placer.agents() == start


@settings(max_examples=40, deadline=None)
@given(groups(), st.lists(requests(), min_size=1, max_size=10), st.sampled_from(list(Policy)[:6]))
def test_cached_scores_do_not_change_decisions(
    agents: list[AgentState], wanted: list[Request], policy: Policy
) -> None:
    tables = tables_of(starting_mix(agents), Fleet.of(agents))
    placer = Placer(agents, policy, tables)
    for ask in wanted:
        fresh = Placer(placer.agents(), policy, tables, last_agent=placer.last_agent)
        assert placer.place(placer.prepare(ask)) == fresh.place(fresh.prepare(ask))


# ---- Reference scores: slow, as written in the definitions ----

MIX: Mix = {
    RequestKind(4000, 8 * GIB, "cuda", 1, 1000): 5,
    RequestKind(2000, 4 * GIB, "cuda", 1, 1000, ("T4",)): 3,
    RequestKind(1000, 4 * GIB, "cuda", 1, 810): 2,
    RequestKind(1000, 2 * GIB, "cuda", 1, 470): 4,
    RequestKind(3000, 2 * GIB, "cuda", 1, 250): 3,
    RequestKind(8000, 16 * GIB, "cuda", 2, 1000): 1,
    RequestKind(2000, 4 * GIB): 2,
}


def plain_worth(mix: Mix, model: str, k: int, cpu: int, mem: int) -> float:
    """W for bins of 0.5 cores and 4 GiB, by recursion."""
    rows = [
        (-(-kind.cpu // 500), -(-kind.mem // (4 * GIB)), w)
        for kind, w in mix.items()
        if kind.devices == 1 and kind.share >= 800 and (not kind.models or model in kind.models)
    ]
    total = sum(w for *_, w in rows)
    memo: dict[tuple[int, int, int], float] = {}

    def worth(k: int, c: int, m: int) -> float:
        if k == 0:
            return 0.0
        if (k, c, m) not in memo:
            gains = [
                1 + worth(k - 1, c - ci, m - mi) if ci <= c and mi <= m else 0.0
                for ci, mi, _ in rows
            ]
            value = max(gains)
            for _ in range(400):
                value = sum(
                    w / total * max(gain, 0.93 * value)
                    for gain, (_, _, w) in zip(gains, rows, strict=True)
                )
            memo[k, c, m] = value
        return memo[k, c, m]

    return worth(k, min(cpu // 500, 192), min(mem // (4 * GIB), 96))


class Plain:
    """Reference of the priced score for an agent with a few devices of one model."""

    def __init__(self, mix: Mix, agents: list[AgentState]) -> None:
        self.mix = mix
        shares = {k.share: 0.0 for k in mix if 0 < k.share < 1000}
        for kind, weight in mix.items():
            if 0 < kind.share < 1000:
                shares[kind.share] += weight
        self.value = remainder_values(share_prices(shares)[0])
        total = sum(k.demand * w for k, w in mix.items())
        self.parts = {
            n: sum(k.demand * w for k, w in mix.items() if k.devices == n) / total for n in (1, 2)
        }
        supply: dict[str, int] = {}
        for device in (d for a in agents for d in a.devices):
            supply[device.model] = supply.get(device.model, 0) + 1
        fleet = sum(supply.values())
        ratio = dict.fromkeys(supply, 0.0)
        for kind, weight in mix.items():
            models = [m for m in supply if not kind.models or m in kind.models]
            for model in models if kind.devices else ():
                ratio[model] += (
                    kind.demand * weight * fleet / total / sum(supply[m] for m in models)
                )
        self.mu = {m: 0.05 * (r - min(ratio.values())) for m, r in ratio.items()}

    def bonus(self, whole: int) -> float:
        return sum(p * k * (whole // k) for k, p in self.parts.items()) - whole

    def phi(self, model: str, free: list[int], cpu: int, mem: int) -> float:
        g = sum(float(self.value[f]) for f in free)
        k, f = int(g), g - int(g)
        if k >= len(free):
            k, f = len(free), 0.0
        low = plain_worth(self.mix, model, k, cpu, mem)
        return low if f == 0 else (1 - f) * low + f * plain_worth(self.mix, model, k + 1, cpu, mem)

    def score(self, on: AgentState, kind: RequestKind) -> int | None:
        """Return the best rounded score over the devices, or None when it does not fit."""
        free = [d.capacity - d.used for d in on.devices]
        model = on.devices[0].model
        cpu, mem = (on.capacity[s] - on.used.get(s, 0) for s in ("cpu", "mem"))
        if kind.cpu > cpu or kind.mem > mem or (kind.models and model not in kind.models):
            return None
        ways: list[list[int]] = []
        if kind.devices == 0:
            ways = [free]
        elif kind.share < 1000:
            for j, room in enumerate(free):
                if room >= kind.share:
                    ways.append([f - kind.share * (i == j) for i, f in enumerate(free)])
        elif free.count(1000) >= kind.devices:
            left = kind.devices
            after = list(free)
            for j, room in enumerate(free):
                if room == 1000 and left:
                    after[j], left = 0, left - 1
            ways = [after]
        if not ways:
            return None
        best = -math.inf
        for after in ways:
            score = self.phi(model, after, cpu - kind.cpu, mem - kind.mem)
            score -= self.phi(model, free, cpu, mem)
            taken = sum(float(self.value[f]) for f in free)
            taken -= sum(float(self.value[f]) for f in after)
            score -= self.mu[model] * taken
            score -= 0.05 * (self.bonus(free.count(1000)) - self.bonus(after.count(1000)))
            best = max(best, score)
        return math.floor(best / 0.04 + 0.5)


def lost(
    on: AgentState, free: list[int], cpu: int, typical: list[tuple[RequestKind, float]]
) -> float:
    total, found = sum(free), 0.0
    for kind, part in typical:
        fitting = [f for f in free if f >= kind.share]
        is_barred = kind.models and on.devices[0].model not in kind.models
        if kind.devices == 0 or kind.cpu > cpu or len(fitting) < kind.devices or is_barred:
            found += part * total
        else:
            found += part * (total - sum(fitting))
    return found


def gradient(on: AgentState, kind: RequestKind) -> int | None:
    """Return the published score of an agent, at best over its devices."""
    free = [d.capacity - d.used for d in on.devices]
    cpu = on.capacity["cpu"] - on.used.get("cpu", 0)
    # Most frequent first, until 95 % of all requests are covered.
    order = sorted(MIX, key=lambda k: -MIX[k])
    kept: list[RequestKind] = []
    while sum(MIX[k] for k in kept) < 0.95 * sum(MIX.values()):
        kept.append(order[len(kept)])
    typical = [(k, MIX[k] / sum(MIX[k] for k in kept)) for k in kept]
    best: int | None = None
    for j, room in enumerate(free):
        if kind.share < 1000 and room >= kind.share and kind.cpu <= cpu:
            after = [f - kind.share * (i == j) for i, f in enumerate(free)]
            change = lost(on, free, cpu, typical) - lost(on, after, cpu - kind.cpu, typical)
            score = int(100 / (1 + math.exp(-change / 1000)))
            best = score if best is None else max(best, score)
    return best


states = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 0, 190, 250, 500, 530, 1000]), min_size=1, max_size=4),
        st.sampled_from([2000, 5000, 9000, 16000]),
        st.sampled_from([4, 12, 40]),
        st.sampled_from(["T4", "A100"]),
    ),
    min_size=1,
    max_size=4,
)


def fleet_of(drawn: list[tuple[list[int], int, int, str]]) -> list[AgentState]:
    return [
        AgentState(
            f"a{i}",
            "main",
            "x86_64",
            "docker",
            {"cpu": cpu, "mem": mem * GIB},
            devices=tuple(
                Device(f"a{i}-g{j}", "cuda", used=n, model=model) for j, n in enumerate(taken)
            ),
        )
        for i, (taken, cpu, mem, model) in enumerate(drawn)
    ]


def asked(kind: RequestKind) -> Request:
    slots = {"cpu": kind.cpu, "mem": kind.mem}
    if kind.devices:
        slots |= {"cuda.shares": kind.share} if kind.share < 1000 else {"cuda.device": kind.devices}
    return Request(ResourceSlots(slots), "main", "x86_64", device_models=kind.models)


def first_best(scores: list[int | None]) -> str | None:
    best = max((s for s in scores if s is not None), default=None)
    return None if best is None else f"a{scores.index(best)}"


@settings(max_examples=40, deadline=None)
@given(states, st.sampled_from(list(MIX)))
def test_priced_is_as_written_down(drawn: list[Any], kind: RequestKind) -> None:
    agents = fleet_of(drawn)
    tables = tables_of(MIX, Fleet.of(agents))
    placer = Placer(agents, Policy.PRICED, tables)
    plain = Plain(MIX, agents)
    placements = placer.place(placer.prepare(asked(kind)))
    # For equal rounded scores, devices that are close come first, unless one device is enough.
    expected = first_best([plain.score(a, kind) for a in agents])
    assert (placements[0].agent_id if placements else None) == expected


@settings(max_examples=40, deadline=None)
@given(states, st.sampled_from([k for k in MIX if 0 < k.share < 1000]))
def test_fgd_is_as_published(drawn: list[Any], kind: RequestKind) -> None:
    agents = fleet_of(drawn)
    placer = Placer(agents, Policy.FGD, tables_of(MIX, Fleet.of(agents)))
    scores = [gradient(a, kind) if kind.mem <= a.capacity["mem"] else None for a in agents]
    placements = placer.place(placer.prepare(asked(kind)))
    assert (placements[0].agent_id if placements else None) == first_best(scores)


@settings(max_examples=40, deadline=None)
@given(
    states,
    st.lists(st.sampled_from(list(MIX)), min_size=1, max_size=6),
    st.sampled_from([Policy.BEST_FIT, Policy.PACK, Policy.SPREAD]),
)
def test_agents_of_one_family_are_judged_as_any_others(
    drawn: list[Any], kinds: list[RequestKind], policy: Policy
) -> None:
    """A used device of another family only changes the code path, not the score."""
    agents = fleet_of(drawn)
    mixed = [
        replace(a, devices=(*a.devices, Device(f"{a.id}-x", "rocm", used=1000))) for a in agents
    ]
    one, two = Placer(agents, policy), Placer(mixed, policy)
    for kind in kinds:
        assert one.place(one.prepare(asked(kind))) == two.place(two.prepare(asked(kind)))


def test_the_prices_of_a_cutting_stock() -> None:
    prices, patterns = share_prices({500: 2, 250: 1, 810: 3, 190: 1})
    assert prices == pytest.approx({190: 0, 250: 0.25, 500: 0.5, 810: 1})
    for size, wanted in {500: 2, 250: 1, 810: 3, 190: 1}.items():
        held = sum(times * pattern.get(size, 0) for pattern, times in patterns)
        assert held >= wanted - 1e-4
    assert share_prices({}) == ({}, [])


@given(st.dictionaries(st.integers(5, 99).map(lambda n: n * 10), st.integers(1, 50), min_size=1))
@settings(max_examples=40, deadline=None)
def test_no_way_to_cut_a_device_is_worth_more_than_one(demand: dict[int, int]) -> None:
    prices, patterns = share_prices(demand)
    best = np.zeros(101)
    for room in range(1, 101):
        best[room] = max(
            [best[room - 1]]
            + [best[room - s // 10] + p for s, p in prices.items() if s <= 10 * room]
        )
    assert best[100] <= 1 + 1e-6
    # Strong duality: at the optimum, weak duality becomes an equality.
    devices = sum(times for _, times in patterns)
    assert devices == pytest.approx(sum(demand[s] * p for s, p in prices.items()), rel=1e-4)


@given(st.lists(st.integers(0, 100).map(lambda n: n * 10), max_size=5))
@settings(deadline=None)
def test_reported_maximum_is_exact(free: list[int]) -> None:
    most = most_shares(free)
    placer = Placer([agent("a", tuple(1000 - f for f in free))], Policy.BEST_FIT)
    for amount, can in ((most, most >= 50), (most + 10, False)):
        if amount >= 50:
            wanted = Request(ResourceSlots({"cpu": 1, "cuda.shares": amount}), "main", "x86_64")
            assert placer.fits(placer.prepare(wanted)) == can


def test_a_table_is_learned_and_grows_with_what_is_free() -> None:
    agents = [agent(f"a{i}", (0,) * 8, cpu=96, mem=384) for i in range(3)]
    for variant in Variant:
        tables: Tables = tables_of(MIX, Fleet.of(agents), variant)
        worth = tables.costs.worth
        for axis in (1, 2, 3):
            assert (np.diff(worth, axis=axis) >= -1e-6).all()
        # A reserve adds what could be sold to requests for several devices.
        assert worth.max() <= 8 + (2 if variant.has_reserve else 0) + 1e-6
    assert thousandths("cuda.device", 2) == 2000
