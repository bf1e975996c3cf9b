"""Pipelines in the YAML of Backend.AI FastTrack.

FastTrack has no public schema. The keys are those of its published examples
(https://github.com/lablup/backend.ai-fasttrack-examples). Other keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..coded_text import CodedText, refusal
from ..errors import InvalidRequest
from ..folders.mounts import MAX_MOUNTS
from ..refusal_texts import RefusalText
from ..scheduling.placement_options import Mode
from ..sessions.batch import MAX_COMMAND_BYTES
from ..user_input import shown
from ..yaml_sections import Section, read_sections, text_of
from .definition import (
    DEFAULT_RETRY_DELAY_SECONDS,
    MAX_DELAY_SECONDS,
    MAX_RETRIES,
    MAX_TASKS,
    MAX_VALUE,
    PipelineDefinition,
    Task,
    TaskKind,
)
from .foreign import cannot, require_known, slug_of, unique_names
from .parsing import MAX_BYTES, MAX_CLUSTER_SIZE, MAX_NODES, parse_pipeline
from .writing import write_pipeline, yaml_of

MAX_VARIABLES = 100
# The value of a variable that is a secret.
_SECRET = re.compile(r"\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_COMMAND_TYPES = ("", "custom")
# Fields of tasks and settings that FastTrack has.
_KNOWN = (
    "skip", "continue_on_failure", "retries", "retry_delay", "image", "resource_group", "environ",
    "secrets", "resources", "shared_memory", "cluster_size", "cluster_mode", "mounts",
)  # fmt: skip


def convert_fasttrack(text: str, name: str) -> str:
    """Return the YAML of a pipeline for the YAML of FastTrack.

    ``name`` is the name of the file; it is used if the pipeline has no name. Variables without a
    value are omitted.

    Raises
    ------
    InvalidRequest
        If the text is not a pipeline of FastTrack, or has tasks that cannot be converted; ``line``
        in the details is the line of the problem.
    """
    definition = read_sections(text, MAX_BYTES, MAX_NODES, _problem, lambda r: _pipeline(r, name))
    yaml_text = write_pipeline(definition)
    parse_pipeline(yaml_text)
    return yaml_text


def _problem(line: int, text: CodedText) -> InvalidRequest:
    problem = refusal(RefusalText.LINE_PROBLEM, text, line=line)
    return InvalidRequest(problem, field="definition", line=line)


def _pipeline(root: Section, name: str) -> PipelineDefinition:
    line, parameters = root.line_of("params"), root.take("params")
    if isinstance(parameters, yaml.SequenceNode | yaml.MappingNode) and parameters.value:
        raise _problem(line, refusal(RefusalText.FASTTRACK_PARAMS))
    found = slug_of(root.take_text("name") or name)
    description = root.take_text("description", MAX_VALUE)
    settings = _settings(root)
    line, node = root.line_of("tasks"), root.take("tasks")
    if not isinstance(node, yaml.SequenceNode) or not 0 < len(node.value) <= MAX_TASKS:
        raise _problem(line, refusal(RefusalText.TASKS_OUT_OF_RANGE, limit=MAX_TASKS))
    sections = [Section.of(root.loader, each, "a task", _problem) for each in node.value]
    labels = [section.take_text("name") for section in sections]
    names = dict(zip(labels, unique_names(labels), strict=True))
    tasks = [_task(section, label, names) for section, label in zip(sections, labels, strict=True)]
    return PipelineDefinition(found, description, settings=settings, tasks=tasks)


def _task(section: Section, label: str, names: Mapping[str, str]) -> Task:
    line, kind = section.line_of("type"), section.take_text("type")
    if kind not in _COMMAND_TYPES:
        raise _problem(
            line, refusal(RefusalText.FASTTRACK_TASK_TYPE, name=shown(label), kind=shown(kind))
        )
    if section.take_text("module_uri"):
        raise _problem(section.line, refusal(RefusalText.FASTTRACK_MODULE, name=shown(label)))
    retry = section.take_section("retry")
    attempts, delay = 1, DEFAULT_RETRY_DELAY_SECONDS
    if retry is not None:
        attempts = retry.take_whole("max_attempts", 1, 1, MAX_RETRIES + 1)
        delay = retry.take_whole("delay", delay, 0, MAX_DELAY_SECONDS)
    needs = _texts(section, "dependencies", MAX_TASKS)
    for need in needs:
        if need not in names:
            raise _problem(
                section.line,
                refusal(RefusalText.UNKNOWN_NEED, name=shown(label), other=shown(need)),
            )
    return Task(
        names[label],
        description=section.take_text("description", MAX_VALUE),
        command=section.take_text("command", MAX_COMMAND_BYTES // 2),
        needs=tuple(dict.fromkeys(names[need] for need in needs)),
        settings=_settings(section),
        retries=attempts - 1,
        retry_delay_seconds=delay,
        continue_on_failure=section.take_bool("continue_on_failure"),
        skip=section.take_bool("skip"),
    )


def _settings(section: Section) -> dict[str, Any]:
    """Take the fields of a session request."""
    settings: dict[str, Any] = {}
    environment = section.take_section("environment")
    if environment is not None:
        for key, name in (("image", "image"), ("scaling-group", "resource_group")):
            if text := environment.take_text(key):
                settings[name] = text
        environ, secrets = _variables(environment)
        if environ:
            settings["environ"] = environ
        if secrets:
            settings["secrets"] = secrets
    if resources := dict(_texts_of(section, "resources")):
        settings["resources"] = resources
    if shared := dict(_texts_of(section, "resource_opts")).get("shmem"):
        settings["shared_memory"] = shared
    if "cluster_size" in section.nodes:
        size = section.take_whole("cluster_size", 1, 1, MAX_CLUSTER_SIZE)
        line, mode = section.line_of("cluster_mode"), section.take_text("cluster_mode")
        if mode and mode not in set(Mode):
            raise _problem(line, refusal(RefusalText.FASTTRACK_CLUSTER_MODE, mode=shown(mode)))
        if size > 1:
            settings |= {"cluster_size": size, "cluster_mode": mode or str(Mode.SINGLE_NODE)}
    if mounts := [_mount(text) for text in _texts(section, "mounts", MAX_MOUNTS)]:
        settings["mounts"] = mounts
    return settings


def _variables(environment: Section) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables with a value, and the names of secrets by variable."""
    environ: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for name, value in _texts_of(environment, "envs"):
        if secret := _SECRET.fullmatch(value):
            secrets[name] = secret[1]
        elif value:
            environ[name] = value
    return environ, secrets


