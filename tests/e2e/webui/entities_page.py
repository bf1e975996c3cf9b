"""Page object of the administrators' pages: a list, a drawer for each object, and a form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator


class Entities(Shell):
    """A page with a collection, for example `/users`."""

    def row(self, name: str) -> Locator:
        button = self.page.get_by_role("button", name=name, exact=True)
        return self.page.get_by_role("row").filter(has=button)

    @property
    def drawer(self) -> Locator:
        """The topmost drawer."""
        return self.page.get_by_role("dialog").last

    async def show(self, name: str) -> None:
        await self.row(name).get_by_role("button", name=name, exact=True).click()
        await self.drawer.get_by_text(name, exact=True).first.wait_for()

    async def fill(self, **texts: str) -> None:
        """Fill in fields of the open form by their labels, with ``_`` for a space."""
        for label, text in texts.items():
            await self.drawer.get_by_label(label.replace("_", " "), exact=True).fill(text)

    async def save(self) -> None:
        await self.drawer.get_by_role("button", name="Save").click()

    async def select(self, *names: str) -> None:
        for name in names:
            await self.page.get_by_role("checkbox", name=name, exact=True).check()

    async def view(self, name: str) -> None:
        """Choose a view of the list, for example ``Inactive``."""
        await self.page.locator(".ant-segmented-item", has_text=name).first.click()

    async def confirm(self, name: str) -> None:
        """Click the button of the confirmation."""
        box = self.page.locator(".ant-modal-confirm, .ant-popconfirm").last
        await box.get_by_role("button", name=name).click()

    async def choose(self, label: str, option: str) -> None:
        """Choose an option of a select in the open form."""
        await self.drawer.get_by_label(label, exact=True).click()
        await self.page.keyboard.type(option)
        await self.page.locator(".ant-select-item-option:visible", has_text=option).first.click()

    async def filter(self, text: str) -> None:
        await self.page.get_by_placeholder("Contains").fill(text)
        await self.page.get_by_placeholder("Contains").press("Enter")
