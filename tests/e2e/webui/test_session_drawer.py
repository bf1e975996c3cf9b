"""Session drawer: fields, time limits, apps, log, kernels and dependencies, in a real browser."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.e2e.sessions import checked, start, stop, wait_for
from tests.e2e.test_cluster_sessions import three_kernels_allowed
from tests.hub import RunningHub
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port

from .conftest import Opener
from .pages import Sessions

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Prints a red line, then more lines than the page renders at once, and then waits.
PRINTER = (
    "printf '\\033[31mred line\\033[0m <b>markup</b>\\n'; for n in $(seq 300); do echo step $n; "
    "done; echo on the last line; sleep 300"
)


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``; stop all sessions of ``user2`` at the end."""
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
async def test_log_is_followed_and_searched_and_has_a_download_link(
    ui: Sessions, rest: httpx.Client
) -> None:
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
    # Over 24 hours, each point of the chart is the mean of five minutes. The unfinished interval is
    # included, so a session that has just started has a point.
    async with ui.page.expect_response(re.compile("/usage-history[?]")):
        await ui.drawer.get_by_text("24 hours").click()
    await cpu.get_by_role("img", name="CPU: mean").locator("svg").wait_for()
    assert await ui.drawer.get_by_text("Nothing was measured").count() == 0
    await ui.page.goto(ui.page.url.partition("?")[0])
    row = ui.page.get_by_role("row", name="drawer-log")
    await row.get_by_role("img", name="CPU").wait_for()
    await ui.show("drawer-log")

    stop(rest, session_id)
    await ui.drawer.get_by_text("Complete").wait_for()
    # The log can be read after the end of the session.
    await log.get_by_text("on the last line").wait_for()


async def test_dependency_graph_links_to_the_other_sessions(
    ui: Sessions, rest: httpx.Client
) -> None:
    first = create_batch(rest, "drawer-first", "sleep 300")
    create_batch(rest, "drawer-second", "true", dependencies=[first])
    await ui.show("drawer-second")
    await ui.fact("Dependencies").get_by_role("link", name="drawer-first").wait_for()
    progress = ui.drawer.get_by_role("region", name="Progress of the start")
    await progress.locator(".ant-steps-item-active", has_text="Pending").wait_for()
    await ui.drawer.get_by_role("tab", name="Dependencies").click()
    graph = ui.drawer.get_by_role("tabpanel", name="Dependencies")
    await graph.get_by_role("link", name="drawer-first").click()
    assert ui.page.url.endswith(f"?session={first}")
    await ui.drawer.get_by_text(first).wait_for()


def read(rest: httpx.Client, path: str) -> dict[str, Any]:
    return dict(checked(rest.get(path), 200))


def create_folder(rest: httpx.Client, name: str) -> dict[str, Any]:
    return dict(checked(rest.post("/vfolders", json={"name": name}), 201))


def delete_folder(rest: httpx.Client, folder: str) -> None:
    checked(rest.delete(f"/vfolders/{folder}"), 204)


@contextmanager
def changed(admin: httpx.Client, path: str, **values: object) -> Iterator[None]:
    """Change fields of an object, and restore them at the end of the block."""
    before = checked(admin.get(path), 200)
    checked(admin.patch(path, json=values), 200)
    try:
        yield
    finally:
        checked(admin.patch(path, json={name: before[name] for name in values}), 200)


LIMITS = {
    "idle_timeout_seconds": 3600,
    "max_session_lifetime_seconds": 7200,
    "max_lifetime_extension_seconds": 7200,
}


