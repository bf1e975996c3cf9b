"""Sub-pipelines: the tasks of a run, their names, parameters and states."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.definition import PipelineDefinition, RunIf, Task, TaskKind
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.requests import RunContext, secrets_of, session_request
from bai_services.core.pipelines.states import (
    Plan,
    RunStatus,
    TaskRun,
    TaskStatus,
    resumed,
)
from bai_services.core.pipelines.subpipelines import (
    SubPipeline,
    expanded,
    names_of,
    nested,
    shown_needs,
)
from bai_services.core.pipelines.writing import write_pipeline

from .test_states import Case, Simulation, cases, oracle

S = TaskStatus
CHILD = """\
version: 1
name: fit
parameters:
- {name: rates, type: list, default: [a]}
- {name: level, type: integer}
defaults: {image: torch, environ: {A: child, B: child}, secrets: [TOKEN]}
tasks:
- {name: train, command: train, for_each: {parameter: rates}}
- {name: pick, command: pick, needs: [train], environ: {B: task}}
"""
PARENT = """\
version: 1
name: all
parameters:
- {name: depth, type: integer, default: 7}
defaults: {image: python, environ: {A: parent, C: parent}, secrets: {KEY: OTHER}}
tasks:
- {name: prepare, command: make}
- {name: fit, kind: pipeline, pipeline: fit-model, needs: [prepare], parameters: {level: $depth,
   rates: [x, y]}}
