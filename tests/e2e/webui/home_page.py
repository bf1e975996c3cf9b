"""Page object of the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator


class Dashboard(Shell):
    """Cards with the user's sessions, quotas, resources, accelerators and queue."""

    def card(self, title: str) -> Locator:
        return self.page.get_by_role("region", name=title, exact=True)