@pytest.mark.checklist("DET-02")
async def test_drawer_shows_fields_and_limits_and_the_stop_dialog_shows_kept_files(
    hub: RunningHub, opened: Opener[Sessions], rest: httpx.Client
) -> None:
    created = create_folder(rest, "drawer-data")
    mounts = [{"vfolder": "drawer-data", "path": "/home/work/data"}]
    with hub.rest("admin") as admin, changed(admin, "/keypair-policies/default", **LIMITS):
        session = start(rest, "drawer-fields", mounts=mounts)
        ui = await opened(Sessions, "user2", f"/sessions?session={session['id']}")
        for label, text in (
            ("Status", "Running"),
            ("ID", session["id"]),
            ("Type", "Interactive"),
            ("Resources", "mem 1 GiB"),
            ("Project", "default"),
            ("Resource group", session["resource_group"]),
            ("Agent", session["agent"]),
            ("Owner", "user2"),
            ("Image", session["architecture"]),
        ):
            await ui.fact(label).get_by_text(text).first.wait_for()
        for label in ("Created", "Placed", "Time"):
            await ui.fact(label).wait_for()
        copy = ui.fact("Image").get_by_role("button", name="Copy the name of the image")
        await copy.wait_for()
        await ui.fact("ID").get_by_role("button", name="Copy").wait_for()
        link = ui.fact("Folders").get_by_role("link", name="drawer-data")
        assert created["id"] in (await link.get_attribute("href") or "")

        limits = ui.fact("Ends in")
        await limits.get_by_text("if idle").wait_for()
        await limits.get_by_text("(lifetime)").wait_for()
        await limits.get_by_role("button", name="Help: Idle timeout").click()
        await ui.page.get_by_text("The session is stopped if it is not used").wait_for()
        await limits.get_by_role("button", name="Help: Lifetime").click()
        await ui.page.get_by_text("even if it is in use").wait_for()
        await limits.get_by_role("button", name="Extend the lifetime").click()
        await ui.page.get_by_text("The lifetime is extended").wait_for()
        lifetime = read(rest, f"/sessions/{session['id']}")["lifetime"]
        assert lifetime["added_seconds"] == 3600
        await limits.get_by_role("button", name="Keep alive").click()
        await ui.page.get_by_text("The idle timeout starts again").wait_for()

        await ui.drawer.get_by_role("tab", name="Usage").click()
        for resource in ("CPU", "Memory", "Disk"):
            await ui.drawer.get_by_role("region", name=resource).wait_for()

        await ui.drawer.get_by_role("button", name="Stop").click()
        question = ui.page.get_by_role("dialog", name="Stop drawer-fields?")
        await question.get_by_text("Files that are not in a folder are lost").wait_for()
        await question.get_by_text("Files in /home/work/data are kept.").wait_for()
        await question.get_by_role("button", name="Stop").click()
        wait_for(rest, session["id"], "TERMINATED")
    delete_folder(rest, created["id"])


SERVICES = (
    "sshd:tcp:2222,vscode:http:8180,notebook:http:8100,tensorboard:http:6006,mlflow:http:5500,"
    "nniboard:http:8080,rstudio:http:8787,digits:http:5050,desktop:vnc:5900,remote:rdp:3390,"
    "database:tcp:5432,custom:http:8600"
)
TITLES = (
    *("SSH and SFTP", "Terminal", "Jupyter Notebook", "JupyterLab", "VS Code"),
    *("VS Code (desktop)", "TensorBoard", "MLflow", "NNI", "RStudio", "DIGITS"),
    *("Desktop (VNC)", "Desktop (RDP)", "File browser", "database", "custom"),
)


@pytest.fixture
def app_image(hub: RunningHub) -> Iterator[str]:
    """The name of an image that declares the apps in ``SERVICES``."""
    name = f"cr.example.com/{secrets.token_hex(3)}/apps:1"
    labels = {"ai.backend.service-ports": SERVICES}
    with hub.rest("admin") as admin:
        image = checked(admin.post("/images", json={"name": name, "labels": labels}), 201)["id"]
        yield name
        checked(admin.delete(f"/images/{image}"), 204)


