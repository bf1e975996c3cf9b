"""Parser of pipeline YAML. Every problem is reported with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from typing import Any, TypeVar

import yaml

from ..coded_text import CodedText, refusal
from ..durations import parse_duration
from ..errors import InvalidRequest
from ..folders.mounts import MAX_MOUNTS, check_subpath
from ..names import check_slug
from ..refusal_texts import RefusalText
from ..scheduling.placement_options import Mode
from ..sessions.batch import MAX_COMMAND_BYTES, MAX_TIMEOUT_SECONDS
from ..sessions.rules import check_environ
from ..sessions.spec import MAX_PRIORITY
from ..user_input import shown
from ..yaml_sections import Section, read_sections, text_of
from .definition import (
    DEFAULT_CONCURRENT_RUNS,
    DEFAULT_PARALLEL_TASKS,
    DEFAULT_RETRY_DELAY_SECONDS,
    MAX_CONCURRENT_RUNS,
    MAX_DELAY_SECONDS,
    MAX_EDGES,
    MAX_ITEMS,
    MAX_PARALLEL,
    MAX_PARAMETERS,
    MAX_RETRIES,
    MAX_TASKS,
    MAX_VALUE,
    SESSION_KINDS,
    VERSION,
    Cache,
    Condition,
    ForEach,
    Operator,
    Parameter,
    ParameterType,
    PipelineDefinition,
    RunIf,
    Task,
    TaskKind,
    Value,
)
from .parameters import check_size, checked_value, comparable, reference_of

MAX_BYTES = 1024 * 1024
MAX_NODES = 100_000
MAX_PATHS = 100
# Limit of variables in the defaults and in each task: with the parameters, a session has at most
# 100 variables.
MAX_ENVIRON = 20
MAX_CLUSTER_SIZE = 1000
_TASK_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,38}[A-Za-z0-9])?")
_PARAMETER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_MOUNT = re.compile(r"([^:]+)(?::([^:]+))?(?::(ro|rw))?")
_TEXTS = ("image", "preset", "resource_group", "shared_memory")

E = TypeVar("E", bound=StrEnum)


def parse_pipeline(text: str) -> PipelineDefinition:
    """Parse the YAML of a pipeline.

    The run time grows with the size of the text, so call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not valid YAML, exceeds a limit, has an unknown or invalid key, or if tasks
        need unknown tasks or each other; ``line`` in the details is the line of the problem.
    """
    return read_sections(text, MAX_BYTES, MAX_NODES, _problem, _pipeline)


def _problem(line: int, text: CodedText) -> InvalidRequest:
    problem = refusal(RefusalText.LINE_PROBLEM, text, line=line)
    return InvalidRequest(problem, field="definition", line=line)


def _pipeline(root: Section) -> PipelineDefinition:
    line = root.line_of("version")
    if "version" not in root.nodes or root.take_whole("version", VERSION, 0, 10**6) != VERSION:
        raise _problem(line, refusal(RefusalText.VERSION_IS_NOT, version=VERSION))
    line = root.line_of("name")
    name = _checked(line, lambda: check_slug("pipeline", root.take_text("name")))
    description = root.take_text("description", MAX_VALUE)
    parameters = _parameters(root)
    folder = root.take_text("folder", 64)
    runs = root.take_whole("max_concurrent_runs", DEFAULT_CONCURRENT_RUNS, 1, MAX_CONCURRENT_RUNS)
    parallel = root.take_whole("max_parallel_tasks", DEFAULT_PARALLEL_TASKS, 1, MAX_PARALLEL)
    defaults = root.take_section("defaults")
    settings = {} if defaults is None else _settings(defaults)
    if defaults is not None:
        defaults.finish()
    tasks_line, node = root.line_of("tasks"), root.take("tasks")
    root.finish()
    sections = _sections(root, node, "tasks", "a task", tasks_line, MAX_TASKS)
    if not sections:
        raise _problem(tasks_line, refusal(RefusalText.NO_TASKS))
    lines = [section.line for section in sections]
    tasks = [_task(section, {p.name: p for p in parameters}) for section in sections]
    return PipelineDefinition(
        name=name,
        description=description,
        parameters=parameters,
        settings=settings,
        folder=folder,
        max_concurrent_runs=runs,
        max_parallel_tasks=parallel,
        tasks=_ordered(tasks, lines),
    )


def _sections(
    root: Section, node: yaml.Node | None, key: str, what: str, line: int, limit: int
) -> list[Section]:
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode) or len(node.value) > limit:
        raise _problem(line, refusal(RefusalText.NOT_A_LIST, key=key, limit=limit))
    return [Section.of(root.loader, each, what, _problem) for each in node.value]


def _checked(line: int, check: Any) -> Any:
    """Return the result of ``check``; add the line to an error that it raises."""
    try:
        return check()
    except InvalidRequest as error:
        if "line" in error.details:
            raise
        raise _problem(line, error.text) from None


def _choice(section: Section, key: str, kind: Callable[[str], E], default: E) -> E:
    line, text = section.line_of(key), section.take_text(key)
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        names = ", ".join(type(default))
        raise _problem(
            line, refusal(RefusalText.NOT_ONE_OF, key=key, names=names, text=shown(text))
        ) from None


def _parameters(root: Section) -> tuple[Parameter, ...]:
    root_line, node = root.line_of("parameters"), root.take("parameters")
    found: dict[str, Parameter] = {}
    for section in _sections(root, node, "parameters", "a parameter", root_line, MAX_PARAMETERS):
        name = section.take_text("name")
        if _PARAMETER_NAME.fullmatch(name) is None:
            raise _problem(
                section.line,
                refusal(RefusalText.PARAMETER_NAME),
            )
        # The environment variables of parameters are in upper case.
        if name.upper() in found:
            raise _problem(section.line, refusal(RefusalText.PARAMETER_TWICE, name=name))
        kind = _choice(section, "type", ParameterType, ParameterType.TEXT)
        line = section.line_of("default")
        default = _value(section, "default")
        if default is not None:
            default = _checked(line, lambda k=kind, d=default, n=name: checked_value(n, k, d))
        found[name.upper()] = Parameter(name, kind, default, section.take_text("description"))
        section.finish()
    defaults = [each.default for each in found.values() if each.default is not None]
    _checked(root_line, lambda: check_size(defaults))
    return tuple(found.values())


def _value(section: Section, key: str) -> Value | None:
    """Take a plain value or a list of plain values; None if the key is missing."""
    node = section.take(key)
    if node is None:
        return None
    if isinstance(node, yaml.SequenceNode):
        if len(node.value) > MAX_ITEMS:
            raise _problem(
                node.start_mark.line + 1, refusal(RefusalText.NOT_A_LIST, key=key, limit=MAX_ITEMS)
            )
        return tuple(_plain(section, each, key) for each in node.value)
    return _plain(section, node, key)


def _plain(section: Section, node: yaml.Node, key: str) -> str | int | float | bool:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        raise _problem(line, refusal(RefusalText.NOT_A_VALUE, key=key))
    text = text_of(node, key, MAX_VALUE, _problem)
    value = section.loader.construct_object(node)
    if isinstance(value, float) and not isfinite(value):
        raise _problem(line, refusal(RefusalText.NOT_FINITE, key=key))
    # For example, YAML parses 2026-01-31 as a date.
    return value if isinstance(value, bool | int | float) else text


def _texts(section: Section, key: str, limit: int) -> tuple[str, ...]:
    line, node = section.line_of(key), section.take(key)
    if node is None:
        return ()
    if not isinstance(node, yaml.SequenceNode) or len(node.value) > limit:
        raise _problem(line, refusal(RefusalText.NOT_A_LIST_OF_STRINGS, key=key, limit=limit))
    for each in node.value:
        if not isinstance(each, yaml.ScalarNode):
            raise _problem(
                each.start_mark.line + 1, refusal(RefusalText.ENTRY_NOT_A_STRING, key=key)
            )
    return tuple(text_of(each, key, MAX_VALUE, _problem) for each in node.value)


def _map(section: Section, key: str, limit: int) -> dict[str, str]:
    line, inner = section.line_of(key), section.take_section(key)
    if inner is None:
        return {}
    if len(inner.nodes) > limit:
        raise _problem(line, refusal(RefusalText.TOO_MANY_ENTRIES, key=key, limit=limit))
    return {name: inner.take_text(name, MAX_VALUE) for name in list(inner.nodes)}


def _settings(section: Section) -> dict[str, Any]:
    """Take the fields of a session request."""
    settings: dict[str, Any] = {}
    for name in _TEXTS:
        if text := section.take_text(name, 255):
            settings[name] = text
    if resources := _map(section, "resources", 50):
        settings["resources"] = resources
    line = section.line_of("environ")
    if environ := _map(section, "environ", MAX_ENVIRON):
        settings["environ"] = _checked(line, lambda: check_environ(environ))
    line = section.line_of("secrets")
    if secrets := _secrets(section):
        settings["secrets"] = _checked(line, lambda: _checked_secrets(secrets))
    line = section.line_of("mounts")
    if mounts := _texts(section, "mounts", MAX_MOUNTS):
        settings["mounts"] = [_mount(line, text) for text in mounts]
    if "cluster_size" in section.nodes:
        settings["cluster_size"] = section.take_whole("cluster_size", 1, 1, MAX_CLUSTER_SIZE)
    if "cluster_mode" in section.nodes:
        settings["cluster_mode"] = str(_choice(section, "cluster_mode", Mode, Mode.SINGLE_NODE))
    if "priority" in section.nodes:
        settings["priority"] = section.take_whole("priority", 0, 0, MAX_PRIORITY)
    return settings


def _secrets(section: Section) -> dict[str, str]:
    """Take ``secrets``: a list of names, or a map of variables to names of secrets."""
    if "secrets" in section.nodes and isinstance(section.nodes["secrets"][1], yaml.SequenceNode):
        return {name: name for name in _texts(section, "secrets", MAX_ENVIRON)}
    return _map(section, "secrets", MAX_ENVIRON)


def _checked_secrets(secrets: dict[str, str]) -> dict[str, str]:
    check_environ(dict.fromkeys([*secrets, *secrets.values()], ""))
    return secrets


def _mount(line: int, text: str) -> dict[str, str]:
    found = _MOUNT.fullmatch(text)
    if found is None:
        raise _problem(line, refusal(RefusalText.NOT_A_MOUNT, text=shown(text)))
    mount = {"vfolder": found[1]}
    for name, value in (("path", found[2]), ("permission", found[3])):
        if value:
            mount[name] = value
    if mount.get("path") in ("ro", "rw") and "permission" not in mount:
        mount["permission"] = mount.pop("path")
    return mount


def _task(section: Section, parameters: dict[str, Parameter]) -> Task:
    name = section.take_text("name")
    if _TASK_NAME.fullmatch(name) is None:
        raise _problem(section.line, refusal(RefusalText.TASK_NAME))
    kind = _choice(section, "kind", TaskKind, TaskKind.COMMAND)
    given_line, given = section.line_of("parameters"), _given(section, parameters)
    command_line = section.line_of("command")
    task = Task(
        name=name,
        kind=kind,
        description=section.take_text("description", MAX_VALUE),
        command=section.take_text("command", MAX_COMMAND_BYTES // 2),
        notebook=_notebook(section),
        condition=_condition(section, parameters),
        needs=tuple(dict.fromkeys(_texts(section, "needs", MAX_TASKS))),
        run_if=_choice(section, "run_if", RunIf, RunIf.SUCCESS),
        for_each=_for_each(section, parameters),
        settings=_settings(section),
        inputs=_paths(section, "inputs"),
        outputs=_paths(section, "outputs"),
        retries=section.take_whole("retries", 0, 0, MAX_RETRIES),
        retry_delay_seconds=_seconds(
            section, "retry_delay", DEFAULT_RETRY_DELAY_SECONDS, 0, MAX_DELAY_SECONDS
        ),
        timeout_seconds=_seconds(section, "timeout", None, 1, MAX_TIMEOUT_SECONDS),
        continue_on_failure=section.take_bool("continue_on_failure"),
        skip=section.take_bool("skip"),
        cache=_cache(section, parameters),
        pipeline=section.take_text("pipeline", 64),
        parameters=given,
    )
    section.finish()
    _check_kind(task, section.line, command_line)
    if given is not None and kind is not TaskKind.PIPELINE:
        raise _problem(
            given_line, refusal(RefusalText.TASK_WITHOUT_PARAMETERS, name=name, kind=kind)
        )
    return task


def _given(section: Section, parameters: dict[str, Parameter]) -> dict[str, Value] | None:
    """Take the parameters of a sub-pipeline; a text ``$NAME`` names a parameter."""
    line, inner = section.line_of("parameters"), section.take_section("parameters")
    if inner is None:
        return None
    if len(inner.nodes) > MAX_PARAMETERS:
        raise _problem(line, refusal(RefusalText.TOO_MANY_PARAMETERS, limit=MAX_PARAMETERS))
    found: dict[str, Value] = {}
    for name in list(inner.nodes):
        line, value = inner.line_of(name), _value(inner, name)
        if value is None or _PARAMETER_NAME.fullmatch(name) is None:
            raise _problem(line, refusal(RefusalText.NOT_A_PARAMETER, name=shown(name)))
        if (source := reference_of(value)) is not None:
            _known(line, source, parameters)
        found[name] = value
    return found


def _check_kind(task: Task, line: int, command_line: int) -> None:
    """Check that a task has the keys that its kind requires, and no keys of other kinds."""
    fields = {
        TaskKind.COMMAND: bool(task.command.strip()),
        TaskKind.NOTEBOOK: bool(task.notebook),
        TaskKind.CONDITION: task.condition is not None,
        TaskKind.PIPELINE: bool(task.pipeline),
    }
    for kind, is_given in fields.items():
        if task.kind is kind and not is_given:
            raise _problem(line, refusal(RefusalText.TASK_NEEDS, name=task.name, kind=kind))
        if task.kind is not kind and is_given:
            raise _problem(
                command_line if kind is TaskKind.COMMAND else line,
                refusal(RefusalText.TASK_CANNOT_HAVE, name=task.name, kind=task.kind, key=kind),
            )
    if task.kind is TaskKind.PIPELINE and task.continue_on_failure:
        raise _problem(line, refusal(RefusalText.PIPELINE_TASK_CONTINUES, name=task.name))
    if task.kind not in SESSION_KINDS:
        runs = task.for_each or task.settings or task.inputs or task.outputs or task.retries
        if runs or task.timeout_seconds or task.cache:
            raise _problem(
                line,
                refusal(RefusalText.TASK_WITHOUT_SESSION, name=task.name, kind=task.kind),
            )
    if task.cache is not None and not task.outputs:
        raise _problem(line, refusal(RefusalText.CACHE_NEEDS_OUTPUTS, name=task.name))


def _cache(section: Section, parameters: dict[str, Parameter]) -> Cache | None:
    """Take ``cache``: true or false, or a map of what the outputs depend on."""
    if "cache" not in section.nodes or isinstance(section.nodes["cache"][1], yaml.ScalarNode):
        return Cache() if section.take_bool("cache") else None
    inner = section.take_section("cache")
    assert inner is not None
    line, is_given = inner.line_of("parameters"), "parameters" in inner.nodes
    names = tuple(dict.fromkeys(_texts(inner, "parameters", MAX_PARAMETERS)))
    for name in names:
        _known(line, name, parameters)
    files = _paths(inner, "files")
    inner.finish()
    return Cache(files, names if is_given else None)


def _notebook(section: Section) -> str:
    line, text = section.line_of("notebook"), section.take_text("notebook")
    return str(_checked(line, lambda: check_subpath(text))) if text else ""


def _paths(section: Section, key: str) -> tuple[str, ...]:
    line = section.line_of(key)
    paths = _texts(section, key, MAX_PATHS)
    found = tuple(str(_checked(line, lambda p=path: check_subpath(p))) for path in paths)
    if not all(found):
        raise _problem(line, refusal(RefusalText.ENTRY_EMPTY, key=key))
    return found


def _seconds(section: Section, key: str, default: Any, lowest: int, highest: int) -> Any:
    line, text = section.line_of(key), section.take_text(key)
    if not text:
        return default
    seconds = _checked(line, lambda: parse_duration(text, key))
    if not lowest <= seconds <= highest:
        raise _problem(
            line, refusal(RefusalText.SECONDS_OUT_OF_RANGE, key=key, lowest=lowest, highest=highest)
        )
    return seconds


def _known(line: int, name: str, parameters: dict[str, Parameter]) -> Parameter:
    if name not in parameters:
        names = ", ".join(parameters) or "none"
        raise _problem(
            line, refusal(RefusalText.UNKNOWN_PARAMETER, name=shown(name), names=names[:200])
        )
    return parameters[name]


def _condition(section: Section, parameters: dict[str, Parameter]) -> Condition | None:
    inner = section.take_section("condition")
    if inner is None:
        return None
    parameter = _known(inner.line_of("parameter"), inner.take_text("parameter"), parameters)
    operator = _choice(inner, "operator", Operator, Operator.EQUAL)
    line, value = inner.line_of("value"), _value(inner, "value")
    inner.finish()
    if value is None:
        raise _problem(inner.line, refusal(RefusalText.CONDITION_NEEDS_VALUE))
    checked = _checked(line, lambda: comparable(parameter, operator, value))
    return Condition(parameter.name, operator, checked)


def _for_each(section: Section, parameters: dict[str, Parameter]) -> ForEach | None:
    inner = section.take_section("for_each")
    if inner is None:
        return None
    line, name = inner.line_of("parameter"), inner.take_text("parameter")
    has_values = "values" in inner.nodes
    found = ForEach(
        name,
        _texts(inner, "values", MAX_ITEMS),
        inner.take_whole("max_parallel", 0, 0, MAX_PARALLEL),
    )
    inner.finish()
    if bool(name) == has_values:
        raise _problem(inner.line, refusal(RefusalText.FOR_EACH_NEEDS_ONE))
    if name and _known(line, name, parameters).type is not ParameterType.LIST:
        raise _problem(line, refusal(RefusalText.PARAMETER_NOT_A_LIST, name=name))
    return found


def _ordered(tasks: Sequence[Task], lines: Sequence[int]) -> tuple[Task, ...]:
    """Return the tasks in topological order; raise for unknown names and cycles."""
    named: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if task.name in named:
            raise _problem(lines[index], refusal(RefusalText.TASK_TWICE, name=task.name))
        named[task.name] = index
    edges = 0
    for task, line in zip(tasks, lines, strict=True):
        for name in task.needs:
            if name not in named:
                raise _problem(
                    line, refusal(RefusalText.UNKNOWN_NEED, name=task.name, other=shown(name))
                )
        edges += len(task.needs)
        if edges > MAX_EDGES:
            raise _problem(line, refusal(RefusalText.TOO_MANY_NEEDS, limit=MAX_EDGES))
    sorter = TopologicalSorter({task.name: dict.fromkeys(task.needs) for task in tasks})
    try:
        order = list(sorter.static_order())
    except CycleError as error:
        cycle = error.args[1]
        names = " → ".join(cycle[:10]) + (" → …" if len(cycle) > 10 else "")
        raise _problem(
            lines[named[cycle[0]]], refusal(RefusalText.NEEDS_FORM_CYCLE, names=names)
        ) from None
    return tuple(tasks[named[name]] for name in order)
