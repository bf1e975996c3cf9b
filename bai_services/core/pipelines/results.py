"""Results of a run: outputs of its tasks, executed notebooks, and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from .definition import TaskKind
from .parameters import items_of
from .requests import directory_of, executed_notebook
from .states import Plan

# Name of the file with metrics in the directory of a run.
METRICS_FILE = "metrics.json"
MAX_METRICS_BYTES = 64 * 1024
MAX_METRICS = 200
MAX_METRIC_CHARACTERS = 100
MAX_METRICS_DEPTH = 4
# Maximum number of outputs that are looked up for a response.
MAX_ARTIFACTS = 200
# Maximum size of an executed notebook that is searched for an error, and maximum number of such
# notebooks.
MAX_NOTEBOOK_BYTES = 4 * 1024 * 1024
MAX_FAILED_NOTEBOOKS = 10
MAX_ERROR_CHARACTERS = 500


class RunApp(StrEnum):
    """Apps that show the directory of a run."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"


@dataclass(frozen=True, slots=True)
class CellError:
    """The error of a cell; ``cell``: number of the code cell in the notebook, from 1."""

    cell: int
    error: str


def notebook_path(plan: Plan, task: str, index: int, run_id: str) -> str:
    """Return the path of an executed notebook in the pipeline's folder."""
    found = plan.tasks[task]
    return f"{directory_of(run_id, found)}/{executed_notebook(found, index)}"


def artifact_paths(plan: Plan, run_id: str) -> list[tuple[str, str]]:
    """Return the task and the path in the pipeline's folder for each declared output and each
    executed notebook of a run, at most ``MAX_ARTIFACTS``.
    """
    found: dict[str, str] = {}
    for task in plan.definition.tasks:
        if task.kind is TaskKind.NOTEBOOK:
            items = items_of(task, plan.parameters)
            for index in range(1 if items is None else len(items)):
                found.setdefault(notebook_path(plan, task.name, index, run_id), task.name)
        for output in task.outputs:
            found.setdefault(f"{directory_of(run_id, task)}/{output}", task.name)
    return [(task, path) for path, task in found.items()][:MAX_ARTIFACTS]


def parse_metrics(content: bytes) -> dict[str, float]:
    """Return the numbers of a file with metrics; names of nested objects are joined with dots.

    Other values are ignored.

    Raises
    ------
    InvalidRequest
        If the content is not a JSON object, or exceeds a limit.
    """
    if len(content) > MAX_METRICS_BYTES:
        raise InvalidRequest(
            refusal(RefusalText.METRICS_TOO_LONG, path=METRICS_FILE, limit=MAX_METRICS_BYTES)
        )
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidRequest(refusal(RefusalText.METRICS_NOT_JSON, path=METRICS_FILE)) from None
    if not isinstance(document, dict):
        raise InvalidRequest(refusal(RefusalText.METRICS_NOT_AN_OBJECT, path=METRICS_FILE))
    found: dict[str, float] = {}
    for name, value in _numbers("", document, MAX_METRICS_DEPTH):
        found[name[:MAX_METRIC_CHARACTERS]] = value
        if len(found) > MAX_METRICS:
            raise InvalidRequest(
                refusal(RefusalText.TOO_MANY_METRICS, path=METRICS_FILE, limit=MAX_METRICS)
            )
    return dict(sorted(found.items()))


def _numbers(prefix: str, values: dict[str, Any], depth: int) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict) and depth > 1:
            yield from _numbers(f"{prefix}{name}.", value, depth - 1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                continue
            if isfinite(number):
                yield f"{prefix}{name}", number


def parse_cell_error(content: bytes) -> CellError | None:
    """Return the first error of an executed notebook; None if there is none, or if the content is
    not a notebook or has more than ``MAX_NOTEBOOK_BYTES``.
    """
    if len(content) > MAX_NOTEBOOK_BYTES:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    number = 0
    for cell in _objects(document, "cells"):
        if cell.get("cell_type") != "code":
            continue
        number += 1
        for output in _objects(cell, "outputs"):
            if output.get("output_type") == "error":
                text = f"{output.get('ename')}: {output.get('evalue')}"
                return CellError(number, text[:MAX_ERROR_CHARACTERS])
    return None


def _objects(document: object, key: str) -> list[dict[str, Any]]:
    """Return the objects in a list of a JSON object; other values are ignored."""
    found = document.get(key) if isinstance(document, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
