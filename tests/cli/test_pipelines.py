"""`bai pipeline`."""

from __future__ import annotations

import json
from pathlib import Path

import sqlalchemy as sa

from bai_services.db.tables.pipelines import pipeline_tasks
from tests.testbed.manager import Api

from .conftest import Bai

DEFINITION = """\
version: 1
name: asks
parameters: [{name: epochs, type: integer, default: 1}]
tasks:
- {name: check, kind: approval}
- {name: done, kind: approval, needs: [check]}
"""


async def test_pipeline_is_created_run_and_cancelled(bai: Bai, api: Api, tmp_path: Path) -> None:
    await api.world.manager.folders.start()
    file = tmp_path / "asks.yaml"
    file.write_text("version: 1\nname: asks\ntasks:\n- {name: check}\n")
    wrong = await bai("pipeline", "validate", file, by="user")
    assert "line 4: task check of kind command needs command" in wrong.stderr
    file.write_text(DEFINITION)
    valid = await bai("pipeline", "validate", file, by="user")
    assert "asks.yaml is valid: 2 tasks" in valid.stdout + valid.stderr
    made = await bai("pipeline", "create", file, "--json", by="user")
    assert (made.document["version"], made.document["tasks"]) == (1, 2)
    changed = await bai("pipeline", "create", file, "--replace", "--json", by="user")
    assert (changed.document["id"], changed.document["version"]) == (made.document["id"], 2)
    assert "asks" in (await bai("pipeline", "list", by="user")).stdout
    assert "epochs (integer)" in (await bai("pipeline", "info", "asks", by="user")).stdout
    assert (await bai("pipeline", "export", "asks", by="user")).stdout.strip() == DEFINITION.strip()
    wrong = await bai("pipeline", "run", "asks", "-p", "epochs=many", by="user")
    assert "must be of the type integer" in wrong.stderr
    run = await bai("pipeline", "run", "asks", "-p", "epochs=2", "--json", by="user")
    key = run.document["id"]
    assert run.document["parameters"] == {"epochs": 2}
    assert "0/2 tasks" in (await bai("pipeline", "runs", "asks", by="user")).stdout
    wrong = await bai("pipeline", "logs", key, "check", by="user")
    assert "has no session yet" in wrong.stderr
    wrong = await bai("pipeline", "approve", key, "done", by="user")
    assert "does not wait for an approval" in wrong.stderr
    wrong = await bai("pipeline", "resume", key, by="user")
    assert "only failed and cancelled runs" in wrong.stderr
    copy = await bai("pipeline", "export", key, "--run", "--json", by="user")
    assert copy.document == {"definition": DEFINITION}
    assert "no outputs" in (await bai("pipeline", "artifacts", key, by="user")).stderr
    compared = await bai("pipeline", "compare", key, "--json", by="user")
    (row,) = json.loads(compared.stdout)
    assert (row["id"], row["parameters"], row["metrics"]) == (key, {"epochs": 2}, {})
    assert "EPOCHS" in (await bai("pipeline", "compare", key, by="user")).stdout
    assert (await bai("pipeline", "cancel", key, by="user")).code == 0
    watched = await bai("pipeline", "watch", key, "--json", by="user")
    assert "the run is cancelled" in watched.stderr
    assert (await bai("pipeline", "delete", "asks", by="user")).code == 0
    schema = await bai("pipeline", "schema", by="user")
    assert schema.document["title"] == "Pipeline"


async def test_pipeline_of_elyra_is_converted(bai: Bai, api: Api, tmp_path: Path) -> None:
    await api.world.manager.folders.start()
    script = {"id": "a", "op": "execute-python-node", "app_data": {"filename": "fit.py"}}
    elyra = {"primary_pipeline": "p", "pipelines": [{"id": "p", "nodes": [script]}]}
    file = tmp_path / "Fit models.pipeline"
    file.write_text(json.dumps(elyra))
    converted = await bai("pipeline", "convert", file)
    assert "command: python /pipeline/fit.py" in converted.stdout
    result = tmp_path / "fit.yaml"
    result.write_text(converted.stdout)
    made = await bai("pipeline", "create", result, "--json", by="user")
    assert (made.document["name"], made.document["tasks"]) == ("fit-models", 1)
    back = await bai("pipeline", "export", "fit-models", "--format", "elyra", by="user")
    assert json.loads(back.stdout)["pipelines"][0]["nodes"][0]["op"] == "execute-python-node"
    file.write_text("name: Two\ntasks: [{name: a, command: x}, {name: b, command: y}]\n")
    imported = await bai("pipeline", "import", file, "--json", by="user")
    assert (imported.document["name"], imported.document["tasks"]) == ("two", 2)
    track = await bai("pipeline", "convert", result, "--to", "fasttrack")
    assert "type: custom" in track.stdout
    file.write_text("{}")
    assert "not a pipeline of Elyra" in (await bai("pipeline", "convert", file)).stderr


