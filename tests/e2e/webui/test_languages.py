"""Pages, drawers and dialogs in each language: no text is missing, untranslated or cut off."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from bai_services.i18n.catalogue import COOKIE
from tests.e2e.sessions import checked, stop
from tests.hub import RunningHub, running_session
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .pages import Shell
from .test_every_page import NARROW, every_page, visit
from .visible_texts import Language, language, problems

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Request, ViewportSize

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

LANGUAGES = ("en", "ko", "ja", "th")
# A BroadcastChannel object does not receive the messages that it sends, so use another object.
CHOOSE_IN_ANOTHER_TAB = f"""language => {{
  const channel = new BroadcastChannel('{COOKIE}');
  channel.postMessage(language);
  channel.close();
}}"""
WIDE: ViewportSize = {"width": 1280, "height": 800}
FOLDER = "webui-languages"
LABELS = {"ai.backend.service-ports": "sshd:tcp:2222,desktop:vnc:5900,custom:http:8600"}
# Names of accounts, services and packages, and labels of images are not translated.
AS_WRITTEN = (
    "^batch query uid-match$",
    "^Markdown$",
    "^(user|admin|monitor)$",
    "JupyterHub service bai$",
    "^extend$",
)


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
    """Opens pages and dialogs in English, and checks their texts in every language and two widths.

    The language of an open page is switched as if the user had chosen it in another tab.
    """

    english = language("en")

    def __init__(self, page: Page, hub: RunningHub) -> None:
        super().__init__(page, hub)
        self.wrong: dict[str, list[str]] = {}
        self._shown = "en"
        self._requests: set[Request] = set()
        page.on("request", lambda request: self._requests.add(request))
        page.on("requestfinished", lambda request: self._requests.discard(request))
        page.on("requestfailed", lambda request: self._requests.discard(request))
        page.on("console", lambda line: self._add(line.text) if "missing text" in line.text else 0)

    def _add(self, problem: str, place: str = "") -> None:
        self.wrong.setdefault(problem, []).append(place)

    async def settled(self) -> None:
        """Wait until every request except the event stream has its response.

        Waiting for the load state "networkidle" would take another 0.5 s each time.
        """
        await wait_until_async(
            lambda: all(request.resource_type == "eventsource" for request in self._requests),
            30,
            "the responses of the page",
        )

    async def speak(self, texts: Language) -> None:
        if texts.name == self._shown:
            return
        self._shown = texts.name
        await self.page.evaluate(CHOOSE_IN_ANOTHER_TAB, texts.name)
        await self.page.locator(f"button[aria-label='{texts('shell.language')}']").wait_for()

    async def check(self, name: str, sizes: Sequence[ViewportSize] = (NARROW, WIDE)) -> None:
        """Check the texts in each language and size; at the end, the page is in English.

        A change of the size takes more CPU time than a change of the language, so each size is set
        once.
        """
        names: Sequence[str] = LANGUAGES
        for size in sizes:
            for texts in map(language, names):
                await self.speak(texts)
                await self.check_language(name, texts, [size])
            names = names[::-1]
        await self.speak(self.english)

    async def check_reopened(
        self, button: str, warning: str, sizes: Sequence[ViewportSize] = (WIDE, NARROW)
    ) -> None:
        """Press a button in each language, and check the dialog or bubble with a warning."""
        for texts in map(language, LANGUAGES):
            await self.page.set_viewport_size(sizes[0])
            await self.speak(texts)
            opener = self.page.get_by_role("button", name=texts(button), exact=True)
            await opener.first.click()
            await self.page.get_by_text(texts(warning)).wait_for()
            await self.check_language(button, texts, sizes)
            await self.page.reload()

    async def check_language(
        self, name: str, texts: Language, sizes: Sequence[ViewportSize] = (WIDE, NARROW)
    ) -> None:
        for size in sizes:
            await self.page.set_viewport_size(size)
            found: list[str] = []

            async def is_correct() -> bool:
                nonlocal found
                found = await problems(self.page, texts, AS_WRITTEN)
                return not found

            # The texts of AntD's components are loaded after those of the web UI.
            with contextlib.suppress(TimeoutError):
                await wait_until_async(is_correct, 5, "correct texts")
            for problem in found:
                self._add(problem, f"{name} {texts.name} {size['width']}")

    def button(self, key: str, **values: str) -> Locator:
        return self.page.get_by_role("button", name=self.english(key, **values), exact=True)

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


@pytest_asyncio.fixture(loop_scope="session")
async def tour(opened: Opener[Tour]) -> AsyncIterator[Tour]:
    """A signed-in administrator; the test fails if a text is missing, untranslated or cut off."""
    tour = await opened(Tour, "admin", "/start")
    yield tour
    assert tour.wrong == {}


# Each half takes much less time than the limit of a test.
@pytest.mark.parametrize("half", [slice(0, None, 2), slice(1, None, 2)], ids=["even", "odd"])
async def test_texts_of_pages_are_translated_and_fit(tour: Tour, half: slice) -> None:
    """Check every page, and the first drawer and the form of pages that have them."""
    async for name in every_page(tour, half):
        await tour.settled()
        await tour.check(name)
        row = tour.page.locator(".ant-table-row button.ant-btn-link").first
        if await row.count():
            await row.click()
            await tour.dialog.locator(".ant-descriptions").first.wait_for()
            await tour.check(f"{name}: drawer")
            await tour.close()
            new = tour.page.locator("#content button.ant-btn-primary").first
            if await new.count():
                await new.click()
                await tour.dialog.locator("form").wait_for()
                await tour.check(f"{name}: form")
                await tour.close()


async def test_texts_of_the_launcher_and_folders_are_translated_and_fit(
    tour: Tour, session: dict[str, Any]
) -> None:
    await tour.visit("launch")
    for step in ("resources", "folders", "network", "review"):
        await tour.button("launcher.next").click()
        await tour.page.locator(f"#section-{step}:focus").wait_for()
        await tour.check(f"launch: {step}")

    await tour.visit("data")
    await tour.button("data.create").first.click()
    await tour.dialog.locator("form").wait_for()
    await tour.check("data: new folder")
    await tour.close()
    for action in ("share", "change"):
        await tour.button("data.actions", name=FOLDER).click()
        await tour.page.get_by_role("menuitem", name=tour.english(f"data.{action}")).click()
        await tour.dialog.locator(".ant-modal-body").wait_for()
        await tour.check(f"data: {action}")
        await tour.close()
    await tour.page.get_by_role("link", name=FOLDER, exact=True).click()
    await tour.button("data.upload").wait_for()
    await tour.check("data: explorer")


async def test_texts_of_a_session_are_translated_and_fit(
    tour: Tour, session: dict[str, Any]
) -> None:
    """Check the drawer of a session with its tabs, and dialogs of its buttons."""
    text = tour.english
    await tour.visit(f"sessions?session={session['id']}")
    for tab in ("apps", "usage", "logs", "history", "kernels", "dependencies", "commands"):
        await tour.dialog.get_by_role("tab", name=text(f"sessions.{tab}"), exact=True).click()
        await tour.loaded("[role=dialog]")
        await tour.check(f"session: {tab}")
    await tour.visit(f"sessions?session={session['id']}")
    await tour.dialog.get_by_role("tab", name=text("sessions.apps"), exact=True).click()
    for key, title in (
        ("connect-to", text("apps.title-ssh")),
        ("connect-to", text("apps.title-vscode-desktop")),
        ("connect-to", text("apps.title-vnc")),
        ("share-title", "custom"),
    ):
        await tour.button(f"apps.{key}", title=title, name=session["name"]).click()
        await tour.page.locator(".ant-modal").wait_for()
        await tour.check(f"session: {key} {title}")
        await tour.page.locator(".ant-modal-close").click()
        await tour.page.locator(".ant-modal").wait_for(state="detached")
    # The dialog keeps the language in which it was opened.
    await tour.check_reopened("sessions.stop", "sessions.stop-warning")


async def test_texts_of_the_reasons_of_pending_and_ended_sessions_are_translated_and_fit(
    tour: Tour, hub: RunningHub, session: dict[str, Any]
) -> None:
    """Check the pages that show the manager's reasons and suggestions."""
    spec = {"project": "default", "resources": {"cpu": "1", "mem": "512m"}}
    with hub.rest("user") as other, hub.rest("admin") as rest:
        free = other.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
        running = running_session(hub, "user", resources={"cuda.shares": free})
        large = {**spec, "name": "large", "resources": {**spec["resources"], "cuda.shares": "0.5"}}
        behind = {**spec, "name": "behind", "dependencies": [session["id"]], "type": "batch"}
        behind["startup_command"] = "true"
        pending = [checked(rest.post("/sessions", json=body), 201) for body in (large, behind)]
        try:
            for one, reason in zip(
                pending, ("requested, but", "waits for the success"), strict=True
            ):
                await tour.visit(f"sessions?session={one['id']}")
                await tour.dialog.get_by_text(reason).first.wait_for()
                await tour.dialog.locator("details summary").click()
                await tour.check(f"reasons: {one['name']}")
            for name in ("sessions", "dashboard", "scheduler"):
                await tour.visit(name)
                await tour.page.get_by_text("requested, but").first.wait_for()
                await tour.check(f"reasons: {name}")
            await tour.visit(f"launch?request={quote(json.dumps({**large, 'name': 'larger'}))}")
            await tour.page.get_by_text("requested, but").first.wait_for()
            await tour.check("reasons: launch")
            await tour.visit(f"sessions?session={pending[0]['id']}")
            await tour.speak(language("ko"))
            await tour.dialog.get_by_text("한 에이전트의 여유는 최대").first.wait_for()
            stop(rest, pending[1]["id"])
            await tour.visit(f"sessions?session={pending[1]['id']}")
            await tour.speak(language("en"))
            await tour.dialog.get_by_text("stopped by admin").first.wait_for()
            await tour.check("reasons: ended session")
        finally:
            for one in pending[::-1]:
                stop(rest, one["id"])
            stop(other, running["id"])


