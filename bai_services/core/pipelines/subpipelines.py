"""Sub-pipelines: the tasks of other pipelines become part of a run.

The tasks of a sub-pipeline get the name of the containing task as a prefix, such as ``fit/train``.
The containing task remains, and ends after all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from .definition import MAX_EDGES, Entry, PipelineDefinition, Task, TaskKind, Value
from .parameters import check_count, given_value, resolve
from .settings import merged

# Maximum number of levels of sub-pipelines, and maximum number of sub-pipelines of a run.
MAX_DEPTH = 3
MAX_SUB_PIPELINES = 20
# Size of the database column with the name of a task run.
MAX_NAME_CHARACTERS = 64
SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class SubPipeline:
    """A definition, and the sub-pipelines of its tasks by name."""

    definition: PipelineDefinition
    children: Mapping[str, SubPipeline]


def names_of(definition: PipelineDefinition) -> list[str]:
    """Return the names of the sub-pipelines of a definition."""
    tasks = definition.tasks
    return sorted({task.pipeline for task in tasks if task.kind is TaskKind.PIPELINE})


def expanded(root: SubPipeline, values: Mapping[str, Value]) -> PipelineDefinition:
    """Return the definition of a run with the tasks of all sub-pipelines.

    Raises
    ------
    InvalidRequest
        If a parameter of a sub-pipeline is missing or not valid, a name is too long, or the run
        would be too large.
    """
    definition = root.definition
    tasks: list[Task] = []
    for task in definition.tasks:
        if task.kind is not TaskKind.PIPELINE:
            tasks.append(task)
            continue
        child = root.children[task.pipeline]
        given = {name: given_value(each, values) for name, each in (task.parameters or {}).items()}
        inner = _expanded_child(task, child, given)
        tasks += inner
        tasks.append(replace(task, needs=[each.name for each in inner]))
    result = replace(definition, tasks=tasks)
    check_count(result, values)
    if sum(len(task.needs) for task in tasks) > MAX_EDGES:
        raise InvalidRequest(refusal(RefusalText.RUN_TOO_MANY_NEEDS, limit=MAX_EDGES))
    return result


def _expanded_child(task: Task, child: SubPipeline, given: Mapping[str, Value]) -> Sequence[Task]:
    try:
        values = resolve(child.definition, given)
    except InvalidRequest as error:
        raise InvalidRequest(
            refusal(RefusalText.TASK_PROBLEM, error.text, name=task.name), field="parameters"
        ) from None
    definition = expanded(child, values)
    return [_inside(task, each, definition, values) for each in definition.tasks]


def _inside(
    outer: Task, task: Task, definition: PipelineDefinition, values: Mapping[str, Value]
) -> Task:
    name = _prefixed(outer, task.name)
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidRequest(
            refusal(RefusalText.TASK_NAME_TOO_LONG, name=name, limit=MAX_NAME_CHARACTERS)
        )
    # The parameters of a task of a nested sub-pipeline are already set.
    is_own = not task.entries and task.kind is not TaskKind.PIPELINE
    return replace(
        task,
        name=name,
        needs=[_prefixed(outer, need) for need in task.needs],
        entries=[
            Entry(outer.needs, outer.run_if),
            *(
                replace(entry, needs=[_prefixed(outer, need) for need in entry.needs])
                for entry in task.entries
            ),
        ],
        parameters=values if is_own else task.parameters,
        settings=merged(definition.settings, task.settings),
        skip=outer.skip or task.skip,
    )


def _prefixed(outer: Task, name: str) -> str:
    return f"{outer.name}{SEPARATOR}{name}"


def nested(tasks: Sequence[str]) -> list[tuple[int, str, int]]:
    """Return the display order of tasks: a containing task comes before the tasks that it contains.

    ``tasks`` are names in topological order. For each, return its index in ``tasks``, its name
    without the prefix, and the number of tasks that contain it.
    """
    # A sub-pipeline is shown at the position of its first task.
    first: dict[tuple[str, ...], int] = {}
    paths = [tuple(name.split(SEPARATOR)) for name in tasks]
    for index, path in enumerate(paths):
        for end in range(1, len(path) + 1):
            first.setdefault(path[:end], index)
    order = sorted(
        range(len(paths)),
        key=lambda index: [first[paths[index][:end]] for end in range(1, len(paths[index]) + 1)],
    )
    return [(index, paths[index][-1], len(paths[index]) - 1) for index in order]


def shown_needs(definition: PipelineDefinition) -> Mapping[str, Sequence[str]]:
    """Return the dependencies that a graph shows, by task.

    A task that depends on no other task of its sub-pipeline follows the dependencies of the
    containing task. The containing task follows only the last tasks of the sub-pipeline.
    """
    followed = {
        need
        for task in definition.tasks
        if task.kind is not TaskKind.PIPELINE
        for need in task.needs
    }
    found: dict[str, Sequence[str]] = {}
    for task in definition.tasks:
        if task.kind is TaskKind.PIPELINE:
            # Only direct children: the tasks of a nested sub-pipeline are needs of the nested
            # containing task.
            inner = {each for each in task.needs if each.rpartition(SEPARATOR)[0] == task.name}
            found[task.name] = [each for each in task.needs if each in inner - followed]
        else:
            outer = [entry.needs for entry in reversed(task.entries) if entry.needs]
            found[task.name] = task.needs or (outer[0] if outer else ())
    return found
