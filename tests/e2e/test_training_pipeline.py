# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""The documented training pipeline with Docker: on the command line, and in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import checked, stop
from tests.e2e.test_journey_cli import Shell
from tests.e2e.webui.pages import Shell as WebShell
from tests.hub import ROOT, RunningHub
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.docker, pytest.mark.browser]

RUN_SECONDS = 240
MODELS = {"accuracy.bayes", "accuracy.forest", "accuracy.logistic", "accuracy.neighbors"}
# The first sample of the data: a handwritten 0 with eight rows of eight pixels.
ZERO = [
    *(0, 0, 5, 13, 9, 1, 0, 0), *(0, 0, 13, 15, 10, 15, 5, 0), *(0, 3, 15, 2, 0, 11, 8, 0),
    *(0, 4, 12, 0, 0, 8, 8, 0), *(0, 5, 8, 0, 0, 9, 8, 0), *(0, 4, 11, 0, 1, 12, 7, 0),
    *(0, 2, 14, 5, 10, 12, 0, 0), *(0, 0, 6, 13, 10, 0, 0, 0),
]  # fmt: skip


def documented() -> str:
    """Return the pipeline of the tutorial."""
    page = (ROOT / "docs" / "pipeline-tutorial.md").read_text()
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def statuses(rest: httpx.Client, run: str) -> dict[str, str]:
    """Return the statuses of the task runs; fail with the log of a failed task."""
    detail = checked(rest.get(f"/pipeline-runs/{run}"), 200)
    for each in detail["task_runs"]:
        if each["status"] == "failed":
            raise AssertionError((each, rest.get(f"/sessions/{each['session']}/logs").text))
    return {f"{each['task']}{each['item']}": each["status"] for each in detail["task_runs"]}


async def test_models_are_trained_compared_approved_and_deployed(
    docker_hub: RunningHub, browser: Browser, tmp_path: Path
) -> None:
    hub, rest = docker_hub, docker_hub.rest("user2")
    bai = Shell(tmp_path / "config")
    bai("login", hub.url, "--user", "user2", "--password-stdin", stdin=hub.password + "\n")
    bai("env", "set", "--secret", "HUB_TOKEN", stdin=hub.create_token("user2") + "\n")
    file = tmp_path / "digits.yaml"
    file.write_text(documented())
    try:
        assert "6 tasks" in bai("pipeline", "validate", str(file))
        bai("pipeline", "create", str(file))
        run = bai.json("pipeline", "run", "digits", "-p", "seed=1")["id"]
        is_waiting = lambda: statuses(rest, run)["approve"] == "awaiting-approval"  # noqa: E731
        wait_until(is_waiting, RUN_SECONDS, "the approval")
        assert rest.get("/endpoints/digits").status_code == 404
        metrics = bai.json("pipeline", "artifacts", run)["metrics"]
        assert set(metrics) == {*MODELS, "best"}
        assert metrics["best"] == max(metrics[name] for name in MODELS) > 0.9
        assert "accuracy" in bai("pipeline", "logs", run, "train", "--index", "1")
        bai("pipeline", "approve", run, "approve")
        bai("pipeline", "watch", run)
        token = bai.json("service", "token", "create", "digits", "laptop")["token"]
        assert prediction(hub, token) == {"digits": [0]}
        page = await browser.new_page(viewport={"width": 1440, "height": 1000})
        await run_in_browser(page, hub, rest)
        assert checked(rest.get("/endpoints/digits"), 200)["active_revision"] == 2
    finally:
        for each in rest.get("/pipeline-runs?pipeline=digits").json()["items"]:
            rest.delete(f"/pipeline-runs/{each['id']}")
        rest.delete("/endpoints/digits")
        rest.delete("/pipelines/digits")
        bai("env", "rm", "HUB_TOKEN")


async def run_in_browser(page: Page, hub: RunningHub, rest: httpx.Client) -> None:
    """Run the pipeline again with another seed, decide on its results, and open TensorBoard."""
    ui = WebShell(page, hub)
    await ui.sign_in("user2", "/pipelines")
    row = page.get_by_role("row").filter(has_text="digits")
    await row.get_by_role("link", name="Run", exact=True).click()
    await page.get_by_label("seed").fill("2")
    await page.get_by_role("dialog").get_by_role("button", name="Run", exact=True).click()
    run = page.get_by_role("dialog").filter(has=page.get_by_role("tab", name="Times"))
    await run.get_by_role("group", name="Graph of the tasks").get_by_text("train").wait_for()
    approve = run.get_by_role("button", name="Approve")
    await approve.wait_for(timeout=RUN_SECONDS * 1000)
    await run.get_by_role("tab", name="Results").click()
    for name in sorted({*MODELS, "best"}):
        await run.get_by_text(name, exact=True).wait_for()
    await run.get_by_role("button", name="best.json").click()
    preview = page.get_by_role("dialog").filter(has_text="accuracy").last
    await preview.get_by_text('"accuracy"').wait_for()
    await page.keyboard.press("Escape")
    await run.get_by_role("tab", name="Tasks").click()
    await approve.click()
    report = run.get_by_role("row").filter(has_text="report")
    await report.get_by_text("Succeeded").wait_for(timeout=RUN_SECONDS * 1000)
    async with page.context.expect_page(timeout=RUN_SECONDS * 1000) as opened:
        await run.get_by_role("button", name="Open TensorBoard").click()
    board = await opened.value
    await board.get_by_text("No dashboards are active").first.wait_for(timeout=60_000)
    key = page.url.partition("run=")[2].partition("&")[0]
    (session,) = checked(rest.get(f"/sessions?name__contains=-apps-{key[:8]}"), 200)["items"]
    stop(rest, session["id"])


def prediction(hub: RunningHub, token: str) -> Any:
    """Return the answer of the endpoint; the gateway needs some time to know a new token."""

    def answer() -> Any:
        response = httpx.post(
            f"{hub.url}/services/bai-serve/digits/",
            json={"rows": [ZERO]},
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        assert response.status_code in (200, 401, 503), response.text
        return response.json() if response.status_code == 200 else None

    return wait_until(answer, 60, "a prediction")
