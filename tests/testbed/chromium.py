"""Headless Chromium of the system, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.testbed import ComponentMissing

if TYPE_CHECKING:
    from playwright.async_api import Browser

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # /dev/shm is small in many containers, and pages then crash
    "--disable-dev-shm-usage",
]


@asynccontextmanager
async def launch() -> AsyncIterator[Browser]:
    """Launch a browser with a fresh profile (about 0.5 s) and close it at the end.

    Raises
    ------
    ComponentMissing
        If Chromium or Playwright is not installed, or does not start.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise ComponentMissing("Chromium is not installed (scripts/testbed install)")
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError as error:
        raise ComponentMissing("Playwright is not installed (make install)") from error

    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        except Error as error:
            raise ComponentMissing(f"Chromium does not start: {error}") from error
        try:
            yield browser
        finally:
            await browser.close()
