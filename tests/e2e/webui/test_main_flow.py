"""The main flow, from the sign-in to the list of ended sessions: with mouse, keyboard and touch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import ENDED, checked, wait_for
from tests.hub import RunningHub

from .launcher_page import Launcher
from .pages import Sessions
from .test_every_page import NARROW

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FOLDER = "webui-flow"
MAX_TAB_STOPS = 250
IS_FOCUSED = "element => element.contains(document.activeElement)"
# Returns a description of the focused element if nothing shows that it has the focus. AntD draws
# the focus of some inputs on the box around them.
WITHOUT_VISIBLE_FOCUS = """
() => {
  let at = document.activeElement;
  if (!at || at === document.body || at.closest('.ant-modal, .ant-drawer') === at) return '';
  const name = at.outerHTML.slice(0, 160);
  const box = at.getBoundingClientRect();
  if (box.bottom < 0 || box.right < 0 || !at.checkVisibility()) return `out of sight: ${name}`;
  for (let depth = 0; at && depth < 4; depth += 1, at = at.parentElement) {
    for (const part of [null, '::after', '::before']) {
      const style = getComputedStyle(at, part);
      if (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) return '';
      if (style.boxShadow !== 'none') return '';
    }
    const inner = at.querySelector?.('.ant-checkbox-inner, .ant-radio-inner');
    if (inner && getComputedStyle(inner).outlineStyle !== 'none') return '';
  }
  return `no focus is visible: ${name}`;
}
"""


class Mouse:
    options: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}}

    def __init__(self, page: Page) -> None:
        self.page = page

    async def press(self, target: Locator) -> None:
        await target.click()

    async def write(self, field: Locator, text: str) -> None:
        await self.press(field)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.insert_text(text)

    async def check(self, box: Locator) -> None:
        await self.press(box)

    async def choose_tab(self, tab: Locator) -> None:
        await self.press(tab)

    async def close_drawer(self, drawer: Locator) -> None:
        await self.press(drawer.locator(".ant-drawer-close"))


class Touch(Mouse):
    options = {"viewport": NARROW, "has_touch": True}

    async def press(self, target: Locator) -> None:
        await target.tap()


class Keyboard(Mouse):
    """Uses only keys; records each element that has the focus but does not show it."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.invisible: set[str] = set()

    async def reach(self, target: Locator) -> None:
        """Press Tab until the element has the focus."""
        await target.wait_for(state="attached")
        for _ in range(MAX_TAB_STOPS):
            if await target.evaluate(IS_FOCUSED):
                return
            await self.page.keyboard.press("Tab")
            if problem := await self.page.evaluate(WITHOUT_VISIBLE_FOCUS):
                self.invisible.add(problem)
        raise AssertionError(f"{target} is not reached with {MAX_TAB_STOPS} tab stops")

    async def press(self, target: Locator) -> None:
        await self.reach(target)
        await self.page.keyboard.press("Enter")

    async def write(self, field: Locator, text: str) -> None:
        await self.reach(field)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.insert_text(text)

    async def check(self, box: Locator) -> None:
        await self.reach(box)
        await self.page.keyboard.press("Space")

    async def choose_tab(self, tab: Locator) -> None:
        tabs = tab.locator("xpath=ancestor::*[@role='tablist'][1]")
        await self.reach(tabs.get_by_role("tab", selected=True))
        for _ in range(await tabs.get_by_role("tab").count()):
            if await tab.evaluate(IS_FOCUSED):
                break
            await self.page.keyboard.press("ArrowRight")
        await self.page.keyboard.press("Enter")

    async def close_drawer(self, drawer: Locator) -> None:
        await self.page.keyboard.press("Escape")


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``, with a folder; stop all sessions of ``user2`` at the end."""
    with hub.rest("user2") as client:
        folder = checked(client.post("/vfolders", json={"name": FOLDER}), 201)["id"]
        yield client
        for session in checked(client.get("/sessions"), 200)["items"]:
            if session["status"] not in ENDED:
                client.delete(f"/sessions/{session['id']}", params={"force": "true"})
                wait_for(client, session["id"], *ENDED)
        client.delete(f"/vfolders/{folder}")
        client.post(f"/vfolders/{folder}/purge")


async def sign_in(hands: Mouse, hub: RunningHub) -> None:
    page = hands.page
    await page.goto(hub.url)
    await hands.write(page.locator("#username_input"), "user2")
    await hands.write(page.locator("#password_input"), hub.password)
    await hands.press(page.get_by_role("button", name="Sign in"))
    await page.wait_for_url("**/services/bai/start")


async def launch(hands: Mouse, hub: RunningHub, name: str) -> Sessions:
    """Start a session from the page *Start*, and wait until its drawer shows the status Running."""
    ui = Launcher(hands.page, hub)
    card = ui.page.get_by_role("region", name="New interactive session", exact=True)
    await hands.press(card.get_by_role("link"))
    await hands.write(ui.field("name"), name)
    await hands.write(ui.field("resources.mem"), "512m")
    folder = ui.page.get_by_role("checkbox", name=FOLDER)
    await hands.check(folder)
    await ui.wait_for_requested("mem 512 MiB")
    await ui.preview.get_by_role("listitem").filter(has_text=FOLDER).wait_for()
    await ui.start_button.and_(ui.page.locator(":enabled")).wait_for()
    await hands.press(ui.start_button)
    await ui.page.wait_for_url("**/sessions?session=*")
    sessions = Sessions(hands.page, hub)
    progress = sessions.drawer.get_by_role("region", name="Progress of the start")
    running = sessions.fact("Status").get_by_text("Running")
    await progress.or_(running).first.wait_for()
    await running.wait_for()
    return sessions


async def open_terminal(hands: Mouse, ui: Sessions) -> None:
    await hands.choose_tab(ui.drawer.get_by_role("tab", name="Apps", exact=True))
    async with ui.page.context.expect_page() as opening:
        await hands.press(ui.drawer.get_by_role("link", name="Open Terminal", exact=True))
    app = await opening.value
    await app.wait_for_url(re.compile("/user/user2/.*/lab"))
    await app.close()


async def stop_and_find(hands: Mouse, ui: Sessions, name: str) -> None:
    """Stop the session, close the drawer and find the session in the list of ended ones."""
    stop = ui.drawer.get_by_role("button", name="Stop", exact=True)
    await hands.press(stop)
    question = ui.page.get_by_role("dialog", name=f"Stop {name}?")
    await question.wait_for()
    if isinstance(hands, Keyboard):
        await ui.page.keyboard.press("Escape")
        await question.wait_for(state="hidden")
        await ui.page.wait_for_function(IS_FOCUSED, arg=await stop.element_handle())
        await hands.press(stop)
    await hands.press(question.get_by_role("button", name="Stop"))
    await ui.fact("Status").get_by_text("Ended").wait_for()
    await hands.close_drawer(ui.drawer)
    await ui.drawer.wait_for(state="hidden")
    await hands.choose_tab(ui.page.get_by_role("tab", name=re.compile("^Ended")))
    await ui.row(name).wait_for()


@pytest.mark.parametrize("kind", [Mouse, Touch, Keyboard], ids=["mouse", "touch", "keyboard"])
async def test_main_flow_works_with_each_input_device(
    browser: Browser, hub: RunningHub, rest: httpx.Client, kind: type[Mouse]
) -> None:
    page = await browser.new_page(locale="en-US", reduced_motion="reduce", **kind.options)
    page.set_default_timeout(30_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    hands = kind(page)
    name = f"flow-{kind.__name__.lower()}"
    await sign_in(hands, hub)
    ui = await launch(hands, hub, name)
    await open_terminal(hands, ui)
    await stop_and_find(hands, ui, name)
    if isinstance(hands, Keyboard):
        await check_keyboard(hands, ui, name)
        assert hands.invisible == set()
    assert errors == []


async def check_keyboard(hands: Keyboard, ui: Sessions, name: str) -> None:
    """Check the focus after a drawer is closed, the order of Tab, and the skip link."""
    link = ui.row(name).get_by_role("link", name=name)
    await hands.press(link)
    await ui.drawer.wait_for()
    await ui.page.keyboard.press("Escape")
    await ui.drawer.wait_for(state="hidden")
    await ui.page.wait_for_function(IS_FOCUSED, arg=await link.element_handle())

    await ui.open("/launch")
    await ui.page.get_by_role("complementary", name="Preview").wait_for()
    skip = ui.page.get_by_role("link", name="Skip to content")
    await hands.reach(skip)
    await ui.page.keyboard.press("Tab")
    # Tab leads through all elements of the page and back to the first one.
    await hands.reach(skip)
    await ui.page.keyboard.press("Enter")
    await ui.page.locator("#content:focus").wait_for()
    assert "/launch" in ui.page.url
