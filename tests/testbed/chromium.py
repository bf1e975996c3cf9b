"""The headless Chromium of this machine, controlled by Playwright."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.testbed import ComponentMissing

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

# The headless shell uses a third of the CPU time of Chromium, because it renders no toolbar.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
# Timeout of assertions. A machine that runs several demos may need this long.
EXPECT_MILLIS = 60_000
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # in many containers, /dev/shm is so small that pages crash
    "--disable-dev-shm-usage",
]


# Many tests load the same scripts. The pages of a profile share one process, which keeps compiled
# scripts. Scripts are not optimized: most pages close before they would profit from it. A page
# takes a third less CPU time with these flags.
SHORT_LIVED_PAGES = ["--process-per-site", "--js-flags=--no-opt --no-maglev"]


@asynccontextmanager
async def launch(*flags: str) -> AsyncIterator[Browser]:
    """Launch a browser with a fresh profile (about 0.5 s) and close it at the end.

    ``flags`` are further options of its command line.

    Raises
    ------
    ComponentMissing
        If Chromium or Playwright is not installed, or does not start.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise ComponentMissing("Chromium is not installed (scripts/testbed install)")
    try:
        from playwright.async_api import Error, async_playwright, expect
    except ImportError as error:
        raise ComponentMissing("Playwright is not installed (make install)") from error

    expect.set_options(timeout=EXPECT_MILLIS)
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(
                executable_path=program, args=[*FLAGS, *flags]
            )
        except Error as error:
            raise ComponentMissing(f"Chromium does not start: {error}") from error
        try:
            yield browser
        finally:
            await browser.close()


class SharedBrowser:
    """A browser for many tests: launched at its first use, and again after a crash.

    A launch takes 1.5 s of CPU time.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None
        self._profiles: dict[str, BrowserContext] = {}
        # One page of each profile stays open, and with it the profile's process.
        self._first_pages: list[Page] = []

    async def get(self) -> Browser:
        """Return the running browser.

        Raises
        ------
        ComponentMissing
            See `launch`.
        """
        if self._browser is None or not self._browser.is_connected():
            self._profiles.clear()
            self._first_pages.clear()
            self._browser = await self._stack.enter_async_context(launch(*SHORT_LIVED_PAGES))
        return self._browser

    async def profile(self, hub_url: str, **options: Any) -> BrowserContext:
        """Return the profile with these options, which the first call creates.

        A profile keeps its cookies, cached files and compiled scripts between tests.

        The options are those of a browser context; ``name`` distinguishes profiles with the same
        options.
        """
        key = json.dumps([hub_url, options], sort_keys=True)
        if key not in self._profiles:
            options.pop("name", None)
            profile = self._profiles[key] = await (await self.get()).new_context(**options)
            page = await profile.new_page()
            await page.goto(f"{hub_url}/hub/health")
            self._first_pages.append(page)
        return self._profiles[key]

    async def close_pages(self) -> None:
        """Close all pages of tests, and each profile that was not created by `profile`."""
        if self._browser is None:
            return
        kept = list(self._profiles.values())
        for context in self._browser.contexts:
            if context not in kept:
                await context.close()
        for context in kept:
            for page in context.pages:
                if page not in self._first_pages:
                    await page.close()

    async def aclose(self) -> None:
        await self._stack.aclose()
