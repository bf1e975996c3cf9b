"""Code shared by the conversions from and to other formats of pipelines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from .definition import PipelineDefinition, Task

_MAX_NAME = 40
# Fields that every format has.
_COMMON = frozenset({"name", "description", "needs", "settings", "kind", "command", "notebook"})


def slug_of(name: str) -> str:
    """Return a valid name of a pipeline or task."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_MAX_NAME].strip("-")
    return slug or "pipeline"


def unique_names(names: Iterable[str]) -> list[str]:
    """Return valid names in the same order; numbers make them unique."""
    found: list[str] = []
    used: set[str] = set()
    for base in map(slug_of, names):
        name, number = base, 2
        while name in used:
            name, number = f"{base[: _MAX_NAME - 5]}-{number}", number + 1
        used.add(name)
        found.append(name)
    return found


def require_known(
    target: str, definition: PipelineDefinition, known: Collection[str], kinds: Collection[str]
) -> None:
    """Check that another format has all features of a definition.

    ``known``: names of fields of tasks, and of settings. ``kinds``: kinds of tasks.

    Raises
    ------
    InvalidRequest
        If a task uses another feature.
    """
    for name in definition.settings:
        if name not in known:
            raise cannot(target, f"{name} of a pipeline")
    for task in definition.tasks:
        if task.kind not in kinds:
            raise cannot(target, f"kind {task.kind}, which task {task.name} has")
        for name in _features(task):
            if name not in known:
                raise cannot(target, f"{name}, which task {task.name} has")


def _features(task: Task) -> Iterator[str]:
    plain = Task(task.name)
    for field in fields(Task):
        is_used = getattr(task, field.name) != getattr(plain, field.name)
        if is_used and field.name not in _COMMON:
            yield field.name.removesuffix("_seconds")
    yield from task.settings


def cannot(target: str, feature: str) -> InvalidRequest:
    return InvalidRequest(
        refusal(RefusalText.TARGET_CANNOT_EXPRESS, target=target, feature=feature), field="target"
    )
