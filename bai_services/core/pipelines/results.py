"""Results of a run: the declared outputs of its tasks, and the metrics that they have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from ..errors import InvalidRequest
from .definition import PipelineDefinition
from .requests import directory_of

# Name of the file with metrics in the directory of a run.
METRICS_FILE = "metrics.json"
MAX_METRICS_BYTES = 64 * 1024
MAX_METRICS = 200
MAX_METRIC_CHARACTERS = 100
MAX_METRICS_DEPTH = 4
# Maximum number of outputs that are looked up for a response.
MAX_ARTIFACTS = 200


def artifact_paths(definition: PipelineDefinition, run_id: str) -> list[tuple[str, str]]:
    """Return the task and the path in the pipeline's folder for each declared output of a run, at
    most ``MAX_ARTIFACTS``.
    """
    found: dict[str, str] = {}
    for task in definition.tasks:
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
        raise InvalidRequest(f"{METRICS_FILE} has more than {MAX_METRICS_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{METRICS_FILE} is not valid JSON") from None
    if not isinstance(document, dict):
        raise InvalidRequest(f"{METRICS_FILE} must contain a JSON object")
    found: dict[str, float] = {}
    for name, value in _numbers("", document, MAX_METRICS_DEPTH):
        found[name[:MAX_METRIC_CHARACTERS]] = value
        if len(found) > MAX_METRICS:
            raise InvalidRequest(f"{METRICS_FILE} has more than {MAX_METRICS} metrics")
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
