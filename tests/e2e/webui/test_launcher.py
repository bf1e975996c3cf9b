"""Web UI: the launcher with its form, live preview, templates, and equivalent `bai` command."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .launcher_page import Launcher
from .test_connection import held_changes

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NARROW = {"width": 390, "height": 844}
BAI = (sys.executable, "-m", "bai_services.cli.main")


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``.

    After the test, the fixture stops the sessions, moves the folders to the trash and deletes the
    templates of ``user2``.
    """
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


def remove_folder(rest: httpx.Client, name: str) -> None:
    folder = read(rest, "/vfolders", name=name)["items"][0]["id"]
    checked(rest.delete(f"/vfolders/{folder}"), 204)


def bai(environment: Mapping[str, str], *words: str, entered: str = "") -> str:
    """Run ``bai`` and return its output."""
    done = subprocess.run(
        [*BAI, *words],
        env=environment, input=entered, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.checklist("LCH-03", "LCH-10", "LCH-19", "LCH-25")
@pytest.mark.parametrize(
    "viewport", [{"width": 1440, "height": 900}, NARROW], ids=["wide", "narrow"]
)
async def test_session_is_launched_with_a_new_folder(
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
    await ui.wait_for_requested("mem 512 MiB")
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
    await ui.preview.get_by_text("3 problems must be solved").wait_for()
    for field, text in (
        ("name", "cannot be the name of a session"),
        ("resources.cpu", "999"),
        ("mounts.0.path", "/etc"),
    ):
        assert text in await ui.item(field).locator(".ant-form-item-explain").inner_text()
    assert await ui.start_button.is_disabled()
    await ui.fill(name="good-name", resources__cpu="1", mounts__0__path="")
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()


@pytest.mark.parametrize(
    "viewport", [{"width": 1440, "height": 900}, NARROW], ids=["wide", "narrow"]
)
async def test_start_button_is_always_visible_and_covers_no_focused_field(
    opened: Opener[Launcher], viewport: dict[str, int]
) -> None:
    from playwright.async_api import expect

    ui = await opened(Launcher, "user2", "/launch", viewport=viewport)
    await ui.preview.get_by_text("It would start now.").wait_for()
    await expect(ui.start_button).to_be_in_viewport(ratio=1)
    for name in ("callback_url", "priority", "name"):
        await ui.field(name).focus()
        field, bar = await ui.field(name).bounding_box(), await ui.bar.bounding_box()
        assert field is not None and bar is not None
        assert field["y"] + field["height"] <= bar["y"]
    await ui.bar.get_by_role("button", name="It would start now.").click()
    await ui.wait_for_focus("review")


@pytest.mark.checklist("LCH-12", "LCH-18")
async def test_preview_explains_why_the_session_would_be_pending(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
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
    await ui.wait_for_requested("mem 768 MiB")
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
async def test_command_requests_the_same_session(
    hub: RunningHub, opened: Opener[Launcher], rest: httpx.Client, tmp_path: Path
) -> None:
    """Run the displayed command with ``--preview``; the manager must accept every option."""
    ui = await opened(Launcher, "user2", "/launch")
    await ui.page.get_by_text("Batch", exact=True).click()
    await ui.item("starts_at").get_by_text("The session starts later if it must wait").wait_for()
    command = "python -c 'print(\"it's done\")'"
    await ui.fill(
        name="from-form", startup_command=command, batch_timeout="2", resources__mem="512m"
    )
    await ui.choose("resources", "Share of a GPU")
    await ui.wait_for_requested("cuda.shares 0.25")
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


@pytest.mark.checklist("LCH-17")
async def test_several_sessions_are_created_at_once(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(name="many", resources__mem="256m")
    await ui.bar.get_by_label("Number of sessions").fill("3")
    await ui.wait_for_requested("mem 256 MiB")
    await ui.bar.get_by_role("button", name="Start 3 sessions").click()
    question = ui.page.get_by_role("dialog", name="Start without a folder?")
    await question.get_by_role("button", name="Start 3 sessions").click()
    await ui.page.get_by_role("link", name="many-3").wait_for()
    found = read(rest, "/sessions", name__contains="many-")
    assert sorted(s["name"] for s in found["items"]) == ["many-1", "many-2", "many-3"]


@pytest.mark.checklist("LCH-04")
async def test_failed_start_is_reported_on_the_page_to_which_the_user_has_gone(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    name = f"left-{secrets.token_hex(3)}"
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(name=name)
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()
    async with held_changes(ui.page, "/sessions") as requests:
        await ui.launch_without_folder()
        await ui.page.locator("nav").get_by_role("link", name="Start", exact=True).first.click()
        await ui.page.wait_for_url("**/start")
        # When the request arrives, another session already has the name.
        create(rest, "/sessions", name=name, project="default", priority=1)
        requests.release.set()
        await ui.page.get_by_role("alert").get_by_text(name).wait_for()
    assert ui.page.url.endswith("/start")


@pytest.mark.checklist("LCH-01")
async def test_steps_lead_through_the_form(opened: Opener[Launcher], rest: httpx.Client) -> None:
    create(rest, "/sessions", name="like-this", resources={"cpu": "1", "mem": "384m"})
    ui = await opened(Launcher, "user2", "/launch")
    form, steps = await ui.step("type").bounding_box(), await ui.steps.bounding_box()
    recent = await ui.page.get_by_role("button", name="Recent sessions").bounding_box()
    assert form and steps and recent
    assert form["x"] < steps["x"] and recent["x"] > form["x"] + form["width"] / 2
    assert recent["y"] < form["y"]
    await ui.steps.get_by_text("Network and order").click()
    await ui.wait_for_focus("network")
    await ui.page.get_by_role("button", name="Previous").click()
    await ui.wait_for_focus("folders")
    await ui.page.get_by_role("button", name="Next", exact=True).click()
    await ui.wait_for_focus("network")
    await ui.page.get_by_role("button", name="Skip to review").click()
    await ui.wait_for_focus("review")
    await ui.fill(name="x!")
    await ui.steps.locator(".ant-steps-item-error", has_text="Session type").wait_for()
    await ui.page.get_by_role("button", name="Reset").click()
    assert await ui.field("name").input_value() == ""
    await ui.choose_recent("like-this")
    await ui.wait_for_focus("review")
    assert await ui.field("resources.mem").input_value() == "384m"


@pytest.fixture
def images(hub: RunningHub) -> Iterator[str]:
    """Two versions of one environment, and a private image; yields the environment's name."""
    environment = f"cr.example.com/{secrets.token_hex(3)}/python"
    labels = {"ai.backend.runtime-type": "Python"}
    private = {**labels, "ai.backend.features": "private"}
    bodies = [
        {"name": f"{environment}:3.11-ubuntu22.04", "labels": labels},
        {"name": f"{environment}:3.12-ubuntu24.04-cuda12", "labels": labels,
         "min_slots": {"cpu": "1", "mem": "768m"}},
        {"name": f"{environment}-private:1", "labels": private},
    ]  # fmt: skip
    with hub.rest("admin") as admin:
        made = [checked(admin.post("/images", json=body), 201)["id"] for body in bodies]
        yield environment
        for image in made:
            checked(admin.delete(f"/images/{image}"), 204)


@pytest.mark.checklist("LCH-08")
async def test_environment_and_version_are_chosen_and_repeated_variables_reported(
    opened: Opener[Launcher], rest: httpx.Client, images: str
) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.field("image").click()
    await ui.page.locator(".ant-select-item-group", has_text="Python").wait_for()
    option = ui.page.locator(".ant-select-item-option", has_text=images)
    assert await option.count() == 1
    assert await option.locator(".anticon").count() == 1
    await option.click()
    await ui.page.get_by_label("Version", exact=True).click()
    version = ui.page.locator(".ant-select-item-option", has_text="3.12")
    for tag in ("ubuntu24.04", "cuda12", "x86_64"):
        await version.get_by_text(tag).wait_for()
    await version.click()
    await ui.preview.get_by_text("python 3.12").wait_for()
    await ui.page.get_by_role("button", name="Copy the name of the image").first.wait_for()

    await ui.page.get_by_role("button", name="Enter the name of an image").click()
    assert await ui.page.get_by_label("Version", exact=True).count() == 0
    await ui.fill(image=f"{images}-private:1")
    await ui.preview.get_by_text("python-private 1").wait_for()
    await ui.fill(image="no-such-image")
    await ui.item("image").locator(".ant-form-item-explain", has_text="no-such-image").wait_for()
    await ui.page.get_by_role("button", name="Choose from the list").click()

    add = ui.page.get_by_role("button", name="Add a variable")
    for value in ("1", "2"):
        await add.click()
        await ui.page.get_by_label("Variable", exact=True).last.fill("COLOUR")
        await ui.page.get_by_label("Value of COLOUR").last.fill(value)
    await ui.page.get_by_text("COLOUR is given more than once").wait_for()
    await ui.page.get_by_role("button", name="Remove variable COLOUR").last.click()
    await ui.page.get_by_text("COLOUR is given more than once").wait_for(state="detached")
    await ui.page.wait_for_url("**COLOUR**")


@pytest.mark.checklist("LCH-11")
async def test_resources_outside_their_limits_are_reported(
    opened: Opener[Launcher], rest: httpx.Client, images: str
) -> None:
    ui = await opened(Launcher, "user2", "/launch")
    await ui.fill(resources__mem="512m", shared_memory="600m")
    await ui.wait_for_problem("shared_memory", "must be less than")
    await ui.fill(shared_memory="")
    # The image requires 768 MiB: a smaller amount is rejected, and the default becomes 768 MiB.
    await ui.field("image").click()
    await ui.page.locator(".ant-select-item-option", has_text=images).click()
    await ui.page.get_by_label("Version", exact=True).click()
    await ui.page.locator(".ant-select-item-option", has_text="3.12").click()
    await ui.wait_for_problem("resources.mem", "768m")
    await ui.fill(resources__mem="")
    await ui.wait_for_requested("mem 768 MiB")
    # No session may exceed the limits of its scopes or the capacity of the largest agent.
    largest = read(rest, "/sessions/options")["limits"]["cpu"]["max"]
    slider = ui.item("resources.cpu").get_by_role("slider")
    assert await slider.get_attribute("aria-valuemax") == largest
    await ui.fill(resources__cpu=str(int(largest) + 1))
    await ui.wait_for_problem("resources.cpu", "cpu")


@pytest.mark.checklist("LCH-14")
async def test_administrator_chooses_the_agent(hub: RunningHub, opened: Opener[Launcher]) -> None:
    with hub.rest("admin") as admin:
        (agent,) = read(admin, "/agents", status="ALIVE")["items"]
        assert agent["free"].keys() == agent["slots"].keys()
        ui = await opened(Launcher, "admin", "/launch")
        await ui.item("agent_list").get_by_text("Chosen by the scheduler").wait_for()
        await ui.choose("agent_list", f"{agent['id']} · free: ")
        await ui.fill(name="on-this-agent", resources__mem="256m")
        await ui.wait_for_requested("mem 256 MiB")
        command = await ui.preview.locator("code").inner_text()
        assert f"--agent {agent['id']}" in command
        # A cluster session may run on several agents, so the form does not offer to choose one.
        await ui.fill(cluster_size="2")
        await ui.field("agent_list").wait_for(state="detached")
        await ui.fill(cluster_size="1")
        await ui.field("agent_list").wait_for()
        await ui.wait_for_requested("mem 256 MiB")
        await ui.launch_without_folder()
        await (
            ui.page.get_by_role("dialog").get_by_text("on-this-agent", exact=True).first.wait_for()
        )
        session = read(admin, "/sessions/on-this-agent")
        wait_for(admin, session["id"], "RUNNING")
        stop(admin, session["id"])
    ui = await opened(Launcher, "user2", "/launch")
    await ui.field("resources.cpu").wait_for()
    assert await ui.field("agent_list").count() == 0


@pytest.mark.checklist("LCH-16", "LCH-24")
async def test_threads_are_set_and_a_start_without_folder_is_confirmed(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    """The batch sessions print variables that set the number of threads of numerical libraries."""
    ui = await opened(Launcher, "user2", "/launch")
    for name, cores, manual, printed in (
        ("threads-auto", "2", "", "2 and 2"),
        ("threads-by-hand", "1", "3", "3 and 1"),
    ):
        await ui.page.get_by_text("Batch", exact=True).click()
        command = 'echo "$OMP_NUM_THREADS and $OPENBLAS_NUM_THREADS"'
        await ui.fill(
            name=name, startup_command=command, resources__cpu=cores, resources__mem="256m"
        )
        if manual:
            await ui.item("threads").get_by_text("Manual").click()
            await ui.fill(environ__OMP_NUM_THREADS=manual)
        await ui.wait_for_requested(f"cpu {cores}")
        await ui.start_button.click()
        question = ui.page.get_by_role("dialog", name="Start without a folder?")
        await question.get_by_text("files are lost when the session ends").wait_for()
        await question.get_by_role("button", name="Cancel").click()
        await question.wait_for(state="hidden")
        assert not read(rest, "/sessions", name=name)["items"]
        await ui.launch_without_folder()
        await ui.page.get_by_role("dialog").get_by_text(name, exact=True).first.wait_for()
        session = wait_for(rest, read(rest, f"/sessions/{name}")["id"], "TERMINATED")
        assert printed in read(rest, f"/sessions/{session['id']}/logs")["log"]
        await ui.open("/launch")


@pytest.mark.checklist("LCH-21", "AUTO-02")
async def test_folders_that_can_be_mounted_are_listed(
    hub: RunningHub, opened: Opener[Launcher], rest: httpx.Client
) -> None:
    for name in ("ready-one", "binned-one", ".dotted"):
        create(rest, "/vfolders", name=name)
    remove_folder(rest, "binned-one")
    with hub.rest("user") as other:
        create(other, "/vfolders", name="of-another")
        try:
            ui = await opened(Launcher, "user2", "/launch")
            await ui.page.get_by_role("checkbox", name="ready-one").check()
            names = await ui.step("folders").get_by_role("checkbox").count()
            offered = read(rest, "/sessions/options")["vfolders"]
            assert names == len([f for f in offered if not f["is_auto_mounted"]])
            for name in ("binned-one", "of-another", ".dotted"):
                assert await ui.page.get_by_role("checkbox", name=name).count() == 0
        finally:
            remove_folder(other, "of-another")
    # A folder is always mounted if its name begins with a dot: the launcher and the review list it.
    await ui.step("folders").get_by_text("Always mounted:").wait_for()
    await ui.step("folders").get_by_text(".dotted").wait_for()
    dotted = ui.preview.get_by_role("listitem").filter(has_text=".dotted")
    await dotted.get_by_text("always mounted").wait_for()
    await ui.preview.get_by_role("listitem").filter(has_text="ready-one").wait_for()

    # Files can be uploaded without leaving the launcher.
    async with ui.page.expect_file_chooser() as chooser:
        await ui.page.get_by_role("button", name="Upload files to ready-one").click()
    note = {"name": "note.txt", "mimeType": "text/plain", "buffer": b"from the launcher"}
    await (await chooser.value).set_files(note)  # type: ignore[arg-type]  # a TypedDict
    await ui.step("folders").get_by_text("Uploads: 1 of 1 done").wait_for()
    folder = read(rest, "/vfolders", name="ready-one")["items"][0]["id"]
    (uploaded,) = read(rest, f"/vfolders/{folder}/files")["items"]
    assert (uploaded["name"], uploaded["size"]) == ("note.txt", len("from the launcher"))

    await ui.open("/data")
    await ui.page.get_by_role("link", name="ready-one").wait_for()
    await ui.filter_by("Auto mount", "Yes")
    await ui.page.get_by_role("link", name="ready-one").wait_for(state="detached")
    await ui.page.get_by_role("link", name=".dotted").wait_for()


@pytest.mark.checklist("LCH-15", "LCH-22")
async def test_ports_are_entered_as_tags_and_a_too_large_cluster_is_reported(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    limits = read(rest, "/sessions/options")["preopen_limits"]
    ui = await opened(Launcher, "user2", "/launch")
    help_text = f"{limits['lowest']} to {limits['highest']}, at most {limits['count']}"
    await ui.item("preopen_ports").get_by_text(help_text).wait_for()
    await ui.field("preopen_ports").click()
    await ui.page.keyboard.type("8501, 9000 70000 ")
    tags = ui.item("preopen_ports").locator(".ant-select-selection-item")
    await tags.nth(2).wait_for()
    assert await tags.all_inner_texts() == ["8501", "9000", "70000"]
    await ui.wait_for_problem("preopen_ports", "port 70000: ports must be")
    await tags.nth(2).locator(".ant-select-selection-item-remove").click()
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()
    assert "--preopen 8501 --preopen 9000" in await ui.preview.locator("code").inner_text()

    await ui.fill(cluster_size="2")
    await ui.page.get_by_text("On several agents").click()
    # The policy of the demo allows one container per session.
    await ui.preview.get_by_text("2 containers requested").wait_for()


@pytest.mark.checklist("LCH-28")
async def test_dependencies_are_chosen_and_listed(
    opened: Opener[Launcher], rest: httpx.Client
) -> None:
    body = {"type": "batch", "startup_command": "sleep 300", "resources": {"mem": "256m"}}
    create(rest, "/sessions", name="goes-first", **body)
    ui = await opened(Launcher, "user2", "/launch")
    await ui.page.get_by_text("Batch", exact=True).click()
    await ui.fill(name="goes-second", startup_command="true", resources__mem="256m")
    await ui.choose("dependencies", "goes-first")
    await ui.wait_for_requested("mem 256 MiB")
    await ui.launch_without_folder()
    drawer = ui.page.get_by_role("dialog")
    await drawer.get_by_role("link", name="goes-first").first.wait_for()
    (dependency,) = read(rest, "/sessions/goes-second")["dependencies"]
    assert dependency["name"] == "goes-first"
    await ui.open("/sessions")
    await ui.page.get_by_role("button", name="Columns").click()
    await ui.page.get_by_role("checkbox", name="Dependencies").check()
    row = ui.page.get_by_role("row").filter(has=ui.page.get_by_role("link", name="goes-second"))
    await row.get_by_role("cell", name="goes-first", exact=True).wait_for()


def session_with_lent_folder(rest: httpx.Client, other: httpx.Client) -> tuple[str, str, str]:
    """Create a session with another user's folder; the session owner has a folder of that name.

    Return the ids of the other user's folder, the owner's folder and the session.
    """
    lent = checked(other.post("/vfolders", json={"name": "twin"}), 201)["id"]
    grant = checked(other.put(f"/vfolders/{lent}/grants/user2", json={}), 200)
    checked(rest.post(f"/vfolder-invitations/{grant['invitation_id']}/accept"), 200)
    own = checked(rest.post("/vfolders", json={"name": "twin"}), 201)["id"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    body = {"name": "with-twin", "type": "batch", "startup_command": "true"}
    body |= {"starts_at": tomorrow, "mounts": [{"vfolder": lent}]}
    return lent, own, checked(rest.post("/sessions", json=body), 201)["id"]


async def test_new_session_like_this_mounts_the_same_folder_if_another_has_the_same_name(
    opened: Opener[Launcher], rest: httpx.Client, hub: RunningHub
) -> None:
    from playwright.async_api import expect

    with hub.rest("user") as other:
        lent, own, session = session_with_lent_folder(rest, other)
        ui = await opened(Launcher, "user2", f"/sessions?tab=all&session={session}")
        await ui.page.get_by_role("dialog").get_by_role("button", name="More").click()
        await ui.page.get_by_role("menuitem", name="New session like this").click()
        await ui.preview.get_by_text("twin → /home/work/twin").wait_for()
        for folder, is_chosen in ((lent, True), (own, False)):
            files = ui.page.locator(f'a[href*="folder={folder}"]')
            row = ui.page.locator(".ant-flex").filter(has=files).last
            await expect(row.get_by_role("checkbox")).to_be_checked(checked=is_chosen)
        stop(rest, session)
        other.delete(f"/vfolders/{lent}")
