"""What the panel does as its person: shares, uploads and starts, once they have allowed it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import lab
from tests.e2e.contrast import assert_contrast
from tests.e2e.engines import checked, start, stop
from tests.e2e.test_labext import look, panel_of
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Three pieces; bytes that differ, so that one in a wrong place is noticed.
SIZE = 20_000_000
DROP = """
(node, [name, size]) => {
    const bytes = new Uint8Array(size);
    for (let i = 0; i < size; i += 1) bytes[i] = (i * 7 + (i >> 8)) & 255;
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name));
    for (const type of ['dragover', 'drop']) {
        node.dispatchEvent(new DragEvent(type, {dataTransfer, bubbles: true, cancelable: true}));
    }
}
"""
# A browser that has no idle moment for a while, and the moment after which it had one.
BUSY = "window.requestIdleCallback = done => setTimeout(done, 2000)"
WHEN_IDLE = "new Promise(done => requestIdleCallback(done))"


def content(size: int) -> bytes:
    return bytes((i * 7 + (i >> 8)) & 255 for i in range(size))


def row_of(page: Page, name: str) -> Locator:
    panel = page.locator("#bai-session-panel")
    return panel.locator("li", has=page.get_by_text(name, exact=True))


async def allow(page: Page, hub: RunningHub) -> None:
    """Say yes in the window that the manager opens for it."""
    async with page.expect_popup() as opened:
        await page.locator(".jp-Dialog").get_by_role("button", name="Open window").click()
    window = await opened.value
    await window.wait_for_url(f"{hub.url}/services/bai/panel-login?**")
    async with page.expect_response("**/auth/code/redeem"), window.expect_event("close"):
        await window.click('form button[type="submit"]')
    # An element of a page in the background takes the focus without a focus event.
    await page.bring_to_front()


async def test_a_folder_is_shared_by_name(
    browser: Browser, any_hub: RunningHub, tmp_path: Path
) -> None:
    rest = any_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "to-share"}), 201)
    session = start(rest, "panel-share")
    async with panel_of(browser, any_hub, session) as page:
        await page.get_by_role("button", name="Share: to-share").click()
        await allow(page, any_hub)
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_text("It is not shared.").wait_for(timeout=lab.PATIENCE_MS)
        await dialog.get_by_label("User name or e-mail").fill("user2")
        await dialog.get_by_label("Permission", exact=True).select_option("rw")
        # Enter does what the form does, not what the dialog would do with it.
        await dialog.get_by_label("User name or e-mail").press("Enter")
        await dialog.get_by_text("user2 was invited").wait_for()
        await dialog.get_by_label("User name or e-mail").fill("nobody-of-that-name")
        await dialog.get_by_role("button", name="Invite").click()
        await dialog.get_by_role("alert").get_by_text("nobody-of-that-name").wait_for()
        await look(page, f"share-{any_hub.engine}", tmp_path)
        other = any_hub.rest("user2")
        found = checked(other.get("/vfolder-invitations"), 200)["items"]
        invitation = next(item for item in found if item["vfolder_id"] == folder["id"])
        assert invitation["permission"] == "rw"
        await dialog.get_by_role("button", name="Withdraw: user2").click()
        await dialog.get_by_role("button", name="Withdraw: user2").wait_for(state="hidden")
        await dialog.get_by_role("button", name="Close", exact=True).click()
        # What others offer is accepted in the panel too, and is in the list of folders then.
        lent = checked(other.post("/vfolders", json={"name": "lent"}), 201)
        checked(other.put(f"/vfolders/{lent['id']}/grants/user", json={"permission": "ro"}), 200)
        assert rest.get(f"/vfolders/{lent['id']}").status_code == 404
        await page.get_by_role("button", name="Offered to you").click()
        await dialog.get_by_role("button", name="Accept: lent").click()
        await dialog.get_by_text("No folders are offered to you.").wait_for()
        await dialog.get_by_role("button", name="Close", exact=True).click()
        await row_of(page, "lent").wait_for(timeout=lab.PATIENCE_MS)
    assert checked(rest.get(f"/vfolders/{lent['id']}"), 200)["permission"] == "ro"
    checked(other.delete(f"/vfolders/{lent['id']}"), 204)
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


async def test_files_are_dropped_into_a_folder_and_what_breaks_off_goes_on(
    browser: Browser, any_hub: RunningHub, tmp_path: Path
) -> None:
    rest = any_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "dropped"}), 201)
    session = start(rest, "panel-upload")
    broken: list[str] = []

    async def break_once(route: Route) -> None:
        offset = route.request.headers.get("upload-offset", "0")
        if route.request.method == "PATCH" and offset != "0" and not broken:
            broken.append(offset)
            await route.abort()
        else:
            await route.continue_()

    async with panel_of(browser, any_hub, session) as page:
        await page.route("**/uploads/*", break_once)
        row = row_of(page, "dropped")
        await row.evaluate(DROP, ["big.bin", SIZE])
        await allow(page, any_hub)
        await row.get_by_text("1 of 1 files uploaded").wait_for(timeout=lab.PATIENCE_MS)
        assert broken
        kept = rest.get(f"/vfolders/{folder['id']}/content", params={"path": "big.bin"})
        assert hashlib.sha256(kept.content).digest() == hashlib.sha256(content(SIZE)).digest()

        # A file that is there already is not replaced unless somebody says so.
        await row.evaluate(DROP, ["big.bin", 12])
        await row.get_by_text("A file with this name exists already.").wait_for()
        await look(page, f"upload-exists-{any_hub.engine}", tmp_path)
        assert size_of(rest, folder, "big.bin") == SIZE
        await row.get_by_role("button", name="Replace: big.bin").click()
        await row.get_by_text("2 of 2 files uploaded").wait_for(timeout=lab.PATIENCE_MS)
        assert size_of(rest, folder, "big.bin") == 12
        await row.evaluate(DROP, ["empty", 0])
        await row.get_by_text("3 of 3 files uploaded").wait_for(timeout=lab.PATIENCE_MS)
        assert size_of(rest, folder, "empty") == 0
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


def size_of(rest: Any, folder: dict[str, Any], name: str) -> int:
    files = checked(rest.get(f"/vfolders/{folder['id']}/files"), 200)["items"]
    return int(next(file["size"] for file in files if file["name"] == name))


async def tab_into_form(page: Page, dialog: Locator) -> None:
    """Press Tab on the last button until the first field has the focus.

    The window gets the focus back from the closed sign-in window at a moment of its own, and the
    dialog then puts the focus on its button.
    """
    first = dialog.get_by_label("Name").and_(page.locator(":focus"))

    async def has_focus() -> bool:
        await dialog.get_by_role("button", name="Start").press("Tab")
        return await first.count() == 1

    await wait_until_async(has_focus, lab.PATIENCE_MS / 1000, "the focus on the first field")


async def test_a_session_is_started_from_the_panel(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-start")
    async with panel_of(browser, hub, session) as page:
        await page.evaluate(BUSY)
        await page.get_by_role("button", name="New session").click()
        await allow(page, hub)
        dialog = page.get_by_role("dialog", name="New session")
        await dialog.get_by_label("Name").wait_for(timeout=lab.PATIENCE_MS)
        await page.evaluate(WHEN_IDLE)
        await tab_into_form(page, dialog)
        await page.keyboard.type("x")
        await dialog.get_by_label("Your own ports").fill("8501, 2200")
        await dialog.get_by_role("button", name="Start").click()
        # All that is wrong is said, each at its field, and what was filled in stays.
        await dialog.get_by_role("alert").get_by_text("4 to 64").wait_for()
        await dialog.get_by_role("alert").get_by_text("Port 2200 is used").wait_for()
        for label, why in (("Name", "4 to 64"), ("Your own ports", "Port 2200 is used")):
            field = dialog.get_by_label(label)
            assert await field.get_attribute("aria-invalid") == "true"
            described = (await field.get_attribute("aria-describedby") or "").split()[0]
            assert why in await page.locator(f"#{described}").inner_text()
        assert await dialog.get_by_label("Name").input_value() == "x"
        await dialog.get_by_label("Name").and_(page.locator(":focus")).wait_for()
        await look(page, "start", tmp_path)
        await assert_contrast(dialog, "start", tmp_path)
        await dialog.get_by_role("link", name="Your own ports").click()
        await dialog.get_by_label("Your own ports").and_(page.locator(":focus")).wait_for()
        await dialog.get_by_label("Name").fill("from-the-panel")
        assert await dialog.get_by_label("Name").get_attribute("aria-invalid") is None
        await dialog.get_by_label("Your own ports").fill("8501, 9000")
        await dialog.get_by_role("button", name="Start").click()
        await row_of(page, "from-the-panel").wait_for(timeout=lab.PATIENCE_MS)
    made = checked(rest.get("/sessions/from-the-panel"), 200)
    assert (made["image"], made["preopen_ports"]) == (session["image"], [8501, 9000])
    stop(rest, made["id"])
    stop(rest, session["id"])


async def test_who_does_not_allow_it_and_who_has_allowed_it_for_too_long(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "refused"}), 201)
    session = start(rest, "panel-refused")
    async with panel_of(browser, hub, session) as page:
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
        await dialog.get_by_text("It is not shared.").wait_for(timeout=lab.PATIENCE_MS)
        await dialog.get_by_role("button", name="Close", exact=True).click()
        # The manager does not take it any more: the person is asked anew, nothing is lost.
        await page.route("**/grants?*", lambda route: route.fulfill(status=401, body="{}"))
        await share.click()
        await dialog.get_by_role("alert").wait_for()
        await dialog.get_by_role("button", name="Close", exact=True).click()
        await page.unroute("**/grants?*")
        await share.click()
        await allow(page, hub)
        await dialog.get_by_text("It is not shared.").wait_for(timeout=lab.PATIENCE_MS)
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)
