"""Pipelines of Elyra (https://github.com/elyra-ai/elyra), files ``*.pipeline``.

Only nodes that run a notebook, a Python script or an R script are converted. Their files, and
their dependencies, must be in the folder of the pipeline, with the paths of the Elyra file.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..errors import InvalidRequest
from ..folders.mounts import check_subpath
from ..user_input import shown
from .definition import MAX_TASKS, Parameter, ParameterType, PipelineDefinition, Task, TaskKind
from .parsing import MAX_BYTES, parse_pipeline
from .requests import MOUNT_PATH
from .writing import write_pipeline

_NOTEBOOK = "execute-notebook-node"
_PROGRAMS = {"execute-python-node": "python", "execute-r-node": "Rscript"}
_TYPES = {
    "String": ParameterType.TEXT,
    "Integer": ParameterType.INTEGER,
    "Float": ParameterType.NUMBER,
    "Bool": ParameterType.BOOLEAN,
    "List": ParameterType.LIST,
}
_MAX_NAME = 40
_GPU_SLOTS = {"nvidia.com/gpu": "cuda.device", "amd.com/gpu": "rocm.device"}


def convert_elyra(text: str, name: str) -> str:
    """Return the YAML of a pipeline for the text of an Elyra file.

    ``name``: of the file, used if the pipeline has none.

    Raises
    ------
    InvalidRequest
        If the text is not a pipeline of Elyra, or has nodes or settings that cannot be converted.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise _problem(f"the file has more than {MAX_BYTES} bytes")
    try:
        document = json.loads(text)
        pipelines = {each["id"]: each for each in document["pipelines"]}
        primary = pipelines[document["primary_pipeline"]]
        definition = _definition(primary, name)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _problem("the file is not a pipeline of Elyra") from error
    yaml_text = write_pipeline(definition)
    parse_pipeline(yaml_text)
    return yaml_text


def _problem(text: str) -> InvalidRequest:
    return InvalidRequest(text, field="definition")


def _definition(primary: Mapping[str, Any], name: str) -> PipelineDefinition:
    app_data = primary.get("app_data") or {}
    properties = app_data.get("properties") or {}
    defaults = properties.get("pipeline_defaults") or {}
    nodes = [node for node in primary["nodes"] if node.get("type") != "comment"]
    if len(nodes) > MAX_TASKS:
        raise _problem(f"the pipeline has more than {MAX_TASKS} nodes")
    names = _names(nodes)
    return PipelineDefinition(
        name=_slug(str(app_data.get("name") or properties.get("name") or name)),
        description=str(properties.get("description") or ""),
        parameters=tuple(_parameters(properties.get("pipeline_parameters") or [])),
        settings=_settings(defaults),
        tasks=tuple(_task(node, names) for node in nodes),
    )


def _slug(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_MAX_NAME].strip("-")
    return slug or "pipeline"


def _names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the tasks by the ids of their nodes: the labels, with numbers if two are
    the same.
    """
    names: dict[str, str] = {}
    used: set[str] = set()
    for node in nodes:
        path = PurePosixPath(str(_component(node).get("filename") or ""))
        label = (node.get("app_data") or {}).get("label") or _component(node).get("label")
        base = _slug(str(label or path.stem).removesuffix(path.suffix))
        name, number = base, 2
        while name in used:
            name, number = f"{base[: _MAX_NAME - 5]}-{number}", number + 1
        used.add(name)
        names[node["id"]] = name
    return names


def _component(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a node; files of older versions have them in ``app_data``."""
    app_data = node.get("app_data") or {}
    return dict(app_data.get("component_parameters") or app_data)


def _parameters(found: Sequence[Mapping[str, Any]]) -> Iterator[Parameter]:
    for each in found:
        default = each.get("default_value") or {}
        kind = _TYPES.get(str(default.get("type", "String")))
        if kind is None:
            raise _problem(
                f"the type of the parameter {shown(str(each['name']))!r} is not supported"
            )
        value = default.get("value")
        yield Parameter(
            str(each["name"]),
            kind,
            None if value == "" else value,
            str(each.get("description") or ""),
        )


def _task(node: Mapping[str, Any], names: Mapping[str, str]) -> Task:
    name, op, component = names[node["id"]], str(node.get("op")), _component(node)
    if op != _NOTEBOOK and op not in _PROGRAMS:
        raise _problem(f"the node {name} is of the kind {shown(op)}, which cannot be converted")
    path = _path(name, component["filename"])
    dependencies = [str(each) for each in component.get("dependencies") or []]
    copies = [_copy(name, posixpath.dirname(path), each) for each in dependencies]
    is_notebook = op == _NOTEBOOK and not copies
    file = shlex.quote(f"{MOUNT_PATH}/{path}")
    command = f"papermill {file} ./{name}.ipynb" if op == _NOTEBOOK else f"{_PROGRAMS[op]} {file}"
    return Task(
        name,
        TaskKind.NOTEBOOK if is_notebook else TaskKind.COMMAND,
        command="" if is_notebook else "\n".join((*copies, command)),
        notebook=path if is_notebook else "",
        needs=tuple(dict.fromkeys(_needs(node, names))),
        settings=_settings(component),
        outputs=tuple(str(each) for each in component.get("outputs") or []),
    )


def _needs(node: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    for port in node.get("inputs") or []:
        for link in port.get("links") or []:
            yield names[link["node_id_ref"]]


def _path(name: str, path: Any) -> str:
    """Return the path of a node's file in the folder of the pipeline."""
    try:
        return str(check_subpath(str(path)))
    except InvalidRequest as error:
        raise _problem(f"the file of the node {name} cannot be used: {error.message}") from None


def _copy(name: str, directory: str, dependency: str) -> str:
    """Return the command that copies a dependency into the directory of the run, as Elyra does."""
    path = _path(name, posixpath.normpath(posixpath.join(directory, dependency)))
    # Patterns such as *.csv remain patterns.
    quoted = "*".join(shlex.quote(part) if part else "" for part in path.split("*"))
    return f"cp -r {MOUNT_PATH}/{quoted} ."


def _settings(component: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if image := component.get("runtime_image"):
        settings["image"] = str(image)
    resources = {}
    if cpu := component.get("cpu"):
        resources["cpu"] = str(cpu)
    if memory := component.get("memory"):
        resources["mem"] = f"{memory}g"
    if gpus := component.get("gpu"):
        resources[_GPU_SLOTS.get(str(component.get("gpu_vendor")), "cuda.device")] = str(gpus)
    if resources:
        settings["resources"] = resources
    if environ := dict(_variables(component.get("env_vars") or [])):
        settings["environ"] = environ
    return settings


def _variables(found: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield variables; older versions have texts ``NAME=VALUE``."""
    for each in found:
        if isinstance(each, str):
            name, _, value = each.partition("=")
            yield name, value
        else:
            yield str(each["env_var"]), str(each.get("value") or "")
