"""`bai app`: apps and ports of a session on a local port, through Hub and proxy."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Any

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from tests.e2e.sessions import start, stop
from tests.e2e.test_app_shares import SERVER, app_of
from tests.hub import ROOT, RunningHub
from tests.labext.test_tunnel import PAYLOAD, echo_through
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

# Sends the received bytes back. At the end of the client's input, sends their number.
ECHO = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("wait" + "ing", flush=True)
while True:
    connection, _ = server.accept()
    count = 0
    while content := connection.recv(65536):
        count += len(content)
        connection.sendall(content)
    connection.sendall(b"%d bytes" % count)
    connection.close()
"""


def command(hub: RunningHub, rest: httpx.Client, *words: str, **options: Any) -> dict[str, Any]:
    """Return `subprocess` arguments that run ``bai`` as the user of ``rest``."""
    token = rest.headers["Authorization"].removeprefix("Bearer ")
    environ = {**os.environ, "BAI_URL": hub.url, "BAI_TOKEN": token, "BAI_CONFIG_DIR": "/nowhere"}
    return {
        "args": [sys.executable, "-m", "bai_services.cli.main", *words],
        "env": {**environ, **options.pop("environ", {})},
        "cwd": ROOT,
        **options,
    }


def read_printed_json(output: IO[str]) -> dict[str, Any]:
    """Return the JSON document that ``bai app`` prints once it listens."""
    text = ""
    while line := output.readline():
        text += line
        if line == "}\n":
            break
    found: dict[str, Any] = json.loads(text)
    return found


