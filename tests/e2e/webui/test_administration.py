# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Administrators' pages: the objects that each role can see, create and change."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.sessions import checked, start, stop
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

if TYPE_CHECKING:
    from playwright.async_api import Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FOLDERS = "Maximum number of folders (0: no limit)"


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def new_user(admin: httpx.Client) -> Iterator[str]:
    """The name of a user that the test will create."""
    # The name of a deleted user cannot be used again, so each run needs another name.
    name = f"webui-{secrets.token_hex(4)}"
    yield name
    admin.delete(f"/users/{name}")


@pytest.mark.checklist("USR-01", "USR-04", "USR-05", "USR-06", "AUTH-13")
async def test_user_is_created_changed_and_deleted(
    opened: Opener[Entities], admin: httpx.Client, new_user: str
) -> None:
    ui = await opened(Entities, "admin", "/users")
    await ui.page.get_by_role("button", name="New user").click()
    # The form contains the default project and names the other defaults.
    projects = ui.drawer.locator(".ant-form-item", has_text="Projects")
    await projects.get_by_text("default", exact=True).first.wait_for()
    await ui.drawer.get_by_text("If empty: user").wait_for()
    await ui.fill(User_name="user", **{"E-mail": f"{new_user}@example.com"})
    await ui.drawer.get_by_text("with a letter, a digit and a special character").wait_for()
    await ui.fill(Password="no-digit-here")
    await ui.save()
    await ui.drawer.get_by_text("must contain a digit").wait_for()
    await ui.fill(Password="")
    await ui.save()
    # The form shows the message of the API and keeps the typed values.
    await ui.drawer.get_by_text("is taken").first.wait_for()
    await ui.fill(User_name=new_user)
    await ui.save()
    secret = ui.page.get_by_role("dialog").filter(has_text="The secret key is shown only now")
    await secret.wait_for()
    await secret.get_by_role("button", name="OK").click()

    # Users, their credentials and projects are neighboring pages.
    links = await ui.page.get_by_role("navigation", name="Pages").get_by_role("link").all()
    names = [await link.inner_text() for link in links]
    at = names.index("Users")
    assert names[at : at + 3] == ["Users", "Keypairs", "Projects"]
    await links[at + 1].click()
    await ui.filter(new_user)
    await ui.page.get_by_role("row").filter(has_text=new_user).get_by_text("yes").first.wait_for()
    await ui.page.get_by_role("link", name="Users", exact=True).click()

    await ui.filter(new_user)
    await ui.row("user2").wait_for(state="detached")
    await ui.show(new_user)
    assert f"item={new_user}" in ui.page.url
    await ui.drawer.get_by_role("button", name="Edit").click()
    await ui.fill(Full_name="Web Person")
    await ui.save()
    await ui.row(new_user).get_by_text("Web Person").wait_for()
    user = checked(admin.get(f"/users/{new_user}"), 200)
    assert user["full_name"] == "Web Person"

    await ui.page.reload()
    await ui.drawer.get_by_role("button", name="Delete").click()
    await ui.page.locator(".ant-modal-confirm-btns .ant-btn-dangerous").click()
    await ui.page.get_by_role("dialog").first.wait_for(state="hidden")
    assert checked(admin.get(f"/users/{new_user}"), 200)["status"] == "deleted"


@pytest.mark.checklist("DASH-08")
async def test_start_page_and_launcher_report_that_the_user_is_in_no_project(
    opened: Opener[Entities], admin: httpx.Client, new_user: str, hub: RunningHub
) -> None:
    body = {"username": new_user, "email": f"{new_user}@example.com", "password": hub.password}
    checked(admin.post("/users", json=body), 201)
    ui = await opened(Entities, new_user, "/start")
    await ui.page.get_by_text(
        "You are not a member of a project, so you cannot start sessions."
    ).wait_for()
    assert await ui.page.get_by_role("button", name="Start now").count() == 0
    await ui.open("/launch")
    await ui.page.get_by_text(
        "You are not a member of a project, so you cannot start sessions."
    ).wait_for()
    await ui.open("/dashboard")
    await ui.page.get_by_text("No session is running or pending.").wait_for()
    await ui.page.get_by_role("heading", name="My quotas").wait_for()
    assert await ui.page.locator("#content .ant-alert-error").count() == 0


async def test_members_that_cannot_be_read_are_not_shown_as_an_empty_list(
    opened: Opener[Entities],
) -> None:
    ui = await opened(Entities, "admin", '/projects?filters={"name":"research"}')

    async def fail(route: Route) -> None:
        await route.fulfill(status=400, json={"error": "invalid-request", "message": "unreadable"})

    await ui.page.route("**/members?*", fail)
    await ui.show("research")
    members = ui.drawer.get_by_role("region", name="Members")
    await members.get_by_text("unreadable").wait_for()
    assert await members.locator(".ant-empty").count() == 0
    await ui.page.unroute("**/members?*")
    await members.get_by_role("button", name="Try again").click()
    await members.get_by_text("unreadable").wait_for(state="detached")


