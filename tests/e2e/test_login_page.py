"""The sign-in page in a browser: keyboard, screen reader, themes, narrow windows, languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bai_services.i18n.catalogue import LANGUAGES, translator
from tests.hub import RunningHub

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ENGLISH = translator("en")

# Returns the contrast ratio of every text on the page to its background (WCAG 2).
CONTRASTS = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = {};
  for (const e of document.querySelectorAll("main *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    found[e.textContent.trim()] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return found;
}
"""


async def wait_for_focus(page: Page, field: str) -> None:
    """Wait until a field has the focus; autofocus takes effect only at the first paint."""
    await page.locator(f"#{field}:focus").wait_for()


async def submit_sign_in(page: Page, name: str, password: str) -> None:
    await page.fill("#username_input", name)
    await page.fill("#password_input", password)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


async def test_sign_in_works_with_the_keyboard_only(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await wait_for_focus(page, "username_input")
    await page.keyboard.type("user")
    await page.keyboard.press("Tab")
    await wait_for_focus(page, "password_input")
    await page.keyboard.type(hub.password)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert "/hub/login" not in page.url
    await page.goto(f"{hub.url}/hub/change-password")
    await wait_for_focus(page, "old_password")


async def test_an_error_is_announced_at_the_focused_field(
    hub: RunningHub, browser: Browser
) -> None:
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await submit_sign_in(page, "user", "wrong")
    await wait_for_focus(page, "password_input")
    field = page.locator("#password_input")
    assert await field.get_attribute("aria-invalid") == "true"
    described = (await field.get_attribute("aria-describedby") or "").split()
    texts = [await page.locator(f"#{name}").inner_text() for name in described]
    assert texts == [ENGLISH("sign_in.refused")]
    assert await page.get_by_role("alert").inner_text() == ENGLISH("sign_in.refused")
    # Every field has a label, and the name remains filled in.
    assert await page.get_by_label(ENGLISH("sign_in.name")).input_value() == "user"
    assert await page.get_by_label(ENGLISH("sign_in.password"), exact=True).count() == 1


async def test_the_button_shows_and_hides_the_password(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    button = page.get_by_role("button", name=ENGLISH("common.show_password"))
    await button.click()
    assert await page.locator("#password_input").get_attribute("type") == "text"
    assert await button.get_attribute("aria-pressed") == "true"
    await button.click()
    assert await page.locator("#password_input").get_attribute("type") == "password"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_texts_have_sufficient_contrast_in_both_themes(
    hub: RunningHub, browser: Browser, theme: str
) -> None:
    page = await browser.new_page(color_scheme="light")
    await page.goto(f"{hub.url}/hub/login")
    if theme == "dark":
        await page.click("#dark-theme-toggle")
    assert await page.locator("html").get_attribute("data-bs-theme") == theme
    await submit_sign_in(page, "nobody", "wrong")
    assert await page.locator("html").get_attribute("data-bs-theme") == theme
    contrasts = await page.evaluate(CONTRASTS)
    assert ENGLISH("sign_in.refused") in contrasts
    assert {text: ratio for text, ratio in contrasts.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_narrow_window_needs_no_horizontal_scrolling(
    hub: RunningHub, browser: Browser, language: str
) -> None:
    page = await browser.new_page(viewport={"width": 320, "height": 568}, locale=language)
    await page.goto(f"{hub.url}/hub/login")
    await submit_sign_in(page, "nobody", "wrong")
    assert translator(language)("sign_in.refused") in await page.inner_text("main")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 320


async def test_the_selected_language_is_remembered(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page(locale="en-GB")
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await page.get_by_role("link", name="日本語").click()
    japanese = translator("ja")
    heading = page.get_by_role("heading", name=japanese("sign_in.title"))
    await heading.wait_for()
    assert await page.locator("html").get_attribute("lang") == "ja"
    await submit_sign_in(page, "user", hub.password)
    # The `next` URL survives the change of language.
    assert page.url == f"{hub.url}/hub/home"
    await page.goto(f"{hub.url}/hub/change-password")
    await page.get_by_role("heading", name=japanese("password.title")).wait_for()
