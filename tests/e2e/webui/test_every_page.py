"""Accessibility of the pages of the web UI and the Hub; Hub pages use the browser's language."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.hub import RunningHub

from .conftest import Opener
from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, ViewportSize

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FRONTEND = Path(__file__).resolve().parents[3] / "bai_services/webui/frontend"
AXE = FRONTEND / "node_modules/axe-core/axe.min.js"
IS_SHOWN_IN = "scheme => document.documentElement.style.colorScheme === scheme"
NARROW: ViewportSize = {"width": 390, "height": 844}
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
# The only rule that is also checked in the dark theme.
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
# ``preload``: whether axe loads style sheets and media before the check.
RUN_AXE = """
rules => axe.run(document, {runOnly: rules, resultTypes: ['violations'], preload: false})
"""
HAS_AXE = "() => 'axe' in window"
ALL = slice(None)
HEADING = "#content h1, #content h2, #content h3"
THEMES: tuple[tuple[Literal["light", "dark"], dict[str, Any]], ...] = (
    ("light", WCAG),
    ("dark", CONTRAST),
)


async def page_names(ui: Shell, *, is_admin: bool = True) -> list[str]:
    """Return the paths of a user's pages, also of those without a link in the sidebar."""
    links = ui.page.locator("nav a")
    # The pages of administrators appear after the role is loaded.
    await links.filter(has_text="Users" if is_admin else "Sessions").first.wait_for()
    hrefs = [await link.get_attribute("href") for link in await links.all()]
    # Never open two views of one page in succession: `navigate` waits for a new heading, and both
    # views have the same.
    others = ["settings?tab=notifications", "notifications", "scheduler?view=try", "settings"]
    return [*(href.rpartition("/")[2] for href in hrefs if href), *others]


async def visit(ui: Shell, name: str) -> None:
    """Open a page and wait until it has loaded its data."""
    await ui.open(f"/{name}")
    await ui.page.wait_for_load_state("load")
    await has_loaded(ui)


async def navigate(ui: Shell, name: str) -> None:
    """Change to another page as a link does, without loading the scripts again."""
    previous = await ui.page.locator(HEADING).first.element_handle()
    await ui.page.evaluate("path => history.pushState({}, '', path)", f"{ui.url}/{name}")
    # The previous page stays visible until the new page can be shown.
    await ui.page.wait_for_function("heading => !heading.isConnected", arg=previous)
    await has_loaded(ui)


async def every_page(ui: Shell, part: slice = ALL, *, is_admin: bool = True) -> AsyncIterator[str]:
    """Show each page of ``page_names``, or a ``part`` of them; yield its path."""
    names = (await page_names(ui, is_admin=is_admin))[part]
    await visit(ui, names[-1])
    for name in names:
        await navigate(ui, name)
        yield name


async def has_loaded(ui: Shell) -> None:
    """Wait until the page has loaded its data."""
    await ui.page.locator(HEADING).first.wait_for()
    await ui.page.wait_for_function(
        "selector => document.querySelector(selector) === null",
        arg="#content .ant-skeleton-active, #content .ant-spin-spinning",
    )


async def violations(page: Page, rules: Mapping[str, Any]) -> list[str]:
    """Return the rules that the page violates, each with the first element at fault."""
    result: dict[str, Any] = await page.evaluate(RUN_AXE, rules)
    return [
        f"{rule['id']}: {rule['help']}: {rule['nodes'][0]['html'][:200]}"
        for rule in result["violations"]
    ]


async def violations_in_both_themes(page: Page) -> list[str]:
    """Return all violations in the light theme, and the contrast violations in the dark theme.

    The theme that is shown is checked first: each change of the theme renders the whole page.
    """
    # A page keeps the script until it is loaded again; to evaluate it takes 0.1 s of CPU time.
    if not await page.evaluate(HAS_AXE):
        await page.evaluate(AXE.read_text("utf-8"))
    problems = []
    is_dark = await page.evaluate(IS_SHOWN_IN, "dark")
    for scheme, rules in THEMES[::-1] if is_dark else THEMES:
        await page.emulate_media(color_scheme=scheme)
        await page.wait_for_function(IS_SHOWN_IN, arg=scheme)
        problems += [f"{scheme}: {text}" for text in await violations(page, rules)]
    return problems


async def test_no_page_violates_wcag(opened: Opener[Shell]) -> None:
    ui = await opened(Shell, "admin", "/start")
    wrong = {}
    async for name in every_page(ui):
        problems = await violations_in_both_themes(ui.page)
        row = ui.page.locator(".ant-table-row button.ant-btn-link").first
        if await row.count():
            await row.click()
            await ui.page.get_by_role("dialog").locator(".ant-descriptions").first.wait_for()
            problems += await violations_in_both_themes(ui.page)
        if problems:
            wrong[name] = problems
    assert wrong == {}


