"""Write the definition of a pipeline as YAML; the inverse of ``parse_pipeline``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import yaml

from .definition import VERSION, Cache, Condition, ForEach, Parameter, PipelineDefinition, Task

# Fields that have another name or place in YAML.
_DURATIONS = {"retry_delay_seconds": "retry_delay", "timeout_seconds": "timeout"}


def write_pipeline(definition: PipelineDefinition) -> str:
    """Return the YAML of a definition; values equal to their defaults are omitted."""
    document: dict[str, Any] = {"version": VERSION, "name": definition.name}
    empty = PipelineDefinition(definition.name)
    for name in ("description", "folder", "max_concurrent_runs", "max_parallel_tasks"):
        if (value := getattr(definition, name)) != getattr(empty, name):
            document[name] = value
    if definition.parameters:
        document["parameters"] = [
            _changed(each, Parameter(each.name)) for each in definition.parameters
        ]
    if definition.settings:
        document["defaults"] = _settings(definition.settings)
    document["tasks"] = [_task(task) for task in definition.tasks]
    return yaml_of(document)


def yaml_of(document: Mapping[str, Any]) -> str:
    """Return a document as YAML that is easy to read."""
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )


class _Dumper(yaml.SafeDumper):
    """Writes texts with several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value.strip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _task(task: Task) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, value in _changed(task, Task(task.name)).items():
        if name == "settings":
            written |= _settings(task.settings)
        else:
            written[_DURATIONS.get(name, name)] = value
    return written


def _changed(value: Any, default: Any) -> dict[str, Any]:
    """Return the name of a dataclass and its fields that differ from those of ``default``."""
    changed = {"name": value.name}
    for field in fields(value):
        current = getattr(value, field.name)
        if current != getattr(default, field.name):
            changed[field.name] = _plain(current)
    return changed


def _plain(value: Any) -> Any:
    if isinstance(value, Cache):
        names = {} if value.parameters is None else {"parameters": list(value.parameters)}
        files = {"files": list(value.files)} if value.files else {}
        return {**files, **names} or True
    if isinstance(value, ForEach):
        source = (
            {"parameter": value.parameter} if value.parameter else {"values": list(value.values)}
        )
        limit = {"max_parallel": value.max_parallel} if value.max_parallel else {}
        return {**source, **limit}
    if isinstance(value, Condition):
        return {
            "parameter": value.parameter,
            "operator": str(value.operator),
            "value": _plain(value.value),
        }
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, str):
        return str(value)  # a plain string instead of an enum
    return [_plain(each) for each in value] if isinstance(value, Sequence) else value


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    written = {name: _plain(value) for name, value in settings.items()}
    if "mounts" in written:
        written["mounts"] = [_mount(each) for each in settings["mounts"]]
    return written


def _mount(mount: Mapping[str, str] | str) -> str:
    if isinstance(mount, str):
        return mount
    return ":".join(filter(None, (mount["vfolder"], mount.get("path"), mount.get("permission"))))
