# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Web UI for administrators: changes of several users, keypairs, allowed addresses, and roles."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.mark.checklist("USR-02", "USR-07", "USR-10", "USR-12")
async def test_several_users_are_created_and_changed_together(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    prefix = f"s{secrets.token_hex(3)}-"
    names = [f"{prefix}{number}" for number in range(1, 4)]
    ui = await opened(
        Entities, "admin", f"/users?filters=%7B%22username__contains%22:%22{prefix}%22%7D"
    )
    await ui.page.get_by_role("button", name="Create several users").click()
    await ui.fill(Prefix=prefix, Number_of_users="5", **{"E-mail domain (after @)": "example.com"})
    preview = ui.drawer.locator("output")
    await preview.filter(has_text=f"{prefix}2@example.com, …, {prefix}5@example.com").wait_for()
    await ui.fill(Number_of_users="3")
    try:
        await ui.drawer.get_by_role("button", name="Create 3").click()
        await ui.drawer.get_by_text("Created: 3").wait_for()
        await ui.drawer.get_by_role("button", name="Close").click()

        await ui.select(*names)
        await (
            ui.page.get_by_role("group", name="Selected").get_by_role("button", name="Edit").click()
        )
        await ui.fill(Group_id_in_containers="4242")
        await ui.choose("Resource policy", "default")
        await ui.save()
        await ui.page.get_by_text("Changed: 3").wait_for()
        changed = checked(admin.get(f"/users/{names[1]}"), 200)
        assert (changed["container_gid"], changed["status"]) == (4242, "active")
        assert [project["name"] for project in changed["projects"]] == []

        await ui.select(*names[:2])
        await ui.page.get_by_role("button", name="Deactivate").click()
        await ui.confirm("Deactivate")
        await ui.row(names[0]).get_by_text("inactive").wait_for()
        await ui.view("Inactive")
        await ui.row(names[2]).wait_for(state="detached")
        await ui.show(names[0])
        await ui.drawer.get_by_role("button", name="Activate").click()
        await ui.confirm("Activate")
        await ui.row(names[0]).wait_for(state="detached")
        status = {name: checked(admin.get(f"/users/{name}"), 200)["status"] for name in names}
        assert list(status.values()) == ["active", "inactive", "active"]
        # The deactivation of a user does not change the keypairs.
        (keypair,) = checked(admin.get("/keypairs", params={"user": names[1]}), 200)["items"]
        assert keypair["is_active"] is True
    finally:
        for name in names:
            admin.delete(f"/users/{name}")


@pytest.mark.checklist("KEY-01", "KEY-02", "KEY-03", "KEY-04", "KEY-05", "KEY-06")
async def test_keypairs_are_created_replaced_deactivated_and_deleted(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    (main,) = checked(admin.get("/keypairs", params={"user": "monitor"}), 200)["items"]
    ui = await opened(
        Entities, "admin", "/credentials?filters=%7B%22user__contains%22:%22monitor%22%7D"
    )
    await ui.page.get_by_role("button", name="New keypair").click()
    await ui.choose("User", "monitor")
    await ui.fill(Requests_per_15_minutes="100")
    await ui.drawer.get_by_text("Low limit").wait_for()
    await ui.save()
    secret = ui.page.get_by_role("dialog").filter(has_text="The secret key is shown only now")
    first_secret_key = await secret.locator(".ant-typography").last.inner_text()
    await secret.get_by_role("button", name="OK").click()
    found = checked(admin.get("/keypairs", params={"user": "monitor"}), 200)["items"]
    (keypair,) = [item for item in found if not item["is_main"]]
    key = keypair["access_key"]
    assert keypair["rate_limit"] == 100
    try:
        await ui.show(key)
        await ui.drawer.get_by_role("button", name="Replace secret key").click()
        await ui.confirm("Replace secret key")
        assert await secret.locator(".ant-typography").last.inner_text() != first_secret_key
        await secret.get_by_role("button", name="OK").click()
        await ui.drawer.get_by_role("button", name="Close").first.click()

        # The list shows the owner, the role and the policy of each key; the URL above filters it by
        # user.
        for title in ("Access key", "User", "Role", "Active", "Resource policy", "Last used"):
            await ui.page.get_by_role("columnheader", name=title).wait_for()
        for text in ("monitor", "default", "yes"):
            await ui.row(key).get_by_role("cell", name=text, exact=True).first.wait_for()
        await ui.page.get_by_role("button", name="Columns").click()
        columns = ui.page.get_by_role("dialog", name="Columns")
        for title in ("Requests per 15 minutes", "Created"):
            await columns.get_by_role("checkbox", name=title).check()
        await ui.row(key).get_by_role("cell", name="100", exact=True).wait_for()
        await ui.page.keyboard.press("Escape")
        assert await ui.row(main["access_key"]).count() == 1
        await ui.select(key)
        await ui.page.get_by_role("button", name="Deactivate").click()
        await ui.confirm("Deactivate")
        await ui.page.get_by_text("Changed: 1").wait_for()
        await ui.view("Inactive")
        await ui.row(main["access_key"]).wait_for(state="detached")
        await ui.view("All")
        await ui.show(main["access_key"])
        assert await ui.drawer.get_by_role("button", name="Delete").is_disabled()
        await ui.drawer.get_by_role("button", name="Close").first.click()
        await ui.show(key)
        await ui.drawer.get_by_role("button", name="Delete").click()
        await ui.confirm("Delete")
        await ui.row(key).wait_for(state="detached")
    finally:
        admin.delete(f"/keypairs/{key}")


@pytest.mark.checklist("AUTH-15")
async def test_user_is_signed_out_at_once_when_the_address_is_no_longer_allowed(
    opened: Opener[Entities], admin: httpx.Client, hub: RunningHub
) -> None:
    name = f"webui-{secrets.token_hex(4)}"
    account = {"username": name, "email": f"{name}@example.com", "password": hub.password}
    checked(admin.post("/users", json=account), 201)
    try:
        ui = await opened(Entities, name, "/dashboard")
        await ui.page.get_by_role("heading", name="Dashboard").wait_for()
        rule = {"allowed_client_ip": ["10.20.30.0/24"]}
        checked(admin.patch(f"/users/{name}", json=rule), 200)
        # The page notices the change without an action of the user.
        await ui.page.get_by_text("You are signed out").wait_for()
        await ui.page.get_by_text("This account may not be used from this network").wait_for()
        await ui.page.get_by_role("button", name="Sign in").click()
        await ui.page.locator("#username_input").wait_for()
        assert await ui.page.locator("#content").count() == 0
    finally:
        admin.delete(f"/users/{name}")


async def test_domain_admin_and_monitor_get_only_the_actions_that_they_may_use(
    opened: Opener[Entities],
) -> None:
    ui = await opened(Entities, "domain-admin", "/users?item=admin")
    await ui.drawer.get_by_text("You may only read this").wait_for()
    for action in ("Edit", "Deactivate", "Delete", "Sign out"):
        assert await ui.drawer.get_by_role("button", name=action).count() == 0
    await ui.open("/users?item=user")
    await ui.drawer.get_by_role("button", name="Edit").wait_for()
    # Filter by name: earlier tests may have created more users than one page shows.
    async with ui.page.expect_response(
        lambda response: "/api/v1/users?" in response.url and "acme-user" in response.url
    ) as listed:
        await ui.open('/users?filters={"username":"acme-user"}')
    assert (await (await listed.value).json())["items"] == []
    for name, is_changeable in (("admin", False), ("user", True)):
        await ui.open(f'/users?filters={{"username":"{name}"}}')
        box = ui.page.get_by_role("checkbox", name=name, exact=True)
        await box.wait_for()
        assert await box.is_enabled() is is_changeable

    ui = await opened(Entities, "monitor", "/users?item=user")
    await ui.drawer.get_by_role("cell", name="user@example.com").wait_for()
    assert await ui.drawer.get_by_role("button").count() == 1  # the button that closes the drawer
    for page in ("credentials", "projects", "policies", "presets", "images", "resource-groups"):
        await ui.open(f"/{page}")
        await ui.page.locator(".ant-table-row").first.wait_for()
        # The names of objects are buttons too, but contain no space, so they do not match.
        assert await ui.page.get_by_role("button", name=re.compile("^New ")).count() == 0
        assert await ui.page.get_by_role("checkbox").count() == 0


async def test_objects_are_shown_by_name_and_times_in_the_format_of_the_locale(
    opened: Opener[Entities],
) -> None:
    ui = await opened(Entities, "admin", "/presets")
    await ui.show("cpu-small")
    await ui.drawer.locator(".ant-drawer-title", has_text="cpu-small").wait_for()
    await ui.open('/audit?filters={"entity_name__contains":"user2"}')
    await ui.page.get_by_role("cell", name="user2", exact=True).first.wait_for()
    created = ui.page.get_by_role("row").filter(has_text="User: create")
    assert not re.search("[0-9a-f]{8}-", await created.inner_text())
    await created.get_by_role("cell", name="user2").locator("span").hover()
    await ui.page.get_by_role("tooltip").get_by_text(re.compile("[0-9a-f]{8}-")).wait_for()
    await ui.open("/audit")
    time = ui.page.locator(".ant-table-row").first.get_by_role("cell").nth(1)
    assert re.fullmatch(r"\w{3} \d+, \d{4}, \d+:\d\d:\d\d [AP]M", await time.inner_text())
