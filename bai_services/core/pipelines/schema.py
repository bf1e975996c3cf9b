"""JSON schema of pipeline YAML, for editors.

The schema describes only the structure. The parser also checks names, cycles and types of values.
"""

from __future__ import annotations

from typing import Any

from ..scheduling.placement_options import Mode
from ..sessions.spec import MAX_PRIORITY
from .definition import (
    MAX_CONCURRENT_RUNS,
    MAX_ITEMS,
    MAX_PARALLEL,
    MAX_PARAMETERS,
    MAX_RETRIES,
    MAX_TASKS,
    VERSION,
    Operator,
    ParameterType,
    RunIf,
    TaskKind,
)
from .parsing import MAX_CLUSTER_SIZE, MAX_PATHS

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT, "maxItems": MAX_PATHS}
_PLAIN = {"type": ["string", "number", "boolean"]}
_VALUE = {"anyOf": [_PLAIN, {"type": "array", "items": _PLAIN, "maxItems": MAX_ITEMS}]}
_MAP = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_DURATION = {"type": ["string", "integer"], "examples": ["90", "10min", "2h"]}


def _whole(lowest: int, highest: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": lowest, "maximum": highest}


def _choice(names: Any) -> dict[str, Any]:
    return {"enum": [str(name) for name in names]}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_SETTINGS: dict[str, Any] = {
    "image": _TEXT,
    "preset": _TEXT,
    "resource_group": _TEXT,
    "shared_memory": _TEXT,
    "resources": _MAP,
    "environ": _MAP,
    "secrets": {"anyOf": [_TEXTS, {"type": "object", "additionalProperties": _TEXT}]},
    "mounts": {**_TEXTS, "examples": [["data:/home/work/data:ro"]]},
    "cluster_size": _whole(1, MAX_CLUSTER_SIZE),
    "cluster_mode": _choice(Mode),
    "priority": _whole(0, MAX_PRIORITY),
}
_TASK = _object(
    {
        "name": _TEXT,
        "kind": _choice(TaskKind),
        "description": _TEXT,
        "command": _TEXT,
        "notebook": _TEXT,
        "condition": _object(
            {"parameter": _TEXT, "operator": _choice(Operator), "value": _VALUE},
            "parameter",
            "value",
        ),
        "pipeline": _TEXT,
        "parameters": {"type": "object", "additionalProperties": _VALUE},
        "needs": {"type": "array", "items": _TEXT, "maxItems": MAX_TASKS},
        "run_if": _choice(RunIf),
        "for_each": _object(
            {
                "parameter": _TEXT,
                "values": {"type": "array", "items": _PLAIN, "maxItems": MAX_ITEMS},
                "max_parallel": _whole(0, MAX_PARALLEL),
            }
        ),
        **_SETTINGS,
        "inputs": _TEXTS,
        "outputs": _TEXTS,
        "retries": _whole(0, MAX_RETRIES),
        "retry_delay": _DURATION,
        "timeout": _DURATION,
        "continue_on_failure": {"type": "boolean"},
        "skip": {"type": "boolean"},
        "cache": {
            "anyOf": [
                {"type": "boolean"},
                _object(
                    {
                        "files": _TEXTS,
                        "parameters": {
                            "type": "array",
                            "items": _TEXT,
                            "maxItems": MAX_PARAMETERS,
                        },
                    }
                ),
            ]
        },
    },
    "name",
)
_PARAMETER = _object(
    {"name": _TEXT, "type": _choice(ParameterType), "default": _VALUE, "description": _TEXT},
    "name",
)
PIPELINE_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Pipeline",
    **_object(
        {
            "version": {"const": VERSION},
            "name": _TEXT,
            "description": _TEXT,
            "parameters": {"type": "array", "items": _PARAMETER, "maxItems": MAX_PARAMETERS},
            "folder": _TEXT,
            "max_concurrent_runs": _whole(1, MAX_CONCURRENT_RUNS),
            "max_parallel_tasks": _whole(1, MAX_PARALLEL),
            "defaults": _object(_SETTINGS),
            "tasks": {"type": "array", "items": _TASK, "minItems": 1, "maxItems": MAX_TASKS},
        },
        "version",
        "name",
        "tasks",
    ),
}
