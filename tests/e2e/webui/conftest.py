"""Signed-in pages of the shared demo; a script error in a page fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pytest_asyncio

from bai_services.i18n import catalogue
from tests.hub import RunningHub

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from tests.testbed.chromium import SharedBrowser

# Animations are off, so that no test sees an intermediate state.
DEFAULTS: dict[str, Any] = {"locale": "en-US", "reduced_motion": "reduce"}

ShellT = TypeVar("ShellT", bound=Shell)
Opener = Callable[..., Awaitable[ShellT]]


@pytest_asyncio.fixture(loop_scope="session")
async def opened(
    hub: RunningHub, browser: Browser, shared_browser: SharedBrowser
) -> AsyncIterator[Opener[Any]]:
    """A function that opens a page as a signed-in user.

    Example: ``await opened(Sessions, "user2", "/sessions")``.

    Further options, such as ``color_scheme``, ``viewport`` and ``locale``, are those of a
    browser context. Tests with the same user and options share a sign-in and cached files, but
    no preferences.
    """
    errors: list[str] = []
    pages: list[Page] = []

    async def open_page(kind: type[ShellT], username: str, path: str, **options: Any) -> ShellT:
        options = DEFAULTS | options
        profile = await shared_browser.profile(hub.url, name=username, **options)
        page = await profile.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        pages.append(page)
        shown = kind(page, hub)
        await shown.sign_in(username, path)
        return shown

    yield open_page
    for page in pages:
        await page.evaluate("localStorage.clear()")
        await page.context.clear_cookies(name=catalogue.COOKIE)
    assert errors == []
