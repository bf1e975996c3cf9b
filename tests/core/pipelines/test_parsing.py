"""The YAML of pipelines: parsed definitions, and the line numbers of problems."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.definition import (
    MAX_TASKS,
    Operator,
    PipelineDefinition,
    RunIf,
    TaskKind,
)
from bai_services.core.pipelines.parameters import resolve
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.requests import RunContext, session_id_of, session_request
from bai_services.core.pipelines.schema import PIPELINE_SCHEMA
from bai_services.core.pipelines.states import Plan, TaskRun
from bai_services.core.sessions.batch import MAX_COMMAND_BYTES

FULL = """\
version: 1
name: train
description: Train and compare
folder: work
max_concurrent_runs: 2
max_parallel_tasks: 8
parameters:
- name: rates
  type: list
  default: [0.1, 0.2]
- {name: epochs, type: integer, default: 3, description: Passes}
- name: label
  default: "no 1"
defaults:
  image: python
  resources: {cpu: 1, mem: 1g}
  environ: {MODE: fast, LEVEL: "1"}
  mounts: [data:/home/work/data:ro, "shared"]
  resource_group: default
  preset: small
  shared_memory: 64m
  cluster_size: 1
  cluster_mode: single-node
  priority: 5
tasks:
- name: report
  kind: notebook
  notebook: ./report.ipynb
  needs: [train]
  run_if: always
- name: train
  description: One model for each rate
  command: |
    python train.py "$PIPELINE_ITEM"
  needs: [check]
  for_each: {parameter: rates, max_parallel: 1}
  inputs: [data.csv]
  outputs: [model.pkl]
  retries: 2
  retry_delay: 1min
  timeout: 2h
  continue_on_failure: true
  cache: {files: [train.py], parameters: [epochs]}
  environ: {MODE: slow}
  secrets: [TOKEN]
  resources: {mem: 2g}
  mounts: [data]
- name: check
  kind: condition
  condition: {parameter: epochs, operator: ">", value: 1}
  skip: true
- name: publish
  kind: pipeline
  pipeline: publish-model
  parameters: {rates: $rates, label: 5}
  needs: [report]
