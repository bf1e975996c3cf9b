"""Signed-in pages of the shared demo; a script error fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.hub import RunningHub

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Browser

# Without animations nothing is seen halfway through one.
DEFAULTS: dict[str, Any] = {"locale": "en-US", "reduced_motion": "reduce"}

ShellT = TypeVar("ShellT", bound=Shell)
Opener = Callable[..., Awaitable[ShellT]]


@pytest.fixture
async def opened(hub: RunningHub, browser: Browser) -> AsyncIterator[Opener[Any]]:
    """Sign in and open a page: ``await opened(Sessions, "user2", "/sessions")``.

    Further options, such as ``color_scheme``, ``viewport`` and ``locale``, are those of a
    browser context.
    """
    contexts = []
    errors: list[str] = []

    async def open_page(kind: type[ShellT], username: str, path: str, **options: Any) -> ShellT:
        context = await browser.new_context(**(DEFAULTS | options))
        contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        shown = kind(page, hub)
        await shown.sign_in(username, path)
        return shown

    yield open_page
    for context in contexts:
        await context.close()
    assert errors == []
