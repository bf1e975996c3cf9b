"""Model definitions, settings of revisions, and names of endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.serving.definition import (
    MAX_BYTES,
    HealthCheck,
    ModelDefinition,
    parse_definition,
    relative_path,
)
from bai_services.core.serving.gateway_records import Protocol
from bai_services.core.serving.names import EndpointAddresses, check_endpoint_name
from bai_services.core.serving.rollout import RolloutRules, Strategy
from bai_services.core.serving.settings import RevisionSettings, resolve_settings
from bai_services.core.serving.variants import VARIANTS

FULL = """\
models:
  - name: tiny
    model_path: /models/tiny
    service:
      pre_start_actions:
        - action: run_command
          args:
            command: [pip, install, "a b"]
      start_command: [python3, server.py, --port, "8000"]
      shell: /bin/bash
      port: 8000
      health_check:
        enable: true
        path: /ready
        interval: 5
        max_retries: 3
        max_wait_time: 2.5
        expected_status_code: 204
        initial_delay: 120
    metadata:
      author: Ada
      framework: [onnx]
"""


def test_definition_with_all_keys_is_parsed() -> None:
    assert parse_definition(FULL) == ModelDefinition(
        "tiny",
        "/models/tiny",
        "pip install 'a b' || exit $?\npython3 server.py --port 8000",
        8000,
        HealthCheck("/ready", 5.0, 2.5, 3, 204, 120.0),
        {"author": "Ada", "framework": ["onnx"]},
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-31", "2026-01-31"),
        ("{1: true, a: null}", {"1": True, "a": None}),
        ("!!binary aGVsbG8=", None),
        ("!!set {a}", None),
        (".nan", None),
        ("[1, [.inf]]", None),
        ('"\\uD800"', None),
        ("{.inf: 1}", None),
        ('{"\\uD800": 1}', None),
    ],
)
def test_metadata_is_what_json_can_represent(value: str, expected: object) -> None:
    text = f"models:\n- name: a\n  metadata:\n    key: {value}\n"
    if expected is not None:
        assert parse_definition(text).metadata == {"key": expected}
        return
    with pytest.raises(InvalidRequest, match="metadata contains"):
        parse_definition(text)


@pytest.mark.parametrize("key", ["name", "model_path"])
def test_halves_of_surrogate_pairs_are_rejected(key: str) -> None:
    for text in (f'models:\n- {key}: "\\uD800"\n', f'models:\n- "{key}\\uD800": x\n'):
        with pytest.raises(InvalidRequest):
            parse_definition(text)


def test_health_check_that_is_not_enabled_is_ignored() -> None:
    text = "models:\n- name: a\n  service:\n    command: serve\n    health_check: {path: /x}\n"
    assert parse_definition(text).health_check is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("models: 3", 1, "list"),
        ("models: []", 1, "list"),
        ("- a", 1, "mapping"),
        ("models:\n- name: a\nother: 1", 3, "no key 'other'"),
        ("models:\n- name: a\n  nmae: b", 3, "no key 'nmae'"),
        ("models:\n- name: a\n  name: b", 3, "twice"),
        ("models:\n- name: a\n- name: b", 3, "one model"),
        ("models:\n- name: [a]", 2, "must be a string"),
        ("models:\n- name: a\n  model_path: /models/../x", 3, "not a path in the model folder"),
        ("models:\n- service:\n    port: 2000", 3, "reserved"),
        ("models:\n- service:\n    port: 1", 3, "number from 2"),
        ("models:\n- service:\n    port: eight", 3, "number"),
        ("models:\n- service:\n    port: 80.5", 3, "whole"),
        ("models:\n- service:\n    command: a\n    start_command: b", 3, "both"),
        ("models:\n- service:\n    command: {a: b}", 3, "string or a list"),
        ("models:\n- service:\n    health_check:\n      path: x y\n      enable: true", 4, "path"),
        ("models:\n- service:\n    health_check:\n      enable: maybe", 4, "true or false"),
        ("models:\n- service:\n    pre_start_actions:\n    - action: rm", 4, "not supported"),
        ("models:\n- service:\n    pre_start_actions:\n    - action: run_command", 4, "needs args"),
        ("models:\n- name: *a", 2, "alias"),
        ("models:\n- metadata: {a: !!python/object:os.system x}\n", 2, "constructor"),
        ("models:\n  - name: 'a", 2, "end of stream"),
        ("a\0b", 1, "characters"),
        ("[" * 100, 1, "nesting"),
        ("models: [" + "1, " * 3000 + "]", 1, "values"),
        ("a" * (MAX_BYTES + 1), 1, "bytes"),
    ],
)
def test_problems_have_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as problem:
        parse_definition(text)
    assert problem.value.details["line"] == line, problem.value
    assert f"line {line}" in problem.value.message


def test_definition_completes_settings() -> None:
    settings = resolve_settings({"model_folder": "f"}, parse_definition(FULL))
    assert (settings.command.splitlines()[-1], settings.port, settings.model_variable) == (
        "python3 server.py --port 8000",
        8000,
        "/home/work/model/tiny",
    )
    assert settings.health.start_seconds == 120
    given = resolve_settings(
        {"port": 9000, "health": {"path": "/x"}, "rollout": {"strategy": "canary"}},
        parse_definition(FULL),
    )
    assert (given.port, given.health.path, given.health.interval_seconds) == (9000, "/x", 5)
    assert given.rollout == RolloutRules(Strategy.CANARY)
    assert RevisionSettings.from_json(given.as_json()) == given


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"custom", "cmd"}))
def test_variants_need_no_command(name: str) -> None:
    settings = resolve_settings({"variant": name})
    assert "BAI_SERVICE_PORT" in settings.command
    assert settings.health.path.startswith("/")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"variant": "x"}, "variant"),
        ({"variant": "cmd"}, "command"),
        ({"variant": "cmd", "command": "a\0"}, "command"),
        ({"variant": "cmd", "command": "a" * 20000}, "command"),
        ({"variant": "cmd", "command": "a", "port": 2001}, "port"),
        ({"variant": "cmd", "command": "a", "port": 8888}, "port"),
        ({"variant": "cmd", "command": "a", "health": {"path": "x"}}, "health"),
        ({"variant": "cmd", "command": "a", "model_path": "../x"}, "model_path"),
        ({"variant": "cmd", "command": "a", "request": {"type": "batch"}}, "type"),
        ({"variant": "cmd", "command": "a", "rollout": {"strategy": "x"}}, "strategy"),
        (
            {"variant": "cmd", "command": "a", "rollout": {"max_surge": 0}},
            "max_surge",
        ),
    ],
)
def test_invalid_settings_are_rejected_with_their_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as problem:
        resolve_settings(given)
    assert problem.value.details["field"] == field


def test_only_custom_uses_a_definition() -> None:
    with pytest.raises(InvalidRequest, match="custom"):
        resolve_settings({"variant": "vllm"}, ModelDefinition())


@pytest.mark.parametrize(
    ("path", "result"),
    [("", ""), ("/models", ""), ("/models/a/b", "a/b"), ("a//b/./c", "a/b/c"), ("/a", "a")],
)
def test_path_is_relative_to_the_model_folder(path: str, result: str) -> None:
    assert relative_path(path) == result


@pytest.mark.parametrize("name", ["ab", "llama-3", "a" * 48])
def test_valid_name_of_an_endpoint_is_unchanged(name: str) -> None:
    assert check_endpoint_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a", "A1", "1a", "a-", "-a", "a--b", "a.b", "a_b", "a/b", "a" * 49, "ab\n"]
)
def test_invalid_name_of_an_endpoint_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_endpoint_name(name)


def test_address_is_the_own_host_name_if_there_is_a_domain() -> None:
    assert (
        EndpointAddresses("/hub/services/bai-serve").of("chat") == "/hub/services/bai-serve/chat/"
    )
    own = EndpointAddresses("/services/bai-serve", "serve.example.org", "http")
    assert own.of("chat") == "http://chat.serve.example.org/"


def definition_of(service: str) -> ModelDefinition:
    return parse_definition(f"models:\n- name: a\n  service: {{command: x, {service}}}\n")


@pytest.mark.parametrize(
    ("given", "service", "protocol", "path"),
    [
        ({}, "port: 8000", Protocol.HTTP, "/health"),
        ({}, "protocol: grpc", Protocol.GRPC, "/"),
        ({}, "protocol: grpc, health_check: {enable: true}", Protocol.GRPC, "/"),
        ({}, "protocol: grpc, health_check: {enable: true, path: /a.B}", Protocol.GRPC, "/a.B"),
        ({"protocol": "grpc"}, "port: 8000", Protocol.GRPC, "/"),
        ({"protocol": "http"}, "protocol: grpc", Protocol.HTTP, "/health"),
    ],
)
def test_protocol_is_given_or_that_of_the_definition(
    given: dict[str, Any], service: str, protocol: Protocol, path: str
) -> None:
    settings = resolve_settings(given, definition_of(service))
    assert (settings.protocol, settings.health.path) == (protocol, path)
    assert RevisionSettings.from_json(settings.as_json()) == settings


def test_unknown_protocol_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="protocol must be http or grpc"):
        definition_of("protocol: tcp")
    with pytest.raises(InvalidRequest, match="not a protocol"):
        resolve_settings({"variant": "cmd", "command": "x", "protocol": "tcp"})


def test_revision_without_a_protocol_serves_http() -> None:
    values = resolve_settings({"variant": "cmd", "command": "x"}).as_json()
    del values["protocol"]
    assert RevisionSettings.from_json(values).protocol is Protocol.HTTP
