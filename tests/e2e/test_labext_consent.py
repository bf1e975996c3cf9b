"""After the user's consent, the panel shares folders, uploads files and creates sessions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import lab
from tests.e2e.contrast import assert_contrast
from tests.e2e.panel import panel_of_new_session, take_screenshot
from tests.e2e.sessions import checked, stop
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Locator, Page, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Size in bytes of a file with three chunks.
SIZE = 20_000_000
DROP = """
(node, [name, size]) => {
    const bytes = new Uint8Array(size);
    for (let i = 0; i < size; i += 1) bytes[i] = (i * 7 + (i >> 8) + (i >> 16)) & 255;
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name));
    for (const type of ['dragover', 'drop']) {
        node.dispatchEvent(new DragEvent(type, {dataTransfer, bubbles: true, cancelable: true}));
    }
}
"""
# DELAY_IDLE delays the browser's idle callbacks by 2 s. WAIT_FOR_IDLE waits for such a callback.
DELAY_IDLE = "window.requestIdleCallback = done => setTimeout(done, 2000)"
WAIT_FOR_IDLE = "new Promise(done => requestIdleCallback(done))"


def content(size: int) -> bytes:
    return bytes((i * 7 + (i >> 8) + (i >> 16)) & 255 for i in range(size))


def row_of(page: Page, name: str) -> Locator:
    panel = page.locator("#bai-session-panel")
    return panel.locator("li", has=page.get_by_text(name, exact=True))


async def allow(page: Page, hub: RunningHub) -> None:
    """Give consent on the manager's page, which opens in a window."""
    async with page.expect_popup() as opened:
        await page.locator(".jp-Dialog").get_by_role("button", name="Open window").click()
    window = await opened.value
    await window.wait_for_url(f"{hub.url}/services/bai/panel-login?**")
    async with page.expect_response("**/auth/code/redeem"), window.expect_event("close"):
        await window.click('form button[type="submit"]')
    # A page in the background gets no focus events.
    await page.bring_to_front()


async def test_the_panel_shares_folders_and_accepts_invitations(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "to-share"}), 201)
    async with panel_of_new_session(profile, hub, "panel-share") as (page, session):
        await page.get_by_role("button", name="Share: to-share").click()
        await allow(page, hub)
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_text("The folder is not shared.").wait_for(timeout=lab.TIMEOUT_MS)
        await dialog.get_by_label("User name or e-mail").fill("user2")
        await dialog.get_by_label("Permission", exact=True).select_option("rw")
        # Enter submits the form and does not close the dialog.
        await dialog.get_by_label("User name or e-mail").press("Enter")
        await dialog.get_by_text("user2 was invited").wait_for()
        await dialog.get_by_label("User name or e-mail").fill("nobody-of-that-name")
        await dialog.get_by_role("button", name="Invite").click()
        await dialog.get_by_role("alert").get_by_text("nobody-of-that-name").wait_for()
        await take_screenshot(page, "share", tmp_path)
        other = hub.rest("user2")
        invitations = checked(other.get("/vfolder-invitations"), 200)["items"]
        invitation = next(item for item in invitations if item["vfolder_id"] == folder["id"])
        assert invitation["permission"] == "rw"
        await dialog.get_by_role("button", name="Withdraw: user2").click()
        await dialog.get_by_role("button", name="Withdraw: user2").wait_for(state="hidden")
        await dialog.get_by_role("button", name="Close", exact=True).click()
        # After the user accepts an invitation, the panel lists the folder.
        lent = checked(other.post("/vfolders", json={"name": "lent"}), 201)
        checked(other.put(f"/vfolders/{lent['id']}/grants/user", json={"permission": "ro"}), 200)
        assert rest.get(f"/vfolders/{lent['id']}").status_code == 404
        await page.get_by_role("button", name="Offered to you").click()
        await dialog.get_by_role("button", name="Accept: lent").click()
        await dialog.get_by_text("No folders are offered to you.").wait_for()
        await dialog.get_by_role("button", name="Close", exact=True).click()
        await row_of(page, "lent").wait_for(timeout=lab.TIMEOUT_MS)
    assert checked(rest.get(f"/vfolders/{lent['id']}"), 200)["permission"] == "ro"
    checked(other.delete(f"/vfolders/{lent['id']}"), 204)
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