def _texts_of(section: Section, key: str) -> Iterator[tuple[str, str]]:
    line, inner = section.line_of(key), section.take_section(key)
    if inner is None:
        return
    if len(inner.nodes) > MAX_VARIABLES:
        raise _problem(line, refusal(RefusalText.TOO_MANY_ENTRIES, key=key, limit=MAX_VARIABLES))
    for name in list(inner.nodes):
        yield name, inner.take_text(name, MAX_VALUE)


def _texts(section: Section, key: str, limit: int) -> list[str]:
    line, node = section.line_of(key), section.take(key)
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode) or len(node.value) > limit:
        raise _problem(line, refusal(RefusalText.NOT_A_LIST_OF_STRINGS, key=key, limit=limit))
    for each in node.value:
        if not isinstance(each, yaml.ScalarNode):
            raise _problem(
                each.start_mark.line + 1, refusal(RefusalText.ENTRY_NOT_A_STRING, key=key)
            )
    return [text_of(each, key, MAX_VALUE, _problem) for each in node.value]


def _mount(text: str) -> dict[str, str]:
    """Return a mount for ``FOLDER`` or ``FOLDER:PATH``."""
    folder, _, path = text.partition(":")
    return {"vfolder": folder} | ({"path": path} if path else {})


def write_fasttrack(definition: PipelineDefinition) -> str:
    """Return the YAML of FastTrack for a definition.

    Raises
    ------
    InvalidRequest
        If the definition has parameters, or a task has features that FastTrack does not have.
    """
    if definition.parameters:
        raise cannot("FastTrack", "parameters")
    require_known("FastTrack", definition, _KNOWN, [TaskKind.COMMAND])
    document: dict[str, Any] = {"name": definition.name}
    if definition.description:
        document["description"] = definition.description
    document["ownership"] = {"scope": "user"}
    document |= _written(definition.settings)
    document["tasks"] = [_written_task(task) for task in definition.tasks]
    return yaml_of(document)


def _written_task(task: Task) -> dict[str, Any]:
    written: dict[str, Any] = {"name": task.name}
    if task.description:
        written["description"] = task.description
    written |= {"type": "custom", "dependencies": list(task.needs)}
    for name in ("skip", "continue_on_failure"):
        if getattr(task, name):
            written[name] = True
    if task.retries:
        written["retry"] = {"max_attempts": task.retries + 1, "delay": task.retry_delay_seconds}
    return {**written, **_written(task.settings), "command": task.command}


def _written(settings: Mapping[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    for name, key in (("image", "image"), ("resource_group", "scaling-group")):
        if name in settings:
            environment[key] = settings[name]
    variables = {
        **settings.get("environ", {}),
        **{
            name: f"${{{{ secrets.{secret} }}}}"
            for name, secret in settings.get("secrets", {}).items()
        },
    }
    if variables:
        environment["envs"] = variables
    if environment:
        written["environment"] = environment
    if "resources" in settings:
        written["resources"] = dict(settings["resources"])
    if "shared_memory" in settings:
        written["resource_opts"] = {"shmem": settings["shared_memory"]}
    for name in ("cluster_size", "cluster_mode"):
        if name in settings:
            written[name] = settings[name]
    if "mounts" in settings:
        written["mounts"] = [
            ":".join(filter(None, (each["vfolder"], each.get("path"))))
            for each in settings["mounts"]
        ]
    return written
