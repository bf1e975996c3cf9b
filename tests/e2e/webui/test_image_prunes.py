"""Images on agents: the dialog that removes unused ones, and the packages of an image."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from bai_services.client import Client, Token
from bai_services.core.cluster.sbom import pack_sbom
from tests.api.cluster.test_image_prunes import DAY, answer
from tests.api.cluster.test_image_sboms import LABELS
from tests.api.cluster.test_image_sboms import answer as answer_sbom
from tests.core.cluster.test_sbom import CYCLONEDX
from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.fake_agent import FakeAgent

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@asynccontextmanager
async def docker_agent(hub: RunningHub) -> AsyncIterator[FakeAgent]:
    """An agent with the Docker engine, alone in a resource group with its name."""
    name = f"prune-{secrets.token_hex(3)}"
    token = (hub.home / "secrets" / "agent-token").read_text().strip()
    client = Client(f"{hub.url}/services/bai", Token(token))
    agent = FakeAgent(client, name, group=name, engine="docker", endpoint="unix:///nothing")
    with hub.rest("admin") as admin:
        checked(admin.post("/resource-groups", json={"name": name}), 201)
        try:
            await agent.beat(images=[f"{name}/old:1"])
            yield agent
        finally:
            await agent.beat(is_leaving=True)
            checked(admin.delete(f"/agents/{name}"), 204)
            checked(admin.delete(f"/resource-groups/{name}"), 204)
            await client.close()


async def press(button: Locator, agent: FakeAgent, image: dict[str, Any]) -> dict[str, Any]:
    """Press a button that sends a request to the agent, and report an image; return the request."""
    await agent.beat()
    item, _ = await asyncio.gather(answer(agent, image), button.click())
    return item


async def test_unused_images_are_shown_before_they_are_removed(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    async with docker_agent(hub) as agent:
        image = f"{agent.id}/old:1"
        unused = {"image": image, "size_bytes": 2**30, "last_used": 1_700_000_000}
        ui = await opened(Entities, "admin", "/images")
        await ui.page.get_by_role("button", name="Remove unused images").click()
        dialog = ui.page.get_by_role("dialog", name="Remove unused images")
        list_images = dialog.get_by_role("button", name="List images")
        await list_images.click()
        await dialog.get_by_text("Choose a resource group").wait_for()
        await dialog.get_by_label("Resource group").fill(agent.id)
        await ui.page.locator(".ant-select-item-option", has_text=agent.id).click()
        days = dialog.get_by_label("Unused for at least (days)")
        await days.fill("7")
        remove = dialog.get_by_role("button", name="Remove 1 image")
        await expect(remove).to_have_count(0)
        item = await press(list_images, agent, unused)
        assert (item["is_dry_run"], item["unused_seconds"]) == (True, 7 * DAY)
        row = dialog.get_by_role("row").filter(has_text=image)
        await row.get_by_text("1 GiB").wait_for()
        # A change of the number of days invalidates the list, so the images cannot be removed until
        # they are listed again.
        await days.fill("8")
        await expect(remove).to_have_count(0)
        await press(list_images, agent, unused)
        item = await press(remove, agent, {**unused, "is_removed": True})
        assert (item["is_dry_run"], item["unused_seconds"]) == (False, 8 * DAY)
        await row.get_by_text("Removed").wait_for()
        await expect(remove).to_have_count(0)


async def test_the_packages_of_an_image_are_shown_and_saved(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    async with docker_agent(hub) as agent:
        name = f"{agent.id}/old:1"
        with hub.rest("admin") as admin:
            spec = {"name": name, "labels": LABELS}
            image = checked(admin.post("/images", json=spec), 201)
            try:
                await agent.beat(facts={"image_digests": {name: ""}})
                ui = await opened(Entities, "admin", f"/images?item={image['id']}")
                section = ui.page.get_by_role("region", name="Packages (SBOM)")
                packed = pack_sbom(json.dumps(CYCLONEDX).encode())
                show = section.get_by_role("button", name="Show packages")
                await asyncio.gather(answer_sbom(agent, sbom=packed), show.click())
                await section.get_by_text("CycloneDX 1.6, 3 packages").wait_for()
                await section.get_by_role("row").filter(has_text="toolz").wait_for()
                await section.get_by_label("Search packages").fill("CURL")
                await expect(section.get_by_role("row").filter(has_text="toolz")).to_have_count(0)
                await section.get_by_role("row").filter(has_text="7.88.1-10").wait_for()
                async with ui.page.expect_download() as download:
                    await section.get_by_role("button", name="Download SBOM").click()
                saved = await (await download.value).path()
                assert json.loads(saved.read_text()) == CYCLONEDX
            finally:
                checked(admin.delete(f"/images/{image['id']}"), 204)
