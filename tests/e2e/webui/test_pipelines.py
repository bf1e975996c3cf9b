# ruff: noqa: ASYNC212, ASYNC240  # Blocking calls are harmless here: no other task runs in the event loop.
"""The page *Pipelines*: a pipeline is written, run with real sessions, approved and finished."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.async_api import FloatRect, Locator, Page, expect
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until, wait_until_async

from .conftest import Opener
from .entities_page import Entities
from .test_every_page import NARROW, violations_in_both_themes

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

DEFINITION = """\
version: 1
name: {name}
parameters:
- {{name: greeting, default: hello}}
defaults:
  resources: {{cpu: 1, mem: 512m}}
tasks:
- {{name: first, command: 'echo "$PARAM_GREETING" > said.txt', outputs: [said.txt]}}
- {{name: check, kind: approval, needs: [first]}}
- {{name: last, command: 'grep good said.txt && echo done', needs: [check], inputs: [said.txt]}}
"""


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("user2") as client:
        yield client


@pytest.mark.checklist("PIP-01", "JOB-01", "JOB-02", "JOB-03", "JOB-04", "TSK-05")
async def test_pipeline_is_written_run_and_approved(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    try:
        ui = await opened(Entities, "user2", "/pipelines")
        page = ui.page
        await page.get_by_role("button", name="New pipeline").click()
        editor = page.get_by_role("textbox", name="pipeline.yaml")
        await editor.click()
        await page.keyboard.press("Control+A")
        await page.keyboard.insert_text("version: 1\nname: wrong\ntasks: 3")
        # An error message with the line number appears while the user types.
        await page.get_by_text("line 3: tasks must be a list").wait_for()
        await editor.click()
        await page.keyboard.press("Control+A")
        await page.keyboard.insert_text(DEFINITION.format(name=name))
        graph = page.get_by_role("group", name="Graph of the tasks")
        await graph.get_by_text("check", exact=True).wait_for()
        await page.get_by_role("button", name="Save", exact=True).click()
        row = page.get_by_role("row").filter(has_text=name)
        await row.get_by_role("link", name="Run", exact=True).click()
        await page.get_by_label("greeting").fill("good day")
        await page.get_by_role("dialog").get_by_role("button", name="Run", exact=True).click()
        run = page.get_by_role("dialog").filter(has_text="Cancel run")
        await run.get_by_role("button", name="Approve").click(timeout=120_000)
        await run.get_by_text("greeting = good day").wait_for()
        await page.get_by_role("tab", name="Times").wait_for()
        dialog = page.get_by_role("dialog")
        tasks = dialog.get_by_role("table")
        for title in ("Task", "Status", "Attempt", "Duration", "Session", "Message"):
            await tasks.get_by_role("columnheader", name=title, exact=True).wait_for()
        last = tasks.get_by_role("row").filter(has_text="last")
        # The graph and the table show the states as the run continues, without a reload.
        node = dialog.locator(".react-flow__node", has_text="last")
        assert await node.filter(has_text="Succeeded").count() == 0
        await last.get_by_text("Succeeded").wait_for(timeout=120_000)
        await node.filter(has_text="Succeeded").wait_for()
        await last.get_by_role("link", name="Log").wait_for()
        await page.get_by_role("tab", name="Definition").click()
        await dialog.get_by_text(f"name: {name}").wait_for()
        await page.get_by_role("tab", name="Times").click()
        await page.get_by_role("img", name="Times of the tasks").wait_for()
        (found,) = checked(rest.get("/pipeline-runs?pipeline=" + name), 200)["items"]
        assert found["status"] == "succeeded"
        detail = checked(rest.get(f"/pipeline-runs/{found['id']}"), 200)
        session = next(each["session"] for each in detail["task_runs"] if each["task"] == "last")
        log = checked(rest.get(f"/sessions/{session}/logs"), 200)["log"]
        assert "good day" in log
        assert "done" in log
    finally:
        rest.delete(f"/pipelines/{name}")


async def test_administrator_accepts_files_that_members_can_change(
    opened: Opener[Entities], hub: RunningHub
) -> None:
    name, admin = f"pipe-{secrets.token_hex(3)}", hub.rest("admin")
    tasks = "- {name: check, kind: approval}"
    text = f"version: 1\nname: {name}\ntasks:\n{tasks}\n"
    body = {"definition": text, "project": "default", "is_project_owned": True}
    folder = checked(admin.post("/pipelines", json=body), 201)["folder"]
    try:
        ui = await opened(Entities, "admin", f"/pipelines?search={name}")
        page = ui.page
        row = page.get_by_role("row").filter(has_text=name)
        await row.get_by_role("link", name="Run", exact=True).click()
        dialog = page.get_by_role("dialog")
        start = dialog.get_by_role("button", name="Run", exact=True)
        await start.click()
        await dialog.get_by_text("Members can change the files").wait_for()
        await expect(start).to_be_disabled()
        await dialog.get_by_role("checkbox", name="I have checked the files").check()
        await start.click()
        run = page.get_by_role("dialog").filter(has_text="Cancel run")
        await run.get_by_role("button", name="Approve").click()
        # ``run`` no longer matches: it is located by the button *Cancel run*, which disappears when
        # the run ends.
        await page.get_by_role("dialog").get_by_text("Succeeded").first.wait_for()
    finally:
        for each in checked(admin.get(f"/pipeline-runs?pipeline={name}"), 200)["items"]:
            admin.delete(f"/pipeline-runs/{each['id']}")
        admin.delete(f"/pipelines/{name}")
        admin.delete(f"/vfolders/{folder}")


GRAPH = """\
version: 1
name: {name}
tasks:
# The data.
- {{name: first, command: x}}
- {{name: second, command: y}}
"""


async def open_editor(ui: Entities, text: str) -> tuple[Locator, Locator]:
    """Open a new pipeline with a definition; return its graph and its text."""
    page = ui.page
    await page.get_by_role("button", name="New pipeline").click()
    editor = page.get_by_role("textbox", name="pipeline.yaml")
    await editor.click()
    await page.keyboard.press("Control+A")
    await page.keyboard.insert_text(text)
    graph = page.get_by_role("group", name="Graph of the tasks")
    await graph.get_by_text("second", exact=True).wait_for()
    return graph, editor


@pytest.mark.checklist("TSK-01")
async def test_graph_is_edited_by_mouse(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    try:
        ui = await opened(Entities, "user2", "/pipelines")
        page = ui.page
        graph, editor = await open_editor(ui, GRAPH.format(name=name))
        first, second = (graph.locator(f"[data-id={each}]") for each in ("first", "second"))
        # The test drags from the output of a task to the input of another, which adds a dependency.
        await first.locator(".react-flow__handle.source").drag_to(
            second.locator(".react-flow__handle.target")
        )
        await expect(editor).to_contain_text("{name: second, command: y, needs: [first]}")
        # Playwright regards a horizontal line as hidden because it has no height, so only wait
        # until it exists.
        await graph.locator(".react-flow__edge").wait_for(state="attached")
        # A new task is added after the selected task.
        await second.click()
        await page.get_by_role("button", name="Add task").click()
        await graph.locator("[data-id=command-1]").wait_for()
        await expect(editor).to_contain_text("needs: [second]}")
        # A moved task keeps its position until "undo" is pressed.
        before = await second.bounding_box()
        assert before is not None
        await page.mouse.move(before["x"] + 60, before["y"] + 20)
        await page.mouse.down()
        await page.mouse.move(before["x"] + 60, before["y"] + 90, steps=5)
        await page.mouse.up()
        moved = await second.bounding_box()
        assert moved is not None
        assert moved["y"] > before["y"] + 40
        undo = page.get_by_role("button", name="Undo")
        await undo.click()
        await wait_until_async(lambda: is_at(second, before), 10, "the task to move back")
        await undo.click()
        await expect(graph.locator("[data-id=command-1]")).to_have_count(0)
        await page.get_by_role("button", name="Redo").click()
        await graph.locator("[data-id=command-1]").click()
        await page.get_by_role("button", name="Remove", exact=True).click()
        await expect(graph.locator("[data-id=command-1]")).to_have_count(0)
        await page.get_by_role("button", name="Save", exact=True).click()
        await page.get_by_role("row").filter(has_text=name).wait_for()
        saved = checked(rest.get(f"/pipelines/{name}"), 200)["definition"]
        # The comment and the format of the definition remain.
        assert saved == GRAPH.format(name=name).replace(
            "command: y}", "command: y, needs: [first]}"
        )
    finally:
        rest.delete(f"/pipelines/{name}")


async def is_at(task: Locator, box: FloatRect) -> bool:
    current = await task.bounding_box()
    return current is not None and abs(current["y"] - box["y"]) < 2


async def test_graph_is_edited_by_keyboard(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    ui = await opened(Entities, "user2", "/pipelines")
    page = ui.page
    graph, editor = await open_editor(ui, GRAPH.format(name=name))
    first, second = (graph.locator(f"[data-id={each}]") for each in ("first", "second"))
    await first.focus()
    await page.keyboard.press("c")
    await page.get_by_text("Select the task that follows first").wait_for()
    await page.keyboard.press("Tab")
    await expect(second).to_be_focused()
    await page.keyboard.press("c")
    await expect(editor).to_contain_text("needs: [first]}")
    # The new task has the focus, so the next task is added after it.
    await second.focus()
    await page.keyboard.press("a")
    await expect(graph.locator("[data-id=command-1]")).to_be_focused()
    await page.keyboard.press("a")
    await expect(graph.locator("[data-id=command-2]")).to_be_focused()
    await expect(editor).to_contain_text("needs: [command-1]}")
    # A connection that would create a cycle is not added.
    await page.keyboard.press("c")
    await first.focus()
    await page.keyboard.press("c")
    await expect(editor).not_to_contain_text("needs: [command-2]}")
    await graph.locator("[data-id=command-2]").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Delete")
    await expect(graph.locator("[data-id=command-2]")).to_have_count(0)
    await first.focus()
    await page.keyboard.press("Control+z")
    await graph.locator("[data-id=command-2]").wait_for()
    await page.keyboard.press("Control+Shift+z")
    await expect(graph.locator("[data-id=command-2]")).to_have_count(0)


async def test_schedule_and_trigger_are_created(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    text = f"version: 1\nname: {name}\ntasks: [{{name: check, kind: approval}}]\n"
    checked(rest.post("/pipelines", json={"definition": text}), 201)
    try:
        ui = await opened(Entities, "user2", "/pipelines?tab=schedules")
        page = ui.page
        await page.get_by_role("button", name="New schedule").click()
        await ui.choose("Pipeline", name)
        await ui.fill(Name="nightly", Start_at="daily 02:00")
        await ui.save()
        await ui.row("nightly").get_by_text("daily 02:00").wait_for()
        (schedule,) = checked(rest.get(f"/pipeline-schedules?pipeline={name}"), 200)["items"]
        assert (schedule["start"], len(schedule["next_starts"])) == ("daily 02:00", 5)
        await page.get_by_role("tab", name="Triggers").click()
        await page.get_by_role("button", name="New trigger").click()
        await ui.choose("Pipeline", name)
        await ui.fill(Name="push")
        await ui.save()
        await page.get_by_text("This secret is shown only once.").wait_for()
        (trigger,) = checked(rest.get(f"/pipeline-triggers?pipeline={name}"), 200)["items"]
        assert (trigger["name"], trigger["is_enabled"]) == ("push", True)
        await page.keyboard.press("Escape")
        # New files in the pipeline's folder start a run.
        folder = checked(rest.get(f"/pipelines/{name}"), 200)["folder"]
        folder_name = checked(rest.get(f"/vfolders/{folder}"), 200)["name"]
        await page.get_by_role("button", name="New trigger").click()
        await ui.choose("Pipeline", name)
        await ui.fill(Name="files")
        await ui.choose("Kind", "New files")
        await ui.choose("Folder", folder_name)
        await ui.fill(Files="in/*.csv")
        await ui.save()
        await ui.row("files").get_by_text(f"New files: {folder_name}/in/*.csv").wait_for()
        put = rest.put(f"/vfolders/{folder}/content?path=in/a.csv", content=b"x")
        assert put.status_code < 300

        def has_run() -> bool:
            runs = checked(rest.get(f"/pipeline-runs?pipeline={name}"), 200)["items"]
            return [each["cause"] for each in runs] == ["trigger files"]

        await wait_until_async(lambda: asyncio.to_thread(has_run), 60, "the run of the file")
        # A pipeline cannot be triggered by its own runs.
        await page.get_by_role("button", name="New trigger").click()
        await ui.choose("Pipeline", name)
        await ui.fill(Name="cycle")
        await ui.choose("Kind", "After a pipeline")
        await ui.choose("After the runs of", name)
        await ui.save()
        cycle = f"the triggers would form a cycle: {name} → {name}"
        await ui.drawer.get_by_text(cycle).first.wait_for()
    finally:
        for run in checked(rest.get(f"/pipeline-runs?pipeline={name}"), 200)["items"]:
            rest.delete(f"/pipeline-runs/{run['id']}")
        rest.delete(f"/pipelines/{name}")


CHILD = "version: 1\nname: {name}-child\ntasks: [{{name: judge, kind: approval}}]\n"
COMPARED = """\
version: 1
name: {name}
parameters:
- {{name: label, default: first}}
defaults:
  resources: {{cpu: 1, mem: 512m}}