@contextmanager
def running_app(hub: RunningHub, rest: httpx.Client, *words: str) -> Iterator[dict[str, Any]]:
    """Run ``bai app …`` during the block; yield its JSON output."""
    process = subprocess.Popen(
        **command(hub, rest, "app", *words, "--json"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield read_printed_json(process.stdout)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def serve_in(session: JupyterServer, port: int, raw_port: int) -> None:
    """Start an HTTP server with a websocket and a server that echoes raw bytes in a session."""
    for words, shown in (
        (("python", "-c", SERVER, str(port), "127.0.0.1"), "began"),
        (("python", "-c", ECHO, str(raw_port)), "waiting"),
    ):
        command = f"{shlex.join(words)} & echo be''gan"
        asyncio.run(session.run_in_terminal(command, shown))
    wait_until(lambda: app_of(session, f"port-{port}")["state"] == "running", 60, "the page's port")


async def echoed_messages(address: str, origin: str, *messages: str) -> list[str | bytes]:
    """Send messages to an app's websocket as a page with this origin; return the responses."""
    url = f"{address.replace('http', 'ws', 1)}ws"
    connection = await websocket_connect(
        HTTPRequest(url, headers={"Origin": origin}, request_timeout=60)
    )
    answers: list[str | bytes] = []
    for message in messages:
        await connection.write_message(message)
        answer = await connection.read_message()
        # `None` means that the connection has ended. Reading again after `None` would never return.
        assert answer is not None, "the websocket was closed"
        answers.append(answer)
    connection.close()
    while await connection.read_message() is not None:
        pass
    return answers


def test_a_forwarded_app_survives_a_killed_proxy(any_hub: RunningHub) -> None:
    rest = any_hub.rest("user")
    port, raw_port = free_port(), free_port()
    session = start(rest, f"app-{secrets.token_hex(3)}", preopen_ports=[port])
    with running_app(any_hub, rest, session["name"], "jupyterlab") as shown:
        assert shown["host"] == "127.0.0.1"
        with httpx.Client(base_url=shown["address"], timeout=90) as browser:
            assert browser.get("/api/status").status_code == 200
            page = browser.get("/lab", follow_redirects=True)
            assert "JupyterLab" in page.text
            # The user's token is not part of the page.
            token = rest.headers["Authorization"].removeprefix("Bearer ")
            assert token not in page.text
            # Requests to the local port do not need a token.
            address = shown["address"].rstrip("/") + session["url"]
            serve_in(JupyterServer(address, "none"), port, raw_port)
            with running_app(any_hub, rest, session["name"], f"port-{port}") as there:
                own, messages = there["address"].rstrip("/"), ["hello", "x" * 100_000]
                assert asyncio.run(echoed_messages(there["address"], own, *messages)) == messages
                with pytest.raises(HTTPClientError) as refused:
                    asyncio.run(echoed_messages(there["address"], "http://evil.example"))
                assert refused.value.code == 403
            with running_app(any_hub, rest, session["name"], "--tcp", str(raw_port)) as there:
                got = asyncio.run(echo_through(there["port"], PAYLOAD))
                assert got == PAYLOAD + b"%d bytes" % len(PAYLOAD)
            any_hub.kill("proxy")
            assert browser.get("/api/status").status_code == 200
    stop(rest, session["id"])


def test_a_tunnel_requires_a_token_of_the_owner(hub: RunningHub) -> None:
    rest, other, admin = hub.rest("user"), hub.rest("user2"), hub.rest("admin")
    session = start(rest, f"own-{secrets.token_hex(3)}")
    address = session["url"] + "bai/tunnel"
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "x" * 22 + "==",
    }  # fmt: skip
    with hub.client() as anonymous:
        assert anonymous.get(address, headers=upgrade).status_code == 403
    with hub.sign_in("user") as browser:
        browser.get(session["url"] + "lab", follow_redirects=True)
        assert browser.get(address, headers=upgrade).status_code == 403
    for somebody in (other, admin):
        headers = {**upgrade, "Authorization": somebody.headers["Authorization"]}
        assert httpx.get(hub.url + address, headers=headers).status_code == 403
    refused = subprocess.run(
        **command(hub, admin, "app", session["id"], "--tcp", "8000", "--json"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert refused.returncode == 5, refused
    assert "only its owner" in json.loads(refused.stderr)["message"]
    stop(rest, session["id"])


def expire(hub: RunningHub, token: str) -> None:
    """Set the expiry of a Hub token to the past."""
    headers = {"Authorization": f"token {token}"}
    model = httpx.get(f"{hub.url}/hub/api/user", headers=headers, timeout=60).json()
    with closing(sqlite3.connect(hub.home / "jupyterhub.sqlite", timeout=60)) as database, database:
        changed = database.execute(
            "UPDATE api_tokens SET expires_at = '2000-01-01 00:00:00' WHERE id = ?",
            [int(model["token_id"].removeprefix("a"))],
        )
        assert changed.rowcount == 1


def test_streams_close_when_their_token_expires_or_is_revoked(hub: RunningHub) -> None:
    rest = hub.rest("user")
    session = start(rest, f"end-{secrets.token_hex(3)}")

    def revoke(token: str) -> None:
        bearer = {"Authorization": f"Bearer {token}"}
        assert httpx.delete(f"{hub.api}/auth/token", headers=bearer, timeout=60).status_code == 204

    for end in (lambda token: expire(hub, token), revoke):
        leaving = hub.rest("user")
        leaving.headers["Authorization"] = f"Bearer {hub.create_token('user')}"
        with socket.create_server(("127.0.0.1", 0)) as listening:
            words = ["app", session["name"], "--tcp", str(listening.getsockname()[1]), "--json"]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(**command(hub, leaving, *words), text=True, **pipes) as process:
                assert process.stdout is not None
                shown = read_printed_json(process.stdout)
                with socket.create_connection(("127.0.0.1", shown["port"]), timeout=120) as here:
                    here.sendall(b"hello")
                    there, _ = listening.accept()
                    with there:
                        assert there.recv(100) == b"hello"
                        end(leaving.headers["Authorization"].removeprefix("Bearer "))
                        # Both ends of the stream are closed.
                        assert receive(here) == receive(there) == b""
                _, errors = process.communicate(timeout=120)
        assert process.returncode != 0
        assert "the token is no longer valid; sign in again" in errors
    # The session still accepts other connections.
    with running_app(hub, rest, session["name"], "jupyterlab") as shown:
        assert httpx.get(shown["address"] + "api/status", timeout=60).status_code == 200
    stop(rest, session["id"])


def receive(connection: socket.socket) -> bytes:
    """Return the next bytes, or no bytes at the end of the stream or after a reset."""
    connection.settimeout(120)
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b""


def test_unknown_apps_and_invalid_local_ports_are_reported(hub: RunningHub) -> None:
    rest = hub.rest("user")
    session = start(rest, f"bad-{secrets.token_hex(3)}")

    def message(*words: str) -> str:
        done = subprocess.run(
            **command(hub, rest, "app", session["name"], *words, "--json"),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode != 0
        return str(json.loads(done.stderr)["message"])

    assert "available apps: jupyterlab" in message("solitaire")
    assert "cannot listen" in message("jupyterlab", "-b", str(hub.port))
    assert "[HOST:]PORT" in message("jupyterlab", "-b", "high")
    stop(rest, session["id"])
    assert "TERMINATED" in message("jupyterlab")
