"""Pipelines of Elyra (https://github.com/elyra-ai/elyra), files ``*.pipeline``.

Only nodes that run a notebook, a Python script or an R script are converted. Their files, and
their dependencies, must be in the folder of the pipeline, with the paths of the Elyra file.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..coded_text import CodedText, refusal
from ..errors import InvalidRequest
from ..folders.mounts import check_subpath
from ..refusal_texts import RefusalText
from ..resources import CPU, MEM, parse_amount, slot_type
from ..user_input import shown
from .definition import MAX_TASKS, Parameter, ParameterType, PipelineDefinition, Task, TaskKind
from .foreign import cannot, require_known, slug_of, unique_names
from .parsing import MAX_BYTES, parse_pipeline
from .requests import MOUNT_PATH
from .settings import merged
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
_NAMESPACE = uuid.UUID("5a3f6f2c-9b55-4e0d-8f0a-0d1f6c3a7e21")
# Fields of tasks and settings that Elyra has.
_KNOWN = ("outputs", "image", "environ", "resources")
_GPU_SLOTS = {"nvidia.com/gpu": "cuda.device", "amd.com/gpu": "rocm.device"}


def convert_elyra(text: str, name: str) -> str:
    """Return the YAML of a pipeline for the text of an Elyra file.

    ``name`` is the name of the file; it is used if the pipeline has no name.

    Raises
    ------
    InvalidRequest
        If the text is not a pipeline of Elyra, or has nodes or settings that cannot be converted.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise _problem(refusal(RefusalText.FILE_TOO_LONG, limit=MAX_BYTES))
    try:
        document = json.loads(text)
        pipelines = {each["id"]: each for each in document["pipelines"]}
        primary = pipelines[document["primary_pipeline"]]
        definition = _definition(primary, name)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _problem(refusal(RefusalText.NOT_ELYRA)) from error
    yaml_text = write_pipeline(definition)
    parse_pipeline(yaml_text)
    return yaml_text


def _problem(text: CodedText) -> InvalidRequest:
    return InvalidRequest(text, field="definition")


def _definition(primary: Mapping[str, Any], name: str) -> PipelineDefinition:
    app_data = primary.get("app_data") or {}
    properties = app_data.get("properties") or {}
    defaults = properties.get("pipeline_defaults") or {}
    nodes = [node for node in primary["nodes"] if node.get("type") != "comment"]
    if len(nodes) > MAX_TASKS:
        raise _problem(refusal(RefusalText.ELYRA_TOO_MANY_NODES, limit=MAX_TASKS))
    names = _names(nodes)
    return PipelineDefinition(
        name=slug_of(str(app_data.get("name") or properties.get("name") or name)),
        description=str(properties.get("description") or ""),
        parameters=tuple(_parameters(properties.get("pipeline_parameters") or [])),
        settings=_settings(defaults),
        tasks=tuple(_task(node, names) for node in nodes),
    )


def _names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the tasks by the ids of their nodes: the labels, with numbers that make
    them unique.
    """
    labels = []
    for node in nodes:
        path = PurePosixPath(str(_component(node).get("filename") or ""))
        label = (node.get("app_data") or {}).get("label") or _component(node).get("label")
        labels.append(str(label or path.stem).removesuffix(path.suffix))
    return dict(zip([node["id"] for node in nodes], unique_names(labels), strict=True))


def _component(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a node; files of older versions have them in ``app_data``."""
    app_data = node.get("app_data") or {}
    return dict(app_data.get("component_parameters") or app_data)


def _parameters(found: Sequence[Mapping[str, Any]]) -> Iterator[Parameter]:
    for each in found:
        default = each.get("default_value") or {}
        kind = _TYPES.get(str(default.get("type", "String")))
        if kind is None:
            raise _problem(refusal(RefusalText.ELYRA_PARAMETER_TYPE, name=shown(str(each["name"]))))
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
        raise _problem(refusal(RefusalText.ELYRA_NODE_KIND, name=name, kind=shown(op)))
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
        raise _problem(refusal(RefusalText.ELYRA_NODE_FILE, error.text, name=name)) from None


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


