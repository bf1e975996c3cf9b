"""Even division of a share: examples, and a comparison with an exhaustive search."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Placer, Policy, Request

from .factories import agent

PART_STEP, MIN_PART, UNIT = 10, 50, 1000


def divide(free: tuple[int, ...], amount: int, guarded: bool, policy: Policy) -> dict[int, int]:
    """Place a share; return the part by device number (empty if the share does not fit).

    ``free`` and ``amount`` are in thousandths. With ``guarded``, fragmentation is not allowed.
    """
    on = agent("a", tuple(UNIT - room for room in free))
    wanted = Request(
        ResourceSlots({"cpu": 1000, "mem": 2**30, "cuda.shares": amount}),
        "main",
        "x86_64",
        allow_fragmentation=not guarded,
    )
    placer = Placer([on], policy)
    found = placer.place(placer.prepare(wanted))
    return {int(d.device_id[-1]): d.amount for d in found[0].devices} if found else {}


# Row: case, free thousandths of each device, requested thousandths, expected division by device
# number, and whether this division is allowed without fragmentation (None: no, because the share is
# at most 1).
ROWS = [
    ("two equal parts on two empty devices", (1000, 1000), 1500, {0: 750, 1: 750}, True),
    ("the fullest devices with enough free capacity", (1000, 700, 1000), 1300, {0: 650, 1: 650}, True),  # noqa: E501
    ("three equal parts rather than two unequal ones", (1000, 600, 600, 0), 1500, {0: 500, 1: 500, 2: 500}, True),  # noqa: E501
    ("parts that differ by one step count as even", (760, 750), 1510, {0: 760, 1: 750}, True),
    ("the larger part is on the emptier device", (750, 760), 1510, {1: 760, 0: 750}, True),
    ("a remainder below one step shrinks the largest part", (1000, 1000), 1505, {1: 755, 0: 750}, True),  # noqa: E501
    ("three equal parts rather than four", (500, 500, 500, 500), 1200, {0: 400, 1: 400, 2: 400}, True),  # noqa: E501
    ("a whole device and a part, if no even division exists", (1000, 400), 1400, {0: 1000, 1: 400}, False),  # noqa: E501
    ("the difference between the parts is as small as possible", (1000, 600), 1500, {0: 900, 1: 600}, False),  # noqa: E501
    ("the most even division, although another one leaves less capacity free", (1000, 900, 300), 1250, {0: 630, 1: 620}, True),  # noqa: E501
    ("two unequal parts rather than three less equal ones", (1000, 400, 100), 1300, {0: 900, 1: 400}, False),  # noqa: E501
    ("three unequal parts if two devices do not suffice", (1000, 300, 200), 1450, {0: 950, 1: 300, 2: 200}, False),  # noqa: E501
    ("a share below 1 that fits on no device is divided", (250, 400, 300), 500, {2: 250, 0: 250}, None),  # noqa: E501
    ("a share that fits on one device is not divided", (300, 500, 400), 500, {1: 500}, True),
    ("no part is below the smallest share", (1000, 40), 1020, {}, True),
    ("two even parts leave the small third device unused", (1000, 1000, 50), 1990, {1: 1000, 0: 990}, True),  # noqa: E501
    ("the total free capacity", (1000, 330, 70), 1400, {0: 1000, 1: 330, 2: 70}, False),
    ("more than the total free capacity", (1000, 330, 70), 1410, {}, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "free", "amount", "expected", "is_even"), ROWS, ids=[row[0] for row in ROWS]
)
def test_share_is_divided_as_expected(
    what: str, free: tuple[int, ...], amount: int, expected: dict[int, int], is_even: bool | None
) -> None:
    assert divide(free, amount, False, Policy.BEST_FIT) == expected
    # Without fragmentation, a share up to 1 is not divided; a larger share is divided only evenly.
    assert divide(free, amount, True, Policy.BEST_FIT) == (expected if is_even else {})


def test_number_of_parts_follows_the_formula() -> None:
    """A share R is divided evenly over n devices of capacity C, in steps of q. Let D be R / n,
    rounded down to a multiple of q. Then n is the smallest number for which all of these hold:

    - n is at least R / C, and D is at least the smallest part.
    - n devices have at least D free.
    - ceil((R - n D) / q) devices have at least D + q free.
    """

    def part_count(free: tuple[int, ...], amount: int) -> int:
        for n in range(-(-amount // UNIT), len(free) + 1):
            part = amount // n // PART_STEP * PART_STEP
            extras = -(-(amount - n * part) // PART_STEP)
            enough = sum(room >= part + PART_STEP for room in free) >= extras
            if part >= MIN_PART and enough and sum(room >= part for room in free) >= n:
                return n
        return 0

    for free in product((0, 200, 490, 500, 510, 740, 1000), repeat=3):
        for amount in (1010, 1470, 1480, 1500, 2000, 2470):
            assert len(divide(free, amount, True, Policy.BEST_FIT)) == part_count(free, amount)


Key = tuple[int, int, int]


def best_key(free: tuple[int, ...], amount: int, guarded: bool, spreads: bool) -> Key | None:
    """Try all divisions; return unevenness, number of devices and free capacity of the best one.

    The best division has the smallest values, compared in this order. The unevenness is the
    difference between the largest and the smallest part in steps, minus 1, but not below 0. With
    ``spreads``, the free capacity is negated, so that more is better. Return None if no division is
    allowed.
    """
    usable = [room for room in free if room // PART_STEP * PART_STEP >= MIN_PART]
    steps, keys = amount // PART_STEP, []
    for n in range(2, len(usable) + 1):
        for rooms in combinations(usable, n):
            parts = [range(MIN_PART // PART_STEP, room // PART_STEP + 1) for room in rooms]
            for others in product(*parts[1:]):
                last = steps - sum(others)
                if last not in parts[0]:
                    continue
                split = (last, *others)
                uneven = max(0, max(split) - min(split) - 1)
                if not (guarded and uneven):
                    keys.append((uneven, n, -sum(rooms) if spreads else sum(rooms)))
    return min(keys, default=None)


@settings(max_examples=150, deadline=None)
@given(
    # At most 3 devices, or 4 with little free capacity, to limit the number of divisions.
    free=st.one_of(
        st.lists(st.integers(0, 100), max_size=3),
        st.lists(st.integers(0, 25), min_size=4, max_size=4),
    ).map(lambda rooms: tuple(room * PART_STEP for room in rooms)),
    amount=st.integers(5, 250).map(lambda n: n * PART_STEP),
    guarded=st.booleans(),
    policy=st.sampled_from([Policy.BEST_FIT, Policy.PRICED, Policy.SPREAD, Policy.FGD]),
)
def test_chosen_division_is_the_best_of_all_divisions(
    free: tuple[int, ...], amount: int, guarded: bool, policy: Policy
) -> None:
    parts_by_device = divide(free, amount, guarded, policy)
    assert all(MIN_PART <= part <= free[j] for j, part in parts_by_device.items())
    if max(free, default=0) >= amount:
        assert list(parts_by_device.values()) == [amount], (
            "a share that fits on one device is not divided"
        )
        return
    if guarded and amount <= UNIT:
        assert parts_by_device == {}
        return
    key = best_key(free, amount, guarded, policy == Policy.SPREAD)
    if key is None:
        assert parts_by_device == {}
        return
    parts = sorted(parts_by_device.values())
    uneven = max(0, parts[-1] - parts[0] - PART_STEP) // PART_STEP
    room = sum(free[j] for j in parts_by_device)
    assert sum(parts) == amount
    assert (uneven, len(parts), -room if policy == Policy.SPREAD else room) == key
