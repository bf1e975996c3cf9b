"""Activity of a session: reports of a real session server to a fake manager."""

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

TIMEOUT_SECONDS = 90
# A session with a longer idle time counts as idle. Even on a slow machine, the first report after
# a use has a shorter idle time.
IDLE_SECONDS = 2.0


@dataclass
class IdleReports:
    """The idle times in seconds that a session has reported, the latest last."""

    idle: list[float] = field(default_factory=list)

    @property
    def last(self) -> float:
        return self.idle[-1] if self.idle else 0.0


@dataclass
class ReportingSession:
    server: JupyterServer
    reports: IdleReports

    def wait_until_idle(self) -> float:
        """Wait until the reported idle time exceeds ``IDLE_SECONDS``, and return it."""
        wait_until(lambda: self.reports.last > IDLE_SECONDS, TIMEOUT_SECONDS, "an idle session")
        return self.reports.last

    def repeat_until_used(self, use: Callable[[], Any]) -> None:
        """Repeat ``use`` until the reported idle time is short again."""

        def is_used() -> bool:
            use()
            return self.reports.last < IDLE_SECONDS

        wait_until(is_used, TIMEOUT_SECONDS, "a use to be reported")

    def wait_for_reports(self, count: int) -> None:
        so_far = len(self.reports.idle)
        wait_until(
            lambda: len(self.reports.idle) >= so_far + count, TIMEOUT_SECONDS, "the next reports"
        )


def fake_manager(reports: IdleReports) -> ThreadingHTTPServer:
    """Return a server that accepts reports, sets their interval to 1 s, and rejects other calls."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/services/bai/api/v1/sessions/some/activity":
                self.respond(404, {"error": "not-found", "message": self.path, "details": {}})
                return
            reports.idle.append(report["idle_seconds"])
            response = {"idle_since": None, "idle_ends_at": None, "next_report_seconds": 1}
            self.respond(200, response)

        def do_GET(self) -> None:
            self.respond(503, {"error": "unavailable", "message": "unavailable", "details": {}})

        def respond(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportingSession]:
    reports = IdleReports()
    with fake_manager(reports) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{http.server_address[1]}/services/bai"
        home: Path = tmp_path_factory.mktemp("home")
        try:
            with session_server(home, {"BAI_MANAGER_URL": url}) as server:
                # The response to this report sets the interval to 1 s.
                assert server.request("POST", "bai/api/session/activity").status_code == 200
                yield ReportingSession(server, reports)
        finally:
            http.shutdown()
            thread.join()


def test_polls_of_an_open_page_do_not_count_as_use(session: ReportingSession) -> None:
    before = session.wait_until_idle()
    jupyter = (
        *("api/contents?content=1", "api/kernels", "api/sessions", "api/terminals", "api/status"),
    )
    poll = "bai/api/poll?usage=&apps="
    panel = ("bai/api/session", "bai/api/session/log", poll, "bai/api/apps")
    for path in (*jupyter, *panel):
        assert session.server.get(path).status_code in (200, 503), path
    # A rejected write does not count as use, either.
    assert session.server.request("POST", "api/contents", token="wrong").status_code == 403
    # The first of two reports may have been sent before the requests.
    session.wait_for_reports(2)
    # Two reports without a use in between add 2 s; a use would have reset the idle time to 0.
    assert session.reports.last > before + 1.0


def test_activity_in_the_page_counts_as_use(session: ReportingSession) -> None:
    session.wait_until_idle()
    session.repeat_until_used(lambda: session.server.request("POST", "bai/api/session/activity"))


def test_writing_a_file_counts_as_use(session: ReportingSession) -> None:
    session.wait_until_idle()
    session.repeat_until_used(lambda: session.server.request("POST", "api/contents"))


async def test_a_busy_kernel_counts_as_use(session: ReportingSession) -> None:
    kernel = session.server.request("POST", "api/kernels").json()["id"]
    run = {
        "header": {"msg_id": "1", "msg_type": "execute_request", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": "import time; time.sleep(600)", "silent": False},
        "channel": "shell",
    }
    async with session.server.websocket(f"api/kernels/{kernel}/channels") as socket:
        await socket.write_message(json.dumps(run))
        while json.loads(str(await socket.read_message()))["msg_type"] != "execute_input":
            pass
    # Only the running cell counts: it prints nothing, and no client is connected.
    wait_until(lambda: session.reports.idle[-2:] == [0.0, 0.0], TIMEOUT_SECONDS, "a busy kernel")
    assert session.server.request("DELETE", f"api/kernels/{kernel}").status_code == 204
    session.wait_until_idle()


async def test_typing_in_a_terminal_counts_as_use(session: ReportingSession) -> None:
    name = session.server.request("POST", "api/terminals").json()["name"]
    reports = session.reports
    # The opening of the terminal counts as use; wait until it has been reported.
    session.wait_for_reports(2)
    async with session.server.websocket(f"terminals/websocket/{name}") as terminal:
        # An open terminal without input does not count as use.
        await wait_until_async(
            lambda: reports.last > IDLE_SECONDS, TIMEOUT_SECONDS, "an idle session"
        )

        async def is_used() -> bool:
            await terminal.write_message(json.dumps(["stdin", " "]))
            return reports.last < IDLE_SECONDS

        await wait_until_async(is_used, TIMEOUT_SECONDS, "a use to be reported")
    assert session.server.request("DELETE", f"api/terminals/{name}").status_code == 204
