"""Parameters of pipelines: check values, compare them, and expand maps."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from ..sessions.rules import MAX_ENVIRON_TOTAL_BYTES
from ..user_input import MAX_NUMBER_CHARACTERS, shown
from .definition import (
    MAX_ITEMS,
    MAX_TASKS,
    MAX_VALUE,
    Condition,
    Operator,
    Parameter,
    ParameterType,
    PipelineDefinition,
    Task,
    TaskKind,
    Value,
)

_ORDERED: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.MORE: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


def resolve(definition: PipelineDefinition, given: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of all parameters of a run.

    Raises
    ------
    InvalidRequest
        If a value is missing or not valid, a parameter does not exist, or the maps expand to more
        than ``MAX_TASKS`` task runs.
    """
    known = {parameter.name: parameter for parameter in definition.parameters}
    for name in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InvalidRequest(
                refusal(RefusalText.UNKNOWN_PARAMETER, name=shown(name), names=names),
                field="parameters",
            )
    values: dict[str, Value] = {}
    for name, parameter in known.items():
        value = given.get(name, parameter.default)
        if value is None:
            raise InvalidRequest(
                refusal(RefusalText.PARAMETER_MISSING, name=name), field="parameters"
            )
        values[name] = checked_value(name, parameter.type, value)
    check_size(values.values())
    check_count(definition, values)
    return values


def check_count(definition: PipelineDefinition, values: Mapping[str, Value]) -> None:
    """Check the number of task runs of a run.

    Raises
    ------
    InvalidRequest
        If the maps expand to more than ``MAX_TASKS`` task runs.
    """
    count = sum(_count(task, values) for task in definition.tasks)
    if count > MAX_TASKS:
        raise InvalidRequest(
            refusal(RefusalText.TOO_MANY_TASKS, count=count, limit=MAX_TASKS), field="parameters"
        )


def values_of(task: Task, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the parameters of a task; ``values`` are the parameters of the run."""
    is_own = task.parameters is not None and task.kind is not TaskKind.PIPELINE
    return task.parameters if is_own and task.parameters is not None else values


def check_size(values: Iterable[Value]) -> None:
    """Check that parameters fit into the environment of a session.

    Raises
    ------
    InvalidRequest
        If the size of the values exceeds ``MAX_ENVIRON_TOTAL_BYTES``.
    """
    size = sum(len(variable(value).encode(errors="replace")) for value in values)
    if size > MAX_ENVIRON_TOTAL_BYTES:
        raise InvalidRequest(
            refusal(RefusalText.PARAMETERS_TOO_LONG, size=size, limit=MAX_ENVIRON_TOTAL_BYTES),
            field="parameters",
        )


def _count(task: Task, values: Mapping[str, Value]) -> int:
    """Return the number of task runs of a task; at least 1."""
    if task.for_each is None:
        return 1
    name = task.for_each.parameter
    values = values_of(task, values)
    items: Any = values[name] if name else task.for_each.values
    return max(len(items), 1)


def checked_value(name: str, kind: ParameterType, value: Any) -> Value:
    """Return the value of a parameter, converted to the type of the parameter.

    Texts are accepted for every type, because command lines and forms send only texts.

    Raises
    ------
    InvalidRequest
        If the value is not valid.
    """
    converted = _CONVERSIONS[kind](value)
    if converted is None:
        raise InvalidRequest(
            refusal(RefusalText.PARAMETER_TYPE, name=name, kind=kind, value=shown(value)),
            field="parameters",
        )
    return converted


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and _is_number(value):
        return str(value)
    if not isinstance(value, str) or "\0" in value or not value.isascii() and not _encodes(value):
        return None
    return value if len(value.encode(errors="replace")) <= MAX_VALUE else None


def _encodes(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_number(value: int | float) -> bool:
    # Also False for infinity and NaN.
    return bool(abs(value) < 10**MAX_NUMBER_CHARACTERS)


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> int | float | None:
    if isinstance(value, str) and len(value) <= MAX_NUMBER_CHARACTERS:
        try:
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_number(value):
        return None
    return value


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _list(value: Any) -> Sequence[str | int | float | bool] | None:
    if isinstance(value, str):
        if len(value.encode(errors="replace")) > MAX_VALUE:
            return None
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        return None
    items = [each if isinstance(each, bool | int | float) else _text(each) for each in value]
    is_valid = all(
        item is not None and (isinstance(item, str | bool) or _is_number(item)) for item in items
    )
    return [item for item in items if item is not None] if is_valid else None


_CONVERSIONS: Mapping[ParameterType, Callable[[Any], Value | None]] = {
    ParameterType.TEXT: _text,
    ParameterType.INTEGER: _integer,
    ParameterType.NUMBER: _number,
    ParameterType.BOOLEAN: _boolean,
    ParameterType.LIST: _list,
}


def comparable(parameter: Parameter, comparison: Operator, value: Any) -> Value:
    """Return the value of a condition, converted to the type that the comparison requires.

    Raises
    ------
    InvalidRequest
        If the comparison is not valid for the type of the parameter.
    """
    kind = parameter.type
    is_number = kind in (ParameterType.INTEGER, ParameterType.NUMBER)
    if comparison in _ORDERED and not is_number:
        raise InvalidRequest(
            refusal(
                RefusalText.ONLY_NUMBERS_COMPARED,
                comparison=comparison,
                name=parameter.name,
                kind=kind,
            )
        )
    if comparison is Operator.CONTAINS:
        if kind not in (ParameterType.LIST, ParameterType.TEXT):
            raise InvalidRequest(
                refusal(
                    RefusalText.CONTAINS_NOTHING,
                    comparison=comparison,
                    name=parameter.name,
                    kind=kind,
                )
            )
        return checked_value(parameter.name, ParameterType.TEXT, value)
    if is_number:
        kind = ParameterType.NUMBER
    return checked_value(parameter.name, kind, value)


def is_met(condition: Condition, values: Mapping[str, Value]) -> bool:
    """Return whether a condition is true for the parameters of a task."""
    actual: Any = values[condition.parameter]
    if condition.operator is Operator.CONTAINS:
        texts = actual if isinstance(actual, str) else [variable(item) for item in actual]
        return condition.value in texts
    if condition.operator in _ORDERED:
        return _ORDERED[condition.operator](actual, condition.value)
    expected: Any = condition.value
    is_equal = list(actual) == list(expected) if isinstance(actual, list) else actual == expected
    return bool(is_equal) == (condition.operator is Operator.EQUAL)


def items_of(task: Task, values: Mapping[str, Value]) -> list[str] | None:
    """Return the values over which a task is mapped; None for a task without a map.

    ``values``: the parameters of the run.
    """
    if task.for_each is None:
        return None
    if not task.for_each.parameter:
        return list(task.for_each.values)
    items: Any = values_of(task, values)[task.for_each.parameter]
    return [variable(item) for item in items]


def reference_of(value: Value) -> str | None:
    """Return NAME if a value of a sub-pipeline's parameter is ``$NAME``, else None; ``$$`` is a
    dollar.
    """
    if isinstance(value, str) and value.startswith("$") and not value.startswith("$$"):
        return value[1:]
    return None


def given_value(value: Value, values: Mapping[str, Value]) -> Value:
    """Return a parameter of a sub-pipeline; ``values`` belong to the pipeline that contains it."""
    source = reference_of(value)
    if source is not None:
        return values[source]
    return value[1:] if isinstance(value, str) and value.startswith("$$") else value


def variable(value: Value) -> str:
    """Return a value as the text of an environment variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return json.dumps(list(value))
    return str(value)
