"""The batch runner as a subprocess, against a fake Hub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class FakeHub:
    """A fake Hub with configurable responses, which records the requests."""

    url: str = ""
    status: int = 200
    is_ready: bool = True
    # The body of the response to a report of activity.
    activity_response: bytes = b"{}"
    queries: list[str] = field(default_factory=list)
    activity: list[dict[str, Any]] = field(default_factory=list)
    credentials: set[str | None] = field(default_factory=set)


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.credentials.add(self.headers["Authorization"])
            hub.queries.append(self.path)
            self.respond(hub.status, json.dumps({"ready": hub.is_ready}).encode())

        def do_POST(self) -> None:
            hub.credentials.add(self.headers["Authorization"])
            text = self.rfile.read(int(self.headers["Content-Length"]))
            hub.activity.append(json.loads(text))
            self.respond(200, hub.activity_response)

        def respond(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class RunningBatch:
    process: subprocess.Popen[str]
    url: str

    def is_up(self) -> bool:
        try:
            return httpx.get(f"{self.url}api").status_code == 200
        except httpx.TransportError:
            return False

    def wait_for_exit(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=20)
        return self.process.returncode, output


@contextmanager
def runner(hub: FakeHub, folder: Path, command: str) -> Iterator[RunningBatch]:
    url = f"http://127.0.0.1:{free_port()}/user/ann/train/"
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "BAI_STARTUP_COMMAND": command,
        "JUPYTERHUB_SERVICE_URL": url,
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_API_URL": f"{hub.url}/hub/api",
        "JUPYTERHUB_ACTIVITY_INTERVAL": "0.1",
        "JUPYTERHUB_ACTIVITY_URL": f"{hub.url}/hub/api/users/ann/activity",
        "JUPYTERHUB_API_TOKEN": "secret",
        "JUPYTERHUB_USER": "ann",
        "JUPYTERHUB_SERVER_NAME": "train",
        "http_proxy": "http://127.0.0.1:1",
    }
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "bai_labext.batch"],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield RunningBatch(process, url)
    finally:
        process.kill()
        process.communicate()


def test_the_command_starts_after_the_hub_has_registered_the_server(tmp_path: Path) -> None:
    with fake_hub() as hub:
        hub.is_ready = False
        command = 'echo "$PWD"; test -z "$BAI_STARTUP_COMMAND" && exit 3'
        with runner(hub, tmp_path, command) as running:
            wait_until(running.is_up, 20, "a response of the batch runner")
            wait_until(lambda: len(hub.queries) > 1, 20, "queries to the Hub")
            assert running.process.poll() is None
            assert hub.activity == []
            hub.is_ready = True
            assert running.wait_for_exit() == (3, f"{tmp_path}\n")
        assert set(hub.queries) == {"/hub/api/users/ann/servers/train"}
        assert list(hub.activity[0]["servers"]) == ["train"]
        assert hub.credentials == {"token secret"}


def test_pages_have_no_content_and_redirect_to_the_hub(tmp_path: Path) -> None:
    with fake_hub() as hub:
        hub.is_ready = False
        with runner(hub, tmp_path, "echo secret") as running:
            wait_until(running.is_up, 20, "a response of the batch runner")
            check = httpx.get(f"{running.url}api")
            assert check.headers["X-JupyterHub-Version"]
            assert check.text == ""
            for path in ("", "lab", "files/x", "../../../etc/passwd"):
                response = httpx.get(running.url + path)
                assert (response.status_code, response.text) == (302, "")
                assert response.headers["Location"] == "/hub/home"


@pytest.mark.parametrize("status", [403, 404])
def test_the_command_runs_although_the_hub_denies_queries(tmp_path: Path, status: int) -> None:
    with fake_hub() as hub:
        hub.status = status
        with runner(hub, tmp_path, "true") as running:
            wait_until(running.is_up, 20, "a response of the batch runner")
            assert running.wait_for_exit() == (0, "")


@pytest.mark.parametrize("response", [b"<html>", b"[]", b"\xff"])
def test_activity_is_reported_again_after_an_invalid_response(
    tmp_path: Path, response: bytes
) -> None:
    with fake_hub() as hub:
        hub.activity_response = response
        with runner(hub, tmp_path, "sleep 30") as running:
            wait_until(running.is_up, 20, "a response of the batch runner")
            wait_until(lambda: len(hub.activity) > 1, 20, "a second report of activity")
            running.process.send_signal(signal.SIGTERM)
            running.wait_for_exit()


def test_a_signal_reaches_all_processes_of_the_command(tmp_path: Path) -> None:
    command = "(trap 'echo child' TERM; echo up >ready; sleep 60 & wait) & wait; echo never"
    with fake_hub() as hub, runner(hub, tmp_path, command) as running:
        wait_until(running.is_up, 20, "a response of the batch runner")
        wait_until((tmp_path / "ready").exists, 20, "the start of the command")
        running.process.send_signal(signal.SIGTERM)
        code, output = running.wait_for_exit()
        assert (code, output) == (128 + signal.SIGTERM, "child\n")


def test_the_command_does_not_start_after_a_signal(tmp_path: Path) -> None:
    with fake_hub() as hub:
        hub.is_ready = False
        with runner(hub, tmp_path, "echo never") as running:
            wait_until(running.is_up, 20, "a response of the batch runner")
            running.process.send_signal(signal.SIGTERM)
            assert running.wait_for_exit() == (128 + signal.SIGTERM, "")
