# ruff: noqa: ASYNC212  # The blocking client only prepares and checks; nothing runs beside it.
"""Administrators' pages: the objects that each role can see, create and change."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.engines import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def new_user(admin: httpx.Client) -> Iterator[str]:
    """The name of a user that the test creates."""
    # A deleted user keeps the name.
    name = f"webui-{secrets.token_hex(4)}"
    yield name
    admin.delete(f"/users/{name}")


@pytest.mark.checklist("USR-01", "USR-04", "USR-05", "USR-06")
async def test_user_is_created_changed_and_deleted(
    opened: Opener[Entities], admin: httpx.Client, new_user: str
) -> None:
    ui = await opened(Entities, "admin", "/users")
    await ui.page.get_by_role("button", name="New user").click()
    await ui.fill(User_name="user", **{"E-mail": f"{new_user}@example.com"})
    await ui.save()
    # The form shows the message of the API and keeps the typed values.
    await ui.drawer.get_by_text("is taken").first.wait_for()
    await ui.fill(User_name=new_user)
    await ui.save()
    secret = ui.page.get_by_role("dialog").filter(has_text="The secret key is shown only now")
    await secret.wait_for()
    await secret.get_by_role("button", name="OK").click()

    await ui.filter(new_user)
    await ui.row("user2").wait_for(state="detached")
    await ui.show(new_user)
    assert f"item={new_user}" in ui.page.url
    await ui.drawer.get_by_role("button", name="Edit").click()
    await ui.fill(Full_name="Web Person")
    await ui.save()
    await ui.row(new_user).get_by_text("Web Person").wait_for()
    found = checked(admin.get(f"/users/{new_user}"), 200)
    assert found["full_name"] == "Web Person"

    await ui.page.reload()
    await ui.drawer.get_by_role("button", name="Delete").click()
    await ui.page.locator(".ant-modal-confirm-btns .ant-btn-dangerous").click()
    await ui.page.get_by_role("dialog").first.wait_for(state="hidden")
    assert checked(admin.get(f"/users/{new_user}"), 200)["status"] == "deleted"


@pytest.mark.checklist("USR-11")
async def test_users_are_imported_after_a_preview(
    opened: Opener[Entities], admin: httpx.Client, new_user: str
) -> None:
    ui = await opened(Entities, "admin", "/users")
    await ui.page.get_by_role("button", name="Import users").click()
    text = f"username,email\n{new_user},{new_user}@example.com\nuser,other@example.com\n"
    file = {"name": "users.csv", "mimeType": "text/csv", "buffer": text.encode()}
    await ui.drawer.locator("input[type=file]").set_input_files(file)
    await ui.drawer.get_by_text(new_user).first.wait_for()
    await ui.drawer.locator(".ant-drawer-footer button.ant-btn-primary").click()
    # The server rejects the second row; the row shows the reason.
    await ui.drawer.get_by_text("is taken").wait_for()
    assert checked(admin.get(f"/users/{new_user}"), 200)["status"] == "active"


@pytest.mark.checklist("POL-01")
async def test_policy_with_limits_is_created(opened: Opener[Entities], admin: httpx.Client) -> None:
    ui = await opened(Entities, "admin", "/policies")
    await ui.page.get_by_role("button", name="New keypair policy").click()
    await ui.fill(Name="webui-policy", Resource_limits="cpu 8")
    await ui.save()
    await ui.drawer.locator(".ant-form-item-explain-error").wait_for()
    await ui.fill(Resource_limits="cpu=8 mem=16g")
    await ui.save()
    try:
        await ui.row("webui-policy").get_by_text("16 GiB").wait_for()
        found = checked(admin.get("/keypair-policies/webui-policy"), 200)
        assert found["total_resource_slots"] == {"cpu": "8", "mem": "16g"}
    finally:
        admin.delete("/keypair-policies/webui-policy")


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
    found = checked(admin.get("/presets", params={"name": name}), 200)["items"][0]
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
        admin.delete(f"/presets/{found['id']}")


@pytest.mark.checklist("AGT-04")
async def test_agent_shows_its_devices_and_stops_accepting_sessions(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    agent = checked(admin.get("/agents"), 200)["items"][0]["id"]
    ui = await opened(Entities, "admin", f"/agents?item={agent}")
    await ui.drawer.get_by_text("simulated").first.wait_for()
    await ui.drawer.get_by_role("button", name="Edit").click()
    await ui.drawer.get_by_role("switch").click()
    await ui.save()
    try:
        await ui.row(agent).get_by_role("cell", name="no", exact=True).wait_for()
        assert checked(admin.get(f"/agents/{agent}"), 200)["schedulable"] is False
    finally:
        checked(admin.patch(f"/agents/{agent}", json={"schedulable": True}), 200)


async def test_member_joins_and_leaves_a_project(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    checked(admin.post("/projects", json={"name": "webui-project"}), 201)
    try:
        ui = await opened(Entities, "domain-admin", "/projects")
        await ui.row("webui-project").get_by_role("button", name="webui-project").click()
        await ui.drawer.get_by_label("User name").fill("user2")
        await ui.drawer.get_by_role("button", name="Add").click()
        await ui.drawer.get_by_role("button", name="Remove user2").click()
        await ui.drawer.get_by_role("button", name="Remove user2").wait_for(state="detached")
    finally:
        checked(admin.delete("/projects/default%2Fwebui-project"), 204)


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
    # The first page may hold only users of other tests.
    await ui.open("/users?search=user2")
    await ui.row("user2").wait_for()
    assert await ui.page.get_by_role("button", name="New user").count() == 0