@pytest.mark.checklist("USR-11")
async def test_users_are_imported_after_a_preview(
    opened: Opener[Entities], admin: httpx.Client, new_user: str
) -> None:
    ui = await opened(Entities, "admin", "/users")
    await ui.page.get_by_role("button", name="Import users").click()
    async with ui.page.expect_download() as download:
        await ui.drawer.get_by_role("link", name="Download a template").click()
    assert "username" in (await (await download.value).path()).read_text("utf-8")

    create = ui.drawer.get_by_role("button", name=re.compile(r"^Create \d+ users?$"))
    await choose_csv(ui, "user,other@example.com")
    # All rows have problems: the name is taken.
    await ui.drawer.get_by_text("There is already a user").wait_for()
    assert await create.is_disabled()

    address = f"{new_user}@example.com"
    await choose_csv(
        ui,
        f"{new_user},{address},Ann Author,",
        "user,other@example.com,,",
        f"{new_user}-2,{new_user}-2@example.com,,no-such-domain",
        ",nobody@example.com,,",
    )
    await ui.drawer.get_by_text("2 valid rows, 2 with problems").wait_for()
    for problem in ("There is already a user", "A user name is required."):
        await ui.drawer.get_by_text(problem).wait_for()
    await ui.drawer.get_by_text("2 rows with problems are skipped.").wait_for()
    # The default fills the empty cells of the preview as it is typed.
    row = ui.drawer.get_by_role("row").filter(has_text=address)
    assert await row.get_by_role("cell", name="default", exact=True).count() == 0
    await ui.fill(Domain="default")
    await row.get_by_role("cell", name="default", exact=True).wait_for()
    assert await create.inner_text() == "Create 2 users"
    await create.click()
    # The server creates the first user and refuses the domain of the second.
    await row.get_by_text("Created", exact=True).wait_for()
    refused = ui.drawer.get_by_role("row").filter(has_text=f"{new_user}-2@example.com")
    await refused.locator(".ant-typography-danger", has_text="no-such-domain").wait_for()
    await ui.drawer.get_by_role("button", name="Create 1 user").wait_for()
    created = checked(admin.get(f"/users/{new_user}"), 200)
    assert (created["status"], created["full_name"]) == ("active", "Ann Author")
    assert admin.get(f"/users/{new_user}-2").status_code == 404


async def choose_csv(ui: Entities, *rows: str) -> None:
    """Choose a file with these rows; the case of its column titles does not matter."""
    text = "\n".join(("USERNAME,email,Full_Name,domain_name", *rows))
    file = {"name": "users.csv", "mimeType": "text/csv", "buffer": text.encode()}
    await ui.drawer.locator("input[type=file]").set_input_files(file)


@pytest.mark.checklist("POL-01", "POL-02", "POL-03", "POL-04", "POL-05")
async def test_policies_of_each_kind_are_created(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"webui-{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/policies")
    try:
        await ui.page.get_by_role("button", name="New keypair policy").click()
        await ui.fill(Name=name, Resource_limits="cpu 8")
        await ui.save()
        await ui.drawer.locator(".ant-form-item-explain-error").wait_for()
        await ui.fill(Resource_limits="cpu=8 mem=16g cuda.device=unlimited")
        await ui.fill(
            Maximum_number_of_concurrent_sessions="5",
            **{"Idle timeout (0: no limit)": "10min"},
        )
        await ui.fill(Storage_hosts_with_permissions="local: mount-in-session")
        await ui.choose("Slots that are not listed", "no limit")
        await ui.save()
        await ui.row(name).get_by_text("16 GiB").wait_for()
        policy = checked(admin.get(f"/keypair-policies/{name}"), 200)
        slots = {"cpu": "8", "mem": "16g", "cuda.device": "unlimited"}
        assert policy["total_resource_slots"] == slots
        assert policy["default_for_unspecified"] == "UNLIMITED"
        assert (policy["idle_timeout_seconds"], policy["max_concurrent_sessions"]) == (600, 5)
        assert policy["allowed_vfolder_hosts"] == {"local": ["mount-in-session"]}
        await ui.show(name)
        await ui.drawer.get_by_text("local: mount-in-session").wait_for()
        csv = await ui.page.get_by_role("link", name="Download as CSV").get_attribute("href")
        assert csv == "/services/bai/api/v1/keypair-policies?sort=name&format=csv"

        await ui.open("/policies?tab=user-policies")
        await ui.page.get_by_role("button", name="New user policy").click()
        await ui.fill(
            Name=name,
            **{FOLDERS: "7", "Maximum number of signed-in browsers": "2"},
        )
        await ui.save()
        await ui.row(name).wait_for()
        policy = checked(admin.get(f"/user-policies/{name}"), 200)
        assert (policy["max_vfolder_count"], policy["max_concurrent_logins"]) == (7, 2)

        await ui.open("/policies?tab=project-policies")
        await ui.page.get_by_role("button", name="New project policy").click()
        await ui.fill(
            Name=name,
            **{FOLDERS: "9"},
            **{"Storage quota (bytes; -1: no limit)": "1024"},
        )
        await ui.save()
        await ui.row(name).get_by_text("1 KiB").wait_for()
    finally:
        for kind in ("keypair", "user", "project"):
            admin.delete(f"/{kind}-policies/{name}")


