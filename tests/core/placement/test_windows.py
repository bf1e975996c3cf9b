"""Even division of a share: examples, and a comparison with an oracle that tries every division."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Placer, Policy, Request

from .worlds import agent

PART_STEP, MIN_PART, UNIT = 10, 50, 1000


def with_usage(free: tuple[int, ...], amount: int, guarded: bool, policy: Policy) -> dict[int, int]:
    """Return what each device contributes to a share; empty if it is refused."""
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


# Row: description, free per device, requested, result, result with the guard.
ROWS = [
    ("two empty devices give half each", (1000, 1000), 1500, {0: 750, 1: 750}, True),
    ("the fullest that can are next to each other in line", (1000, 700, 1000), 1300, {0: 650, 1: 650}, True),  # noqa: E501
    ("what no two hold evenly three do, rather than two unevenly", (1000, 600, 600, 0), 1500, {0: 500, 1: 500, 2: 500}, True),  # noqa: E501
    ("parts that differ by one step are even", (760, 750), 1510, {0: 760, 1: 750}, True),
    ("a step fewer, and the larger part is on the roomier device", (750, 760), 1510, {1: 760, 0: 750}, True),  # noqa: E501
    ("what is less than a step is missing in the largest part", (1000, 1000), 1505, {1: 755, 0: 750}, True),  # noqa: E501
    ("even on three before even on four", (500, 500, 500, 500), 1200, {0: 400, 1: 400, 2: 400}, True),  # noqa: E501
    ("a whole device and the rest of another, where nothing is even", (1000, 400), 1400, {0: 1000, 1: 400}, False),  # noqa: E501
    ("not the roomiest full: as even as the room allows", (1000, 600), 1500, {0: 900, 1: 600}, False),  # noqa: E501
    ("the more even of two windows, though it leaves more", (1000, 900, 300), 1250, {0: 630, 1: 620}, True),  # noqa: E501
    ("two uneven devices rather than three that are more uneven", (1000, 400, 100), 1300, {0: 900, 1: 400}, False),  # noqa: E501
    ("three uneven devices where two do not hold it", (1000, 300, 200), 1450, {0: 950, 1: 300, 2: 200}, False),  # noqa: E501
    ("a fraction that fits on no device is divided too", (250, 400, 300), 500, {2: 250, 0: 250}, None),  # noqa: E501
    ("a fraction that fits on one device is not divided", (300, 500, 400), 500, {1: 500}, True),
    ("no part is below the smallest share", (1000, 40), 1020, {}, True),
    ("nor made so small by being even", (1000, 1000, 50), 1990, {1: 1000, 0: 990}, True),
    ("all that there is", (1000, 330, 70), 1400, {0: 1000, 1: 330, 2: 70}, False),
    ("more than there is", (1000, 330, 70), 1410, {}, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "free", "amount", "given_", "is_even"), ROWS, ids=[row[0] for row in ROWS]
)
def test_rows(
    what: str, free: tuple[int, ...], amount: int, given_: dict[int, int], is_even: bool | None
) -> None:
    assert with_usage(free, amount, False, Policy.BEST_FIT) == given_
    # The guard accepts an even split, and a fraction only on one device.
    assert with_usage(free, amount, True, Policy.BEST_FIT) == (given_ if is_even else {})


def test_reference_of_even_division() -> None:
    """From ceil(R / cap) devices up: D = R / n rounded down to q, extras = ceil((R - nD) / q)."""

    def accepts(free: tuple[int, ...], amount: int) -> int:
        for n in range(-(-amount // UNIT), len(free) + 1):
            part = amount // n // PART_STEP * PART_STEP
            extras = -(-(amount - n * part) // PART_STEP)
            enough = sum(room >= part + PART_STEP for room in free) >= extras
            if part >= MIN_PART and enough and sum(room >= part for room in free) >= n:
                return n
        return 0

    for free in product((0, 200, 490, 500, 510, 740, 1000), repeat=3):
        for amount in (1010, 1470, 1480, 1500, 2000, 2470):
            assert len(with_usage(free, amount, True, Policy.BEST_FIT)) == accepts(free, amount)


Key = tuple[int, int, int]


def best_key(free: tuple[int, ...], amount: int, guarded: bool, spreads: bool) -> Key | None:
    """Return unevenness, number of devices and room of the best window, over every split."""
    line = sorted(
        (room for room in free if room // PART_STEP * PART_STEP >= MIN_PART), reverse=True
    )
    steps, keys = amount // PART_STEP, []
    for n in range(2, len(line) + 1):
        for first in range(len(line) - n + 1):
            window = line[first : first + n]
            parts = [range(MIN_PART // PART_STEP, room // PART_STEP + 1) for room in window]
            for others in product(*parts[1:]):
                last = steps - sum(others)
                if last not in parts[0]:
                    continue
                split = (last, *others)
                uneven = max(0, max(split) - min(split) - 1)
                if not (guarded and uneven):
                    keys.append((uneven, n, -sum(window) if spreads else sum(window)))
    return min(keys, default=None)


@settings(max_examples=150, deadline=None)
@given(
    # Few large devices, or more small ones, so that every split can be tried.
    free=st.one_of(
        st.lists(st.integers(0, 100), max_size=3),
        st.lists(st.integers(0, 25), min_size=4, max_size=4),
    ).map(lambda rooms: tuple(room * PART_STEP for room in rooms)),
    amount=st.integers(5, 250).map(lambda n: n * PART_STEP),
    guarded=st.booleans(),
    policy=st.sampled_from([Policy.BEST_FIT, Policy.PRICED, Policy.SPREAD, Policy.FGD]),
)
def test_chosen_window_is_the_best(
    free: tuple[int, ...], amount: int, guarded: bool, policy: Policy
) -> None:
    got = with_usage(free, amount, guarded, policy)
    assert all(MIN_PART <= part <= free[j] for j, part in got.items())
    if max(free, default=0) >= amount:
        assert list(got.values()) == [amount], "what fits on one device is on one"
        return
    if guarded and amount <= UNIT:
        assert got == {}
        return
    key = best_key(free, amount, guarded, policy == Policy.SPREAD)
    if key is None:
        assert got == {}
        return
    parts = sorted(got.values())
    uneven = max(0, parts[-1] - parts[0] - PART_STEP) // PART_STEP
    room = sum(free[j] for j in got)
    assert sum(parts) == amount
    assert (uneven, len(parts), -room if policy == Policy.SPREAD else room) == key
