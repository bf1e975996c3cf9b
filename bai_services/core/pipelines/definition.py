"""The definition of a pipeline: tasks that form a directed acyclic graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

VERSION = 1
# Maximum number of tasks of a definition, and of task runs in a run (after the expansion of maps).
MAX_TASKS = 1000
MAX_EDGES = 10_000
MAX_PARAMETERS = 50
MAX_ITEMS = 1000
MAX_VALUE = 4096
MAX_RETRIES = 20
MAX_DELAY_SECONDS = 86400
MAX_PARALLEL = 1000
MAX_CONCURRENT_RUNS = 100
DEFAULT_CONCURRENT_RUNS = 10
DEFAULT_PARALLEL_TASKS = 100
DEFAULT_RETRY_DELAY_SECONDS = 10

# The value of a parameter.
Value = str | int | float | bool | Sequence[str | int | float | bool]


class TaskKind(StrEnum):
    COMMAND = "command"
    NOTEBOOK = "notebook"  # run by papermill
    CONDITION = "condition"  # compares a parameter; needs no session
    APPROVAL = "approval"  # waits for a user; needs no session
    PIPELINE = "pipeline"  # runs the tasks of another pipeline; needs no session of its own


SESSION_KINDS = frozenset({TaskKind.COMMAND, TaskKind.NOTEBOOK})


class RunIf(StrEnum):
    """The results that the needed tasks must have before a task may run."""

    SUCCESS = "success"  # all have succeeded
    ANY_SUCCESS = "any-success"  # all have ended, and at least one has succeeded
    FAILURE = "failure"  # all have ended, and at least one has failed
    ALWAYS = "always"  # all have ended


class ParameterType(StrEnum):
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"


class Operator(StrEnum):
    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a pipeline; ``default`` is None if a run must set the parameter."""

    name: str
    type: ParameterType = ParameterType.TEXT
    default: Value | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    parameter: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class ForEach:
    """A map: one task run for each value of a list (``values``, or the values of a parameter).

    ``max_parallel``: maximum number of task runs at a time; 0: no limit.
    """

    parameter: str = ""
    values: Sequence[str] = ()
    max_parallel: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """What the outputs of a cached task depend on, apart from the task and its inputs: ``files`` of
    the pipeline's folder, and ``parameters`` (None: all parameters).
    """

    files: Sequence[str] = ()
    parameters: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """The condition under which the tasks of a sub-pipeline may run: ``needs`` and ``run_if`` of
    the task that contains them.
    """

    needs: Sequence[str]
    run_if: RunIf


@dataclass(frozen=True, slots=True)
class Task:
    """A task; ``settings`` are session request fields that replace the pipeline's defaults.

    ``inputs`` must exist before the command runs, and ``outputs`` after it. They are paths in the
    directory of the run. ``skip``: the task does nothing and counts as succeeded.

    ``pipeline``: name or id of a sub-pipeline. ``parameters``: parameters of the sub-pipeline; a
    value ``$NAME`` stands for the value of the parameter NAME.

    In a run, the definition also contains the tasks of sub-pipelines. For a task of a sub-pipeline,
    ``parameters`` are the parameters of the sub-pipeline. For other tasks, ``parameters`` is None:
    they use the parameters of the run. ``entries`` belong to the tasks that contain the task,
    outermost first.
    """

    name: str
    kind: TaskKind = TaskKind.COMMAND
    description: str = ""
    command: str = ""
    notebook: str = ""
    condition: Condition | None = None
    needs: Sequence[str] = ()
    run_if: RunIf = RunIf.SUCCESS
    for_each: ForEach | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    retries: int = 0
    retry_delay_seconds: int = DEFAULT_RETRY_DELAY_SECONDS
    timeout_seconds: int | None = None
    continue_on_failure: bool = False
    skip: bool = False
    cache: Cache | None = None
    pipeline: str = ""
    parameters: Mapping[str, Value] | None = None
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True)
class PipelineDefinition:
    """A pipeline; ``tasks`` are in topological order: each task after the tasks that it needs.

    ``folder``: name of the folder at ``/pipeline``; empty: the pipeline creates a folder.
    """

    name: str
    description: str = ""
    parameters: Sequence[Parameter] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    max_concurrent_runs: int = DEFAULT_CONCURRENT_RUNS
    max_parallel_tasks: int = DEFAULT_PARALLEL_TASKS
    tasks: Sequence[Task] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> PipelineDefinition:
        """Return the definition from a JSON object of ``as_json``."""
        values = dict(stored)
        values["parameters"] = parameters_from_json(stored["parameters"])
        values["tasks"] = tuple(map(_task, stored["tasks"]))
        return cls(**values)


def parameters_from_json(stored: Sequence[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """Return the parameters from the JSON object of a definition."""
    return tuple(Parameter(**{**each, "type": ParameterType(each["type"])}) for each in stored)


def _task(stored: Mapping[str, Any]) -> Task:
    condition, for_each = stored["condition"], stored["for_each"]
    cache = stored.get("cache")  # not in definitions that were stored before 0.2
    if condition is not None:
        condition = Condition(
            condition["parameter"], Operator(condition["operator"]), condition["value"]
        )
    return Task(
        **{
            **stored,
            "kind": TaskKind(stored["kind"]),
            "run_if": RunIf(stored["run_if"]),
            "condition": condition,
            "for_each": None if for_each is None else ForEach(**for_each),
            "cache": None if cache is None else Cache(**cache),
            "entries": tuple(
                Entry(each["needs"], RunIf(each["run_if"])) for each in stored.get("entries", ())
            ),
        }
    )