async def test_dropped_files_are_uploaded_and_interrupted_uploads_resume(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "dropped"}), 201)
    broken: list[str] = []

    async def abort_one_chunk(route: Route) -> None:
        offset = route.request.headers.get("upload-offset", "0")
        if route.request.method == "PATCH" and offset != "0" and not broken:
            broken.append(offset)
            await route.abort()
        else:
            await route.continue_()

    async with panel_of_new_session(profile, hub, "panel-upload") as (page, session):
        await page.route("**/uploads/*", abort_one_chunk)
        row = row_of(page, "dropped")
        await row.evaluate(DROP, ["big.bin", SIZE])
        await allow(page, hub)
        await row.get_by_text("1 of 1 files uploaded").wait_for(timeout=lab.TIMEOUT_MS)
        assert broken
        kept = rest.get(f"/vfolders/{folder['id']}/content", params={"path": "big.bin"})
        assert hashlib.sha256(kept.content).digest() == hashlib.sha256(content(SIZE)).digest()

        # Before an existing file is replaced, the panel asks for confirmation.
        await row.evaluate(DROP, ["big.bin", 12])
        await row.get_by_text("A file with this name exists already.").wait_for()
        await take_screenshot(page, "upload-exists", tmp_path)
        assert size_of(rest, folder, "big.bin") == SIZE
        await row.get_by_role("button", name="Replace: big.bin").click()
        await row.get_by_text("2 of 2 files uploaded").wait_for(timeout=lab.TIMEOUT_MS)
        assert size_of(rest, folder, "big.bin") == 12
        await row.evaluate(DROP, ["empty", 0])
        await row.get_by_text("3 of 3 files uploaded").wait_for(timeout=lab.TIMEOUT_MS)
        assert size_of(rest, folder, "empty") == 0
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def size_of(rest: Any, folder: dict[str, Any], name: str) -> int:
    files = checked(rest.get(f"/vfolders/{folder['id']}/files"), 200)["items"]
    return int(next(file["size"] for file in files if file["name"] == name))


async def tab_into_form(page: Page, dialog: Locator) -> None:
    """Press Tab on the last button until the first field has the focus.

    The page regains the focus some time after the consent window is closed. Then the dialog moves
    the focus to its button, so one press of Tab may not be enough.
    """
    first = dialog.get_by_label("Name").and_(page.locator(":focus"))

    async def has_focus() -> bool:
        await dialog.get_by_role("button", name="Start").press("Tab")
        return await first.count() == 1

    await wait_until_async(has_focus, lab.TIMEOUT_MS / 1000, "the focus on the first field")


async def test_the_panel_creates_a_session(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    async with panel_of_new_session(profile, hub, "panel-start") as (page, session):
        await page.evaluate(DELAY_IDLE)
        await page.get_by_role("button", name="New session").click()
        await allow(page, hub)
        dialog = page.get_by_role("dialog", name="New session")
        await dialog.get_by_label("Name").wait_for(timeout=lab.TIMEOUT_MS)
        await page.evaluate(WAIT_FOR_IDLE)
        await tab_into_form(page, dialog)
        await page.keyboard.type("x")
        await dialog.get_by_label("Your own ports").fill("8501, 2200")
        await dialog.get_by_role("button", name="Start").click()
        # The panel shows each error next to its field and keeps the values.
        await dialog.get_by_role("alert").get_by_text("4 to 64").wait_for()
        await dialog.get_by_role("alert").get_by_text("Port 2200 is used").wait_for()
        for label, why in (("Name", "4 to 64"), ("Your own ports", "Port 2200 is used")):
            field = dialog.get_by_label(label)
            assert await field.get_attribute("aria-invalid") == "true"
            described = (await field.get_attribute("aria-describedby") or "").split()[0]
            assert why in await page.locator(f"#{described}").inner_text()
        assert await dialog.get_by_label("Name").input_value() == "x"
        await dialog.get_by_label("Name").and_(page.locator(":focus")).wait_for()
        await take_screenshot(page, "start", tmp_path)
        await assert_contrast(dialog, "start", tmp_path)
        await dialog.get_by_role("link", name="Your own ports").click()
        await dialog.get_by_label("Your own ports").and_(page.locator(":focus")).wait_for()
        await dialog.get_by_label("Name").fill("from-the-panel")
        assert await dialog.get_by_label("Name").get_attribute("aria-invalid") is None
        await dialog.get_by_label("Your own ports").fill("8501, 9000")
        await dialog.get_by_role("button", name="Start").click()
        await row_of(page, "from-the-panel").wait_for(timeout=lab.TIMEOUT_MS)
    made = checked(rest.get("/sessions/from-the-panel"), 200)
    assert (made["image"], made["preopen_ports"]) == (session["image"], [8501, 9000])
    stop(rest, made["id"])


async def test_the_panel_asks_for_consent_again_after_denial_and_expiry(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "refused"}), 201)
    async with panel_of_new_session(profile, hub, "panel-refused") as (page, session):
        share = page.get_by_role("button", name="Share: refused")
        await share.click()
        async with page.expect_popup() as opened:
            await page.locator(".jp-Dialog").get_by_role("button", name="Open window").click()
        window = await opened.value
        await window.locator("#bai-refuse").wait_for()
        await assert_contrast(window.locator("main"), "allow", tmp_path)
        await window.locator("#bai-refuse").click()
        await share.click()
        await page.locator(".jp-Dialog").get_by_role("button", name="Open window").wait_for()
        await allow(page, hub)
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_text("The folder is not shared.").wait_for(timeout=lab.TIMEOUT_MS)
        await dialog.get_by_role("button", name="Close", exact=True).click()
        # Simulate that the manager rejects the expired token. The panel asks for consent again.
        await page.route("**/grants?*", lambda route: route.fulfill(status=401, body="{}"))
        await share.click()
        await dialog.get_by_role("alert").wait_for()
        await dialog.get_by_role("button", name="Close", exact=True).click()
        await page.unroute("**/grants?*")
        await share.click()
        await allow(page, hub)
        await dialog.get_by_text("The folder is not shared.").wait_for(timeout=lab.TIMEOUT_MS)
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)
