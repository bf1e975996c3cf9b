"""Parser of ``model-definition.yaml``, which defines how a model server is started and checked.

Every problem is reported with its line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from math import isfinite
from typing import Any

import yaml

from ..bounded_yaml import BoundedLoader
from ..cluster.image_labels import SERVER_PORT
from ..coded_text import CodedText
from ..errors import InvalidRequest
from ..user_input import shown
from ..yaml_sections import Section, is_encodable, read_sections, text_of
from .gateway_records import Protocol

FILE_NAME = "model-definition.yaml"
MAX_BYTES = 64 * 1024
MAX_NODES = 2000
MAX_COMMAND_BYTES = 16 * 1024
MAX_ACTIONS = 20
# Ports of the session's own programs. The last one is the port on which a replica accepts requests
# of gateways. If its server had the same port, the replica would forward the requests to itself.
RESERVED_PORTS = (2000, 2001, SERVER_PORT)
MAX_PORT = 65535
MAX_START_SECONDS = 86400.0
_COMMAND_ACTION = "run_command"
_MAX_MODEL_PATH = 255


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health check of replicas; times are in seconds.

    ``start_seconds``: time limit for the first successful check of a new replica. ``max_failures``:
    number of consecutive failed checks after which a replica is replaced.
    """

    path: str = "/health"
    interval_seconds: float = 10.0
    timeout_seconds: float = 15.0
    max_failures: int = 10
    expected_status: int = 200
    start_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """The first model of a definition; ``command`` is for a shell.

    Fields that the file does not set are empty; ``port`` and ``protocol`` are then None.
    """

    name: str = ""
    model_path: str = ""
    command: str = ""
    port: int | None = None
    health_check: HealthCheck | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Protocol | None = None


def parse_definition(text: str) -> ModelDefinition:
    """Parse a model definition.

    The run time grows with the size of the text, so call this function outside the event loop.

    Raises
    ------
    InvalidRequest
        If the text is not valid YAML, exceeds a limit, or has an unknown or invalid key; ``line``
        in the details is the line of the problem.
    """
    return read_sections(text, MAX_BYTES, MAX_NODES, _problem, _definition)


def _problem(line: int, text: str | CodedText) -> InvalidRequest:
    return InvalidRequest(f"{FILE_NAME}, line {line}: {text}", field="definition", line=line)


def _metadata(loader: BoundedLoader, node: yaml.Node | None) -> Mapping[str, Any]:
    if node is None:
        return {}
    line = node.start_mark.line + 1
    values = loader.construct_object(node, deep=True)
    if not isinstance(values, dict):
        raise _problem(line, "metadata must be a mapping")
    try:
        plain: Mapping[str, Any] = _plain(values)
    except ValueError as error:
        raise _problem(line, f"metadata contains {error}, which JSON does not allow") from None
    return plain


def _plain(value: object) -> Any:
    """Convert a value to JSON types, with times as texts; raise ``ValueError`` if impossible."""
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, date):  # also a datetime
        return value.isoformat()
    if isinstance(value, str) and not is_encodable(value):
        raise ValueError("a character that is not valid")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number that is not finite")
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"a value of type {type(value).__name__}")
    return value


def _key(key: object) -> str:
    key = _plain(key)
    return key if isinstance(key, str) else str(key).lower()


def _definition(root: Section) -> ModelDefinition:
    models = root.take("models")
    root.finish()
    if not isinstance(models, yaml.SequenceNode) or not models.value:
        raise _problem(root.line, "the key models must be a list with one model")
    if len(models.value) > 1:
        raise _problem(
            models.value[1].start_mark.line + 1, "an endpoint serves one model; remove this one"
        )
    model = Section.of(root.loader, models.value[0], "a model", _problem)
    name, path_line = model.take_text("name"), model.line_of("model_path")
    model_path = model.take_text("model_path")
    try:
        relative_path(model_path)
    except InvalidRequest as error:
        raise _problem(path_line, error.message) from None
    values = _metadata(root.loader, model.take("metadata"))
    service = model.take_section("service")
    model.finish()
    if service is None:
        return ModelDefinition(name, model_path, metadata=values)
    command = _command(service)
    port, protocol = _port(service), _protocol(service)
    health = service.take_section("health_check")
    service.finish()
    check = None if health is None else _health(health, protocol)
    return ModelDefinition(name, model_path, command, port, check, values, protocol)


