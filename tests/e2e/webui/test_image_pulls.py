"""The dialog for pulls of images."""

from __future__ import annotations

import secrets

import pytest
from playwright.async_api import expect

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.mark.checklist("IMG-03")
async def test_dialog_offers_active_images_and_states_why_none_can_be_pulled(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    name = f"pulls-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        images = [
            checked(admin.post("/images", json={"name": f"{name}/{part}:1"}), 201)
            for part in ("used", "retired")
        ]
        checked(admin.patch(f"/images/{images[1]['id']}", json={"is_active": False}), 200)
        try:
            ui = await opened(Entities, "admin", "/images?tab=image-pulls")
            await ui.page.get_by_role("button", name="Pull images").click()
            dialog = ui.page.get_by_role("dialog", name="Pull images")
            await dialog.get_by_role("button", name="Pull images").click()
            await dialog.get_by_text("Choose at least one image").wait_for()
            await dialog.get_by_label("Images", exact=True).fill(name)
            options = ui.page.locator(".ant-select-item-option", has_text=name)
            await options.first.wait_for()
            await expect(options).to_have_count(1)
            await options.first.click()
            await ui.page.keyboard.press("Escape")
            await dialog.get_by_label("Resource group").click()
            await ui.page.locator(".ant-select-item-option", has_text="default").last.click()
            await dialog.get_by_role("button", name="Pull images").click()
            # The agent of this demo has no Docker, so the pull is refused.
            await dialog.get_by_text("has no Docker agent").wait_for()
        finally:
            for image in images:
                admin.delete(f"/images/{image['id']}")
