"""Rules for shares of devices, for dividing shares, and for combinations of slots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.devices import check_exclusive, split_shares
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import parse_amount
from bai_services.core.scheduling.placement import Placer, Policy

from .factories import agent, place_request, request

PART_STEP, UNIT, MIN_PART = 10, 1000, 50


def place_on(free: list[int], **spec: Any) -> list[int] | None:
    """Place a request on devices; return the amount on each device, or None if it does not fit.

    ``free`` contains the free thousandths of each device.
    """
    on = agent("a", tuple(UNIT - thousandths for thousandths in free))
    placements = place_request(Placer([on], Policy.BEST_FIT), request(**spec))
    if placements is None:
        return None
    parts = placements[0][1]
    return [parts.get(f"g{n}", 0) for n in range(len(free))]


@pytest.mark.parametrize(
    "free, spec, parts",
    [
        pytest.param(
            [1000, 500, 700], {"shares": "0.5"}, [0, 500, 0],
            id="best fit selects the fullest device with enough free capacity",
        ),
        pytest.param(
            [400, 400], {"shares": "0.5"}, None,
            id="a share of at most 1 is not divided by default",
        ),
        pytest.param(
            [1000, 1000, 1000], {"shares": "2"}, [1000, 1000, 0],
            id="a share above 1 is divided evenly over the fewest devices",
        ),
        pytest.param(
            [1000, 400, 400], {"shares": "1.2"}, [400, 400, 400],
            id="a share is divided over three devices, because two have too little capacity",
        ),
        pytest.param(
            [1000, 330, 330], {"shares": "1.01"}, None,
            id="equal parts do not fit, and unequal parts are not allowed",
        ),
        pytest.param(
            [1000, 340, 330], {"shares": "1"}, [1000, 0, 0],
            id="a share of 1 needs one empty device",
        ),
        pytest.param(
            [340, 340, 330], {"shares": "1.01"}, [340, 340, 330],
            id="the parts differ by one step; emptier devices get the larger parts",
        ),
        pytest.param(
            [1000, 990], {"device": 2}, None,
            id="a partly used device is not a whole device",
        ),
        pytest.param(
            [990, 1000, 1000], {"device": 2}, [0, 1, 1],
            id="the amount of a whole device is 1",
        ),
    ],
)  # fmt: skip
def test_devices_get_the_expected_amounts(
    free: list[int], spec: dict[str, Any], parts: list[int] | None
) -> None:
    assert place_on(free, **spec) == parts


@pytest.mark.parametrize(
    "slots, message",
    [
        pytest.param(
            {"cuda.device": 1, "cuda.shares": 500},
            "cuda.device and cuda.shares are mutually exclusive",
            id="whole devices and shares of one family are mutually exclusive",
        ),
        pytest.param(
            {"cuda.mig-1g.10gb": 1, "cuda.shares": 500}, "are mutually exclusive",
            id="shares and MIG instances are mutually exclusive",
        ),
        pytest.param(
            {"cuda.mig-1g.10gb": 1, "cuda.mig-2g.20gb": 1}, "are mutually exclusive",
            id="instances of two MIG profiles are mutually exclusive",
        ),
    ],
)  # fmt: skip
def test_mutually_exclusive_slots_are_rejected(slots: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_exclusive(slots)


@pytest.mark.parametrize(
    "slots",
    [
        pytest.param({"cuda.device": 1}, id="whole devices only"),
        pytest.param({"cuda.shares": 500, "rocm.device": 1}, id="two families"),
    ],
)
def test_compatible_slots_are_accepted(slots: dict[str, int]) -> None:
    check_exclusive(slots)


@pytest.mark.parametrize(
    "text, amount",
    [
        pytest.param("0.05", 50, id="smallest valid share"),
        pytest.param("0.25", 250, id="multiple of a hundredth"),
    ],
)
def test_valid_share_is_accepted(text: str, amount: int) -> None:
    assert parse_amount("cuda.shares", text) == amount


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param("0.04", "smallest amount 0.05", id="below the minimum"),
        pytest.param("0.333", "step", id="not a multiple of the step"),
    ],
)
def test_invalid_share_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_amount("cuda.shares", text)


def reference_fits(free: list[int], amount: int) -> bool:
    """Return whether a share fits if it is divided evenly (reference implementation)."""
    if amount <= UNIT:
        return max(free) >= amount
    for n in range(-(-amount // UNIT), len(free) + 1):
        part = amount // n // PART_STEP * PART_STEP
        extras = -(-(amount - n * part) // PART_STEP)
        has_larger = sum(on_device >= part + PART_STEP for on_device in free) >= extras
        if part >= MIN_PART and has_larger and sum(on_device >= part for on_device in free) >= n:
            return True
    return False


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 100).map(lambda n: n * PART_STEP), min_size=1, max_size=5),
    amount=st.integers(5, 400).map(lambda n: n * PART_STEP),
)
def test_placer_matches_the_reference_of_even_division(free: list[int], amount: int) -> None:
    parts = place_on(free, shares=amount / UNIT)
    assert (parts is not None) == reference_fits(free, amount)
    if parts is not None:
        allocated = [part for part in parts if part]
        assert sum(allocated) == amount
        assert max(allocated) - min(allocated) <= PART_STEP
        assert all(part <= on_device for part, on_device in zip(parts, free, strict=True))


@pytest.mark.parametrize(
    "amount, parts",
    [
        pytest.param(1000, [1000], id="a share of 1 has one part"),
        pytest.param(1010, [510, 500], id="the first of two parts is one step larger"),
        pytest.param(2500, [840, 830, 830], id="three parts are enough for a share of 2.5"),
    ],
)
def test_share_is_split_into_parts_that_differ_by_at_most_one_step(
    amount: int, parts: list[int]
) -> None:
    assert split_shares(amount) == parts
