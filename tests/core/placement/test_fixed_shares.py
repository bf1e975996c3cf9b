"""Devices that accept only shares of a fixed size, and MIG instances with separate slots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.device_sharing import ANY_SHARE, Level, Sharing
from bai_services.core.cluster.devices import Device, max_amount
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import AgentState, Placer, Policy, Request

from .factories import agent, place_request, request

SLOT = "cuda.mig-1g.10gb"
QUARTERS = Sharing(Level.PROCESS, 250, 250)
NO_SHARES = Sharing(Level.SOFT, most=0)


def agent_with_sharing(used: tuple[int, ...], *sharing: Sharing) -> AgentState:
    plain = agent("a", used)
    devices = zip(plain.devices, sharing, strict=True)
    return replace(plain, devices=tuple(replace(d, sharing=s) for d, s in devices))


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    "world, spec, devices",
    [
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, Sharing()),
            {"shares": 0.5},
            {"g1": 500},
            id="other share: the device without a fixed share",
        ),
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, NO_SHARES),
            {"shares": 0.25},
            {"g0": 250},
            id="fixed share: the device with this share",
        ),
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, QUARTERS),
            {"shares": 0.5},
            None,
            id="twice the fixed share is not divided over two devices",
        ),
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, QUARTERS),
            {"shares": 0.1},
            None,
            id="smaller than the fixed share",
        ),
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, QUARTERS),
            {"shares": 2},
            None,
            id="share larger than one device",
        ),
        pytest.param(
            agent_with_sharing((0, 0), QUARTERS, NO_SHARES),
            {"device": 2},
            {"g0": 1, "g1": 1},
            id="whole devices",
        ),
        pytest.param(
            agent_with_sharing((800,), QUARTERS),
            {"shares": 0.25},
            None,
            id="too little free capacity",
        ),
    ],
)
def test_device_with_a_fixed_share_accepts_no_other_share(
    policy: Policy, world: AgentState, spec: dict[str, Any], devices: dict[str, int] | None
) -> None:
    placements = place_request(Placer([world], policy), request(**spec))
    assert placements == (None if devices is None else [("a", devices)])


def test_divided_share_avoids_devices_with_a_fixed_share() -> None:
    world = agent_with_sharing((0, 600, 600), QUARTERS, Sharing(), Sharing())
    wanted = request(shares=0.6, allow_fragmentation=True)
    assert place_request(Placer([world], Policy.PRICED), wanted) == [("a", {"g1": 300, "g2": 300})]


@pytest.mark.parametrize(
    "shares, text",
    [
        pytest.param(0.5, "at most 0.25 is free on one agent", id="larger than the fixed share"),
        pytest.param(
            0.1, "the smallest share of the devices here is 0.25", id="smaller than the fixed share"
        ),
    ],
)
def test_refusal_names_the_allowed_shares(shares: float, text: str) -> None:
    placer = Placer([agent_with_sharing((0,), QUARTERS)], Policy.PRICED)
    shape = placer.prepare(request(shares=shares))
    assert placer.place(shape) is None
    assert text in str(placer.refusal(shape).text)


def test_refusal_states_that_no_device_can_be_shared() -> None:
    placer = Placer([agent_with_sharing((0,), NO_SHARES)], Policy.PRICED)
    shape = placer.prepare(request(shares=0.5))
    assert "at most 0 is free on one agent; no device can be shared now" in (
        str(placer.refusal(shape).text)
    )


@pytest.mark.parametrize("policy", list(Policy))
def test_mig_instances_are_allocated_only_for_the_mig_slot(policy: Policy) -> None:
    plain = agent("a", (0,))
    parts = tuple(Device(f"a-m{i}", "cuda", slot=SLOT) for i in range(2))
    placer = Placer([replace(plain, devices=(*plain.devices, *parts))], policy)
    two = placer.prepare(Request(ResourceSlots({"cpu": 1000, SLOT: 2}), "main", "x86_64"))
    placements = placer.place(two)
    assert placements is not None
    assert {d.device_id: d.amount for d in placements[0].devices} == {"a-m0": 1, "a-m1": 1}
    assert placer.place(two) is None
    assert place_request(placer, request(device=1)) == [("a", {"g0": 1})]
    placer.release(placements)
    assert placer.fits(two)


SHARINGS = st.sampled_from(
    [Sharing(), QUARTERS, NO_SHARES, Sharing(Level.CGROUP, 100, 1000), Sharing(Level.NONE, 50)]
)


@given(
    st.lists(st.tuples(SHARINGS, st.integers(0, 100).map(lambda n: n * 10)), max_size=4),
    st.integers(5, 300).map(lambda n: n * 10),
    st.booleans(),
)
@settings(deadline=None)
def test_no_device_gets_a_share_that_it_does_not_allow(
    devices: list[tuple[Sharing, int]], amount: int, may_fragment: bool
) -> None:
    world = agent_with_sharing(
        tuple(used for _, used in devices), *(sharing for sharing, _ in devices)
    )
    wanted = Request(
        ResourceSlots({"cpu": 1, "cuda.shares": amount}),
        "main",
        "x86_64",
        allow_fragmentation=may_fragment,
    )
    placer = Placer([world], Policy.PRICED)
    placements = placer.place(placer.prepare(wanted))
    by_id = {d.id: d for d in world.devices}
    for device in placements[0].devices if placements else ():
        sharing = by_id[device.device_id].sharing
        assert sharing.least <= device.amount <= by_id[device.device_id].free
        assert amount <= sharing.most
    if placements and not may_fragment:
        assert amount <= max_amount(world.devices, "cuda.shares") or amount > ANY_SHARE
