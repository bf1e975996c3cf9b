"""Pages, drawers and dialogs in each language: no text is missing, untranslated or cut off."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.engines import checked, stop
from tests.hub import RunningHub, running_session
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .pages import Shell
from .test_every_page import NARROW, every_page, visit
from .visible_texts import Language, language, problems

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Request, ViewportSize

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

WIDE: ViewportSize = {"width": 1280, "height": 800}
FOLDER = "webui-languages"
LABELS = {"ai.backend.service-ports": "sshd:tcp:2222,desktop:vnc:5900,custom:http:8600"}
# Names of accounts and services, and texts of the manager, which are not translated.
AS_WRITTEN = ("^(user|admin|monitor)$", "JupyterHub service bai$", "^placed on ")


@pytest.fixture(scope="module")
def session(hub: RunningHub) -> Iterator[dict[str, Any]]:
    """A session of ``admin`` with a folder and an image that declares apps of several kinds."""
    with hub.rest("admin") as rest:
        name = f"cr.example.com/{secrets.token_hex(3)}/languages:1"
        image = checked(rest.post("/images", json={"name": name, "labels": LABELS}), 201)["id"]
        folder = checked(rest.post("/vfolders", json={"name": FOLDER}), 201)["id"]
        started = running_session(hub, "admin", image=name, mounts=[{"vfolder": FOLDER}])
        yield started
        stop(rest, started["id"])
        checked(rest.delete(f"/images/{image}"), 204)
        rest.delete(f"/vfolders/{folder}")
        rest.post(f"/vfolders/{folder}/purge")


class Tour(Shell):
    """Opens pages and dialogs, checks their texts in two widths and collects the problems."""

    texts: Language
    wrong: dict[str, list[str]]

    def __init__(self, page: Page, hub: RunningHub) -> None:
        super().__init__(page, hub)
        self._requests: set[Request] = set()
        page.on("request", lambda request: self._requests.add(request))
        page.on("requestfinished", lambda request: self._requests.discard(request))
        page.on("requestfailed", lambda request: self._requests.discard(request))

    async def settled(self) -> None:
        """Wait until every request except the event stream has its response.

        Waiting for the load state "networkidle" would take another 0.5 s each time.
        """
        await wait_until_async(
            lambda: all(request.resource_type == "eventsource" for request in self._requests),
            30,
            "the responses of the page",
        )

    async def check(self, name: str, sizes: Sequence[ViewportSize] = (WIDE, NARROW)) -> None:
        for size in sizes:
            await self.page.set_viewport_size(size)
            for text in await problems(self.page, self.texts, AS_WRITTEN):
                self.wrong.setdefault(text, []).append(f"{name} {size['width']}")
        await self.page.set_viewport_size(WIDE)

    def button(self, key: str, **values: str) -> Locator:
        return self.page.get_by_role("button", name=self.texts(key, **values), exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog").last

    async def visit(self, name: str) -> None:
        self._requests.clear()
        await visit(self, name)
        await self.settled()

    async def loaded(self, within: str) -> None:
        await self.page.wait_for_function(
            "selector => document.querySelector(selector) === null",
            arg=f"{within} .ant-skeleton-active, {within} .ant-spin-spinning",
        )

    async def close(self) -> None:
        await self.page.keyboard.press("Escape")
        await self.page.wait_for_function(
            "() => [...document.querySelectorAll('[role=dialog]')]"
            ".every(dialog => !dialog.checkVisibility())"
        )


async def check_pages(tour: Tour) -> None:
    """Check every page, and the first drawer and the form of pages that have them."""
    async for name in every_page(tour):
        await tour.settled()
        await tour.check(name)
        row = tour.page.locator(".ant-table-row button.ant-btn-link").first
        if await row.count():
            await row.click()
            await tour.dialog.locator(".ant-descriptions").wait_for()
            await tour.check(f"{name}: drawer")
            await tour.close()
            new = tour.page.locator("#content button.ant-btn-primary").first
            if await new.count():
                await new.click()
                await tour.dialog.locator("form").wait_for()
                await tour.check(f"{name}: form")
                await tour.close()


async def check_launcher(tour: Tour) -> None:
    await tour.visit("launch")
    for step in ("resources", "folders", "network", "review"):
        await tour.button("launcher.next").click()
        await tour.page.locator(f"#section-{step}:focus").wait_for()
        await tour.check(f"launch: {step}")


async def check_session(tour: Tour, session: dict[str, Any]) -> None:
    """Check the drawer of a session with its tabs, and dialogs of its buttons."""
    await tour.visit(f"sessions?session={session['id']}")
    for tab in ("apps", "usage", "logs", "history", "kernels", "dependencies", "commands"):
        await tour.dialog.get_by_role("tab", name=tour.texts(f"sessions.{tab}"), exact=True).click()
        await tour.loaded("[role=dialog]")
        await tour.check(f"session: {tab}")
    await tour.visit(f"sessions?session={session['id']}")
    await tour.dialog.get_by_role("tab", name=tour.texts("sessions.apps"), exact=True).click()
    for text, title in (
        ("connect-to", tour.texts("apps.title-ssh")),
        ("connect-to", tour.texts("apps.title-vscode-desktop")),
        ("connect-to", tour.texts("apps.title-vnc")),
        ("share-title", "custom"),
    ):
        await tour.button(f"apps.{text}", title=title, name=session["name"]).click()
        await tour.page.locator(".ant-modal").wait_for()
        await tour.check(f"session: {text} {title}")
        await tour.page.locator(".ant-modal-close").click()
        await tour.page.locator(".ant-modal").wait_for(state="detached")
    await tour.button("sessions.stop").click()
    await tour.page.get_by_text(tour.texts("sessions.stop-warning")).wait_for()
    await tour.check("session: stop")


async def check_folders(tour: Tour) -> None:
    await tour.visit("data")
    await tour.button("data.create").first.click()
    await tour.dialog.locator("form").wait_for()
    await tour.check("data: new folder")
    await tour.close()
    for action in ("share", "change"):
        await tour.button("data.actions", name=FOLDER).click()
        await tour.page.get_by_role("menuitem", name=tour.texts(f"data.{action}")).click()
        await tour.dialog.locator(".ant-modal-body").wait_for()
        await tour.check(f"data: {action}")
        await tour.close()
    await tour.page.get_by_role("link", name=FOLDER, exact=True).click()
    await tour.button("data.upload").wait_for()
    await tour.check("data: explorer")


async def check_settings(tour: Tour) -> None:
    for tab in ("account", "ssh-keys", "keypairs", "requests"):
        await tour.visit(f"settings?tab={tab}")
        await tour.check(f"settings: {tab}")
        if tab == "keypairs":
            # Open the bubble again for each size, because it does not move with its button.
            for size in (WIDE, NARROW):
                await tour.page.set_viewport_size(size)
                await tour.button("settings.new-secret").first.click()
                await tour.page.get_by_text(tour.texts("settings.new-secret-warning")).wait_for()
                await tour.check("settings: new secret key", [size])
                await tour.page.reload()


async def check_hub(tour: Tour, hub: RunningHub) -> None:
    for name in ("home", "token", "admin", "change-password", "no-such-page"):
        await tour.page.goto(f"{hub.url}/hub/{name}")
        await tour.settled()
        await tour.check(f"hub: {name}")
    await tour.page.context.clear_cookies(name=re.compile("jupyterhub"))
    await tour.page.goto(f"{hub.url}/hub/login")
    await tour.page.locator("#username_input").wait_for()
    await tour.check("hub: login")


@pytest.mark.parametrize("locale", ["en", "ko", "ja", "th"])
async def test_texts_are_translated_and_fit(
    opened: Opener[Tour], hub: RunningHub, session: dict[str, Any], locale: str
) -> None:
    tour = await opened(Tour, "admin", "/start", locale=locale)
    tour.texts, tour.wrong = language(locale), {}
    missing: list[str] = []
    tour.page.on("console", lambda line: missing.extend(re.findall("missing text: .*", line.text)))
    await check_pages(tour)
    await check_launcher(tour)
    await check_session(tour, session)
    await check_folders(tour)
    await check_settings(tour)
    await check_hub(tour, hub)
    assert (sorted(set(missing)), tour.wrong) == ([], {})
