"""YAML of definitions: parsing it returns the same definition."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.pipelines.definition import (
    Cache,
    Condition,
    ForEach,
    Operator,
    Parameter,
    ParameterType,
    PipelineDefinition,
    RunIf,
    Task,
    TaskKind,
)
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.writing import write_pipeline
from tests.core.pipelines.test_parsing import FULL

# Texts that YAML reads as other types, and texts with quotes and several lines.
TEXTS = st.one_of(
    st.sampled_from(
        ["1", "yes", "null", "2026-01-31", "1e3", "~", "a: b", "- a", "# a", "é\n b\n"]
    ),
    st.text("ab '\"\\\n:#-{}[]é", min_size=1, max_size=20).filter(str.strip),
)
NAMES = st.text("abz09", min_size=1, max_size=8)
PATHS = st.text("ab .-*'\"é", min_size=1, max_size=10).filter(
    lambda path: path not in (".", "..") and path.strip() == path
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "image": NAMES,
        "resources": st.dictionaries(st.sampled_from(["cpu", "mem"]), NAMES, min_size=1),
        "environ": st.dictionaries(st.sampled_from(["A", "B"]), TEXTS, min_size=1),
        "mounts": st.just(
            [{"vfolder": "a", "path": "/home/work/a", "permission": "ro"}, {"vfolder": "b"}]
        ),
        "secrets": st.dictionaries(st.sampled_from(["C", "D"]), st.just("TOKEN"), min_size=1),
        "cluster_size": st.integers(1, 9),
        "priority": st.integers(0, 9),
    },
)
PARAMETERS = (
    Parameter("count", ParameterType.INTEGER, 3, "Number"),
    Parameter("names", ParameterType.LIST, ("a", 1, True)),
    Parameter("text"),
    Parameter("rate", ParameterType.NUMBER, 0.5),
)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[Task, ...]:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    made: list[Task] = []
    for name in names:
        needs = draw(st.lists(st.sampled_from(names), unique=True))
        common = {
            "needs": tuple(each for each in needs if names.index(each) < names.index(name)),
            "description": draw(st.one_of(st.just(""), TEXTS)),
            "run_if": draw(st.sampled_from(RunIf)),
            "skip": draw(st.booleans()),
        }
        kind = draw(st.sampled_from(TaskKind))
        if kind in (TaskKind.COMMAND, TaskKind.NOTEBOOK):
            is_command = kind is TaskKind.COMMAND
            outputs = draw(st.lists(PATHS, max_size=3))
            caches = [None, Cache(), Cache(("a b",)), Cache((), ()), Cache((), ("count",))]
            common |= {
                "command": draw(TEXTS) if is_command else "",
                "notebook": "" if is_command else draw(PATHS),
                "settings": draw(SETTINGS),
                "outputs": tuple(outputs),
                "inputs": tuple(draw(st.lists(PATHS, max_size=3))),
                "retries": draw(st.integers(0, 3)),
                "retry_delay_seconds": draw(st.integers(0, 99)),
                "timeout_seconds": draw(st.one_of(st.none(), st.integers(1, 99))),
                "continue_on_failure": draw(st.booleans()),
                "cache": draw(st.sampled_from(caches)) if outputs else None,
                "for_each": draw(
                    st.sampled_from(
                        [None, ForEach("names"), ForEach(values=("a", "1"), max_parallel=2)]
                    )
                ),
            }
        elif kind is TaskKind.CONDITION:
            common["condition"] = Condition("count", draw(st.sampled_from(list(Operator)[:6])), 2)
        elif kind is TaskKind.PIPELINE:
            common["pipeline"] = draw(NAMES)
            given = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["$count", 1]))
            common["parameters"] = draw(st.one_of(st.none(), given))
        made.append(Task(name, kind, **common))  # type: ignore[arg-type]
    return tuple(made)


@given(tasks(), SETTINGS, TEXTS, st.integers(1, 100))
def test_parsing_returns_the_definition(
    made: tuple[Task, ...], settings: dict[str, object], text: str, runs: int
) -> None:
    definition = PipelineDefinition(
        "p",
        description=text,
        parameters=PARAMETERS,
        settings=settings,
        folder="f",
        max_concurrent_runs=runs,
        tasks=made,
    )
    parsed = parse_pipeline(write_pipeline(definition))
    # Sort the tasks by name, because the parsed tasks may have another topological order.
    in_order = {task.name: task for task in parsed.tasks}
    expected = json.loads(json.dumps(definition.as_json()))
    actual = json.loads(json.dumps(parsed.as_json()))
    actual["tasks"] = [
        json.loads(json.dumps(parsed.as_json()["tasks"][list(in_order).index(task.name)]))
        for task in made
    ]
    assert actual == expected


def test_full_definition_remains_the_same() -> None:
    definition = parse_pipeline(FULL)
    assert parse_pipeline(write_pipeline(definition)) == definition


def test_yaml_is_short_and_commands_are_blocks() -> None:
    task = Task("a", command="python a.py\npython b.py\n", outputs=("x",), cache=Cache())
    definition = PipelineDefinition("p", settings={"mounts": [{"vfolder": "a"}]}, tasks=(task,))
    assert write_pipeline(definition) == (
        "version: 1\nname: p\ndefaults:\n  mounts:\n  - a\ntasks:\n- name: a\n  command: |\n"
        "    python a.py\n    python b.py\n  outputs:\n  - x\n  cache: true\n"
    )
