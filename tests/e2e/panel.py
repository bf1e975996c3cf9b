"""Actions on the session panel in JupyterLab: sign in, load JupyterLab, open the panel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e import lab
from tests.e2e.sessions import JSON, start, stop
from tests.hub import RunningHub

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
HIGH_CONTRAST = "JupyterLab Dark High Contrast"


async def open_panel(page: Page) -> None:
    """Open the panel if it is closed.

    If it is open, do not click its tab, because the click would close it.
    """
    # The panel opens itself at the first visit. Wait until it has decided whether to open.
    await page.wait_for_function(
        "Object.keys(localStorage).some(key => key.startsWith('bai-labext:panel-opened:'))"
    )
    tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
    if "lm-mod-current" not in (await tab.get_attribute("class") or ""):
        await tab.click()


async def load(page: Page, hub: RunningHub, session: dict[str, Any]) -> None:
    """Load JupyterLab with the default layout, because a restored layout could hide the panel."""
    await page.goto(f"{hub.url}{session['url']}lab?reset")
    tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
    await tab.wait_for(timeout=lab.TIMEOUT_MS)


async def choose_theme(page: Page, name: str) -> None:
    await page.get_by_text("Settings", exact=True).click()
    await page.get_by_text("Theme", exact=True).hover()
    await page.get_by_text(name, exact=True).click()
    await page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")


@asynccontextmanager
async def panel_of(
    browser: Browser | BrowserContext,
    hub: RunningHub,
    session: dict[str, Any],
    theme: str = "light",
    language: str = "en",
    has_movable_clock: bool = False,
) -> AsyncIterator[Page]:
    """Yield a page with the session's JupyterLab and an open panel.

    The pages of a browser context share a sign-in and cached scripts. With ``has_movable_clock``,
    the test can advance the time of the page with ``page.clock``.
    """
    page = await browser.new_page()
    await page.set_viewport_size({"width": 1280, "height": 1000})
    try:
        if has_movable_clock:
            await page.clock.install()
        await lab.sign_in(page, hub, "user")
        cookie = {"name": "bai_lang", "value": language, "url": hub.url}
        await page.context.add_cookies([cookie])  # type: ignore[list-item]  # a TypedDict
        await load(page, hub, session)
        if theme == "dark":
            await choose_theme(page, THEMES[theme])
        await open_panel(page)
        await page.locator(".bai-Head h2", has_text=session["name"]).wait_for(
            timeout=lab.TIMEOUT_MS
        )
        yield page
    finally:
        await page.close()


@asynccontextmanager
async def panel_of_new_session(
    browser: Browser | BrowserContext,
    hub: RunningHub,
    name: str,
    language: str = "en",
    **fields: Any,
) -> AsyncIterator[tuple[Page, JSON]]:
    """Start a session; yield a page with its open panel, and the session; then stop the session."""
    rest = hub.rest("user")
    session = start(rest, name, **fields)
    async with panel_of(browser, hub, session, language=language) as page:
        yield page, session
    stop(rest, session["id"])


async def take_screenshot(page: Page, name: str, folder: Path) -> None:
    """Save a screenshot for reviewers."""
    await page.screenshot(path=folder / f"{name}.png")


def app_row(page: Page, title: str) -> Any:
    return page.locator(".bai-List li", has=page.locator(".bai-List-title", has_text=title))
