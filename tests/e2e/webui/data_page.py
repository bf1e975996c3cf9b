"""Page object of the page *Data*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import FilePayload, Locator


class Data(Shell):
    """The list of folders, and the dialogs for one folder."""

    def row(self, name: str) -> Locator:
        link = self.page.get_by_role("link", name=name, exact=True)
        return self.page.get_by_role("row").filter(has=link)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog").last

    async def choose_tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name).click()

    async def choose(self, folder: str, action: str) -> None:
        """Choose an action from the menu of a folder."""
        await self.page.get_by_role("button", name=f"Actions for {folder}", exact=True).click()
        await self.page.get_by_role("menuitem", name=action).click()

    async def answer(self, button: str) -> None:
        """Press a button of the dialog, and wait until the dialog is closed."""
        await self.dialog.get_by_role("button", name=button, exact=True).click()
        await self.page.wait_for_function(
            "() => [...document.querySelectorAll('[role=dialog]')]"
            ".every(dialog => !dialog.checkVisibility())"
        )


class Explorer(Data):
    """The files of one folder."""

    def row(self, name: str) -> Locator:
        checkbox = self.page.get_by_role("checkbox", name=f"Select {name}", exact=True)
        return self.page.get_by_role("row").filter(has=checkbox)

    async def upload(self, *files: FilePayload) -> None:
        await self.page.get_by_test_id("files").set_input_files(list(files))

    async def show(self, name: str) -> None:
        """Close the file that is shown, if any, and show a file of the open directory."""
        if "file=" in self.page.url:
            await self.page.keyboard.press("Escape")
            await self.page.wait_for_function("() => !location.search.includes('file=')")
        await self.row(name).get_by_text(name, exact=True).click()
        await self.dialog.get_by_text(name, exact=True).first.wait_for()

    @property
    def editor(self) -> Locator:
        return self.page.locator(".cm-content")

    async def type_at_the_start(self, line: str) -> None:
        """Insert a line at the start of the edited text."""
        await self.editor.focus()
        await self.page.keyboard.press("Control+Home")
        await self.page.keyboard.type(f"{line}\n")