"""


def problem_of(text: str) -> tuple[int, str]:
    with pytest.raises(InvalidRequest) as raised:
        parse_pipeline(text)
    return raised.value.details["line"], raised.value.message


def test_definition_with_all_keys_is_parsed() -> None:
    pipeline = parse_pipeline(FULL)
    assert [task.name for task in pipeline.tasks] == ["check", "train", "report", "publish"]
    check, train, report, publish = pipeline.tasks
    assert check.condition is not None
    assert (check.kind, check.condition.operator, check.skip) == ("condition", Operator.MORE, True)
    assert (train.retries, train.retry_delay_seconds, train.timeout_seconds) == (2, 60, 7200)
    assert (report.kind, report.run_if, report.notebook) == (
        TaskKind.NOTEBOOK,
        RunIf.ALWAYS,
        "report.ipynb",
    )
    assert (publish.pipeline, publish.parameters) == (
        "publish-model",
        {"rates": "$rates", "label": 5},
    )
    assert train.settings["secrets"] == {"TOKEN": "TOKEN"}
    assert pipeline.settings["mounts"] == [
        {"vfolder": "data", "path": "/home/work/data", "permission": "ro"},
        {"vfolder": "shared"},
    ]
    stored = json.loads(json.dumps(pipeline.as_json()))
    assert json.loads(json.dumps(PipelineDefinition.from_json(stored).as_json())) == stored


def test_schema_has_the_keys_of_the_parser() -> None:
    validator = jsonschema_rs.validator_for(PIPELINE_SCHEMA)
    full = yaml.safe_load(FULL)
    validator.validate(full)
    assert full.keys() == PIPELINE_SCHEMA["properties"].keys()
    for key, keys in (
        ("tasks", {name for task in full["tasks"] for name in task} | full["defaults"].keys()),
        ("parameters", {name for parameter in full["parameters"] for name in parameter}),
    ):
        assert PIPELINE_SCHEMA["properties"][key]["items"]["properties"].keys() == keys
    assert not validator.is_valid({**full, "other": 1})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("version: 2\nname: a\ntasks: []", 1, "version must be 1"),
        ("version: 1\nname: A b\ntasks: []", 2, "cannot be the name of a pipeline"),
        ("version: 1\nname: a\ntasks: []", 3, "at least one task"),
        ("version: 1\nname: a\ntask: []", 3, "has no key 'task'"),
        ("version: 1\nname: a\ntasks:\n- name: b", 4, "needs command"),
        ("version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  kind: approval", 5, "cannot"),
        ("version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  needs: [c]", 4, "is not a task"),
        (
            "version: 1\nname: a\ntasks:\n- {name: b, command: x, needs: [c]}\n"
            "- {name: c, command: x, needs: [b]}",
            4,
            "form a cycle",
        ),
        ("version: 1\nname: a\ntasks:\n- {name: b, command: x}\n- {name: b, command: x}", 5, "two"),
        ("version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  retries: 21", 6, "retries"),
        ("version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  outputs: [../x]", 6, "'..'"),
        ("version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  kind: magic", 6, "one of"),
        ("version: 1\nname: a\ntasks:\n- {name: b, command: x, cache: true}", 4, "needs outputs"),
        (
            "version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  outputs: [y]\n"
            "  cache: {parameters: [c]}",
            7,
            "no parameter 'c'",
        ),
        (
            "version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  outputs: [y]\n"
            "  cache: {files: [/etc]}",
            7,
            "relative",
        ),
        (
            "version: 1\nname: a\ntasks:\n- name: b\n  command: x\n  for_each: {parameter: p}",
            6,
            "no parameter",
        ),
        ("version: 1\nname: a\ndefaults:\n  environ: {BAI_X: 1}\ntasks: []", 4, "reserved"),
        (
            "version: 1\nname: a\nparameters:\n- name: p\n  type: integer\n  default: x\ntasks: []",
            6,
            "type integer",
        ),
    ],
)
def test_problems_have_their_line(text: str, line: int, message: str) -> None:
    found = problem_of(text)
    assert found[0] == line, found
    assert message in found[1]


def test_number_of_task_runs_is_bounded() -> None:
    tasks = "\n".join(f"- {{name: t{n}, command: x}}" for n in range(MAX_TASKS + 1))
    assert "at most 1000" in problem_of(f"version: 1\nname: a\ntasks:\n{tasks}")[1]
    definition = parse_pipeline(
        "version: 1\nname: a\nparameters: [{name: p, type: list}]\n"
        "tasks:\n- {name: b, command: x, for_each: {parameter: p}}\n- {name: c, command: x}"
    )
    assert len(Plan.of(definition, resolve(definition, {"p": ["x"] * 999})).first_runs()) == 1000
    with pytest.raises(InvalidRequest, match="1001 tasks"):
        resolve(definition, {"p": ["x"] * 1000})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": 1}, "no parameter 'rate'"),
        ({"epochs": "many"}, "must be of the type integer"),
        ({"epochs": True}, "must be of the type integer"),
        ({"epochs": float("nan")}, "must be of the type integer"),
        ({"label": "\0"}, "must be of the type text"),
        ({"rates": {"a": 1}}, "must be of the type list"),
    ],
)
def test_parameters_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        resolve(parse_pipeline(FULL), given)


@pytest.mark.checklist("TSK-06")
def test_session_request_merges_defaults_and_has_parameters_as_variables() -> None:
    definition = parse_pipeline(FULL)
    plan = Plan.of(definition, resolve(definition, {"epochs": "7", "label": "a'b"}))
    run = TaskRun("train", 1, attempt=1)
    context = RunContext("run-1", "train", "project-1", "folder-1")
    request = session_request(plan, run, context, {"TOKEN": "t-1"})
    assert (request["environ"]["TOKEN"], request["secret_environ"]) == ("t-1", ["TOKEN"])
    assert request["resources"] == {"cpu": "1", "mem": "2g"}
    environ = request["environ"]
    assert (environ["MODE"], environ["LEVEL"], environ["PARAM_EPOCHS"]) == ("slow", "1", "7")
    assert (environ["PIPELINE_ITEM"], environ["PARAM_RATES"]) == ("0.2", "[0.1, 0.2]")
    assert environ["PARAM_LABEL"] == "a'b"
    assert "a'b" not in request["startup_command"]
    assert [mount["vfolder"] for mount in request["mounts"]] == ["folder-1", "data", "shared"]
    assert request["batch_timeout"] == 7200
    assert len(request["startup_command"].encode()) <= MAX_COMMAND_BYTES
    assert request["name"].startswith("train-train-")
    other = TaskRun("train", 1, attempt=2)
    assert session_id_of("run-1", run) == session_id_of("run-1", run) != session_id_of("x", other)


def test_notebook_runs_with_papermill() -> None:
    definition = parse_pipeline(FULL)
    plan = Plan.of(definition, resolve(definition, {"label": "it's; rm -rf /"}))
    context = RunContext("run-1", "train", "project-1", "folder-1")
    command = session_request(plan, TaskRun("report", attempt=1), context, {})["startup_command"]
    assert "/pipeline/report.ipynb ./report.ipynb" in command
    assert """it'"'"'s; rm""" in command


def test_repeated_need_counts_once() -> None:
    """10,000 needs of one task with 1,000 task runs would block the event loop."""
    needs = "needs: [" + "a, " * 900 + "a]"
    tasks = f"tasks:\n- {{name: a, command: x}}\n- {{name: b, command: x, {needs}}}\n"
    assert parse_pipeline("version: 1\nname: x\n" + tasks).tasks[1].needs == ("a",)


def test_parameters_are_not_larger_than_an_environment() -> None:
    """The size is limited because lists of pipelines and of runs contain the parameters."""
    large = ["x" * 4000] * 20
    names = ("a", "b")
    declared = "".join(f"- {{name: {name}, type: list}}\n" for name in names)
    tasks = "tasks:\n- {name: t, command: x}\n"
    definition = parse_pipeline(f"version: 1\nname: x\nparameters:\n{declared}{tasks}")
    resolve(definition, {"a": large, "b": []})
    with pytest.raises(InvalidRequest, match="at most 131072"):
        resolve(definition, dict.fromkeys(names, large))
    defaults = "".join(f"- {{name: {name}, default: [{', '.join(large)}]}}\n" for name in names)
    defaults = defaults.replace(", default", ", type: list, default")
    with pytest.raises(InvalidRequest, match="line 3: the parameters have") as caught:
        parse_pipeline(f"version: 1\nname: x\nparameters:\n{defaults}{tasks}")
    assert caught.value.details["line"] == 3


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan")])
@pytest.mark.parametrize("kind", ["integer", "number", "text", "list"])
def test_numbers_that_are_too_large_are_refused(kind: str, value: float) -> None:
    parameters = f"parameters:\n- {{name: a, type: {kind}}}\n"
    text = f"version: 1\nname: x\n{parameters}tasks:\n- {{name: t, command: x}}\n"
    given = [value] if kind == "list" else value
    with pytest.raises(InvalidRequest, match="must be"):
        resolve(parse_pipeline(text), {"a": given})
