"""Values that agents report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bai_services.core.cluster.devices import part_slot
from bai_services.core.cluster.reported_facts import MAX_DEPTH, kernel_facts, storable_facts


def nested(levels: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for _ in range(levels):
        facts = {"x": facts}
    return facts


@pytest.mark.parametrize(
    "given, stored",
    [
        pytest.param([1, 2.5, "a", True, None], [1, 2.5, "a", True, None], id="valid values"),
        pytest.param([float("nan"), float("-inf")], [None, None], id="not finite"),
        pytest.param([2**63 - 1, 2**63], [2**63 - 1, None], id="64 bits"),
        pytest.param({"a\0": ["b\0c"]}, {"a": ["bc"]}, id="NUL"),
    ],
)
def test_facts_become_storable(given: Any, stored: Any) -> None:
    assert storable_facts({"key": given}) == {"key": stored}


def test_deep_facts_are_cut_off() -> None:
    assert storable_facts(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    text = json.dumps(storable_facts(nested(MAX_DEPTH + 100)))
    assert text.count("{") == MAX_DEPTH and "null" in text


@pytest.mark.parametrize(
    "slot, expected",
    [
        pytest.param(None, "", id="whole device"),
        pytest.param("cuda.mig-1g.10gb", "cuda.mig-1g.10gb", id="part of a device"),
        pytest.param("cpu", "cuda.invalid", id="slot of the machine"),
        pytest.param("rocm.mig-1g", "cuda.invalid", id="slot of another family"),
        pytest.param({"a": 1}, "cuda.invalid", id="an object"),
    ],
)
def test_slot_of_a_part_must_belong_to_the_family(slot: Any, expected: str) -> None:
    assert part_slot("cuda", {"slot": slot}) == expected


@pytest.mark.parametrize(
    "devices, kept",
    [
        pytest.param(5, [], id="not a list"),
        pytest.param([5, {"id": ["g0"], "used": 1}], [{"id": "['g0']", "used": 1}], id="entries"),
    ],
)
def test_devices_of_a_kernel_are_objects(devices: Any, kept: Any) -> None:
    given = {"devices": devices, "enforcement": {"cuda": ["soft"], "rocm": "soft"}}
    assert kernel_facts(given) == {"devices": kept, "enforcement": {"rocm": "soft"}}
    assert kernel_facts({"enforcement": 5}) == {"enforcement": {}}
