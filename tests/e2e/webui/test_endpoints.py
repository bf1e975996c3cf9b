"""The page of endpoints: an endpoint from its creation to its deletion."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

USER = "user2"
SERVER = "exec python3 -m http.server --bind 127.0.0.1 $BAI_SERVICE_PORT"


class Endpoints(Entities):
    """The page `/endpoints`."""

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).last.click()

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name, exact=True).click()

    def status(self, name: str, text: str) -> Locator:
        """Return the status of an endpoint in the list, if it has the text."""
        return self.row(name).get_by_text(text, exact=True)


@pytest.mark.checklist(
    "SRV-01",
    "SRV-02",
    "SRV-03",
    "SRV-04",
    "SRV-05",
    "SRV-06",
    "SRV-07",
    "SRV-08",
    "SRV-09",
    "SRV-11",
    "SRV-12",
    "SRV-13",
    "SRV-14",
    "SRV-16",
)
async def test_endpoint_is_created_gets_a_token_is_paused_and_deleted(
    hub: RunningHub, opened: Opener[Endpoints]
) -> None:
    name = f"served-{secrets.token_hex(3)}"
    with hub.rest(USER) as rest:
        ui = await opened(Endpoints, USER, "/endpoints")
        try:
            await create(ui, name)
            found = checked(rest.get(f"/endpoints/{name}"), 200)
            assert ui.page.url.endswith(f"?item={found['id']}")
            await create_token(ui)
            assert checked(rest.get(f"/endpoints/{name}/tokens"), 200)["total"] == 1
            await ui.tab("Replicas")
            replicas = ui.page.get_by_role("tabpanel", name="Replicas")
            for title in ("Session", "Phase", "Requests", "Session status", "Revision", "Reason"):
                await replicas.get_by_role("columnheader", name=title, exact=True).wait_for()
            link = replicas.get_by_role("link", name="Log", exact=True).first
            address = await link.get_attribute("href") or ""
            assert found["id"] not in address
            assert "panel=logs" in address
            await read_history(ui)
            await scale_by_rule(ui)
            assert checked(rest.get(f"/endpoints/{name}"), 200)["scaling"] is None
            await deploy(ui)
            revisions = checked(rest.get(f"/endpoints/{name}/revisions"), 200)["items"]
            assert revisions[0]["settings"]["request"]["environ"] == {"TEXT": "a=b"}
            await save_and_apply(ui)
            revisions = checked(rest.get(f"/endpoints/{name}/revisions"), 200)["items"]
            assert revisions[0]["outcome"] != "saved"
            assert revisions[0]["settings"]["request"]["environ"] == {"TEXT": "saved"}
            await tag(ui, name)
            await ui.press("Pause")
            await ui.confirm("Pause")
            await ui.status(name, "Paused").wait_for()
            await delete(ui, name)
        finally:
            rest.delete(f"/endpoints/{name}")


async def create(ui: Endpoints, name: str) -> None:
    """Create an endpoint; errors are shown at their fields."""
    await ui.press("New endpoint")
    await ui.choose("Runtime variant", "Model definition")
    await ui.drawer.get_by_label("Model definition (YAML)").fill("models:\n  - nonsense: 1\n")
    await ui.press("Check the definition")
    await ui.drawer.get_by_text("line 2").wait_for()
    await ui.choose("Runtime variant", "Own command")
    await ui.press("Enter the name of an image")
    await ui.fill(Name=name, Command=SERVER, Health_path="/", Image="cr.example.com/none:1")
    await ui.drawer.get_by_label("CPU cores, per replica").fill("1")
    await ui.drawer.get_by_label("Memory, per replica").fill("256m")
    await ui.press("Create")
    message = ui.drawer.locator(".ant-form-item-explain-error")
    await message.filter(has_text="there is no image 'cr.example.com/none:1'").wait_for()
    await ui.press("Choose from the list")
    await message.wait_for(state="detached")
    # The list is searched by a part of the name.
    await ui.choose("Image", "session")
    await ui.drawer.get_by_label("Tags").fill("first,")
    await ui.choose("Resource preset", "cpu-small")
    assert await ui.drawer.get_by_label("CPU cores, per replica").count() == 0
    await ui.drawer.get_by_label("Resource preset").press("Backspace")
    await try_twice(ui)
    await ui.press("Create")
    await ui.page.get_by_role("tab", name="Overview").wait_for()


async def create_token(ui: Endpoints) -> None:
    """Create a token that expires in 30 days, and read it in the dialog."""
    await ui.tab("Tokens")
    await ui.press("New token")
    await ui.fill(Name="my-app")
    await ui.drawer.get_by_label("Expires").click()
    await ui.page.get_by_text("In 30 days").click()
    await ui.save()
    shown = ui.page.locator(".ant-modal-confirm code")
    assert (await shown.inner_text()).startswith("bais_")
    await ui.press("OK")
    await ui.page.get_by_role("button", name="Revoke my-app").wait_for()


async def try_twice(ui: Endpoints) -> None:
    """Start a trial of the form and read its result; end another one before it has a result."""
    await ui.press("Try")
    dialog = ui.page.get_by_role("dialog", name="Trial")
    await dialog.get_by_text("The trial is running").wait_for()
    # A trial succeeds when the replica is healthy, not already when its process has started.
    await dialog.get_by_text("The replica is healthy").wait_for()
    await dialog.get_by_label("Last lines of the output").get_by_text("GET / HTTP").first.wait_for()
    await dialog.get_by_role("button", name="Close").last.click()
    await dialog.wait_for(state="hidden")

    await ui.press("Try")
    await dialog.get_by_text("The trial is running").wait_for()
    await dialog.get_by_role("button", name="End the trial").click()
    await dialog.wait_for(state="hidden")


async def read_history(ui: Endpoints) -> None:
    """Read the phases of the first replica."""
    await ui.page.get_by_role("tabpanel").get_by_role("button", name="History").first.click()
    dialog = ui.page.get_by_role("dialog", name="History")
    await dialog.get_by_text("Starting", exact=True).first.wait_for()
    await dialog.get_by_role("button", name="Close").click()


async def tag(ui: Endpoints, name: str) -> None:
    """Add a tag, find the endpoint by the tag, and read who has added the tag."""
    await ui.press("Limits")
    await ui.drawer.get_by_label("Tags").fill("nightly")
    await ui.drawer.get_by_label("Tags").press("Enter")
    await ui.save()
    await ui.tab("Actions")
    panel = ui.page.get_by_role("tabpanel", name="Actions")
    await panel.get_by_text(",first,nightly,").wait_for()
    await ui.tab("Overview")
    await ui.page.get_by_role("tabpanel").get_by_text("nightly", exact=True).wait_for()


async def scale_by_rule(ui: Endpoints) -> None:
    """Add a rule with bounds for times of the week; then change and remove the rule."""
    await ui.tab("Scaling")
    await ui.press("Add a rule")
    dialog = ui.page.get_by_role("dialog", name="Scaling rule of")
    await dialog.get_by_label("Requests per replica").fill("4")
    await dialog.get_by_role("button", name="Add bounds for times of the week").click()
    await dialog.get_by_role("button", name="Save").click()
    await dialog.wait_for(state="hidden")
    await ui.page.get_by_text("08:00–20:00").wait_for()
    await ui.press("Edit the rule")
    await dialog.get_by_label("Requests per replica").fill("5")
    await dialog.get_by_role("button", name="Remove", exact=True).click()
    await dialog.get_by_role("button", name="Save").click()
    await ui.page.get_by_text("08:00–20:00").wait_for(state="detached")
    await ui.press("Remove the rule")
    await ui.confirm("Remove the rule")
    await ui.page.get_by_text("No rule: the endpoint has 1 replica at all times.").wait_for()


async def deploy(ui: Endpoints) -> None:
    """Deploy a revision; the form has the settings of the previous one."""
    await ui.tab("Revisions")
    await ui.press("New revision")
    await ui.drawer.get_by_text("New revision of").wait_for()
    assert await ui.drawer.get_by_label("Command", exact=True).input_value() == SERVER
    await ui.fill(Environment_variables="TEXT=a=b")
    await ui.press("Deploy")
    await ui.page.get_by_text("request.environ.TEXT").wait_for()


async def save_and_apply(ui: Endpoints) -> None:
    """Save a revision without a rollout, and begin its rollout later."""
    await ui.press("New revision")
    await ui.drawer.get_by_text("New revision of").wait_for()
    await ui.fill(Environment_variables="TEXT=saved", Kernels="1")
    await ui.drawer.get_by_label("Apply immediately").uncheck()
    await ui.press("Save")
    saved = ui.page.get_by_text("Saved, not applied")
    await saved.wait_for()
    await ui.press("Apply")
    await ui.confirm("Apply")
    await saved.wait_for(state="detached")


async def delete(ui: Endpoints, name: str) -> None:
    """Delete an endpoint after reading what will be lost."""
    await ui.press("Delete")
    dialog = ui.page.get_by_role("dialog", name=f"Delete {name}?")
    await dialog.get_by_text("1 token is deleted.").wait_for()
    await dialog.get_by_label(f"Type {name} to confirm").fill(name)
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await dialog.wait_for(state="hidden")
    await ui.row(name).wait_for(state="detached")
