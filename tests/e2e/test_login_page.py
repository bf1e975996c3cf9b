"""The sign-in page in a browser: keyboard, screen reader, themes, narrow windows, languages."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from bai_services.i18n.catalogue import LANGUAGES, translator
from tests.e2e.sessions import checked
from tests.hub import RunningHub

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ENGLISH = translator("en")
PASSWORD = "Correct-horse-7"

# Returns the contrast ratio (WCAG 2) between each visible text in `main` and its background.
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
  const ratios = {};
  for (const e of document.querySelectorAll("main *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    ratios[e.textContent.trim()] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return ratios;
}
"""


async def wait_for_focus(page: Page, field: str) -> None:
    """Wait until a field has the focus, because autofocus takes effect at the first paint."""
    await page.locator(f"#{field}:focus").wait_for()


async def submit_sign_in(page: Page, name: str, password: str) -> None:
    await page.fill("#username_input", name)
    await page.fill("#password_input", password)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


@pytest.mark.checklist("AUTH-01")
async def test_sign_in_works_with_the_keyboard_only(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await wait_for_focus(page, "username_input")
    # There are only two fields, name and password. No endpoint field is needed, because the Hub
    # serves its own sign-in page.
    assert await page.locator("input:visible").count() == 2
    assert await page.get_by_role("button", name=ENGLISH("sign_in.submit")).count() == 1
    await page.keyboard.type("user")
    await page.keyboard.press("Tab")
    await wait_for_focus(page, "password_input")
    await page.keyboard.type(hub.password)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    assert "/hub/login" not in page.url
    await page.goto(f"{hub.url}/hub/change-password")
    await wait_for_focus(page, "old_password")


@pytest.mark.checklist("AUTH-04")
@pytest.mark.parametrize(
    "name", ["user", "nobody@example.org"], ids=["wrong password", "unknown e-mail address"]
)
async def test_an_error_is_announced_at_the_focused_field(
    hub: RunningHub, browser: Browser, name: str
) -> None:
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await submit_sign_in(page, name, "wrong")
    await wait_for_focus(page, "password_input")
    field = page.locator("#password_input")
    assert await field.get_attribute("aria-invalid") == "true"
    described = (await field.get_attribute("aria-describedby") or "").split()
    texts = [await page.locator(f"#{name}").inner_text() for name in described]
    assert texts == [ENGLISH("sign_in.refused")]
    assert await page.get_by_role("alert").inner_text() == ENGLISH("sign_in.refused")
    # Both fields have a label, and the page keeps the name.
    assert await page.get_by_label(ENGLISH("sign_in.name")).input_value() == name
    assert await page.locator("form .alert-danger").is_visible()
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


@pytest.mark.checklist("AUTH-16")
async def test_the_selected_language_is_remembered(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page(locale="ko-KR")
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    # At the first visit, the page uses the language of the browser.
    await page.get_by_role("heading", name=translator("ko")("sign_in.title")).wait_for()
    await page.get_by_role("link", name="日本語").click()
    japanese = translator("ja")
    heading = page.get_by_role("heading", name=japanese("sign_in.title"))
    await heading.wait_for()
    assert await page.locator("html").get_attribute("lang") == "ja"
    await submit_sign_in(page, "user", hub.password)
    # After the sign-in, the browser is at the `next` URL, although the language was changed.
    assert page.url == f"{hub.url}/hub/home"
    await page.goto(f"{hub.url}/hub/change-password")
    await page.get_by_role("heading", name=japanese("password.title")).wait_for()


def new_account(hub: RunningHub, **fields: Any) -> str:
    """Create an account with ``PASSWORD`` in the domain ``default``; return its user name."""
    name = f"p-{secrets.token_hex(5)}"
    spec = {"username": name, "email": f"{name}@example.org", "password": PASSWORD}
    with hub.rest("admin") as admin:
        checked(admin.post("/users", json={**spec, "domain": "default", **fields}), 201)
    return name


@pytest.mark.checklist("AUTH-10")
async def test_a_password_that_must_change_is_changed_before_the_sign_in(
    hub: RunningHub, browser: Browser
) -> None:
    name = new_account(hub, need_password_change=True)
    page = await browser.new_page()
    await page.goto(f"{hub.url}/hub/login")
    await submit_sign_in(page, name, PASSWORD)
    await page.get_by_text(ENGLISH("password.must_change")).wait_for()
    await page.get_by_role("link", name=ENGLISH("common.cancel")).click()
    await page.get_by_role("heading", name=ENGLISH("sign_in.title")).wait_for()
    await page.goto(f"{hub.url}/hub/home")
    assert "/hub/login" in page.url

    await submit_sign_in(page, name, PASSWORD)
    submit = page.get_by_role("button", name=ENGLISH("password.submit"))
    await submit.click()
    # The browser does not submit the form while fields are empty.
    assert await page.locator("input:invalid").count() == 3
    for new, repeated, key in (
        (PASSWORD, PASSWORD, "password.same"),
        ("Another-horse-8", "Another-horse-9", "password.differs"),
        ("no-digit-here", "no-digit-here", "password.rule_broken"),
    ):
        await page.fill("#old_password", PASSWORD)
        await page.fill("#new_password", new)
        await page.fill("#repeat_password", repeated)
        await submit.click()
        await page.get_by_role("alert").get_by_text(ENGLISH(key)).wait_for()
    await page.fill("#old_password", PASSWORD)
    await page.fill("#new_password", "Another-horse-8")
    await page.fill("#repeat_password", "Another-horse-8")
    await submit.click()
    await page.wait_for_url(f"{hub.url}/hub/home")


@pytest.mark.checklist("AUTH-08")
async def test_a_sign_in_that_would_end_another_one_is_confirmed_first(
    hub: RunningHub, browser: Browser
) -> None:
    policy = f"one-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        body = {"name": policy, "max_concurrent_logins": 1}
        checked(admin.post("/user-policies", json=body), 201)
    name = new_account(hub, resource_policy=policy)
    first, second = [await browser.new_page() for _ in range(2)]
    await first.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await submit_sign_in(first, name, PASSWORD)
    assert first.url == f"{hub.url}/hub/home"

    await second.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await submit_sign_in(second, name, PASSWORD)
    await second.get_by_role("heading", name=ENGLISH("sign_in.limit_title")).wait_for()
    shown = second.locator("#sign-ins li")
    assert await shown.count() == 1
    assert "Chrome on Linux, 127.0.0.1" in await shown.inner_text()
    assert PASSWORD not in await second.content()
    await second.get_by_role("link", name=ENGLISH("common.cancel")).click()
    assert await second.locator("#username_input").input_value() == name
    # The user cancelled the sign-in, so the first browser is still signed in.
    await first.reload()
    assert first.url == f"{hub.url}/hub/home"

    await submit_sign_in(second, name, PASSWORD)
    await second.get_by_role("button", name=ENGLISH("sign_in.limit_proceed")).click()
    await second.wait_for_url(f"{hub.url}/hub/home")
    await first.reload()
    await first.get_by_role("heading", name=ENGLISH("sign_in.title")).wait_for()
    # The Hub's page of tokens lists the sign-ins.
    await second.goto(f"{hub.url}/hub/token")
    await second.get_by_text("Browser sign-in: Chrome on Linux, 127.0.0.1").wait_for()