- {name: report, command: report, needs: [fit]}
"""


def plan_of(parent: str = PARENT, child: str = CHILD) -> Plan:
    root = SubPipeline(
        parse_pipeline(parent), {"fit-model": SubPipeline(parse_pipeline(child), {})}
    )
    return Plan.of(expanded(root, {"depth": 7}), {"depth": 7})


def test_tasks_have_prefixes_and_the_parameters_of_their_pipeline() -> None:
    plan = plan_of()
    assert list(plan.tasks) == ["prepare", "fit/train", "fit/pick", "fit", "report"]
    assert [run.task for run in plan.first_runs()].count("fit/train") == 2
    context = RunContext("run1", "all", "p1", "v1")
    request = session_request(
        plan, TaskRun("fit/pick", attempt=1), context, {"TOKEN": "t-1", "OTHER": "o-1"}
    )
    environ = request["environ"]
    assert (environ["PARAM_LEVEL"], environ["PARAM_RATES"]) == ("7", '["x", "y"]')
    assert "PARAM_DEPTH" not in environ
    # Defaults are inherited and overridden: parent, child, task.
    assert (environ["A"], environ["B"], environ["C"]) == ("child", "task", "parent")
    assert request["image"] == "torch"
    assert environ["PIPELINE_DIRECTORY"] == "/pipeline/runs/run1/fit"
    assert environ["PIPELINE_RUN_DIRECTORY"] == "/pipeline/runs/run1"
    assert request["name"].startswith("all-fit-pick-")
    assert (environ["TOKEN"], environ["KEY"]) == ("t-1", "o-1")
    assert request["secret_environ"] == ["KEY", "TOKEN"]
    assert secrets_of(plan, TaskRun("prepare")) == ["OTHER"]
    assert shown_needs(plan.definition) == {
        "prepare": (),
        "fit/train": ("prepare",),
        "fit/pick": ["fit/train"],
        "fit": ["fit/pick"],
        "report": ("fit",),
    }


def test_expanded_definition_is_stored_and_read() -> None:
    stored = json.loads(json.dumps(plan_of().definition.as_json()))
    again = PipelineDefinition.from_json(stored)
    assert json.loads(json.dumps(again.as_json())) == stored
    assert again.tasks[1].entries[0].run_if is RunIf.SUCCESS


def test_definition_is_written_and_parsed() -> None:
    definition = parse_pipeline(PARENT)
    assert names_of(definition) == ["fit-model"]
    assert parse_pipeline(write_pipeline(definition)) == definition


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("level: $depth", "level: $no", "line 8: there is no parameter 'no'"),
        ("needs: [prepare], p", "outputs: [x], p", "line 8: task fit of kind pipeline has no"),
        ("needs: [prepare], p", "continue_on_failure: true, p", "cannot have continue_on_failure"),
        ("command: make", "parameters: {a: 1}, command: make", "line 7: task prepare of kind comm"),
        ("pipeline: fit-model,", "", "line 8: task fit of kind pipeline needs pipeline"),
        ("{KEY: OTHER}", "{KEY: BAI_X}", "line 5: "),
    ],
)
def test_problem_of_the_containing_task_has_a_line(old: str, new: str, problem: str) -> None:
    text = PARENT.replace(old, new)
    assert text != PARENT
    with pytest.raises(InvalidRequest) as caught:
        parse_pipeline(text)
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [("{}", "the parameter level needs a value"), ("{level: 1, x: 2}", "no parameter 'x'")],
)
def test_parameters_of_a_sub_pipeline_are_checked(parameters: str, problem: str) -> None:
    text = PARENT.replace(
        "parameters: {level: $depth,\n   rates: [x, y]}", f"parameters: {parameters}"
    )
    with pytest.raises(InvalidRequest, match=f"task fit: .*{problem}"):
        plan_of(text)


def test_names_and_number_of_tasks_are_limited() -> None:
    with pytest.raises(InvalidRequest, match="more than 64 characters"):
        plan_of(child=CHILD.replace("pick", "p" * 40).replace("train", "t" * 39)) and plan_of(
            PARENT.replace("fit,", f"{'f' * 40},").replace("[fit]", f"[{'f' * 40}]"),
            CHILD.replace("pick", "p" * 40),
        )
    many = "[" + ", ".join(str(number) for number in range(999)) + "]"
    with pytest.raises(InvalidRequest, match="at most 1000"):
        plan_of(PARENT.replace("[x, y]", many))


@given(cases(), st.integers(0, 2**32), st.booleans(), st.sampled_from(list(RunIf)))
@settings(max_examples=200, deadline=None)
def test_sub_pipeline_ends_like_the_same_pipeline_alone(
    case: Case, seed: int, succeeds: bool, run_if: RunIf
) -> None:
    outer = PipelineDefinition(
        "outer",
        tasks=[
            Task("before", command="x", continue_on_failure=False),
            Task("sub", kind=TaskKind.PIPELINE, pipeline="s", needs=["before"], run_if=run_if),
            Task("after", command="x", needs=["sub"]),
        ],
    )
    child = case.plan.definition
    child = PipelineDefinition(
        child.name, tasks=child.tasks, parameters=parse_pipeline(LEVEL).parameters
    )
    plan = Plan.of(expanded(SubPipeline(outer, {"s": SubPipeline(child, {})}), {}), {})
    results = {(f"sub/{name}", i, n): ok for (name, i, n), ok in case.results.items()}
    results["before", 0, 1] = succeeds
    cached = {(f"sub/{name}", i, n) for name, i, n in case.cached}
    simulation = Simulation(Case(plan, results, cached), seed)
    found = simulation.finish()
    runs = (
        succeeds
        if run_if in (RunIf.SUCCESS, RunIf.ANY_SUCCESS)
        else (run_if is RunIf.ALWAYS or not succeeds)
    )
    inner = {key: status for key, status in found.items() if key[0].startswith("sub/")}
    alone = oracle(case)
    assert inner.keys() == {(f"sub/{name}", index) for name, index in alone}
    if not runs:
        status = S.SKIPPED if run_if is RunIf.FAILURE else S.BLOCKED
        assert {found["sub", 0], found["after", 0], *inner.values()} == {status}
        return
    assert inner == {(f"sub/{name}", index): status for (name, index), status in alone.items()}
    tolerated = {task.name for task in child.tasks if task.continue_on_failure}
    is_failed = any(
        status is S.BLOCKED or (status is S.FAILED and name not in tolerated)
        for (name, _), status in alone.items()
    )
    assert (found["sub", 0] is S.BLOCKED) == is_failed
    assert (found["after", 0] is S.SUCCEEDED) == (found["sub", 0] is S.SUCCEEDED)
    if is_failed:
        repeated = resumed(plan, list(simulation.runs.values()), RunStatus.FAILED)
        assert {"sub", "after"} <= {run.task for run in repeated}


def test_tasks_are_shown_below_the_task_that_contains_them() -> None:
    tasks = ["prepare", "fit/train", "fit/eval/score", "fit/eval", "fit", "fit-2/a", "fit-2", "end"]
    shown = [(tasks[index], label, depth) for index, label, depth in nested(tasks)]
    assert shown == [
        ("prepare", "prepare", 0),
        ("fit", "fit", 0),
        ("fit/train", "train", 1),
        ("fit/eval", "eval", 1),
        ("fit/eval/score", "score", 2),
        ("fit-2", "fit-2", 0),
        ("fit-2/a", "a", 1),
        ("end", "end", 0),
    ]


LEVEL = """\
version: 1
name: level
parameters: [{name: level, type: integer, default: 1}]
tasks: [{name: a, command: x}]
"""
