"""Histograms of latency, compared with a naive computation from single values."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.latency import MAX_CLASSES, merged, quantile

BOUNDS = (5, 10, 25, 50, 100, 250, 500, 1000)


def histogram_of(values: list[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        bound = str(BOUNDS[bisect_left(BOUNDS, value)])
        found[bound] = found.get(bound, 0) + 1
    return found


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.integers(1, 100))
def test_quantile_lies_in_the_bucket_of_the_exact_value(values: list[int], percent: int) -> None:
    exact = sorted(values)[ceil(len(values) * percent / 100 - 1e-9) - 1]
    index = bisect_left(BOUNDS, exact)
    # Skip the bounds of buckets without values, because the histogram does not contain them.
    lowest = max((b for b in BOUNDS[:index] if str(b) in histogram_of(values)), default=0)
    found = quantile(histogram_of(values), percent / 100)
    assert found is not None
    assert lowest - 1e-6 <= found <= BOUNDS[index] + 1e-6


def test_bounds_that_are_not_numbers_are_ignored() -> None:
    assert quantile({}, 0.99) is None
    assert quantile({"x": 3, "nan": 1, "-5": 2, "10": 0}, 0.99) is None
    assert merged({"10": 1}, {"10": 2, "20": 1, "x": 9, "inf": 1}) == {"10": 3, "20": 1}
    many = {str(bound): 1 for bound in range(1, 200)}
    assert len(merged({"1000": 1}, many)) == MAX_CLASSES
