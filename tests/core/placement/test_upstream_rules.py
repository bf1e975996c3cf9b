"""Device rules that users of other platforms know, one sentence per row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.cluster.devices import check_exclusive, split_shares
from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import ResourceSlots, parse_amount
from bai_services.core.scheduling.placement import Placer, Policy

from .worlds import agent, request, where

PART_STEP, UNIT, MIN_PART = 10, 1000, 50


def held(free: list[int], **spec: Any) -> list[int] | None:
    """Return the parts that a request takes of devices with this much free, in the devices'
    order.
    """
    on = agent("a", tuple(UNIT - room for room in free))
    found = where(Placer([on], Policy.BEST_FIT), request(**spec))
    if found is None:
        return None
    parts = found[0][1]
    return [parts.get(f"g{n}", 0) for n in range(len(free))]


@pytest.mark.parametrize(
    "free, spec, parts",
    [
        pytest.param(
            [1000, 500, 700], {"shares": "0.5"}, [0, 500, 0],
            id="what fits on one device goes to the one with the least that still suffices",
        ),
        pytest.param(
            [400, 400], {"shares": "0.5"}, None,
            id="what would fit on an empty device is never cut to pieces",
        ),
        pytest.param(
            [1000, 1000, 1000], {"shares": "2"}, [1000, 1000, 0],
            id="more than a device goes on as few devices as hold it in equal parts",
        ),
        pytest.param(
            [1000, 400, 400], {"shares": "1.2"}, [400, 400, 400],
            id="where fewer devices cannot hold equal parts, more of them do",
        ),
        pytest.param(
            [1000, 330, 330], {"shares": "1.01"}, None,
            id="what parts lack on some devices is not put on another",
        ),
        pytest.param(
            [1000, 340, 330], {"shares": "1"}, [1000, 0, 0],
            id="exactly one device is one whole device",
        ),
        pytest.param(
            [340, 340, 330], {"shares": "1.01"}, [340, 340, 330],
            id="parts differ by one step at most, and the roomier devices take the larger ones",
        ),
        pytest.param(
            [1000, 990], {"device": 2}, None,
            id="a device of which anybody has a part is not given whole",
        ),
        pytest.param(
            [990, 1000, 1000], {"device": 2}, [0, 1, 1],
            id="whole devices are counted in units of one",
        ),
    ],
)  # fmt: skip
def test_how_devices_are_given(
    free: list[int], spec: dict[str, Any], parts: list[int] | None
) -> None:
    assert held(free, **spec) == parts


@pytest.mark.parametrize(
    "slots, message",
    [
        pytest.param({"cuda.device": 1}, "", id="whole devices alone"),
        pytest.param(
            {"cuda.device": 1, "cuda.shares": 500},
            "cuda.device and cuda.shares exclude each other",
            id="whole devices and shares of one family are not mixed",
        ),
        pytest.param(
            {"cuda.mig-1g.10gb": 1, "cuda.shares": 500}, "exclude each other",
            id="nor shares and MIG instances",
        ),
        pytest.param(
            {"cuda.mig-1g.10gb": 1, "cuda.mig-2g.20gb": 1}, "exclude each other",
            id="nor instances of two profiles",
        ),
        pytest.param({"cuda.shares": 500, "rocm.device": 1}, "", id="two families may be mixed"),
    ],
)  # fmt: skip
def test_slots_that_exclude_each_other(slots: dict[str, int], message: str) -> None:
    if not message:
        check_exclusive(slots)
        return
    with pytest.raises(InvalidRequest, match=message):
        check_exclusive(slots)


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param("0.05", "", id="a twentieth is the smallest share"),
        pytest.param("0.04", "smallest amount 0.05", id="what is smaller is refused with it"),
        pytest.param("0.333", "step", id="what lies between two steps is not rounded but refused"),
        pytest.param("0.25", "", id="a step is a hundredth"),
    ],
)
def test_the_quantum_of_shares(text: str, message: str) -> None:
    if not message:
        assert parse_amount("cuda.shares", text) % PART_STEP == 0
        return
    with pytest.raises(InvalidRequest, match=message):
        parse_amount("cuda.shares", text)


def guard(free: list[int], amount: int) -> bool:
    """The fragmentation guard, as its rule is written down."""
    if amount <= UNIT:
        return max(free) >= amount
    for n in range(-(-amount // UNIT), len(free) + 1):
        part = amount // n // PART_STEP * PART_STEP
        extras = -(-(amount - n * part) // PART_STEP)
        has_larger = sum(room >= part + PART_STEP for room in free) >= extras
        if part >= MIN_PART and has_larger and sum(room >= part for room in free) >= n:
            return True
    return False


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 100).map(lambda n: n * PART_STEP), min_size=1, max_size=5),
    amount=st.integers(5, 400).map(lambda n: n * PART_STEP),
)
def test_the_guard_accepts_what_its_rule_accepts(free: list[int], amount: int) -> None:
    parts = held(free, shares=amount / UNIT)
    assert (parts is not None) == guard(free, amount)
    if parts is not None:
        with_usage = [part for part in parts if part]
        assert sum(with_usage) == amount
        assert max(with_usage) - min(with_usage) <= PART_STEP
        assert all(part <= room for part, room in zip(parts, free, strict=True))


@pytest.mark.parametrize(
    "amount, parts",
    [
        pytest.param(1000, [1000], id="one device's worth is one part"),
        pytest.param(1010, [510, 500], id="the odd step goes to the first part"),
        pytest.param(2500, [840, 830, 830], id="as few parts as devices it takes at least"),
    ],
)
def test_the_parts_of_a_share(amount: int, parts: list[int]) -> None:
    assert split_shares(amount) == parts
    assert ResourceSlots({"cuda.shares": sum(parts)})["cuda.shares"] == amount
