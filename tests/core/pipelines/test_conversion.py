"""Conversions from and to the formats of FastTrack and Elyra."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.conversion import Format, convert, format_of
from bai_services.core.pipelines.definition import (
    Parameter,
    ParameterType,
    PipelineDefinition,
    Task,
    TaskKind,
)
from bai_services.core.pipelines.elyra import write_elyra
from bai_services.core.pipelines.fasttrack import convert_fasttrack, write_fasttrack
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.settings import merged
from bai_services.core.pipelines.writing import write_pipeline

FASTTRACK = """\
version: 26.4.4rc6
name: Docs RAG
description: Index documents
ownership: {domain: default, scope: user}
environment:
  envs:
    KEY: "${{ secrets.OPENAI_KEY }}"
    EMPTY: ""
    ROOT: /pipeline/vfroot
params: []
tasks:
  - name: fetch code
    description: Clone
    type: custom
    dependencies: []
    skip: false
    continue_on_failure: false
    cluster_mode: single-node
    cluster_size: 1
    module_uri: ''
    environment:
      project: default
      scaling-group: gpu
      image: cr.example.org/python:3.10
      envs: {A: "1"}
    resources: {cpu: 2, mem: 4g, cuda.shares: 0.5}
    resource_opts: {shmem: 256m}
    mounts: [models, "data:/data"]
    command: |-
      set -eu
      git clone x
  - name: tune
    dependencies: [fetch code]
    skip: true
    continue_on_failure: true
    cluster_mode: multi-node
    cluster_size: 3
    retry: {max_attempts: 2, delay: 30}
    command: mpirun x