async def test_hub_pages_have_the_brand_link_and_no_wcag_violation(
    opened: Opener[Shell], hub: RunningHub
) -> None:
    """The pages of the Hub and of the manager that are not part of the web UI.

    The test is signed in as an administrator, who may open all of them.
    """
    ui = await opened(Shell, "admin", "/start")
    wrong = {}
    code = f"?challenge={'a' * 43}&state={'b' * 8}"
    manager = (f"services/bai/cli-login{code}&port=5000", f"services/bai/panel-login{code}")
    manager += ("services/bai/signed-in",)
    own = ("home", "token", "admin", "change-password", "forgot-password", "reset-password#x")
    own += ("sign-up", "verify-email#x", "delete-account", "no-such-page")
    for name in ("services/bai/sessions/none", *manager, *(f"hub/{name}" for name in own)):
        await ui.page.emulate_media(color_scheme="light")
        await ui.page.goto(f"{hub.url}/{name}")
        brand = ui.page.locator(".navbar-brand")
        assert (await brand.inner_text()).strip() == "bai-hub"
        assert await brand.get_attribute("href") == "/services/bai/"
        await ui.page.evaluate(AXE.read_text("utf-8"))
        problems = await violations(ui.page, WCAG)
        await ui.page.click("#dark-theme-toggle")
        problems += await violations(ui.page, CONTRAST)
        await ui.page.click("#dark-theme-toggle")
        if problems:
            wrong[name] = problems
    assert wrong == {}
    await ui.page.get_by_text("This page does not exist").wait_for()
    await ui.page.get_by_role("link", name="Go to Start").click()
    await ui.page.wait_for_url(f"{ui.url}/start")


@pytest.mark.checklist("AUTH-16")
async def test_a_sign_in_leads_to_start_in_the_language_of_the_browser(
    browser: Browser, hub: RunningHub
) -> None:
    page = await browser.new_page(locale="ko-KR", viewport=NARROW)
    await page.goto(hub.url)
    await page.fill("#username_input", "user2")
    await page.fill("#password_input", hub.password)
    await page.press("#password_input", "Enter")
    await page.wait_for_url(f"{hub.url}/services/bai/start")
    await page.goto(f"{hub.url}/hub/token")
    await page.locator(".navbar-toggler").click()
    await page.get_by_role("link", name="시작", exact=True).click()
    await page.wait_for_url(f"{hub.url}/services/bai/start")


async def test_lists_do_not_scroll_sideways(opened: Opener[Shell]) -> None:
    """Rows are cards on a phone; the agents fit in a usual window of an administrator."""
    ui = await opened(Shell, "admin", "/agents", viewport={"width": 1440, "height": 900})
    fits = "() => [...document.querySelectorAll('.bai-table')].every("
    fits += "table => table.scrollWidth <= table.clientWidth)"
    await ui.page.locator(".bai-table .ant-table-row").first.wait_for()
    assert await ui.page.evaluate(fits)
    await ui.page.set_viewport_size(NARROW)
    for name in ("agents", "users", "projects", "images"):
        await visit(ui, name)
        await ui.page.locator(".bai-table .ant-table-row").first.wait_for()
        assert await ui.page.evaluate(fits), name


async def test_values_of_cards_have_labels(opened: Opener[Shell]) -> None:
    """On a phone, tables have no header, so each value is shown with the title of its column."""
    ui = await opened(Shell, "admin", "/settings?tab=keypairs", viewport=NARROW)
    unlabelled = """() => [...document.querySelectorAll('.ant-table-row > td')].filter(cell =>
      getComputedStyle(cell).display === 'grid' && cell.dataset.title === undefined &&
      !cell.matches('.ant-table-selection-column')).map(cell => cell.outerHTML.slice(0, 100))
    """
    for name in ("settings?tab=keypairs", "settings?tab=requests", "dashboard", "system"):
        await visit(ui, name)
        await ui.page.locator(".bai-card-rows .ant-table-row").first.wait_for()
        assert await ui.page.evaluate(unlabelled) == [], name


async def test_sidebar_shows_the_selected_page(opened: Opener[Shell]) -> None:
    viewport = {"width": 1280, "height": 500}
    ui = await opened(Shell, "admin", "/system", viewport=viewport)
    link = ui.page.locator("nav .ant-menu-item-selected")
    await link.wait_for()
    box = await link.bounding_box()
    assert box is not None
    assert 0 <= box["y"] <= viewport["height"] - box["height"]


async def test_menus_are_used_with_the_keyboard_and_a_closed_group_stays_closed(
    opened: Opener[Shell],
) -> None:
    ui = await opened(Shell, "admin", "/start")
    nav = ui.page.get_by_role("navigation", name="Pages")
    group = nav.get_by_role("menuitem", name="Administration")
    users = nav.get_by_role("link", name="Users")
    await users.wait_for()
    assert await group.get_attribute("aria-expanded") == "true"
    await group.focus()
    await ui.page.keyboard.press("Enter")
    await users.wait_for(state="hidden")
    await ui.page.reload()
    await group.and_(ui.page.locator("[aria-expanded=false]")).wait_for()
    # The group of the current page is open.
    await navigate(ui, "users")
    await users.wait_for()

    # Menus of buttons are used with the keyboard, too.
    button = ui.page.get_by_role("button", name="Account: admin")
    await button.focus()
    await ui.page.keyboard.press("Enter")
    focused = ui.page.locator("[role=menuitem]:focus")
    await focused.wait_for()
    first = await focused.inner_text()
    await ui.page.keyboard.press("ArrowDown")
    await focused.filter(has_not_text=first).wait_for()
    await ui.page.keyboard.press("Escape")
    await button.and_(ui.page.locator(":focus")).wait_for()