tasks:
- name: fit
  command: |
    echo trained > model.txt; echo '{{"loss": 0.125, "test": {{"f1": 0.75}}}}' > metrics.json
  outputs: [model.txt, metrics.json]
  cache: {{parameters: []}}
- {{name: review, kind: pipeline, pipeline: {name}-child, needs: [fit]}}
"""


def run_until_approval(rest: httpx.Client, pipeline: str, label: str) -> str:
    """Start a run of a pipeline that was created from ``COMPARED``, wait until it needs approval,
    and return the run's id.
    """
    body = {"parameters": {"label": label}}
    key = str(checked(rest.post(f"/pipelines/{pipeline}/runs", json=body), 202)["id"])

    def is_waiting() -> bool:
        runs = checked(rest.get(f"/pipeline-runs/{key}"), 200)["task_runs"]
        statuses = {each["task"]: each["status"] for each in runs}
        assert statuses["fit"] != "failed", runs
        return bool(statuses["review/judge"] == "awaiting-approval")

    wait_until(is_waiting, 120, "the run to wait for its approval")
    return key


def write_events(directory: Path) -> bytes:
    """Return the content of a TensorBoard event file with the scalar *accuracy*."""
    writer = EventFileWriter(str(directory))
    for step, value in enumerate((0.5, 0.75, 0.875)):
        scalar = Summary.Value(tag="accuracy", simple_value=value)
        writer.add_event(Event(step=step, summary=Summary(value=[scalar])))
    writer.close()
    (file,) = directory.iterdir()
    return file.read_bytes()


async def check_apps(page: Page, rest: httpx.Client, run: str, events: bytes) -> None:
    """TensorBoard shows the directory of the opened run after one click.

    The image has no MLflow: the page says so instead of opening a session that cannot show it.
    """
    folder = checked(rest.get(f"/pipeline-runs/{run}/results"), 200)["folder"]
    path = f"runs/{run}/logs/events.out.tfevents.1.test"
    checked(rest.put(f"/vfolders/{folder}/content?path={path}", content=events), 200)
    await page.get_by_role("button", name="Open MLflow").click()
    await page.get_by_text("MLflow is not part of the image").wait_for()
    async with page.expect_popup() as popup:
        await page.get_by_role("button", name="Open TensorBoard").click()
    board = await popup.value
    await board.get_by_text("accuracy", exact=True).first.wait_for()
    await board.close()
    session = await page.get_by_role("alert").get_by_role("link").first.get_attribute("href")
    assert session is not None
    rest.delete(f"/sessions/{parse_qs(urlsplit(session).query)['session'][0]}")


async def test_results_of_runs_are_shown_and_compared(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    for text in (CHILD, COMPARED):
        checked(rest.post("/pipelines", json={"definition": text.format(name=name)}), 201)
    try:
        first, second = (run_until_approval(rest, name, label) for label in ("first", "second"))
        ui = await opened(Entities, "user2", f"/pipelines?tab=runs&run={first}")
        page, drawer = ui.page, ui.drawer
        graph = page.get_by_role("group", name="Graph of the tasks")
        fit = graph.locator("[data-id=fit]")
        await fit.get_by_text("Succeeded").wait_for()
        await expect(fit).not_to_contain_text("from the cache")
        # The task of the sub-pipeline is inside the box of the task that contains it.
        outer = await graph.locator("[data-id=review]").bounding_box()
        inner = await graph.locator("[data-id='review/judge']").bounding_box()
        assert outer is not None and inner is not None
        assert outer["x"] < inner["x"] and outer["y"] < inner["y"]
        assert inner["x"] + inner["width"] < outer["x"] + outer["width"]
        assert inner["y"] + inner["height"] < outer["y"] + outer["height"]
        # In the table, the task is also below the task that contains it.
        review = drawer.get_by_role("row").filter(has_text="review")
        judge = drawer.get_by_role("row").filter(has_text="judge")
        await judge.get_by_text("Needs approval").wait_for()
        await review.get_by_role("button", name="Collapse row").click()
        await expect(judge).to_be_hidden()
        await page.get_by_role("tab", name="Results").click()
        await drawer.get_by_role("row", name="loss 0.125 test.f1 0.75").wait_for()
        await page.get_by_role("button", name="model.txt").click()
        await page.get_by_text("trained").wait_for()
        await page.keyboard.press("Escape")
        await check_apps(page, rest, first, write_events(tmp_path))
        await ui.open(f"/pipelines?tab=runs&run={second}")
        await fit.get_by_text("from the cache").wait_for()
        row = drawer.get_by_role("row").filter(has_text="from the cache")
        await row.get_by_text("Succeeded").wait_for()
        assert await violations_in_both_themes(page) == []
        await ui.open("/pipelines?tab=comparison")
        await page.get_by_role("combobox", name="Pipeline").click()
        await page.keyboard.type(name)
        await page.locator(".ant-select-item-option", has_text=name).first.click()
        rows = page.locator(".ant-table-row")
        await expect(rows).to_have_count(2)
        header = page.get_by_role("columnheader", name="label")
        await header.click()
        await expect(rows.first).to_contain_text("first")
        await header.click()
        await expect(rows.first).to_contain_text("second")
        await expect(rows.first).to_contain_text("0.125")
        await expect(page.get_by_role("columnheader", name="test.f1")).to_be_visible()
        assert await violations_in_both_themes(page) == []
        await page.set_viewport_size(NARROW)
        fits = "() => document.documentElement.scrollWidth <= window.innerWidth"
        await page.wait_for_function(fits)
    finally:
        for each in (first, second):
            rest.delete(f"/pipeline-runs/{each}")
        for each in (name, f"{name}-child"):
            rest.delete(f"/pipelines/{each}")


async def test_pipeline_is_created_from_a_template_imported_and_exported(
    opened: Opener[Entities], rest: httpx.Client, tmp_path: Path
) -> None:
    name = f"pipe-{secrets.token_hex(3)}"
    try:
        ui = await opened(Entities, "user2", "/pipelines?tab=templates")
        page = ui.page
        row = page.get_by_role("row").filter(has_text="search-parameters")
        await row.get_by_text("Built in").wait_for()
        await row.get_by_role("link", name="Use template").click()
        graph = page.get_by_role("group", name="Graph of the tasks")
        await graph.get_by_text("select", exact=True).wait_for()
        # An imported FastTrack file replaces the definition.
        file = tmp_path / "fasttrack.yaml"
        file.write_text(f"name: {name}\ntasks:\n- {{name: fetch, command: make data}}\n")
        async with page.expect_file_chooser() as chosen:
            await page.get_by_role("button", name="Import file").click()
        await (await chosen.value).set_files(file)
        await graph.get_by_text("fetch", exact=True).wait_for()
        editor = page.get_by_role("textbox", name="pipeline.yaml")
        await expect(editor).to_contain_text("command: make data")
        await page.get_by_role("button", name="Save as template").click()
        await page.get_by_text(f"Template {name} saved.").wait_for()
        await page.get_by_role("button", name="Export").click()
        async with page.expect_download() as download:
            await page.get_by_role("menuitem", name="FastTrack").click()
        exported = await download.value
        assert exported.suggested_filename == f"{name}.fasttrack.yaml"
        assert "type: custom" in Path(await exported.path()).read_text()
        # The pipeline has a command, and Elyra supports only scripts and notebooks, so the export
        # fails.
        await page.get_by_role("button", name="Export").click()
        await page.get_by_role("menuitem", name="Elyra").click()
        await page.get_by_text("Elyra has no command").wait_for()
        assert await violations_in_both_themes(page) == []
        await page.get_by_role("button", name="Save", exact=True).click()
        await page.get_by_text(f"Pipeline {name} saved.").wait_for()
        await page.get_by_role("row").filter(has_text=name).get_by_text("user2").wait_for()
        saved = checked(rest.get(f"/pipelines/{name}"), 200)
        assert saved["definition"].startswith(f"version: 1\nname: {name}\n")
    finally:
        rest.delete(f"/pipelines/{name}")
        rest.delete(f"/pipeline-templates/{name}")