async def test_texts_of_the_settings_are_translated_and_fit(tour: Tour) -> None:
    for tab in ("account", "ssh-keys", "keypairs", "requests"):
        await tour.visit(f"settings?tab={tab}")
        await tour.check(f"settings: {tab}")
    await tour.visit("settings?tab=keypairs")
    # Open the bubble again for each size: it does not follow its button when the window is resized.
    for size in (WIDE, NARROW):
        await tour.check_reopened("settings.new-secret", "settings.new-secret-warning", [size])


async def test_texts_of_the_hub_are_translated_and_fit(tour: Tour, hub: RunningHub) -> None:
    context = tour.page.context
    for texts in map(language, LANGUAGES):
        await context.add_cookies([{"name": COOKIE, "value": texts.name, "url": hub.url}])
        for name in ("home", "token", "admin", "change-password", "no-such-page"):
            await tour.page.goto(f"{hub.url}/hub/{name}")
            await tour.settled()
            await tour.check_language(f"hub: {name}", texts)
    await context.clear_cookies(name=re.compile("jupyterhub"))
    for texts in map(language, LANGUAGES):
        await context.add_cookies([{"name": COOKIE, "value": texts.name, "url": hub.url}])
        await tour.page.goto(f"{hub.url}/hub/login")
        await tour.page.locator("#username_input").wait_for()
        await tour.check_language("hub: login", texts)
        for name in ("forgot-password", "reset-password#x", "sign-up", "verify-email#x"):
            await tour.page.goto(f"{hub.url}/hub/{name}")
            await tour.check_language(f"hub: {name}", texts)
