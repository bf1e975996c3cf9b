"""Page object of the launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator


class Launcher(Shell):
    """The form of a new session and its preview."""

    @property
    def preview(self) -> Locator:
        return self.page.get_by_role("complementary", name="Preview")

    @property
    def bar(self) -> Locator:
        """The bar at the bottom of the window, with the start button."""
        return self.page.locator(".bai-start-bar")

    def field(self, name: str) -> Locator:
        """Return the control of a field of the request, such as ``resources.cpu``."""
        return self.page.locator(f"[id='launch-{name}']")

    def item(self, name: str) -> Locator:
        """Return a field with its label, help text and error message."""
        return self.page.locator(".ant-form-item", has=self.field(name))

    async def fill(self, **values: str) -> None:
        """Fill in fields by name, with ``__`` for a dot: ``resources__cpu="2"``."""
        for name, value in values.items():
            await self.field(name.replace("__", ".")).fill(value)

    async def choose(self, name: str, option: str) -> None:
        """Choose an option of a select."""
        await self.field(name).click()
        chosen = self.page.locator(".ant-select-item-option", has_text=option)
        await chosen.first.click()

    async def wait_for_problem(self, name: str, text: str) -> None:
        """Wait until a field shows a problem that contains a text."""
        explanation = self.item(name).locator(".ant-form-item-explain", has_text=text)
        await explanation.first.wait_for()

    async def wait_for_focus(self, name: str) -> None:
        """Wait until a step has the focus."""
        await self.page.locator(f"#section-{name}:focus").wait_for()

    async def wait_for_requested(self, amount: str) -> None:
        """Wait until the preview shows an amount, such as ``mem 512 MiB``."""
        await self.preview.locator(".bai-tag").get_by_text(amount).wait_for()

    @property
    def start_button(self) -> Locator:
        return self.bar.get_by_role("button", name="Start the session")

    async def launch(self) -> None:
        await self.start_button.click()

    async def launch_without_folder(self) -> None:
        """Start the session; the page asks first, because no folder is mounted."""
        await self.start_button.click()
        question = self.page.get_by_role("dialog", name="Start without a folder?")
        await question.get_by_role("button", name="Start the session").click()

    @property
    def steps(self) -> Locator:
        return self.page.get_by_role("navigation", name="Sections of the form")

    def step(self, name: str) -> Locator:
        """Return the card of a step, such as ``resources``."""
        return self.page.locator(f"#section-{name}")

    async def choose_recent(self, name: str) -> None:
        await self.page.get_by_role("button", name="Recent sessions").click()
        await self.page.get_by_role("menuitem", name=name).click()
