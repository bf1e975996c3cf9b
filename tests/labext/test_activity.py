"""What counts as using a session, as its real server tells the manager."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.testbed.jupyter import JupyterServer
from tests.testbed.session_server import session_server
from tests.testbed.wait import wait_until, wait_until_async

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 90
# Longer ago than what a slow machine takes between a use and the next report.
LONG_SECONDS = 2.0


@dataclass
class Heard:
    """What a session has said of itself: for how long nobody had used it, each time."""

    idle: list[float] = field(default_factory=list)

    @property
    def last(self) -> float:
        return self.idle[-1] if self.idle else 0.0


@dataclass
class Place:
    server: JupyterServer
    heard: Heard

    def until_unused(self) -> float:
        """Wait until nobody has used it for long, as it says; return for how long."""
        wait_until(lambda: self.heard.last > LONG_SECONDS, PATIENCE_SECONDS, "an unused session")
        return self.heard.last

    def until_used(self, use: Callable[[], Any]) -> None:
        """Use it again and again until it says that it is used."""

        def is_heard() -> bool:
            use()
            return self.heard.last < LONG_SECONDS

        wait_until(is_heard, PATIENCE_SECONDS, "a use to be told")

    def until_heard(self, count: int) -> None:
        so_far = len(self.heard.idle)
        wait_until(
            lambda: len(self.heard.idle) >= so_far + count, PATIENCE_SECONDS, "the next reports"
        )


def manager(heard: Heard) -> ThreadingHTTPServer:
    """Return a manager that asks to be told each second, and knows nothing else."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/services/bai/api/v1/sessions/some/activity"
            heard.idle.append(said["idle_seconds"])
            answer = {"idle_since": None, "idle_ends_at": None, "next_report_seconds": 1}
            self.answer(200, answer)

        def do_GET(self) -> None:
            self.answer(503, {"error": "unavailable", "message": "away", "details": {}})

        def answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Answer)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    heard = Heard()
    with manager(heard) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{http.server_address[1]}/services/bai"
        home: Path = tmp_path_factory.mktemp("home")
        try:
            with session_server(home, {"BAI_MANAGER_URL": url}) as server:
                # From then on it tells each second.
                assert server.request("POST", "bai/api/session/activity").status_code == 200
                yield Place(server, heard)
        finally:
            http.shutdown()
            thread.join()


def test_what_an_open_page_asks_by_itself_is_no_use(place: Place) -> None:
    before = place.until_unused()
    asked = ("api/contents?content=1", "api/kernels", "api/sessions", "api/terminals", "api/status")
    look = "bai/api/look?usage=&apps="
    own = ("bai/api/session", "bai/api/session/log", look, "bai/api/apps")
    for path in (*asked, *own):
        assert place.server.get(path).status_code in (200, 503), path
    # Refused: nobody has used anything.
    assert place.server.request("POST", "api/contents", token="wrong").status_code == 403
    # One may have been on its way.
    place.until_heard(2)
    assert place.heard.last > before


def test_somebody_at_work_in_the_page_is_a_use(place: Place) -> None:
    place.until_unused()
    place.until_used(lambda: place.server.request("POST", "bai/api/session/activity"))


def test_a_file_that_is_written_is_a_use(place: Place) -> None:
    place.until_unused()
    place.until_used(lambda: place.server.request("POST", "api/contents"))


async def test_a_kernel_at_work_is_a_use(place: Place) -> None:
    kernel = place.server.request("POST", "api/kernels").json()["id"]
    run = {
        "header": {"msg_id": "1", "msg_type": "execute_request", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": "import time; time.sleep(600)", "silent": False},
        "channel": "shell",
    }
    async with place.server.websocket(f"api/kernels/{kernel}/channels") as socket:
        await socket.write_message(json.dumps(run))
        while json.loads(str(await socket.read_message()))["msg_type"] != "execute_input":
            pass
    # It says nothing while it works, and nobody looks.
    wait_until(lambda: place.heard.idle[-2:] == [0.0, 0.0], PATIENCE_SECONDS, "a busy kernel")
    assert place.server.request("DELETE", f"api/kernels/{kernel}").status_code == 204
    place.until_unused()


async def test_a_terminal_in_which_somebody_types_is_a_use(place: Place) -> None:
    name = place.server.request("POST", "api/terminals").json()["name"]
    heard = place.heard
    # To have opened it is a use.
    place.until_heard(2)
    async with place.server.websocket(f"terminals/websocket/{name}") as terminal:
        # An open one in which nothing happens is none.
        await wait_until_async(
            lambda: heard.last > LONG_SECONDS, PATIENCE_SECONDS, "an unused session"
        )

        async def is_heard() -> bool:
            await terminal.write_message(json.dumps(["stdin", " "]))
            return heard.last < LONG_SECONDS

        await wait_until_async(is_heard, PATIENCE_SECONDS, "a use to be told")
    assert place.server.request("DELETE", f"api/terminals/{name}").status_code == 204