def _command(service: Section) -> str:
    keys = [key for key in ("start_command", "command") if key in service.nodes]
    if len(keys) > 1:
        raise _problem(service.line_of("command"), "service has both start_command and command")
    shell = service.take_text("shell")
    if shell not in ("", "/bin/bash", "/bin/sh"):
        raise _problem(service.line, "shell must be /bin/bash or /bin/sh")
    node = service.take(keys[0]) if keys else None
    lines = _actions(service)
    if node is not None:
        lines.append(_words(node, keys[0]))
    return "\n".join(lines)


def _words(node: yaml.Node, what: str) -> str:
    if isinstance(node, yaml.ScalarNode):
        return text_of(node, what, MAX_COMMAND_BYTES, _problem)
    words = []
    for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(each, yaml.ScalarNode):
            raise _problem(
                each.start_mark.line + 1, f"{what} must be a string or a list of strings"
            )
        words.append(text_of(each, what, MAX_COMMAND_BYTES, _problem))
    return shlex.join(words)


def _actions(service: Section) -> list[str]:
    """Return the commands of ``pre_start_actions``."""
    node = service.take("pre_start_actions")
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode) or len(node.value) > MAX_ACTIONS:
        raise _problem(
            node.start_mark.line + 1, f"pre_start_actions must be a list of at most {MAX_ACTIONS}"
        )
    lines = []
    for each in node.value:
        action = Section.of(service.loader, each, "an action", _problem)
        kind = action.take_text("action")
        if kind != _COMMAND_ACTION:
            raise _problem(
                action.line, f"the action {shown(kind)!r} is not supported, only {_COMMAND_ACTION}"
            )
        arguments = action.take_section("args")
        command = None if arguments is None else arguments.take("command")
        if arguments is None or command is None:
            raise _problem(action.line, f"{_COMMAND_ACTION} needs args with a command")
        lines.append(f"{_words(command, 'command')} || exit $?")
        arguments.finish()
        action.finish()
    return lines


def _port(service: Section) -> int | None:
    if "port" not in service.nodes:
        return None
    line = service.line_of("port")
    port = service.take_whole("port", 0, 2, MAX_PORT)
    if port in RESERVED_PORTS:
        raise _problem(line, f"the port {port} is reserved for the session itself")
    return port or None


def _protocol(service: Section) -> Protocol | None:
    line, text = service.line_of("protocol"), service.take_text("protocol")
    if not text:
        return None
    if text not in set(Protocol):
        raise _problem(line, f"protocol must be {' or '.join(Protocol)}")
    return Protocol(text)


def _health(section: Section, protocol: Protocol | None) -> HealthCheck | None:
    is_enabled = section.take_bool("enable")
    line = section.line_of("path")
    path = section.take_text("path") or ("/" if protocol is Protocol.GRPC else "/health")
    check = HealthCheck(
        path=path,
        interval_seconds=section.take_number("interval", 10.0, 1, 3600),
        timeout_seconds=section.take_number("max_wait_time", 15.0, 0.1, 600),
        max_failures=section.take_whole("max_retries", 10, 1, 1000),
        expected_status=section.take_whole("expected_status_code", 200, 100, 599),
        start_seconds=section.take_number("initial_delay", 60.0, 1, MAX_START_SECONDS),
    )
    section.finish()
    if not is_valid_path(path):
        raise _problem(line, "path must begin with / and have no spaces or control characters")
    return check if is_enabled else None


def relative_path(path: str) -> str:
    """Return a path in the model folder; ``/models`` stands for the folder itself.

    Raises
    ------
    InvalidRequest
        If the path leads out of the folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") and parts[:1] == ["models"]:
        parts = parts[1:]
    if ".." in parts or "\0" in path or len(path) > _MAX_MODEL_PATH:
        raise InvalidRequest(
            f"{shown(path)!r} is not a path in the model folder", field="model_path"
        )
    return "/".join(parts)


def is_valid_path(path: str) -> bool:
    """Return whether a text can be the path of a health check."""
    is_plain = path.isascii() and path.isprintable() and " " not in path and "#" not in path
    return path.startswith("/") and not path.startswith("//") and is_plain and len(path) <= 255
