"""Devices with uniform shares: the first share sets the size until the device is empty again."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.cluster.devices import max_amount
from bai_services.core.scheduling.placement import (
    AgentState,
    Placement,
    Placer,
    Policy,
    Refusal,
    place_first_kernel,
)

from .factories import agent, place_request, request

UNIFORM = Sharing(Level.PROCESS, 50, 1000, is_uniform=True)
SHARES = (50, 250, 300, 500, 700, 1000)


def uniform_agent(name: str, *state: tuple[int, int], sharing: Sharing = UNIFORM) -> AgentState:
    """Return an agent with one device for each pair (used thousandths, share in force)."""
    plain = agent(name, tuple(used for used, _ in state), cpu=10_000, mem=10_000)
    return replace(
        plain,
        devices=tuple(
            replace(device, sharing=sharing, share_in_force=share)
            for device, (_, share) in zip(plain.devices, state, strict=True)
        ),
    )


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    "state, spec, devices",
    [
        pytest.param(
            [(0, 0)], {"shares": "0.5"}, {"g0": 500}, id="an empty device accepts any share"
        ),
        pytest.param(
            [(250, 250)],
            {"shares": "0.25"},
            {"g0": 250},
            id="a share equal to the share in force fits",
        ),
        pytest.param([(250, 250)], {"shares": "0.5"}, None, id="a larger share does not fit"),
        pytest.param([(500, 500)], {"shares": "0.25"}, None, id="a smaller share does not fit"),
        pytest.param(
            [(500, 500), (750, 250)],
            {"shares": "0.25"},
            {"g1": 250},
            id="the device with an equal share in force is chosen",
        ),
        pytest.param([(900, 300)], {"shares": "0.3"}, None, id="too little free capacity"),
        pytest.param(
            [(500, 500), (500, 500)],
            {"shares": "0.9", "allow_fragmentation": True},
            None,
            id="a share is not divided over devices",
        ),
        pytest.param(
            [(250, 250), (0, 0)], {"device": 1}, {"g1": 1}, id="a whole device must be empty"
        ),
    ],
)
def test_uniform_device_in_use_accepts_only_equal_shares(
    policy: Policy, state: list[tuple[int, int]], spec: dict[str, Any], devices: Any
) -> None:
    found = place_request(Placer([uniform_agent("a", *state)], policy), request(**spec))
    assert found == (None if devices is None else [("a", devices)])


def test_first_session_sets_the_share_until_the_device_is_empty() -> None:
    placer = Placer([uniform_agent("a", (0, 0))])
    half, quarter = (placer.prepare(request(shares=share)) for share in ("0.5", "0.25"))
    first = placer.place(quarter)
    second = placer.place(quarter)
    assert first is not None and second is not None
    assert placer.place(half) is None
    placer.release(first)
    assert placer.place(half) is None
    placer.release(second)
    assert placer.place(half) is not None
    assert placer.place(quarter) is None


def test_two_kernels_share_one_empty_device() -> None:
    placer = Placer([uniform_agent("a", (0, 0))])
    placements = placer.place(placer.prepare(request(shares="0.5", kernels=2)))
    assert placements is not None
    assert [d.device_id for p in placements for d in p.devices] == ["a-g0", "a-g0"]


def test_changes_of_a_fork_do_not_affect_the_placer() -> None:
    placer = Placer([uniform_agent("a", (250, 250))])
    half = placer.prepare(request(shares="0.5"))
    fork = placer.fork()
    running = place_first_kernel([uniform_agent("a", (0, 0))], request(shares="0.25"))
    assert isinstance(running, Placement)
    fork.release([running])
    assert (fork.fits(half), placer.fits(half)) == (True, False)
    assert fork.place(half) is not None
    assert placer.fits(placer.prepare(request(shares="0.25")))


def test_minimum_of_two_states_rejects_shares_that_do_not_fit_in_both() -> None:
    now = Placer([uniform_agent("a", (250, 250))])
    quarter, half = (now.prepare(request(shares=share)) for share in ("0.25", "0.5"))
    then = now.fork()
    running = place_first_kernel([uniform_agent("a", (0, 0))], request(shares="0.25"))
    assert isinstance(running, Placement)
    then.release([running])
    assert then.place(half) is not None
    both = now.fork()
    both.set_to_minimum(["a"], now, then)
    # A share of 0.25 that starts now would keep the share in force at 0.25. Then the share of 0.5
    # could not start later.
    assert not both.fits(quarter) and not both.fits(half)


def test_refusal_names_the_shares_in_force() -> None:
    found = place_first_kernel([uniform_agent("a", (500, 500), (250, 250))], request(shares="0.3"))
    assert isinstance(found, Refusal)
    assert str(found.text) == (
        "resource group main: cuda.shares=0.3 requested, but the devices with enough "
        "capacity accept only shares of 0.25, 0.5 until they are empty, because all shares of such "
        "a device are equal"
    )
    assert [(s.slot, s.asked, s.available) for s in found.shortages] == [("cuda.shares", 300, 250)]
    full = place_first_kernel([uniform_agent("a", (1000, 500))], request(shares="0.25"))
    assert isinstance(full, Refusal) and "at most 0 is free" in str(full.text)


@pytest.mark.parametrize("share", ["0.05", "0.25", "0.5", "0.75"])
def test_device_accepts_no_session_if_the_minimum_was_raised_above_the_share_in_force(
    share: str,
) -> None:
    raised = replace(UNIFORM, least=500)
    state = uniform_agent("a", (250, 250), sharing=raised)
    placer = Placer([state])
    assert not placer.fits(placer.prepare(request(shares=share)))
    assert max_amount(state.devices, "cuda.shares") == 0
    assert not raised.allows(250, 250)
    refusal = place_first_kernel([state], request(shares=share))
    assert isinstance(refusal, Refusal)
    assert [shortage.available for shortage in refusal.shortages] == [0]
    assert "shares of 0.25" not in str(refusal.text)


def test_share_that_does_not_fit_now_fits_when_the_device_is_empty() -> None:
    placer = Placer([uniform_agent("a", (500, 500))])
    shape = placer.prepare(request(shares="0.25"))
    assert (placer.fits(shape), placer.fits_when_empty(shape)) == (False, True)


class ReferenceDevices:
    """Reference implementation: for each device, the list of its shares, which are all equal."""

    def __init__(self, count: int) -> None:
        self.on: list[list[int]] = [[] for _ in range(count)]

    def accepts(self, device: int, share: int) -> bool:
        held = self.on[device]
        return not set(held) - {share} and sum(held) + share <= 1000

    def largest_share(self) -> int:
        return max(
            (held[0] if sum(held) + held[0] <= 1000 else 0) if held else 1000 for held in self.on
        )


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(list(Policy)),
    count=st.integers(1, 4),
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from(SHARES)), max_size=40),
    seed=st.integers(0, 2**16),
)
def test_shares_of_a_device_are_always_equal(
    policy: Policy, count: int, steps: list[tuple[bool, int]], seed: int
) -> None:
    placer = Placer([uniform_agent("a", *[(0, 0)] * count)], policy, seed=seed)
    oracle, live, choice = ReferenceDevices(count), [], random.Random(seed)
    for is_end, share in steps:
        if is_end and live:
            placements, device, held = live.pop(choice.randrange(len(live)))
            placer.release(placements)
            oracle.on[device].remove(held)
            continue
        found = placer.place(placer.prepare(request(shares=share / 1000)))
        if found is None:
            assert not any(oracle.accepts(device, share) for device in range(count))
            continue
        ((allocated,),) = (p.devices for p in found)
        device = int(allocated.device_id[-1])
        assert oracle.accepts(device, share)
        oracle.on[device].append(share)
        live.append((found, device, share))
        (state,) = placer.agents()
        assert [d.share_in_force for d in state.devices] == [max(h, default=0) for h in oracle.on]
        assert max_amount(state.devices, "cuda.shares") == oracle.largest_share()
        # A new placer with the same state accepts the same requests.
        rebuilt = Placer([state], Policy.BEST_FIT)
        for other in SHARES:
            wanted = request(shares=other / 1000)
            fits = any(oracle.accepts(device, other) for device in range(count))
            assert (
                rebuilt.fits(rebuilt.prepare(wanted)) == placer.fits(placer.prepare(wanted)) == fits
            )
