"""Parsing and formatting of amounts, which are stored as integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import (
    SHARE_MINIMUM,
    SHARE_STEP,
    ResourceSlots,
    format_amount,
    parse_amount,
)


@pytest.mark.parametrize(
    "slot, text, amount",
    [
        pytest.param("cpu", "1", 1000, id="one core is 1000 millicores"),
        pytest.param("cpu", 0.5, 500, id="JSON number"),
        pytest.param("mem", "1g", 2**30, id="g is GiB"),
        pytest.param("mem", "1.5G", 3 * 2**29, id="fraction and upper case unit"),
        pytest.param("mem", "512MiB", 2**29, id="long unit"),
        pytest.param("mem", "4096", 4096, id="plain bytes"),
        pytest.param("mem", "4 GiB", 2**32, id="space before the unit"),
        pytest.param("mem", "4 g", 2**32, id="space before a short unit"),
        pytest.param("mem", "8kB", 2**13, id="all units are binary"),
        pytest.param("mem", "7 B", 7, id="bytes with a unit"),
        pytest.param("mem", 1.5e9, 1_500_000_000, id="JSON number with an exponent"),
        pytest.param("cpu", ".5", 500, id="no digit before the point"),
        pytest.param("cpu", "1e2", 100_000, id="a small exponent"),
        pytest.param("cuda.shares", "0.25", 250, id="quarter of a device"),
        pytest.param("cuda.shares", "1", 1000, id="share of a whole device"),
        pytest.param("cuda.device", "2", 2, id="whole devices"),
        pytest.param("cuda.device:1g.5gb-mig", "1", 1, id="MIG profile"),
        pytest.param("cuda.shares", "0", 0, id="zero"),
    ],
)
def test_valid_amount_is_parsed_as_an_integer(slot: str, text: str | float, amount: int) -> None:
    assert parse_amount(slot, text) == amount


@pytest.mark.parametrize(
    "slot, text, part",
    [
        pytest.param(
            "cuda.shares", "0.255", "not a multiple of 0.01", id="not a multiple of the step"
        ),
        pytest.param("cuda.shares", "0.04", "smallest amount 0.05", id="below the smallest share"),
        pytest.param("cuda.shares", "-1", "not an amount", id="negative"),
        pytest.param(
            "cuda.device",
            "0.5",
            "too precise",
            id="fraction of a device in the slot of whole devices",
        ),
        pytest.param("cpu", "0.0001", "too precise", id="finer than a millicore"),
        pytest.param("cpu", "nan", "not an amount", id="not a number"),
        pytest.param("cpu", "inf", "not an amount", id="infinite"),
        pytest.param("cpu", "1e30", "too large", id="far above the maximum"),
        pytest.param(
            "cpu", "1e400000", "not an amount", id="exponent that would take seconds to compute"
        ),
        pytest.param("cpu", "1e999999999", "not an amount", id="exponent that overflows"),
        pytest.param("cpu", "1" * 41, "at most 40 ASCII", id="more than 40 characters"),
        pytest.param("cpu", 10**5000, "at most 40 ASCII", id="an integer of 5001 digits"),
        pytest.param("cpu", "٣", "at most 40 ASCII", id="digits of another script"),
        pytest.param("cpu", "1_000", "not an amount", id="an underscore"),
        pytest.param("cpu", "+1", "not an amount", id="a sign"),
        pytest.param("cpu", float("inf"), "not an amount", id="JSON number Infinity"),
        pytest.param("cpu", True, "not an amount", id="boolean"),
        pytest.param("mem", "1.5", "whole number of bytes", id="fraction of a byte"),
        pytest.param(
            "mem", "0.0001k", "whole number of bytes", id="fraction of a byte after conversion"
        ),
        pytest.param(
            "mem", "0.1g", "such as mem=102m", id="error contains the nearest valid amount"
        ),
        pytest.param("mem", "5ib", "not an amount of memory", id="invalid unit"),
        pytest.param("mem", "4  g", "not an amount of memory", id="two spaces"),
        pytest.param("cpu", "1 000", "not an amount", id="a space between digits"),
        pytest.param("a." + "b" * 63, "1", "not a resource slot", id="a name of 65 characters"),
        pytest.param("mem", "1x", "not an amount of memory", id="unknown unit"),
        pytest.param("gpu", "1", "not a resource slot", id="unknown slot"),
        pytest.param("CUDA.shares", "1", "not a resource slot", id="upper case slot"),
    ],
)
def test_invalid_amount_is_rejected(slot: str, text: str, part: str) -> None:
    with pytest.raises(InvalidRequest, match=part):
        parse_amount(slot, text)


slots = st.sampled_from(["cpu", "mem", "cuda.device", "rocm.device"])
amounts = st.integers(min_value=0, max_value=2**50)
shares = st.integers(min_value=SHARE_MINIMUM // SHARE_STEP, max_value=10_000).map(
    lambda n: n * SHARE_STEP
)


@given(slots, amounts)
def test_formatted_amount_is_parsed_as_the_same_amount(slot: str, amount: int) -> None:
    assert parse_amount(slot, format_amount(slot, amount)) == amount


@given(shares)
def test_formatted_share_is_parsed_as_the_same_share(amount: int) -> None:
    assert parse_amount("cuda.shares", format_amount("cuda.shares", amount)) == amount


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    for slot in ("cpu", "mem", "cuda.shares"):
        try:
            assert parse_amount(slot, text) >= 0
        except InvalidRequest as error:
            assert slot in error.message


maps = st.dictionaries(slots, amounts).map(ResourceSlots)


@given(maps, maps)
def test_sums_and_differences_are_exact(a: ResourceSlots, b: ResourceSlots) -> None:
    assert a + b - b == a
    assert a.fits_in(a + b)


def test_zero_equals_a_missing_slot() -> None:
    assert ResourceSlots({"cpu": 0, "mem": 5}) == ResourceSlots({"mem": 5})
    assert ResourceSlots({"cpu": 0}).fits_in({})
    assert not ResourceSlots({"cuda.device": 1}).fits_in({"cpu": 5})


def test_slots_are_formatted_for_users() -> None:
    slots = ResourceSlots.parse({"mem": "2g", "cpu": "1.5", "cuda.shares": "0.30"})
    assert str(slots) == "cpu=1.5 cuda.shares=0.3 mem=2g"
    assert str(ResourceSlots()) == "nothing"
