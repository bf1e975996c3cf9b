"""A session from sign-in to stop in a browser, with the actions of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e import lab
from tests.e2e.sessions import checked, start, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def open_form(page: Page, hub: RunningHub) -> None:
    """Open the start form and remove the values of an earlier start."""

    async def has_form() -> bool:
        # While the Hub stops the previous default server, it shows another page instead of the
        # form. The server can stop later than its session.
        await page.goto(f"{hub.url}/hub/spawn/user")
        return await page.locator("#bai-preset").count() == 1

    await wait_until_async(has_form, lab.TIMEOUT_MS / 1000, "the start form")
    reset = page.locator("#bai-reset")
    if await reset.is_visible():
        await reset.click()
        await reset.wait_for(state="hidden")


async def start_with_folder(page: Page, hub: RunningHub, folder: str) -> None:
    """Start a session with a quarter of a GPU and a folder mounted at ``data``."""
    await open_form(page, hub)
    await page.select_option("#bai-preset", value="")
    await page.fill('input[name="resource:cuda.shares"]', "0.25")
    await page.click("#bai-add-mount")
    await page.select_option('[name="mount_vfolder"]', label=folder)
    await page.fill('[name="mount_path"]', "data")
    await submit_form(page, hub)


async def submit_form(page: Page, hub: RunningHub) -> None:
    """Submit the start form and wait until JupyterLab is loaded."""
    await page.click('.bai-start button[type="submit"]')
    await page.wait_for_url(f"{hub.url}/user/**/lab**", timeout=lab.TIMEOUT_MS)
    # Wait until JupyterLab has loaded the theme. Leaving the page earlier would open a dialog.
    await page.locator("body[data-jp-theme-name]").wait_for(
        state="attached", timeout=lab.TIMEOUT_MS
    )


async def test_files_in_a_folder_outlive_the_session(
    browser: Browser, docker_hub: RunningHub
) -> None:
    rest = docker_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": "browsed"}), 201)
    page = await browser.new_page()
    await lab.sign_in(page, docker_hub, "user")

    await start_with_folder(page, docker_hub, "browsed")
    await lab.open_notebook(page)
    write = "print(open('/home/work/data/note.txt', 'w').write('kept'))"
    assert await lab.run_cell(page, write) == "4"
    await lab.run_in_terminal(page, "cp /home/work/data/note.txt /home/work/data/copied.txt")

    session = checked(rest.get("/sessions/default"), 200)
    await page.goto(f"{docker_hub.url}/services/bai/sessions/{session['id']}")
    await page.get_by_text("RUNNING").first.wait_for()
    # Shares of simulated GPUs are not enforced, and the page shows this.
    await page.get_by_role("dialog").get_by_text("not enforced").first.wait_for()
    await page.goto(f"{docker_hub.url}/hub/home")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click("#stop")
    wait_for(rest, session["id"], "TERMINATED")
    # Wait until the Hub has cleaned up. Only then can it start the server again.
    await page.get_by_role("button", name="Start my session").wait_for()

    await start_with_folder(page, docker_hub, "browsed")
    await lab.open_notebook(page)
    read = (
        "print(open('/home/work/data/note.txt').read(), open('/home/work/data/copied.txt').read())"
    )
    assert await lab.run_cell(page, read) == "kept kept"
    again = checked(rest.get("/sessions/default"), 200)
    assert again["id"] != session["id"]
    checked(rest.delete(f"/sessions/{again['id']}"), 202)
    wait_for(rest, again["id"], "TERMINATED")
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


async def test_the_form_mounts_a_directory_of_a_folder(
    profile: BrowserContext, hub: RunningHub
) -> None:
    rest = hub.rest("user")
    # Wait until the scheduler is JIT-compiled. Before that, the manager can take more than 10 s to
    # reject the form. Then the Hub shows its progress page instead of the form.
    stop(rest, start(rest, "warm-up")["id"])
    folder = checked(rest.post("/vfolders", json={"name": "layered"}), 201)
    files = f"/vfolders/{folder['id']}/content"
    for path in ("raw/2024/inside", "raw/beside"):
        checked(rest.put(files, params={"path": path}, content=path.encode()), 200)
    page = await profile.new_page()
    await lab.sign_in(page, hub, "user")
    await open_form(page, hub)
    await page.click("#bai-add-mount")
    await page.select_option('[name="mount_vfolder"]', label="layered")
    await page.fill('[name="mount_subpath"]', "raw/../2024")
    await page.click('.bai-start button[type="submit"]')
    # The form shows the error message and the submitted values.
    await page.get_by_text("'..'").first.wait_for()
    assert await page.input_value('[name="mount_subpath"]') == "raw/../2024"
    await page.fill('[name="mount_subpath"]', "raw/2024")
    await page.fill('[name="mount_path"]', "data")
    more = page.locator("#bai-more")
    # Set the state: the section is already open if an earlier form had values in it.
    await more.evaluate("node => { node.open = true; }")
    await page.fill('[name="preopen_ports"]', "8501 8501")
    await page.get_by_text("Port 8501 is listed twice.").wait_for()
    # The page does not submit an invalid form. It opens the section with the invalid field.
    await more.evaluate("node => { node.open = false; }")
    await page.click('.bai-start button[type="submit"]')
    await page.locator('[name="preopen_ports"]').wait_for()
    await page.fill('[name="preopen_ports"]', "8501 9000")
    await page.locator("#bai-ports-problem").wait_for(state="hidden")
    await submit_form(page, hub)
    session = checked(rest.get("/sessions/default"), 200)
    assert session["preopen_ports"] == [8501, 9000]
    (mount,) = session["mounts"]
    assert (mount["subpath"], mount["path"]) == ("raw/2024", "/home/work/data")
    await lab.open_notebook(page)
    listed = "import os; os.chdir('data'); print(os.listdir(), open('inside').read())"
    assert await lab.run_cell(page, listed) == "['inside'] raw/2024/inside"
    await page.goto(f"{hub.url}/services/bai/sessions/{session['id']}")
    await page.get_by_text("raw/2024").first.wait_for()
    checked(rest.delete(f"/sessions/{session['id']}"), 202)
    wait_for(rest, session["id"], "TERMINATED")
    mounts = hub.home / "mounts"
    await wait_until_async(
        lambda: not any(mounts.glob("*/*")), 60, "the agent to unmount the folder"
    )
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)
