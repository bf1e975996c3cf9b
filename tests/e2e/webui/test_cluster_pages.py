# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Images, resource groups and storage hosts, as administrators see them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@asynccontextmanager
async def held_reads(page: Page, path: str) -> AsyncIterator[None]:
    """Delay each GET request for the list at this path until the end of the block."""
    release = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "GET":
            await release.wait()
        await route.continue_()

    await page.route(f"**/api/v1{path}**", hold)
    try:
        yield
    finally:
        release.set()
        await page.unroute_all(behavior="wait")


@pytest.mark.checklist("IMG-01", "IMG-02", "IMG-04", "IMG-05")
async def test_image_gets_aliases_apps_and_minimum_resources(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    alias = f"a{secrets.token_hex(3)}"
    name = f"cr.example.com/webui/{alias}:1.0"
    labels = {"ai.backend.service-ports": "lab:http:8090"}
    image = checked(admin.post("/images", json={"name": name, "labels": labels}), 201)["id"]
    try:
        ui = await opened(Entities, "admin", "/images")
        await ui.view("Active")
        await ui.filter(alias)
        await ui.show(name)
        await ui.drawer.get_by_text("cr.example.com", exact=True).wait_for()
        await ui.fill(New_alias=alias)
        await ui.drawer.get_by_role("button", name="Add", exact=True).click()
        await ui.drawer.get_by_role("button", name=f"Remove alias {alias}").wait_for()
        apps = ui.drawer.get_by_role("region", name="Apps")
        await apps.get_by_role("button", name="Add app").click()
        await apps.get_by_label("App name").last.fill("board")
        await apps.get_by_label("Ports").last.fill("80")
        await apps.get_by_role("button", name="Save apps").click()
        await ui.confirm("Save apps")
        await apps.get_by_text("ports must be").wait_for()
        await apps.get_by_label("Ports").last.fill("8100, 8101")
        async with held_reads(ui.page, "/images"):
            await apps.get_by_role("button", name="Save apps").click()
            async with ui.page.expect_response(lambda answer: answer.request.method == "PATCH"):
                await ui.confirm("Save apps")
            # The form opens with the old list of apps, and must not restore that list.
            await ui.drawer.get_by_role("button", name="Edit", exact=True).click()
            await ui.fill(Minimum_resources="cpu=2 mem=2g")
        await ui.page.get_by_text("board", exact=True).wait_for()
        await ui.save()
        await ui.row(name).get_by_text("2 GiB").wait_for()
        found = checked(admin.get(f"/images/{alias}"), 200)
        assert (found["name"], found["apps"]) == (name, ["lab", "board"])
        assert found["labels"]["ai.backend.service-ports"] == (
            "lab:http:8090,board:http:[8100,8101]"
        )
        await ui.drawer.get_by_role("button", name=f"Remove alias {alias}").click()
        removal = ui.drawer.get_by_role("button", name=f"Remove alias {alias}")
        await removal.wait_for(state="detached")
        assert admin.get(f"/images/{alias}").status_code == 404
    finally:
        admin.delete(f"/images/{image}")


@pytest.mark.checklist("RG-01", "RG-02")
async def test_resource_group_is_created_and_linked_to_a_domain(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"g{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/resource-groups")
    await ui.page.get_by_role("button", name="New resource group").click()
    await ui.fill(Name=name, Scheduler_options='{"pending_timeout": -1}')
    await ui.save()
    try:
        await ui.drawer.get_by_text("pending_timeout").last.wait_for()
        await ui.fill(Scheduler_options='{"pending_timeout": 600}')
        await ui.choose("Order", "fair share")
        await ui.choose("Session types", "Batch")
        await ui.save()
        await ui.row(name).get_by_text("fair share").wait_for()
        found = checked(admin.get(f"/resource-groups/{name}"), 200)
        assert (found["scheduler"], found["allowed_session_types"]) == ("fair-share", ["batch"])
        await ui.show(name)
        settings = ui.drawer.get_by_role("region", name="Provisioning of machines")
        await settings.get_by_role("button", name="Change provisioning").click()
        await settings.get_by_label("Resources of a machine").fill("cpu=8 mem=32g")
        await settings.get_by_role("button", name="Save").click()
        # The demo has no command that starts machines, so the settings are rejected.
        await ui.page.get_by_text("set BAI_PROVISIONING_COMMAND").first.wait_for()
        await settings.get_by_role("button", name="Cancel").click()
        await ui.choose("Account", "acme")
        await ui.drawer.get_by_role("button", name="Add", exact=True).click()
        await ui.drawer.get_by_role("button", name="Remove acme").click()
        await ui.drawer.get_by_role("button", name="Remove acme").wait_for(state="detached")
        await ui.drawer.get_by_role("button", name="Deactivate").click()
        await ui.confirm("Deactivate")
        await ui.drawer.get_by_role("button", name="Activate", exact=True).wait_for()
        assert checked(admin.get(f"/resource-groups/{name}"), 200)["is_active"] is False
    finally:
        admin.delete(f"/resource-groups/{name}")


@pytest.mark.checklist("STO-01", "STO-02", "STO-03", "STO-04")
async def test_quota_and_permissions_of_a_host_are_changed(
    opened: Opener[Entities], admin: httpx.Client, hub: RunningHub
) -> None:
    name = f"webui-{secrets.token_hex(3)}"
    with hub.rest("user2") as user:
        folder = checked(user.post("/vfolders", json={"name": name}), 201)
    project = checked(admin.post("/projects", json={"name": name}), 201)
    try:
        ui = await opened(Entities, "admin", "/storage")
        await ui.row("local").get_by_role("progressbar").wait_for()
        await ui.show("local")
        await ui.drawer.get_by_label("Find by name").fill("user2")
        await ui.drawer.get_by_label("Find by name").press("Enter")
        await ui.drawer.get_by_role("button", name="Edit the limit of user2").click()
        await ui.page.get_by_label("Limit in GiB").fill("3")
        await ui.page.locator(".ant-popover").get_by_role("button", name="Save").click()
        await ui.drawer.get_by_text("3 GiB").wait_for()
        await ui.drawer.get_by_role("button", name="Unset the limit of user2").click()
        await ui.confirm("Unset")
        await ui.drawer.get_by_role("button", name="Unset the limit").wait_for(state="detached")

        permissions = ui.drawer.get_by_role("region", name="Permissions")
        await permissions.locator(".ant-segmented-item", has_text="Project").click()
        await ui.choose("Name", name)
        await permissions.get_by_role("checkbox", name="Upload files").click()
        await permissions.get_by_role("checkbox", name="Upload files", checked=True).wait_for()
        await permissions.get_by_text("granted by the domain").first.wait_for()
        changed = checked(admin.get(f"/projects/{project['id']}"), 200)
        assert changed["allowed_vfolder_hosts"] == {"local": ["upload-file"]}
    finally:
        admin.delete(f"/projects/{project['id']}")
        with hub.rest("user2") as user:
            user.delete(f"/vfolders/{folder['id']}")
            user.post(f"/vfolders/{folder['id']}/purge")
