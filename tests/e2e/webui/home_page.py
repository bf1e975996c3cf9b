"""Page object of the pages Start and Dashboard: boards of cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator


class Dashboard(Shell):
    """Cards that can be moved and resized."""

    def card(self, title: str) -> Locator:
        return self.page.get_by_role("region", name=title, exact=True)

    def handle(self, title: str) -> Locator:
        return self.page.get_by_role("button", name=f"Move or resize: {title}", exact=True)

    async def titles(self) -> list[str]:
        """Return the titles of the cards in their order."""
        titles = await self.page.locator(".bai-board h2").all_inner_texts()
        return [title.strip() for title in titles]

    async def use_menu(self, title: str, action: str) -> None:
        """Choose an action, such as moving or resizing, from the menu of a card."""
        await self.handle(title).click()
        await self.page.get_by_role("menuitem", name=action, exact=True).click()

    async def width(self, title: str) -> float:
        box = await self.card(title).bounding_box()
        assert box is not None
        return box["width"]
