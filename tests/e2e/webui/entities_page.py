"""Page object of the administrators' pages: a list, a drawer for each object, a form."""

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
        """The drawer on top."""
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

    async def filter(self, text: str) -> None:
        await self.page.get_by_placeholder("Contains").fill(text)
        await self.page.get_by_placeholder("Contains").press("Enter")
