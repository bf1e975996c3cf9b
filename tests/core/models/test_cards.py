"""Model cards: fields, the order of versions, and the choice of resources."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.models.cards import (
    CardContent,
    card_content,
    fitting,
    latest,
    resources_text,
    satisfies,
    smallest,
    version_key,
)
from bai_services.core.resources import ResourceSlots

DEFINITION = """\
models:
- name: tiny
  service: {start_command: [python3, server.py], port: 8080}
  metadata:
    title: Tiny model
    version: "1.10"
    author: ann
    description: |
      First line
      second line
    task: text-generation
    framework: [pytorch, "onnx, runtime"]
    label: [small, small]
    license: MIT
    min_resource: {cpu: 1, mem: 2g, cuda.shares: 0.5}
"""


def test_card_has_the_metadata_of_the_definition() -> None:
    card = card_content(DEFINITION, "---\nlicense: mit\n---\n# Tiny\n")
    assert card == CardContent(
        name="tiny",
        title="Tiny model",
        version="1.10",
        author="ann",
        description="First line\nsecond line",
        task="text-generation",
        license="MIT",
        frameworks=("onnx  runtime", "pytorch"),
        labels=("small",),
        min_resources={"cpu": "1", "mem": "2g", "cuda.shares": "0.5"},
        has_command=True,
        readme="# Tiny\n",
    )


@pytest.mark.parametrize(
    ("definition", "problem", "line"),
    [
        pytest.param(None, "no model-definition.yaml", None, id="no definition"),
        pytest.param("models:\n- name: a\n  port: 1\n", "no key 'port'", 3, id="unknown key"),
        pytest.param(
            "models: [{metadata: {title: [a]}}]", "title must be a string", None, id="wrong type"
        ),
        pytest.param(
            'models: [{metadata: {title: "a\\u202eb"}}]', "not allowed", None, id="direction"
        ),
        pytest.param(
            "models: [{metadata: {min_resource: {cpu: x}}}]", "not an amount", None, id="amount"
        ),
        pytest.param(
            "models: [{metadata: {min_resource: [1]}}]", "must be a mapping", None, id="list"
        ),
    ],
)
def test_card_of_an_invalid_definition_has_the_problem(
    definition: str | None, problem: str, line: int | None
) -> None:
    card = card_content(definition, "readme")
    assert (problem in card.problem, card.problem_line, card.readme) == (True, line, "readme")


def test_versions_are_ordered() -> None:
    versions = [
        "",
        "0.9",
        "1.0a",
        "1.0rc1",
        "1.0rc2",
        "1.0",
        "1.0.1",
        "1.9",
        "1.10",
        "2",
        "2024-01-05",
    ]
    assert all(version_key(low) < version_key(high) for low, high in pairwise(versions))
    assert version_key("v1.02") == version_key("V1-2")
    assert latest({}) is None
    assert latest({"b": "1", "a": "1", "c": "0.9"}) == "b"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.data())
def test_numeric_versions_are_ordered_like_their_numbers(
    numbers: list[int], data: st.DataObject
) -> None:
    others = data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
    first, second = ".".join(map(str, numbers)), ".".join(map(str, others))
    assert (version_key(first) < version_key(second)) == (numbers < others)


def test_a_whole_device_satisfies_a_request_for_a_share_of_it() -> None:
    slots = ResourceSlots.parse({"cpu": "2", "mem": "4g", "cuda.device": "1"})
    assert satisfies(slots, ResourceSlots.parse({"cuda.shares": "0.5"}))
    assert not satisfies(slots, ResourceSlots.parse({"cuda.shares": "1.5"}))
    assert not satisfies(slots, ResourceSlots.parse({"rocm.shares": "0.5"}))
    texts = [resources_text(needs) for needs in ({"cpu": "2"}, {"cpu": "3"}, None)]
    assert fitting(texts, slots) == [texts[0], texts[2]]
    assert json.loads(resources_text({"mem": "1g", "cpu": "1"})) == {"cpu": "1", "mem": "1g"}


amounts = st.fixed_dictionaries(
    {"cpu": st.integers(1, 4), "mem": st.integers(1, 4), "cuda.device": st.integers(0, 2)}
)


@given(st.lists(amounts, max_size=6), amounts)
def test_smallest_offer_equals_that_of_a_naive_search(
    offers: list[dict[str, int]], needs: dict[str, int]
) -> None:
    suitable = [o for o in offers if all(o[slot] >= needs[slot] for slot in needs)]
    suitable.sort(key=lambda o: (o["cuda.device"], o["mem"], o["cpu"]))
    found = smallest([(index, offer) for index, offer in enumerate(offers)], needs)
    assert (None if found is None else offers[found]) == (suitable[0] if suitable else None)
