"""The runner of a batch session as a process, with a Hub's stand-in that it asks."""

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
class HubVoice:
    """What a Hub says of the server, and what it was told."""

    url: str = ""
    status: int = 200
    is_ready: bool = True
    asked: list[str] = field(default_factory=list)
    activity: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def hub() -> Iterator[HubVoice]:
    voice = HubVoice()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            voice.asked.append(self.path)
            self.answer(voice.status, {"ready": voice.is_ready})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            voice.activity.append(json.loads(text))
            assert self.headers["Authorization"] == "token secret"
            self.answer(200, {})

        def answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    voice.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield voice
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Running:
    process: subprocess.Popen[str]
    url: str

    def is_up(self) -> bool:
        try:
            return httpx.get(f"{self.url}api").status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=20)
        return self.process.returncode, output


@contextmanager
def runner(voice: HubVoice, folder: Path, command: str) -> Iterator[Running]:
    url = f"http://127.0.0.1:{free_port()}/user/ann/train/"
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "BAI_STARTUP_COMMAND": command,
        "JUPYTERHUB_SERVICE_URL": url,
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_API_URL": f"{voice.url}/hub/api",
        "JUPYTERHUB_ACTIVITY_URL": f"{voice.url}/hub/api/users/ann/activity",
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
        yield Running(process, url)
    finally:
        process.kill()
        process.communicate()


def test_it_runs_when_the_hub_has_it_and_ends_as_the_command_does(tmp_path: Path) -> None:
    with hub() as voice:
        voice.is_ready = False
        command = 'echo "$PWD"; test -z "$BAI_STARTUP_COMMAND" && exit 3'
        with runner(voice, tmp_path, command) as running:
            wait_until(running.is_up, 20, "an answer")
            wait_until(lambda: len(voice.asked) > 1, 20, "questions to the Hub")
            assert running.process.poll() is None
            assert voice.activity == []
            voice.is_ready = True
            assert running.end() == (3, f"{tmp_path}\n")
        assert set(voice.asked) == {"/hub/api/users/ann/servers/train"}
        assert list(voice.activity[0]["servers"]) == ["train"]


def test_nothing_of_the_session_is_shown(tmp_path: Path) -> None:
    with hub() as voice:
        voice.is_ready = False
        with runner(voice, tmp_path, "echo secret") as running:
            wait_until(running.is_up, 20, "an answer")
            check = httpx.get(f"{running.url}api")
            assert check.headers["X-JupyterHub-Version"]
            assert check.text == ""
            for path in ("", "lab", "files/x", "../../../etc/passwd"):
                answer = httpx.get(running.url + path)
                assert (answer.status_code, answer.text) == (302, "")
                assert answer.headers["Location"] == "/hub/home"


@pytest.mark.parametrize("status", [403, 404])
def test_a_hub_that_tells_nobody_does_not_hold_it_up(tmp_path: Path, status: int) -> None:
    with hub() as voice:
        voice.status = status
        with runner(voice, tmp_path, "true") as running:
            wait_until(running.is_up, 20, "an answer")
            assert running.end() == (0, "")


def test_a_stop_reaches_everything_that_the_command_started(tmp_path: Path) -> None:
    command = "(trap 'echo child' TERM; echo up >ready; sleep 60 & wait) & wait; echo never"
    with hub() as voice, runner(voice, tmp_path, command) as running:
        wait_until(running.is_up, 20, "an answer")
        wait_until((tmp_path / "ready").exists, 20, "the command")
        running.process.send_signal(signal.SIGTERM)
        code, output = running.end()
        assert (code, output) == (128 + signal.SIGTERM, "child\n")


def test_a_stop_before_the_command(tmp_path: Path) -> None:
    with hub() as voice:
        voice.is_ready = False
        with runner(voice, tmp_path, "echo never") as running:
            wait_until(running.is_up, 20, "an answer")
            running.process.send_signal(signal.SIGTERM)
            assert running.end() == (128 + signal.SIGTERM, "")
