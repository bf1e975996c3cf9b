# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""The page *Pipelines*: a pipeline is written, run with real sessions, approved and finished."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

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
        # The problem names the line while the user types.
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
        tasks = page.get_by_role("dialog").get_by_role("table")
        last = tasks.get_by_role("row").filter(has_text="last")
        await last.get_by_text("Succeeded").wait_for(timeout=120_000)
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
    finally:
        rest.delete(f"/pipelines/{name}")
