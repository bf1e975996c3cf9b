"""The connection of `bai session attach`: encoding of the input, retries and rejections."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError
from tornado.websocket import WebSocketHandler

from bai_services.cli.sessions.remote import Remote
from bai_services.cli.sessions.terminal import TerminalConnection
from bai_services.core import errors


class TerminalHandler(WebSocketHandler):
    """Rejects one connection with each status in ``rejections``, then records the input."""

    def initialize(self, rejections: list[int], received: asyncio.Queue[str]) -> None:
        self._rejections = rejections
        self._received = received

    def prepare(self) -> None:
        if self._rejections:
            raise HTTPError(self._rejections.pop(0))

    async def on_message(self, message: str | bytes) -> None:
        kind, *content = json.loads(message)
        if kind == "stdin":
            self._received.put_nowait(content[0])
            if content[0] == "exit":
                await self.write_message(json.dumps(["disconnect", 1]))


@asynccontextmanager
async def fake_session(
    rejections: list[int],
) -> AsyncIterator[tuple[TerminalConnection, asyncio.Queue[str]]]:
    """Yield a connection to a fake terminal, and a queue with the input that the terminal receives.

    The terminal first rejects one connection with each status in ``rejections``.
    """
    received: asyncio.Queue[str] = asyncio.Queue()
    options = {"rejections": rejections, "received": received}
    server = HTTPServer(Application([("/terminals/websocket/1", TerminalHandler, options)]))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    try:
        yield TerminalConnection(Remote({}, f"http://127.0.0.1:{port}/", "t"), "1"), received
    finally:
        server.stop()
        await server.close_all_connections()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a pseudo-terminal the standard input; yield the descriptor to which the test writes."""
    typed, there = pty.openpty()
    tty.setraw(there)
    with os.fdopen(there) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typed
    os.close(typed)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, errors.NotSignedIn),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (424, errors.NotFound),
        (400, errors.Conflict),
    ],
)
async def test_rejected_connection_is_not_retried(
    keyboard: int, status: int, error: type[errors.BaiError]
) -> None:
    async with fake_session([status]) as (connection, _):
        with pytest.raises(error):
            await connection.run()


async def test_after_retries_multi_byte_characters_are_not_split(keyboard: int) -> None:
    async with fake_session([503, 429]) as (connection, received), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connection.run())
        os.write(keyboard, b"a\xc3")
        assert await received.get() == "a"
        os.write(keyboard, b"\xa9")
        assert await received.get() == "é"
        os.write(keyboard, b"exit")
        assert await running