async def test_model_store_is_created_as_a_project(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"webui-store-{secrets.token_hex(4)}"
    ui = await opened(Entities, "admin", f'/projects?filters={{"name__contains":"{name}"}}')
    await ui.page.get_by_role("button", name="New project").click()
    await ui.fill(Name=name)
    await ui.choose("Type", "Model store")
    await ui.save()
    await ui.row(name).wait_for()
    project = checked(admin.get("/projects", params={"name": name}), 200)["items"][0]
    try:
        assert project["type"] == "model-store"
    finally:
        admin.delete(f"/projects/{project['id']}")


@pytest.mark.checklist("PRE-01", "USR-13")
async def test_preset_is_created_and_lists_are_exported(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"webui-{secrets.token_hex(4)}"
    ui = await opened(
        Entities, "admin", f"/presets?filters=%7B%22name__contains%22%3A%22{name}%22%7D"
    )
    await ui.page.get_by_role("button", name="New preset").click()
    await ui.fill(Name=name, Resources="cpu=1 mem=1g", Shared_memory="64m")
    await ui.save()
    await ui.row(name).get_by_text("1 GiB").wait_for()
    preset = checked(admin.get("/presets", params={"name": name}), 200)["items"][0]
    try:
        async with ui.page.expect_download() as started:
            await ui.page.get_by_role("link", name="Download as CSV").click()
        lines = (await (await started.value).path()).read_text("utf-8-sig").splitlines()
        assert len(lines) == 2
        assert name in lines[1]
        await ui.open("/users")
        href = await ui.page.get_by_role("link", name="Download as CSV").get_attribute("href")
        assert href == "/services/bai/api/v1/users?sort=username&format=csv"
    finally:
        admin.delete(f"/presets/{preset['id']}")


@pytest.mark.checklist("AGT-01", "AGT-02", "AGT-03", "AGT-04")
async def test_agents_page_shows_load_devices_and_sessions_and_drains_an_agent(
    opened: Opener[Entities], admin: httpx.Client, hub: RunningHub
) -> None:
    agent = checked(admin.get("/agents"), 200)["items"][0]["id"]
    acme = hub.rest("acme-user")
    resources = {"cpu": "1", "mem": "512m", "cuda.shares": "0.25"}
    session = start(acme, "webui-agent", resources=resources)
    try:
        ui = await opened(Entities, "admin", "/agents")
        await ui.view("Terminated")
        await ui.row(agent).wait_for(state="detached")
        await ui.view("Connected")
        await ui.filter(agent)
        row = ui.row(agent)
        for name in ("cpu", "mem", "cuda.shares", "CPU", "Memory", "Disk"):
            await row.get_by_role("progressbar", name=name, exact=True).wait_for()
        await row.get_by_text("cuda").first.wait_for()

        await ui.show(agent)
        for text in ("process", "up "):
            await ui.drawer.get_by_text(text).first.wait_for()
        device = ui.drawer.get_by_role("row").filter(has_text="simulated")
        await device.get_by_text("(acme-user): 0.25").wait_for()
        await ui.drawer.get_by_role("tab", name="Load").click()
        await ui.drawer.get_by_role("progressbar", name="CPU 0").wait_for()
        for text in ("received", "sent"):
            await ui.drawer.get_by_text(text).wait_for()
        await ui.drawer.get_by_role("tab", name="Sessions").click()
        await ui.drawer.get_by_role("link", name="webui-agent").wait_for()

        await ui.drawer.get_by_role("button", name="Stop new sessions").click()
        await ui.confirm("Stop new sessions")
        await ui.row(agent).get_by_role("cell", name="no", exact=True).wait_for()
        assert checked(admin.get(f"/agents/{agent}"), 200)["schedulable"] is False
        running = checked(acme.get(f"/sessions/{session['id']}"), 200)
        assert running["status"] == "RUNNING"
        await ui.drawer.get_by_role("button", name="Accept sessions").click()
        await ui.confirm("Accept sessions")
        await ui.row(agent).get_by_role("cell", name="yes", exact=True).wait_for()

        # A domain admin sees the share of a device that other domains use, but not their users or
        # sessions. A domain admin cannot change the agent.
        ui = await opened(Entities, "domain-admin", f"/agents?item={agent}")
        await ui.drawer.get_by_text("others: 0.25").wait_for()
        assert await ui.drawer.get_by_text("webui-agent").count() == 0
        assert await ui.drawer.get_by_role("button", name="Edit").count() == 0
        assert await ui.drawer.get_by_role("button", name="Stop new sessions").count() == 0
        stop(acme, session["id"])
        ui = await opened(Entities, "admin", f"/agents?item={agent}")
        await ui.drawer.get_by_role("tab", name="Sessions").click()
        await ui.drawer.locator(".ant-segmented-item", has_text="Finished").click()
        await ui.drawer.get_by_role("link", name="webui-agent").first.wait_for()
    finally:
        checked(admin.patch(f"/agents/{agent}", json={"schedulable": True}), 200)
        acme.delete(f"/sessions/{session['id']}")


@pytest.mark.checklist("PRJ-01")
async def test_member_joins_and_leaves_a_project(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"webui-{secrets.token_hex(3)}"
    project = checked(admin.post("/projects", json={"name": name}), 201)
    try:
        # Without the filter, the list may contain projects of other tests.
        path = f'/projects?filters={{"name__contains":"{name}"}}'
        ui = await opened(Entities, "domain-admin", path)
        await ui.show(name)
        await ui.drawer.get_by_label("User name").fill("user2")
        await ui.drawer.get_by_role("button", name="Add", exact=True).click()
        await ui.drawer.get_by_role("button", name="Remove user2").click()
        await ui.drawer.get_by_role("button", name="Remove user2").wait_for(state="detached")
        await ui.drawer.get_by_role("button", name="Deactivate").click()
        await ui.confirm("Deactivate")
        await ui.drawer.get_by_role("button", name="Activate").wait_for()
        await ui.drawer.get_by_role("button", name="Close").first.click()
        await ui.view("Inactive")
        await ui.row(name).get_by_role("checkbox").check()
        await ui.page.get_by_role("button", name="Activate", exact=True).click()
        await ui.confirm("Activate")
        await ui.row(name).wait_for(state="detached")
        assert checked(admin.get(f"/projects/{project['id']}"), 200)["is_active"] is True
    finally:
        checked(admin.delete(f"/projects/{project['id']}"), 204)


@pytest.mark.parametrize(
    ("username", "pages", "forbidden"),
    [
        ("user", [], "/users"),
        ("domain-admin", ["Users", "Agents", "Audit log"], "/images"),
        ("monitor", ["Users", "Images", "Resource groups"], None),
    ],
)
async def test_pages_and_buttons_depend_on_the_role(
    opened: Opener[Entities], username: str, pages: list[str], forbidden: str | None
) -> None:
    ui = await opened(Entities, username, "/start")
    for page in pages:
        await ui.page.get_by_role("link", name=page, exact=True).wait_for()
    if forbidden is not None:
        await ui.open(forbidden)
        await ui.page.get_by_text("You may not open this page").wait_for()
        return
    # Without the filter, the first page may contain only users of other tests.
    await ui.open('/users?filters={"username":"user2"}')
    await ui.row("user2").wait_for()
    assert await ui.page.get_by_role("button", name="New user").count() == 0


async def test_monitor_is_offered_nothing_that_starts_sessions_or_creates_folders(
    opened: Opener[Entities],
) -> None:
    from playwright.async_api import expect

    ui = await opened(Entities, "monitor", "/start")
    content = ui.page.locator("#content")
    for card in ("Active sessions", "Agent statistics", "Recently created sessions"):
        await content.get_by_role("region", name=card, exact=True).wait_for()
    await content.get_by_text("Agents alive").wait_for()
    await content.get_by_role("link", name="Scheduler").wait_for()
    # The page gets the role with its first response, so wait until the link is absent.
    await expect(ui.page.get_by_role("link", name="New session")).to_have_count(0)
    for text in ("First steps", "Start now", "New folder"):
        await expect(ui.page.get_by_text(text)).to_have_count(0)
    await ui.open("/launch")
    await ui.page.get_by_text("Your role is read-only").wait_for()
    for page in ("sessions", "data"):
        await ui.open(f"/{page}")
        await ui.page.locator("tbody tr").first.wait_for()
        for text in ("New session", "New folder", "Stop selected"):
            await expect(ui.page.get_by_role("button", name=text)).to_have_count(0)
        await expect(ui.page.get_by_role("checkbox")).to_have_count(0)
