"""Conversion of Elyra's pipelines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.definition import ParameterType, TaskKind
from bai_services.core.pipelines.elyra import convert_elyra
from bai_services.core.pipelines.parsing import parse_pipeline


def node(key: str, op: str, filename: str, *needs: str, **component: Any) -> dict[str, Any]:
    links = [
        {"id": f"{key}-{need}", "node_id_ref": need, "port_id_ref": "outPort"} for need in needs
    ]
    return {
        "id": key,
        "type": "execution_node",
        "op": op,
        "app_data": {
            "label": component.pop("label", ""),
            "component_parameters": {"filename": filename, **component},
            "ui_data": {"x_pos": 1, "y_pos": 2},
        },
        "inputs": [{"id": "inPort", "links": links}],
        "outputs": [{"id": "outPort"}],
    }


def document(*nodes: dict[str, Any], **properties: Any) -> str:
    primary = {
        "id": "primary",
        "nodes": list(nodes),
        "app_data": {"properties": {"name": "Analyze Data", **properties}, "version": 8},
    }
    pipeline = {"doc_type": "pipeline", "version": "3.0", "primary_pipeline": "primary"}
    return json.dumps({**pipeline, "pipelines": [primary]})


def test_nodes_become_tasks() -> None:
    text = document(
        node(
            "1", "execute-python-node", "src/load.py", label="Load", outputs=["data.csv"],
            dependencies=["helpers.py", "*.json"], runtime_image="python:3.12", cpu=2, memory=4,
            env_vars=[{"env_var": "URL", "value": "x y"}],
        ),
        node("2", "execute-notebook-node", "part 1.ipynb", "1", env_vars=["A=b=c"], gpu=1),
        node("3", "execute-notebook-node", "src/part.ipynb", "1", dependencies=["../a.csv"]),
        node("4", "execute-r-node", "report.r", "2", "3", label="Load"),
        pipeline_defaults={"runtime_image": "python", "env_vars": []},
        pipeline_parameters=[
            {"name": "rows", "default_value": {"type": "Integer", "value": 5}, "required": False}
        ],
    )  # fmt: skip
    pipeline = parse_pipeline(convert_elyra(text, "file"))
    assert (pipeline.name, pipeline.settings) == ("analyze-data", {"image": "python"})
    (rows,) = pipeline.parameters
    assert (rows.type, rows.default) == (ParameterType.INTEGER, 5)
    load, part_1, part, report = pipeline.tasks
    assert (load.name, load.outputs) == ("load", ("data.csv",))
    assert load.command == (
        "cp -r /pipeline/src/helpers.py .\ncp -r /pipeline/src/*.json .\n"
        "python /pipeline/src/load.py"
    )
    assert load.settings == {
        "image": "python:3.12",
        "resources": {"cpu": "2", "mem": "4g"},
        "environ": {"URL": "x y"},
    }
    assert (part_1.kind, part_1.notebook, part_1.needs) == (
        TaskKind.NOTEBOOK,
        "part 1.ipynb",
        ("load",),
    )
    assert part_1.settings["environ"] == {"A": "b=c"}
    assert part_1.settings["resources"] == {"cuda.device": "1"}
    assert (
        part.command == "cp -r /pipeline/a.csv .\npapermill /pipeline/src/part.ipynb ./part.ipynb"
    )
    assert (report.name, report.command) == ("load-2", "Rscript /pipeline/report.r")
    assert set(report.needs) == {part_1.name, part.name}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a pipeline of Elyra"),
        ("[" * 100_000, "not a pipeline of Elyra"),
        ("x" * 2**21, "more than"),
        (document(node("1", "my-component", "a.py")), "cannot be converted"),
        (document(node("1", "execute-python-node", "../a.py")), "must not contain '..'"),
        (document(node("1", "execute-python-node", "a.py", "other")), "not a pipeline of Elyra"),
        (document(node("1", "execute-python-node", "a.py", "1")), "form a cycle"),
        (document(), "at least one task"),
    ],
)
def test_files_that_are_no_elyra_pipelines_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        convert_elyra(text, "file")