"""


@pytest.mark.checklist("TSK-03")
def test_tasks_of_fasttrack_are_converted() -> None:
    pipeline = parse_pipeline(convert_fasttrack(FASTTRACK, "file"))
    assert (pipeline.name, pipeline.description) == ("docs-rag", "Index documents")
    assert pipeline.settings == {
        "environ": {"ROOT": "/pipeline/vfroot"},
        "secrets": {"KEY": "OPENAI_KEY"},
    }
    fetch, tune = pipeline.tasks
    assert (fetch.name, fetch.command) == ("fetch-code", "set -eu\ngit clone x")
    assert fetch.settings == {
        "image": "cr.example.org/python:3.10",
        "resource_group": "gpu",
        "environ": {"A": "1"},
        "resources": {"cpu": "2", "mem": "4g", "cuda.shares": "0.5"},
        "shared_memory": "256m",
        "mounts": [{"vfolder": "models"}, {"vfolder": "data", "path": "/data"}],
    }
    assert (tune.needs, tune.skip, tune.continue_on_failure) == (("fetch-code",), True, True)
    assert (tune.retries, tune.retry_delay_seconds) == (1, 30)
    assert tune.settings == {"cluster_size": 3, "cluster_mode": "multi-node"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("type: custom", "type: deployment"), "line 14: task fetch code is of type deployment"),
        (("params: []", "params: [{name: a}]"), "line 10: params cannot be converted"),
        (("module_uri: ''", "module_uri: git"), "has a module"),
        (("[fetch code]", "[other]"), "needs 'other', which is not a task"),
        (("multi-node", "star"), "cluster_mode 'star'"),
        (("name: tune", "name: tune\n    name: x"), "twice"),
        (("tasks:", "jobs:"), "tasks must be a list"),
        (("name: Docs RAG", "name: [a]"), "name must be a string"),
    ],
)
def test_unsupported_features_of_fasttrack_are_refused(
    change: tuple[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message.replace("[", r"\[")):
        convert_fasttrack(FASTTRACK.replace(*change), "file")


names = st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,5})?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)
environs = st.dictionaries(
    st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True),
    texts.filter(lambda text: not text.startswith("${{")),
    max_size=3,
)


@st.composite
def definitions(draw: st.DrawFn, commands: Sequence[Task], options: Mapping[str, Any]) -> Any:
    """Return a random graph of tasks; ``options`` are strategies of their settings."""
    tasks: list[Task] = []
    for name in draw(st.lists(names, unique=True, min_size=1, max_size=5)):
        before = [task.name for task in tasks]
        needs = draw(st.lists(st.sampled_from(before), unique=True)) if before else []
        chosen = draw(st.fixed_dictionaries({}, optional=options))
        base = commands[draw(st.integers(0, len(commands) - 1))]
        tasks.append(replace(base, name=name, needs=needs, settings=chosen))
    shared = draw(st.fixed_dictionaries({}, optional=options))
    return PipelineDefinition(draw(names), draw(texts), settings=shared, tasks=tasks)


def contents(pipeline: PipelineDefinition) -> list[tuple[Any, ...]]:
    """Return what a conversion must keep: the settings of each task include the defaults."""
    return [
        (
            task.name, task.kind, task.command, task.notebook, tuple(task.needs),
            tuple(task.outputs), task.skip, task.retries, task.retry_delay_seconds,
            merged(pipeline.settings, task.settings),
        )
        for task in pipeline.tasks
    ]  # fmt: skip


FASTTRACK_TASKS = [
    Task("a", command="true"),
    Task("a", command="line 1\nline: 2", skip=True, continue_on_failure=True),
    Task("a", command="x", retries=2, retry_delay_seconds=7),
]
FASTTRACK_OPTIONS = {
    "image": st.just("python:3.12"),
    "resource_group": names,
    "environ": environs.filter(bool),
    "secrets": st.just({"TOKEN": "HUB_TOKEN"}),
    "resources": st.just({"cpu": "2", "mem": "512m"}),
    "shared_memory": st.just("64m"),
    "mounts": st.just([{"vfolder": "data", "path": "/data"}, {"vfolder": "models"}]),
}


@given(definitions(FASTTRACK_TASKS, FASTTRACK_OPTIONS))
@settings(deadline=None, max_examples=50)
def test_export_to_fasttrack_can_be_imported(pipeline: PipelineDefinition) -> None:
    expected = parse_pipeline(write_pipeline(pipeline))
    text = write_fasttrack(expected)
    assert format_of(text) is Format.FASTTRACK
    found = parse_pipeline(convert_fasttrack(text, "file"))
    assert (found.name, found.description) == (expected.name, expected.description)
    assert contents(found) == contents(expected)


ELYRA_TASKS = [
    Task("a", command="python '/pipeline/src/my file.py'", outputs=["out.csv"]),
    Task("a", command="cp -r /pipeline/lib .\ncp -r /pipeline/a/*.csv .\nRscript /pipeline/a/x.r"),
    Task("a", kind=TaskKind.NOTEBOOK, notebook="nb/a.ipynb"),
]
ELYRA_OPTIONS = {
    "image": st.just("python:3.12"),
    "environ": environs.filter(bool),
    "resources": st.sampled_from([{"cpu": "2", "mem": "3g"}, {"cpu": "0.5", "cuda.device": "1"}]),
}
ELYRA_PARAMETERS = (
    Parameter("rows", ParameterType.INTEGER, 5, "Number of rows"),
    Parameter("needed"),
)


@given(definitions(ELYRA_TASKS, ELYRA_OPTIONS))
@settings(deadline=None, max_examples=50)
def test_export_to_elyra_can_be_imported(pipeline: PipelineDefinition) -> None:
    given_parameters = replace(pipeline, parameters=ELYRA_PARAMETERS)
    expected = parse_pipeline(write_pipeline(given_parameters))
    text = write_elyra(expected)
    assert format_of(text) is Format.ELYRA
    found = parse_pipeline(convert(text, "file", Format.BAI))
    assert (found.name, found.parameters) == (expected.name, expected.parameters)
    assert contents(found) == contents(expected)


def test_elyra_nodes_have_the_keys_of_its_schema() -> None:
    task = Task("fit", command="python /pipeline/fit.py", settings={"resources": {"mem": "1.5g"}})
    document = json.loads(write_elyra(PipelineDefinition("p", tasks=[task])))
    assert document["primary_pipeline"] == document["pipelines"][0]["id"]
    (node,) = document["pipelines"][0]["nodes"]
    assert (node["type"], node["op"]) == ("execution_node", "execute-python-node")
    component = node["app_data"]["component_parameters"]
    # Elyra stores memory as a whole number of gigabytes, so the value is rounded up.
    assert (component["filename"], component["memory"]) == ("fit.py", 2)


@pytest.mark.parametrize(
    ("task", "target", "message"),
    [
        ("command: echo", Format.ELYRA, "Elyra has no command such as that of task a"),
        ("command: python /pipeline/a.py x", Format.ELYRA, "Elyra has no command"),
        ("command: python /tmp/a.py", Format.ELYRA, "Elyra has no command"),
        ("command: python '", Format.ELYRA, "Elyra has no command"),
        ("command: x, retries: 1", Format.ELYRA, "Elyra has no retries, which task a has"),
        ("command: x, for_each: {values: [a]}", Format.FASTTRACK, "FastTrack has no for_each"),
        ("command: x, timeout: 5", Format.FASTTRACK, "FastTrack has no timeout"),
        ("kind: approval", Format.FASTTRACK, "FastTrack has no kind approval"),
        ("command: x, preset: small", Format.FASTTRACK, "FastTrack has no preset"),
    ],
)
def test_features_without_a_counterpart_are_refused(
    task: str, target: Format, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        convert(f"version: 1\nname: p\ntasks: [{{name: a, {task}}}]\n", "file", target)


def test_pipeline_of_the_same_format_is_validated_and_unchanged() -> None:
    text = "# A comment.\nversion: 1\nname: p\ntasks: [{name: a, command: x}]\n"
    assert convert(text, "file", Format.BAI) == text
    assert convert(FASTTRACK, "file", Format.FASTTRACK) == FASTTRACK
    with pytest.raises(InvalidRequest, match="needs command"):
        convert(text.replace(", command: x", ""), "file", Format.BAI)