@pytest.mark.checklist("APP-02", "APP-03", "APP-05", "APP-06")
async def test_apps_are_connected_shared_and_opened(
    hub: RunningHub, opened: Opener[Sessions], rest: httpx.Client, app_image: str
) -> None:
    port = free_port()
    session = start(rest, "drawer-apps", image=app_image, preopen_ports=[port])
    ui = await opened(Sessions, "user2", f"/sessions?session={session['id']}")
    await ui.drawer.get_by_role("tab", name="Apps", selected=True).wait_for()
    for title in (*TITLES, f"Port {port}"):
        await ui.drawer.get_by_role("cell", name=title, exact=True).wait_for()

    await ui.press("Connect to Desktop (VNC) of drawer-apps")
    connect = ui.page.get_by_role("dialog", name="Connect to Desktop (VNC)")
    await connect.get_by_text("bai app drawer-apps --tcp 5900 --bind 5900").wait_for()
    await connect.get_by_label("Port on your computer").fill("80")
    await connect.get_by_text("1024 to 65535").wait_for()
    assert await connect.get_by_text("bai app").count() == 0
    await connect.get_by_label("Port on your computer").fill("15900")
    await connect.get_by_text("--tcp 5900 --bind 15900").wait_for()
    await connect.get_by_text("127.0.0.1", exact=True).wait_for()
    await connect.get_by_role("button", name="Close").click()
    await ui.press("Connect to VS Code (desktop) of drawer-apps")
    await ui.page.get_by_role("link", name="Open VS Code").wait_for()
    await ui.page.get_by_role("button", name="Close").last.click()
    # Each dialog begins with the default port of its app, not with the last chosen port.
    await ui.press("Connect to database of drawer-apps")
    await ui.page.get_by_text("--tcp 5432 --bind 5432").wait_for()
    await ui.page.get_by_role("button", name="Close").last.click()
    # A dialog explains what the app needs before the app is opened.
    await ui.press("Open TensorBoard")
    await ui.page.get_by_text("the log folder that you chose last").wait_for()
    await ui.page.get_by_role("button", name="Cancel").click()

    await share_publicly(hub, ui, rest, f"port-{port}", f"Port {port}")

    async with ui.page.context.expect_page() as opening:
        await ui.press(f"Open Port {port}")
        await ui.page.get_by_text(f"listens on port {port}").wait_for()
        await ui.page.get_by_role("dialog").last.get_by_role("link", name="Open").click()
    app = await opening.value
    await app.get_by_text("nothing listens").wait_for()
    server = JupyterServer(hub.url + session["url"], rest.headers["Authorization"].split()[1])
    command = f"python -m http.server {port} --bind 127.0.0.1 & echo st''arted"
    await server.run_in_terminal(command, "started")
    await ui.reload_until(app, "Directory listing")
    stop(rest, session["id"])


async def share_publicly(
    hub: RunningHub, ui: Sessions, rest: httpx.Client, app: str, title: str
) -> None:
    """Share an app with a network, check that this resets the form, and revoke the share."""
    with hub.rest("admin") as admin:
        policy = checked(admin.get("/users/user2"), 200)["resource_policy"]
        with changed(admin, f"/user-policies/{policy}", app_sharing="none"):
            await ui.press(f"Share {title}")
            dialog = ui.page.get_by_role("dialog", name=f"Share {title}")
            await dialog.get_by_label("Everyone at these addresses").check()
            await dialog.get_by_label("Allowed addresses").click()
            await ui.page.keyboard.type("192.0.2.0/24 ")
            await dialog.get_by_role("button", name="Share").click()
            await dialog.get_by_text("your user policy lets you share").wait_for()
        with changed(admin, f"/user-policies/{policy}", app_sharing="public"):
            await dialog.get_by_role("button", name="Share").click()
            await dialog.get_by_text("Everyone at 192.0.2.0/24").wait_for()
            await dialog.get_by_label("One user").and_(ui.page.locator(":checked")).wait_for()
            (share,) = read(rest, "/sessions/drawer-apps/app-shares")["items"]
            assert (share["app"], share["audience"]) == (app, "public")
            assert share["allowed_addresses"] == ["192.0.2.0/24"]
            await dialog.get_by_role("button", name="Revoke the share").click()
            await dialog.get_by_text("Everyone at 192.0.2.0/24").wait_for(state="detached")
            await dialog.get_by_role("button", name="Close").last.click()


@pytest.mark.checklist("CLU-05")
async def test_log_of_each_kernel_of_a_cluster_is_shown(
    hub: RunningHub, opened: Opener[Sessions], rest: httpx.Client
) -> None:
    with three_kernels_allowed(hub):
        resources = {"cpu": "1", "mem": "512m"}
        session = start(rest, "drawer-cluster", cluster_size=2, resources=resources)
        ui = await opened(Sessions, "user2", f"/sessions?session={session['id']}&panel=logs")
        await ui.fact("Cluster").get_by_text("2 kernels").wait_for()
        log = ui.drawer.get_by_role("log")
        await log.get_by_text("Jupyter").first.wait_for()
        await ui.drawer.get_by_label("Kernel").click()
        await ui.page.locator(".ant-select-item-option", has_text="sub1").click()
        await log.get_by_text("Jupyter").first.wait_for(state="detached")
        await log.get_by_text("sshd").first.wait_for()
        stop(rest, session["id"])
