"""The chat page with a real endpoint, whose model server is a small server of this test."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until, wait_until_async

from .conftest import Opener
from .entities_page import Entities
from .test_every_page import violations_in_both_themes

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

OWNER, MEMBER = "user", "user2"
START_SECONDS = 180
# An OpenAI-compatible server. It answers with the messages that it has received. After the word
# "wait", its answer has no end; after "cut", a long answer ends too early. The hostile parts of an
# answer must not become elements.
SERVER = r"""
import http.server, json, os, threading

HOSTILE = ("# Head\n\n**bold** <img src=x onerror=alert(1)> ![p](https://example.com/p.png) "
           "[bad](javascript:alert(1)) [good](https://example.com/)\n\n```python\nx = 1\n```\n"
           "\\(x_1 = \\href{javascript:alert(1)}{x}\\)\n\n$$\\frac{a}{b}$$\n")

class Handler(http.server.BaseHTTPRequestHandler):
    def head(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def do_GET(self):
        self.head("application/json")
        models = [{"id": name} for name in ("echo-1", "echo-2")]
        self.wfile.write(json.dumps({"data": models}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = body["messages"]
        text = sent[-1]["content"]
        if text == "redirect":
            self.send_response(307)
            self.send_header("Location", "/hub/api/user")
            self.end_headers()
            return
        self.head("text/event-stream")
        said = [m["role"] + ": " + json.dumps(m["content"]) for m in sent]
        self.event(" | ".join([body["model"], *said]) + f" t={body.get('temperature')}\n\n")
        if "wait" in text:
            threading.Event().wait(60)
        for number in range(60 if text == "cut" else 0):
            self.event(f"Paragraph {number}\n\n")
            threading.Event().wait(0.02)
        if text == "cut":
            return
        self.event(HOSTILE)
        self.write({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 12}})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, text):
        self.write({"choices": [{"delta": {"content": text}}]})

    def write(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

address = ("127.0.0.1", int(os.environ["BAI_SERVICE_PORT"]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""
# A PNG image of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
COMMAND = f"exec python3 - <<'END_OF_SERVER'\n{SERVER}\nEND_OF_SERVER"


class Chat(Entities):
    """The page `/chat`."""

    def card(self, number: int) -> Locator:
        return self.page.get_by_role("region", name=f"Chat {number}", exact=True)

    async def select(self, *names: str) -> None:
        """Select the endpoint and the model of the last card."""
        card = self.page.locator(".bai-chat-card").last
        for label, name in zip(("Endpoint", "Model"), names, strict=False):
            await card.get_by_role("combobox", name=label, exact=True).click()
            option = self.page.locator(".ant-select-dropdown:visible .ant-select-item-option")
            await option.filter(has_text=name).first.click()

    async def send(self, text: str) -> None:
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.page.get_by_label("Message", exact=True).press("Enter")

    def answers(self, number: int = 1) -> Locator:
        return self.card(number).get_by_role("article", name="Answer")

    async def more(self, item: str) -> None:
        await self.card(1).get_by_role("button", name="More actions").click()
        await self.page.get_by_role("menuitem", name=item).click()

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).last.click()


@contextmanager
def endpoint(hub: RunningHub) -> Iterator[dict[str, Any]]:
    """An endpoint of OWNER with a ready replica."""
    name = f"chat-{secrets.token_hex(3)}"
    settings = {
        "variant": "cmd",
        "command": COMMAND,
        "health": {"path": "/v1/models"},
        "request": {"resources": {"cpu": "1", "mem": "256m"}},
    }
    with hub.rest(OWNER) as rest:
        made = checked(rest.post("/endpoints", json={"name": name, "settings": settings}), 201)
        try:
            wait_until(
                lambda: checked(rest.get(f"/endpoints/{name}"), 200)["ready_replicas"],
                START_SECONDS,
                "the replica",
            )
            yield made
        finally:
            rest.delete(f"/endpoints/{name}")


@pytest.mark.checklist("CHAT-01", "CHAT-02", "CHAT-03", "CHAT-04", "CHAT-05", "CHAT-06")
async def test_member_of_the_project_chats_with_an_endpoint(
    hub: RunningHub, opened: Opener[Chat]
) -> None:
    with endpoint(hub) as served, hub.rest(MEMBER) as rest:
        ui = await opened(Chat, MEMBER, f"/endpoints?item={served['id']}")
        ui.page.on("dialog", lambda dialog: pytest.fail("a script of the answer ran"))
        await ui.page.get_by_role("link", name="Test in chat").click()
        await converse(ui, served["name"])
        await attach_files(ui)
        await stop_an_answer(ui)
        await follow_an_answer_that_is_cut_off(ui)
        await compare(ui)
        assert await violations_in_both_themes(ui.page) == []
        await ui.page.emulate_media(color_scheme="light")
        with hub.rest(OWNER) as owner:
            tokens = f"/endpoints/{served['name']}/tokens"
            made = checked(owner.post(tokens, json={"name": "examples"}), 201)
            await copy(ui, served["name"], made["token"])
            checked(owner.delete(f"{tokens}/{made['id']}"), 200, 204)
        await use_history(ui)
        # The tokens of the page are not listed, and no other user sees the chats.
        with hub.rest(OWNER) as owner:
            tokens = checked(owner.get(f"/endpoints/{served['name']}/tokens"), 200)
            assert tokens["total"] == 0
            assert "echo-1" not in owner.get("/chats").text
            wait_until(
                lambda: checked(owner.get(f"/endpoints/{served['name']}"), 200)["requests"] >= 5,
                30,
                "the count of the requests",
            )
        assert checked(rest.get("/chats"), 200)["items"] == []
        # The page follows no redirect, because it sends a token.
        await ui.page.goto(f"{hub.url}/services/bai/chat?endpoint={served['name']}")
        await ui.card(1).get_by_text("echo-1").wait_for()
        await ui.send("redirect")
        await ui.card(1).get_by_text("redirects to another address").wait_for()
        await read_statistics(await opened(Chat, OWNER, "/statistics"), served)
        await follow_an_answer_whose_endpoint_is_deleted(ui, hub, served["name"])


async def read_statistics(ui: Chat, served: dict[str, Any]) -> None:
    """The owner sees the requests in the statistics and at the endpoint."""
    await ui.page.get_by_label("Statistics", exact=True).get_by_text("Endpoints").click()
    await ui.page.get_by_role("img", name="Requests over time").wait_for()
    ranking = ui.page.get_by_role("region", name="Most requests")
    await ranking.get_by_role("row").filter(has_text=served["name"]).wait_for()
    await ui.page.get_by_role("combobox", name="Group by").click()
    await ui.page.locator(".ant-select-dropdown:visible").get_by_title("Token").click()
    row = ranking.get_by_role("row").filter(has_text=f"{served['name']} · Chat page")
    await row.get_by_text(OWNER, exact=True).wait_for()
    export = ui.page.get_by_role("link", name="Download as CSV", exact=True)
    address = await export.get_attribute("href") or ""
    assert "/endpoint-usage?" in address and "by=token" in address
    assert await violations_in_both_themes(ui.page) == []
    await ui.page.goto(f"{ui.page.url.partition('/statistics')[0]}/endpoints?item={served['id']}")
    await ui.page.get_by_role("tab", name="Usage", exact=True).click()
    panel = ui.page.get_by_role("tabpanel", name="Usage")
    await panel.get_by_role("img", name="Requests over time").wait_for()
    await panel.get_by_role("row").filter(has_text="Chat page").wait_for()


async def converse(ui: Chat, name: str) -> None:
    """Send messages with a system prompt. Hostile parts of the answer are rendered as text."""
    await ui.page.get_by_text("Try a served model here").wait_for()
    await ui.press("Close")
    assert name in await ui.card(1).inner_text()
    await ui.card(1).get_by_text("echo-1").wait_for()
    await ui.press("Card settings")
    await ui.page.get_by_label("System prompt").fill("Be short.")
    await ui.page.get_by_label("Temperature").fill("0.5")
    await ui.press("Save")
    await ui.send("Hello")
    answer = ui.answers().first
    text = 'echo-1 | system: "Be short." | user: "Hello" t=0.5'
    await answer.get_by_text(text).wait_for()
    await answer.get_by_text("7 input tokens · 12 output tokens").wait_for()
    await answer.locator(".bai-code .tok-number").wait_for()
    assert await answer.locator("img, h1, script").count() == 0
    await answer.get_by_text("<img src=x onerror=alert(1)>").wait_for()
    await answer.locator(".bai-formula-block math mfrac").wait_for(state="attached")
    font = "document.fonts.ready.then(() => document.fonts.check('16px KaTeX_Main'))"
    assert await ui.page.evaluate(font)
    links = answer.get_by_role("link")
    assert await links.count() == 1
    assert await links.get_attribute("href") == "https://example.com/"
    assert "noopener" in (await links.get_attribute("rel") or "")
    await ui.page.wait_for_url("**/chat?chat=*")


async def attach_files(ui: Chat) -> None:
    """Send a text and an image; another file is refused."""
    picker = ui.page.locator("input[type=file]")
    files = (("a.txt", "text/plain", b"in-a-file"), ("b.png", "image/png", PNG), ("c", "", b"\xff"))
    await picker.set_input_files(
        [{"name": name, "mimeType": kind, "buffer": content} for name, kind, content in files]
    )
    await ui.page.get_by_text("c is neither an image nor UTF-8 text").wait_for()
    await ui.page.get_by_role("button", name="Remove b.png").wait_for()
    await ui.send("Files")
    answer = ui.answers().nth(1)
    await answer.get_by_text("in-a-file").wait_for()
    await answer.get_by_text("data:image/jpeg").wait_for()
    await answer.get_by_text("7 input tokens").wait_for()


async def stop_an_answer(ui: Chat) -> None:
    """Stop an answer that has no end; the received part is kept."""
    await ui.send("wait")
    answer = ui.answers().nth(2)
    await answer.get_by_text('user: "wait"').wait_for()
    await ui.press("Stop")
    await answer.get_by_text("Stopped").wait_for()
    assert 'user: "wait"' in await answer.inner_text()


async def follow_an_answer_that_is_cut_off(ui: Chat) -> None:
    """The list shows the end of a long answer, and marks the answer as incomplete."""
    await ui.send("cut")
    answer = ui.answers().nth(3)
    problem = answer.get_by_text("The answer ended before it was complete.")
    await problem.wait_for()
    list_ = ui.card(1).get_by_role("log")
    below = "element => element.scrollHeight - element.scrollTop - element.clientHeight"

    async def is_at_the_end() -> bool:
        return bool(await list_.evaluate(below) < 2)

    await wait_until_async(is_at_the_end, 10, "the end of the list")
    assert await list_.evaluate("element => element.scrollTop") > 0


async def follow_an_answer_whose_endpoint_is_deleted(ui: Chat, hub: RunningHub, name: str) -> None:
    """The page keeps what has arrived, and gives the reason for the end."""
    await ui.send("wait")
    answer = ui.answers().last
    await answer.get_by_text('user: "wait"').wait_for()
    with hub.rest(OWNER) as owner:
        checked(owner.delete(f"/endpoints/{name}"), 200)
    await answer.get_by_text("The answer is incomplete: the endpoint was deleted").wait_for()
    assert 'user: "wait"' in await answer.inner_text()
    # The deleted endpoint cannot be called again.
    await answer.get_by_role("button", name="Try again").wait_for(state="detached")


async def compare(ui: Chat) -> None:
    """Send one message to two models."""
    await ui.press("Add a card")
    await ui.card(2).get_by_role("combobox", name="Model", exact=True).click()
    await ui.page.get_by_text("echo-2").last.click()
    await ui.send("Both")
    await ui.answers(1).nth(4).get_by_text('user: "Both"').wait_for()
    await ui.answers(2).first.get_by_text('echo-2 | system: "Be short." | user: "Both"').wait_for()
    await ui.answers(2).first.get_by_text("7 input tokens").wait_for()


async def copy(ui: Chat, name: str, token: str) -> None:
    """Copy the examples, which contain a placeholder for the token, and run them."""
    await ui.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for item, text, program in (
        ("Copy as curl", "curl -N", ("bash", "-c")),
        ("Copy as Python", "from openai import", (sys.executable, "-c")),
    ):
        await ui.more(item)
        copied = ""

        async def is_copied(text: str = text) -> bool:
            nonlocal copied
            copied = await ui.page.evaluate("navigator.clipboard.readText()")
            return text in copied

        await wait_until_async(is_copied, 10, text)
        assert f"/services/bai-serve/{name}/v1" in copied
        assert "BAI_TOKEN" in copied and "bais_" not in copied
        done = await asyncio.to_thread(
            subprocess.run, [*program, copied], env={**os.environ, "BAI_TOKEN": token},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        # curl prints the events, in which the quotes of the answer are escaped.
        assert 'user: "Both" t=0.5' in done.stdout.replace("\\", "")


async def use_history(ui: Chat) -> None:
    """Open a stored chat after a reload, rename it and delete it."""
    await ui.page.reload()
    await ui.answers(2).first.get_by_text('user: "Both"').wait_for()
    assert await ui.answers(1).count() == 5
    await ui.press("New chat")
    await ui.answers(1).first.wait_for(state="detached")
    await ui.press("History")
    await ui.press("Rename Hello")
    await ui.page.get_by_label("Title", exact=True).fill("Renamed")
    await ui.press("Save")
    await ui.page.get_by_role("button", name="Renamed", exact=True).click()
    await ui.answers(2).first.get_by_text('user: "Both"').wait_for()
    await ui.page.get_by_role("heading", name="Renamed").wait_for()
    await ui.press("History")
    await ui.press("Delete Renamed")
    await ui.confirm("Delete")
    await ui.answers(1).first.wait_for(state="detached")
    await ui.page.get_by_text("No chats").wait_for()
