"""Page objects: what a user sees and does on the pages of the web UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

UI = "/services/bai"
# A machine that runs several demos may take this long to show a page.
WAIT_MILLIS = 60_000


class Shell:
    """Header, navigation and command palette, on every page."""

    def __init__(self, page: Page, hub: RunningHub) -> None:
        self.page = page
        self.password = hub.password
        self.url = hub.url.rstrip("/") + UI
        page.set_default_timeout(WAIT_MILLIS)

    async def open(self, path: str) -> None:
        await self.page.goto(self.url + path)

    async def sign_in(self, username: str, path: str = "/start") -> None:
        """Open a page of the UI and, if the login page appears, sign in."""
        await self.open(path)
        await self.page.locator("#username_input, #content").first.wait_for()
        if await self.page.locator("#username_input").count():
            await self.page.fill("#username_input", username)
            await self.page.fill("#password_input", self.password)
            await self.page.press("#password_input", "Enter")
            await self.page.locator("#content").wait_for()

    async def choose_language(self, current: str, name: str) -> None:
        await self.page.get_by_role("button", name=current).click()
        await self.page.get_by_role("menuitem", name=name).click()

    async def go_to(self, text: str, option: str) -> None:
        """Type a text into the command palette and click an option that contains another text."""
        await self.page.keyboard.press("Control+k")
        await self.page.get_by_role("combobox").fill(text)
        await self.page.locator(".ant-select-item-option", has_text=option).first.click()

    async def filter_by(self, title: str, choice: str) -> None:
        """Filter a list: choose the property with this title, then one of its values."""
        await self.page.get_by_label("Property").click()
        await self.page.locator(".ant-select-item-option", has_text=title).click()
        await self.page.get_by_role("combobox", name=title, exact=True).click()
        await self.page.locator(".ant-select-item-option", has_text=choice).click()


class Sessions(Shell):
    """The list of sessions and the drawer next to it."""

    def row(self, name: str) -> Locator:
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("link", name=name))

    @property
    def drawer(self) -> Locator:
        return self.page.get_by_role("dialog")

    async def show(self, name: str) -> None:
        await self.row(name).get_by_role("link", name=name).click()
        await self.drawer.get_by_text(name, exact=True).first.wait_for()

    def fact(self, label: str) -> Locator:
        """Return the item of the drawer that has this label."""
        title = self.page.get_by_text(label, exact=True)
        return self.drawer.locator(".ant-descriptions-item", has=title)

    async def press(self, button: str) -> None:
        """Press a button, or a link with the role of a button."""
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def reload_until(self, page: Page, text: str) -> None:
        """Reload a page until it contains a text."""

        async def is_shown() -> bool:
            await page.reload()
            return text in await page.content()

        await wait_until_async(is_shown, WAIT_MILLIS / 1000, text)

    async def find(self, name: str) -> None:
        await self.page.get_by_placeholder("Find by name").fill(name)
        await self.page.get_by_placeholder("Find by name").press("Enter")
