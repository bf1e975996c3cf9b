"""Web UI: the launcher with its live preview, templates, and the same request as a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.engines import checked, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .launcher_page import Launcher

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NARROW = {"width": 390, "height": 844}
BAI = (sys.executable, "-m", "bai_services.cli.main")


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``; sessions, folders and templates of the test are removed."""
    with hub.rest("user2") as client:
        yield client
        for session in checked(client.get("/sessions"), 200)["items"]:
            if session["status"] not in ("TERMINATED", "CANCELLED", "ERROR"):
                client.delete(f"/sessions/{session['id']}", params={"force": "true"})
                wait_for(client, session["id"], "TERMINATED", "CANCELLED")
        for folder in checked(client.get("/vfolders"), 200)["items"]:
            client.delete(f"/vfolders/{folder['id']}")
        for template in checked(client.get("/session-templates"), 200)["items"]:
            client.delete(f"/session-templates/{template['id']}")


def create(rest: httpx.Client, path: str, **body: Any) -> None:
    checked(rest.post(path, json=body), 201)


def read(rest: httpx.Client, path: str, **query: str) -> dict[str, Any]:
    return dict(checked(rest.get(path, params=query), 200))


def bai(environment: Mapping[str, str], *words: str, entered: str = "") -> str:
    """Run ``bai`` and return its output."""
    done = subprocess.run(
        [*BAI, *words],
        env=environment, input=entered, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.checklist("LCH-03", "LCH-10", "LCH-19", "LCH-25")
@pytest.mark.parametrize("viewport", [{"width": 1440, "height": 900}, NARROW], ids=["wide", "390"])
async def test_launch_with_a_new_folder(
    opened: Opener[Launcher], rest: httpx.Client, viewport: dict[str, int]
) -> None:
    ui = await opened(Launcher, "user2", "/launch", viewport=viewport)
    await ui.preview.get_by_text("It would start now.").wait_for()
    name, folder = f"launch-{viewport['width']}", f"launched-{viewport['width']}"
    await ui.fill(name=name, resources__mem="512m")
    await ui.page.get_by_role("button", name="New folder").click()
    dialog = ui.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(folder)
    await dialog.get_by_role("button", name="New folder").click()
    await ui.page.get_by_role("checkbox", name=folder).wait_for()
    assert await ui.page.get_by_role("checkbox", name=folder).is_checked()
    await ui.fill(mounts__0__path="/home/work/data")
    await ui.requested("mem 512 MiB")
    await ui.launch()

    await ui.page.get_by_role("dialog").get_by_text(name, exact=True).first.wait_for()
    session = read(rest, f"/sessions/{name}")
    assert f"session={session['id']}" in ui.page.url
    assert session["requested"] == {"cpu": "1", "mem": "512m"}
    assert [(m["vfolder"], m["path"]) for m in session["mounts"]] == [(folder, "/home/work/data")]


@pytest.mark.checklist("LCH-04", "LCH-20", "LCH-23")
async def test_problems_appear_beside_their_fields_and_prevent_the_launch(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    create(rest, "/vfolders", name="problems")
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(name="bad name!", resources__cpu="999")
    await ui.page.get_by_role("checkbox", name="problems").check()
    await ui.fill(mounts__0__path="/etc")
    await ui.preview.get_by_text("3 things must be changed").wait_for()
    for field, text in (
        ("name", "cannot be the name of a session"),
        ("resources.cpu", "999"),
        ("mounts.0.path", "/etc"),
    ):
        assert text in await ui.item(field).locator(".ant-form-item-explain").inner_text()
    assert await ui.start_button.is_disabled()
    await ui.fill(name="good-name", resources__cpu="1", mounts__0__path="")
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()


@pytest.mark.checklist("LCH-12", "LCH-18")
async def test_preview_of_a_session_that_waits(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    """The preview shows why a request that exceeds the free resources would be pending."""
    create(rest, "/sessions", name="holds-all", resources={"cpu": "2", "mem": "1g"})
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(resources__cpu="2")
    await ui.preview.get_by_text("Position 1 in resource group default").wait_for()
    await ui.page.get_by_text("can start now: 0").first.wait_for()
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()
    await ui.field("preset").click()
    option = ui.page.locator(".ant-select-item-option", has_text="cpu-small")
    await option.get_by_text("would be queued").wait_for()


@pytest.mark.checklist("LCH-02", "LCH-27")
async def test_url_contains_the_form_but_no_secret(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(name="from-url")
    await ui.page.get_by_role("button", name="Add a variable").click()
    await ui.page.get_by_role("checkbox", name="Secret").check()
    await ui.page.get_by_label("Variable", exact=True).fill("TOKEN")
    await ui.page.get_by_label("Value of TOKEN").fill("swordfish")
    await ui.page.wait_for_url("**TOKEN**")
    assert "swordfish" not in ui.page.url
    await ui.page.reload()
    await ui.preview.get_by_text("It would start now.").wait_for()
    assert await ui.field("name").input_value() == "from-url"
    assert await ui.page.get_by_label("Value of TOKEN").input_value() == ""


@pytest.mark.checklist("LCH-26")
async def test_template_and_recent_session_fill_in_the_form(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    create(rest, "/sessions", name="was-there", resources={"cpu": "1", "mem": "640m"})
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(resources__cpu="2", resources__mem="768m")
    await ui.requested("mem 768 MiB")
    await ui.preview.get_by_role("button", name="Save as template").click()
    await ui.page.get_by_role("dialog").get_by_label("Name of the template").fill("two-cores")
    await ui.page.get_by_role("dialog").get_by_role("button", name="OK").click()
    await ui.page.get_by_role("button", name="Reset").click()
    assert await ui.field("resources.cpu").input_value() == ""
    await ui.choose_recent("was-there")
    assert await ui.field("resources.mem").input_value() == "640m"
    await ui.page.get_by_role("button", name="two-cores").click()
    assert await ui.field("resources.cpu").input_value() == "2"
    assert await ui.field("resources.mem").input_value() == "768m"


@pytest.mark.checklist("LCH-06", "LCH-07")
async def test_command_creates_the_same_session(
    hub: RunningHub, opened: Opener[Launcher], rest: httpx.Client, tmp_path: Path
) -> None:
    """The copied command runs with ``--preview``; the manager accepts every option."""
    ui = await opened(Launcher, "user2", "/launch")
    await ui.page.get_by_text("Batch", exact=True).click()
    await ui.item("starts_at").get_by_text("It may start later").wait_for()
    command = "python -c 'print(\"it's done\")'"
    await ui.fill(
        name="from-form", startup_command=command, batch_timeout="2", resources__mem="512m"
    )
    await ui.choose("resources", "Share of a GPU")
    await ui.requested("cuda.shares 0.25")
    text = await ui.preview.locator("code").inner_text()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BAI_")},
        "BAI_CONFIG_DIR": str(tmp_path),
        "BAI_URL": hub.url,
    }
    signing_in = ("login", hub.url, "--user", "user2", "--password-stdin")
    bai(environment, *signing_in, entered=hub.password)
    words = shlex.split(text)
    assert words[:3] == ["bai", "session", "create"]
    found = bai(environment, *words[1:], "--preview")
    assert "cpu=1 cuda.shares=0.25 mem=512m" in found
    assert words[words.index("--command") + 1] == command


@pytest.mark.checklist("LCH-15")
async def test_cluster_has_a_size_and_a_placement(opened: Opener[Launcher]) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(cluster_size="2")
    await ui.page.get_by_text("On several agents").click()
    # The policy of the demo allows one container per session.
    await ui.preview.get_by_text("2 containers requested").wait_for()


@pytest.mark.checklist("LCH-17")
async def test_several_sessions_are_created_at_once(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(name="many", resources__mem="256m")
    await ui.preview.get_by_label("Number of sessions").fill("3")
    await ui.requested("mem 256 MiB")
    await ui.preview.get_by_role("button", name="Start 3 sessions").click()
    question = ui.page.get_by_role("dialog", name="Start without a folder?")
    await question.get_by_role("button", name="Start 3 sessions").click()
    await ui.page.get_by_role("link", name="many-3").wait_for()
    found = read(rest, "/sessions", name__contains="many-")
    assert sorted(s["name"] for s in found["items"]) == ["many-1", "many-2", "many-3"]
