"""The tab of image registries: add, scan, change and delete a registry."""

from __future__ import annotations

import secrets

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.mark.checklist("REG-01", "REG-02")
async def test_registry_is_added_scanned_and_deleted(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    name = f"reg-{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/images?tab=image-registries")
    await ui.page.get_by_role("button", name="Add registry").click()
    await ui.fill(Name=name, URL=f"https://{name}.invalid", User_name="robot", Password="pass word")
    await ui.choose("Kind", "Docker registry")
    await ui.save()
    row = ui.row(name)
    await row.get_by_text("Never scanned").wait_for()
    with hub.rest("admin") as admin:
        stored = checked(admin.get(f"/image-registries/{name}"), 200)
        assert (stored["username"], stored["has_password"]) == ("robot", True)
        await row.get_by_role("button", name="Scan").click()
        await row.get_by_text("Failed").wait_for()
        await row.get_by_text("cannot be resolved").wait_for()
        await ui.show(name)
        await ui.drawer.get_by_role("button", name="Delete").click()
        await ui.confirm("Delete")
        await ui.row(name).wait_for(state="detached")
        checked(admin.get(f"/image-registries/{name}"), 404)


async def test_other_administrators_have_no_tab_of_registries(opened: Opener[Entities]) -> None:
    ui = await opened(Entities, "monitor", "/images?tab=image-registries")
    await ui.page.get_by_role("tab", name="Pulls").wait_for()
    assert not await ui.page.get_by_role("tab", name="Registries").count()
