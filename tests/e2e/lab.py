"""Actions of a user on the login page and in JupyterLab, through the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.hub import RunningHub

TIMEOUT_MS = 60_000


async def sign_in(page: Page, hub: RunningHub, name: str) -> None:
    """Open the Hub's home page; sign in if no user of this profile has signed in before."""
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await page.locator("#username_input, #logout").first.wait_for()
    if await page.locator("#username_input").count():
        await page.fill("#username_input", name)
        await page.fill("#password_input", hub.password)
        await page.press("#password_input", "Enter")
    await page.locator("#logout").wait_for()


async def open_notebook(page: Page) -> None:
    """Open a new Python notebook from the launcher and wait for its kernel.

    ``page`` must show or load JupyterLab with no other tabs open, as in a new session.
    """
    launcher = page.locator('.jp-LauncherCard[data-category="Notebook"]').first
    await launcher.click(timeout=TIMEOUT_MS)
    await page.locator(".jp-NotebookPanel").wait_for(timeout=TIMEOUT_MS)
    # Wait for the connection to the kernel. A cell that is run before that has no effect.
    await page.get_by_text("| Idle").wait_for(timeout=TIMEOUT_MS)


async def run_cell(page: Page, code: str) -> str:
    """Run ``code`` (one line) in the last cell of the open notebook and return its output."""
    cells = page.locator(".jp-Notebook-cell.jp-CodeCell")
    number = await cells.count()
    cell = cells.nth(number - 1)
    await cell.locator(".cm-content").click()
    await page.keyboard.insert_text(code)
    await page.keyboard.press("Shift+Enter")
    # JupyterLab adds a new cell when the last cell is run. The prompt of the old cell gets a number
    # when the cell has finished.
    await page.wait_for_function(
        "n => document.querySelectorAll('.jp-Notebook-cell.jp-CodeCell').length > n", arg=number
    )
    await page.wait_for_function(
        """n => /\\[\\d+\\]/.test(
            document.querySelectorAll('.jp-Notebook-cell.jp-CodeCell')[n - 1]
                .querySelector('.jp-InputPrompt').textContent)""",
        arg=number,
        timeout=TIMEOUT_MS,
    )
    output = cell.locator(".jp-OutputArea-output")
    return "\n".join(await output.all_inner_texts()).strip()


async def run_in_terminal(page: Page, command: str) -> None:
    """Open a terminal from a new launcher and run ``command`` in it."""
    await page.locator(".lm-TabBar-addButton:visible").first.click(timeout=TIMEOUT_MS)
    card = page.locator('.jp-LauncherCard[data-category="Other"]', has_text="Terminal").last
    await card.click(timeout=TIMEOUT_MS)
    screen = page.locator(".jp-Terminal .xterm-helper-textarea").last
    await screen.wait_for(state="attached", timeout=TIMEOUT_MS)
    await page.locator(".jp-Terminal .xterm-screen").last.click()
    await page.keyboard.type(command + "\n")
