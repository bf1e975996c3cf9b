"""Session drawer: log, kernels and dependencies, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import pytest_asyncio

from tests.e2e.engines import checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .pages import Sessions

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Prints a red line, then more lines than the page keeps, then waits.
PRINTER = (
    "printf '\\033[31mred line\\033[0m <b>markup</b>\\n'; for n in $(seq 300); do echo step $n; "
    "done; echo on the last line; sleep 300"
)


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``; sessions of the test are stopped."""
    client = hub.rest("user2")
    yield client
    for session in checked(client.get("/sessions"), 200)["items"]:
        if session["status"] not in ("TERMINATED", "CANCELLED", "ERROR"):
            client.delete(f"/sessions/{session['id']}", params={"force": "true"})
            wait_for(client, session["id"], "TERMINATED", "CANCELLED")


@pytest_asyncio.fixture(loop_scope="session")
async def ui(opened: Opener[Sessions]) -> Sessions:
    return await opened(Sessions, "user2", "/sessions")


def create_batch(rest: httpx.Client, name: str, command: str, **fields: object) -> str:
    body = {
        "name": name,
        "project": "default",
        "type": "batch",
        "startup_command": command,
        "resources": {"cpu": "1", "mem": "512m"},
        **fields,
    }
    session_id: str = checked(rest.post("/sessions", json=body), 201)["id"]
    return session_id


@pytest.mark.checklist("LOG-01", "LOG-02", "LOG-03", "DET-03", "SES-06")
async def test_log_is_followed_searched_and_downloaded(ui: Sessions, rest: httpx.Client) -> None:
    session_id = create_batch(rest, "drawer-log", PRINTER)
    wait_for(rest, session_id, "RUNNING")
    await ui.show("drawer-log")
    await ui.drawer.get_by_text(session_id).wait_for()
    log = ui.drawer.get_by_role("log")
    await log.get_by_text("on the last line").wait_for()
    assert await log.locator(".bai-log-line").count() < 200

    await ui.drawer.get_by_label("Lines that contain").fill("RED")
    await ui.page.keyboard.press("Enter")
    await log.locator(".ansi-red", has_text="red line").wait_for()
    assert "<b>markup</b>" in await log.inner_text()
    await ui.drawer.get_by_label("Lines that contain").fill("")
    await ui.page.keyboard.press("Enter")
    await log.get_by_text("on the last line").wait_for()

    await ui.drawer.get_by_role("tab", name="Kernels").click()
    await ui.drawer.get_by_role("button", name="Log of main1").click()
    href = await ui.drawer.get_by_role("link", name="Download").get_attribute("href")
    assert href and href.endswith(f"/sessions/{session_id}/log-file?kernel=main1")

    await ui.drawer.get_by_role("tab", name="Usage").click()
    cpu = ui.drawer.get_by_role("region", name="CPU")
    await cpu.get_by_role("img", name="CPU: mean").locator("svg").wait_for()
    assert "of 1 core" in await cpu.inner_text()
    await ui.drawer.get_by_text("24 hours").click()
    # The first mean over five minutes exists only after five minutes.
    await ui.drawer.get_by_text("Nothing was measured").wait_for()
    await ui.page.goto(ui.page.url.partition("?")[0])
    row = ui.page.get_by_role("row", name="drawer-log")
    await row.get_by_role("img", name="CPU").wait_for()
    await ui.show("drawer-log")

    stop(rest, session_id)
    await ui.drawer.get_by_text("Complete").wait_for()


async def test_graph_leads_to_the_sessions_before_and_after(
    ui: Sessions, rest: httpx.Client
) -> None:
    first = create_batch(rest, "drawer-first", "sleep 300")
    create_batch(rest, "drawer-second", "true", dependencies=[first])
    await ui.show("drawer-second")
    await ui.drawer.get_by_role("tab", name="Dependencies").click()
    await ui.drawer.get_by_role("link", name="drawer-first").click()
    assert ui.page.url.endswith(f"?session={first}")
    await ui.drawer.get_by_text(first).wait_for()