async def test_schedule_of_a_pipeline_is_created_changed_and_deleted(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    await api.world.manager.folders.start()
    file = tmp_path / "asks.yaml"
    file.write_text(DEFINITION)
    assert (await bai("pipeline", "create", file, by="user")).code == 0
    command = ("pipeline", "schedule")
    made = await bai(
        *command, "create", "asks", "often", "--every", "60", "-p", "epochs=3", "--json", by="user"
    )
    assert (made.document["every_minutes"], made.document["parameters"]) == (60, {"epochs": "3"})
    wrong = await bai(*command, "set", "asks", "seldom", "--every", "90", by="user")
    assert "has no schedule seldom" in wrong.stderr
    rule = await bai(
        *command, "set", "asks", "often", "--start", "daily 02:00", "--json", by="user"
    )
    assert (rule.document["start"], rule.document["every_minutes"]) == ("daily 02:00", None)
    paused = await bai(*command, "pause", "asks", "often", "--json", by="user")
    assert (paused.document["is_paused"], paused.document["next_starts"]) == (True, [])
    resumed = await bai(*command, "resume", "asks", "often", by="user")
    assert "next start: 20" in resumed.stdout + resumed.stderr
    assert "daily 02:00" in (await bai(*command, "list", by="user")).stdout
    assert (await bai(*command, "delete", "asks", "often", by="user")).code == 0
    assert "no schedules" in (await bai(*command, "list", by="user")).stderr


async def test_trigger_of_a_pipeline_is_created_changed_and_deleted(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    await api.world.manager.folders.start()
    file = tmp_path / "asks.yaml"
    file.write_text(DEFINITION)
    assert (await bai("pipeline", "create", file, by="user")).code == 0
    command = ("pipeline", "trigger")
    made = await bai(*command, "create", "asks", "push", "--json", by="user")
    renewed = await bai(*command, "renew-secret", "asks", "push", "--json", by="user")
    assert renewed.document["secret"] != made.document["secret"]
    disabled = await bai(*command, "disable", "asks", "push", "--json", by="user")
    assert disabled.document["is_enabled"] is False
    enabled = await bai(*command, "enable", "asks", "push", "--json", by="user")
    assert enabled.document["is_enabled"] is True
    assert "push" in (await bai(*command, "list", by="user")).stdout
    await (await api.client("user")).post("/vfolders", {"name": "inbox"})
    file.write_text("version: 1\nname: after\ntasks: [{name: check, kind: approval}]\n")
    assert (await bai("pipeline", "create", file, by="user")).code == 0
    create = (*command, "create", "--json")
    watching = ("--folder", "inbox", "--pattern", "new/*.csv", "-p", "epochs=3")
    files = await bai(*create, "asks", "data", *watching, by="user")
    assert (files.document["kind"], files.document["secret"]) == ("file", None)
    assert files.document["parameters"] == {"epochs": "3"}
    ends = await bai(*create, "after", "ends", "--after", "asks", "--result", "any", by="user")
    assert (ends.document["source"], ends.document["result"]) == ("asks", "any")
    listed = (await bai(*command, "list", "--json", by="user")).document
    assert [each["name"] for each in listed["items"]] == ["ends", "data", "push"]
    for pipeline, name in (("asks", "data"), ("after", "ends")):
        assert (await bai(*command, "delete", pipeline, name, by="user")).code == 0
    wrong = await bai(*command, "delete", "asks", "pull", by="user")
    assert "has no trigger pull" in wrong.stderr
    assert (await bai(*command, "delete", "asks", "push", by="user")).code == 0
    assert "no triggers" in (await bai(*command, "list", by="user")).stderr


async def test_watch_shows_sub_pipelines_and_cached_tasks(
    bai: Bai, api: Api, tmp_path: Path
) -> None:
    await api.world.manager.folders.start()
    file = tmp_path / "asks.yaml"
    parent = "tasks: [{name: first, kind: approval}, {name: sub, kind: pipeline, pipeline: asks}]\n"
    for text in (DEFINITION, f"version: 1\nname: outer\n{parent}"):
        file.write_text(text)
        assert (await bai("pipeline", "create", file, by="user")).code == 0
    run = (await bai("pipeline", "run", "outer", "--json", by="user")).document["id"]
    assert (await bai("pipeline", "cancel", run, by="user")).code == 0
    async with api.world.manager.database.write() as tx:
        is_first = pipeline_tasks.c.task == "first"
        await tx.execute(sa.update(pipeline_tasks).where(is_first).values(is_cached=True))
    watched = await bai("pipeline", "watch", run, by="user")
    cells = [line.split("│")[1].rstrip() for line in watched.stderr.splitlines() if "│" in line]
    # Skip continuation lines, which exist because other columns may need several lines.
    assert [task for task in cells if task] == [" first", " sub", "   check", "   done"]
    assert watched.stderr.count("cached") == 1


async def test_pipeline_is_created_from_a_template(bai: Bai, api: Api, tmp_path: Path) -> None:
    await api.world.manager.folders.start()
    assert "compare-models" in (await bai("pipeline", "template", "list", by="user")).stdout
    made = await bai("pipeline", "create", "--template", "compare-models", "--json", by="user")
    assert made.document["name"] == "compare-models"
    file = tmp_path / "asks.yaml"
    file.write_text(DEFINITION)
    both = await bai("pipeline", "create", file, "--template", "x", by="user")
    assert "either a file or --template" in both.stderr
    assert (await bai("pipeline", "template", "save", file, by="user")).code == 0
    shown = await bai("pipeline", "template", "show", "asks", by="user")
    assert shown.stdout.strip() == DEFINITION.strip()
    assert (await bai("pipeline", "template", "delete", "asks", by="user")).code == 0
    gone = await bai("pipeline", "template", "show", "asks", by="user")
    assert "no template 'asks'" in gone.stderr