def write_elyra(definition: PipelineDefinition) -> str:
    """Return the text of an Elyra file for a definition.

    Memory is rounded up to whole gigabytes.

    Raises
    ------
    InvalidRequest
        If a task runs no notebook, Python or R script of the folder, or has features that Elyra
        does not have.
    """
    require_known("Elyra", definition, _KNOWN, [TaskKind.COMMAND, TaskKind.NOTEBOOK])
    ids = {task.name: _id(definition.name, task.name) for task in definition.tasks}
    properties: dict[str, Any] = {"name": definition.name, "runtime": "Generic"}
    if definition.description:
        properties["description"] = definition.description
    properties["pipeline_parameters"] = [_written_parameter(each) for each in definition.parameters]
    shared = {
        name: definition.settings[name]
        for name in ("image", "environ")
        if name in definition.settings
    }
    properties["pipeline_defaults"] = _written_settings(shared)
    pipeline_id = _id(definition.name, "")
    pipeline = {
        "id": pipeline_id,
        "nodes": [
            _written_node(definition, task, ids, position)
            for position, task in enumerate(definition.tasks)
        ],
        "app_data": {"properties": properties, "version": 8, "ui_data": {"comments": []}},
        "runtime_ref": "",
    }
    document = {
        "doc_type": "pipeline",
        "version": "3.0",
        "json_schema": "http://api.dataplatform.ibm.com/schemas/common-pipeline/pipeline-flow/"
        "pipeline-flow-v3-schema.json",
        "id": _id(definition.name, "document"),
        "primary_pipeline": pipeline_id,
        "pipelines": [pipeline],
        "schemas": [],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _id(pipeline: str, name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{pipeline}/{name}"))


def _written_parameter(parameter: Parameter) -> dict[str, Any]:
    types = {kind: name for name, kind in _TYPES.items()}
    value = parameter.default
    default = {"type": types[parameter.type], "value": "" if value is None else value}
    return {
        "name": parameter.name,
        "description": parameter.description,
        "default_value": default,
        "required": value is None,
    }


def _written_node(
    definition: PipelineDefinition, task: Task, ids: Mapping[str, str], position: int
) -> dict[str, Any]:
    op, path, dependencies = _program(task)
    directory = posixpath.dirname(path)
    # Give each task the default resources, because Elyra has no defaults for resources.
    inherited = {"resources": definition.settings.get("resources", {})}
    settings = merged(inherited, task.settings)
    component = {
        "filename": path,
        "dependencies": [posixpath.relpath(each, directory or ".") for each in dependencies],
        "outputs": list(task.outputs),
        "include_subdirectories": False,
        **_written_settings(settings),
    }
    links = [
        {"id": _id(task.name, need), "node_id_ref": ids[need], "port_id_ref": "outPort"}
        for need in task.needs
    ]
    return {
        "id": ids[task.name],
        "type": "execution_node",
        "op": op,
        "app_data": {
            "component_parameters": component,
            "label": task.name,
            "ui_data": {"x_pos": 240 * (position % 4 + 1), "y_pos": 120 * (position // 4 + 1)},
        },
        "inputs": [{"id": "inPort", "links": links}],
        "outputs": [{"id": "outPort"}],
    }


def _program(task: Task) -> tuple[str, str, list[str]]:
    """Return the kind of the node of a task, its file, and the files that it copies."""
    if task.kind is TaskKind.NOTEBOOK:
        return _NOTEBOOK, task.notebook, []
    ops = {name: op for op, name in _PROGRAMS.items()} | {"papermill": _NOTEBOOK}
    *copies, last = task.command.strip().splitlines()
    try:
        sources = [_copied(shlex.split(line)) for line in copies]
        match shlex.split(last):
            case [name, file, *rest] if name in ops and not (rest and name != "papermill"):
                found = ops[name], _in_folder(file), sources
            case _:
                raise ValueError
    except ValueError:
        raise cannot(
            "Elyra", f"command such as that of task {task.name}; write it as a script"
        ) from None
    return found


def _copied(words: Sequence[str]) -> str:
    match words:
        case ["cp", "-r", source, "."]:
            return _in_folder(source)
    raise ValueError


def _in_folder(path: str) -> str:
    if not path.startswith(f"{MOUNT_PATH}/"):
        raise ValueError
    return path.removeprefix(f"{MOUNT_PATH}/")


def _written_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if "image" in settings:
        written["runtime_image"] = settings["image"]
    written["env_vars"] = [
        {"env_var": name, "value": value} for name, value in settings.get("environ", {}).items()
    ]
    vendors = {slot: vendor for vendor, slot in _GPU_SLOTS.items()}
    for slot, amount in settings.get("resources", {}).items():
        if slot == MEM:
            written["memory"] = math.ceil(parse_amount(slot, amount) / 2**30)
        elif slot == CPU:
            cores = parse_amount(slot, amount) / slot_type(slot).unit
            written["cpu"] = int(cores) if cores.is_integer() else cores
        elif slot in vendors:
            written |= {"gpu": parse_amount(slot, amount), "gpu_vendor": vendors[slot]}
        else:
            raise cannot("Elyra", f"resource {shown(slot)}")
    return written
