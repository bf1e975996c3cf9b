"""Outputs of runs, and files with metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.definition import ForEach, PipelineDefinition, Task, TaskKind
from bai_services.core.pipelines.results import (
    MAX_ARTIFACTS,
    MAX_METRICS,
    MAX_METRICS_BYTES,
    MAX_NOTEBOOK_BYTES,
    CellError,
    artifact_paths,
    parse_cell_error,
    parse_metrics,
)
from bai_services.core.pipelines.states import Plan


def plan_of(tasks: Sequence[Task]) -> Plan:
    return Plan.of(PipelineDefinition("p", tasks=tasks), {})


def test_paths_are_in_the_directories_of_the_tasks() -> None:
    tasks = [
        Task("a", command="x", outputs=["x.csv", "y"]),
        Task("b", command="x", outputs=["x.csv"]),
        Task("fit/c", command="x", outputs=["x.csv"]),
    ]
    assert artifact_paths(plan_of(tasks), "r1") == [
        ("a", "runs/r1/x.csv"),
        ("a", "runs/r1/y"),
        ("fit/c", "runs/r1/fit/x.csv"),
    ]
    many = [Task("a", command="x", outputs=[f"f{number}" for number in range(300)])]
    assert len(artifact_paths(plan_of(many), "r1")) == MAX_ARTIFACTS


def test_executed_notebooks_are_artifacts() -> None:
    tasks = [
        Task("report", kind=TaskKind.NOTEBOOK, notebook="a.ipynb", outputs=["report.ipynb"]),
        Task("fit/n", kind=TaskKind.NOTEBOOK, notebook="b.ipynb", for_each=ForEach(values="xy")),
    ]
    assert artifact_paths(plan_of(tasks), "r1") == [
        ("report", "runs/r1/report.ipynb"),
        ("fit/n", "runs/r1/fit/n-0.ipynb"),
        ("fit/n", "runs/r1/fit/n-1.ipynb"),
    ]


def test_first_failed_cell_of_a_notebook_is_found() -> None:
    error = {"output_type": "error", "ename": "ValueError", "evalue": "x" * 1000}
    cells: list[object] = [
        {"cell_type": "markdown", "source": "text", "outputs": [error]},
        {"cell_type": "code", "outputs": [{"output_type": "stream", "text": "y"}, 3]},
        "no cell",
        {"cell_type": "code", "outputs": [error]},
        {"cell_type": "code", "outputs": None},
    ]
    found = parse_cell_error(json.dumps({"cells": cells}).encode())
    assert found == CellError(2, ("ValueError: " + "x" * 1000)[:500])
    assert parse_cell_error(json.dumps({"cells": cells[:3]}).encode()) is None


@given(st.binary(max_size=300) | st.text('{}[]":,0aeN-', max_size=100).map(str.encode))
@example(b"[" * 100_000)
@example(b" " * (MAX_NOTEBOOK_BYTES + 1))
@example(b'{"cells": {"a": 1}}')
def test_content_that_is_no_notebook_has_no_failed_cell(content: bytes) -> None:
    assert parse_cell_error(content) is None


def test_metrics_are_numbers_with_joined_names() -> None:
    found = parse_metrics(
        json.dumps(
            {"loss": 0.5, "test": {"f1": 1, "note": "x"}, "ok": True, "big": 10**400, "all": [1]}
        ).encode()
    )
    assert found == {"loss": 0.5, "test.f1": 1.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 60_000, "not valid JSON"),
        (b'{"a":' * 12_000 + b"1" + b"}" * 4, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1]", "must contain a JSON object"),
        (b" " * (MAX_METRICS_BYTES + 1), "more than 65536 bytes"),
        (json.dumps(dict.fromkeys(map(str, range(MAX_METRICS + 1)), 1)).encode(), "more than 200"),
    ],
    ids=["nested lists", "nested objects", "not UTF-8", "list", "too large", "too many"],
)
def test_hostile_metrics_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        parse_metrics(content)


@given(st.binary(max_size=300) | st.text('{}[]":,0aeN-', max_size=100).map(str.encode))
def test_any_content_gives_metrics_or_a_problem(content: bytes) -> None:
    try:
        found = parse_metrics(content)
    except InvalidRequest:
        return
    assert all(isinstance(value, float) for value in found.values())
