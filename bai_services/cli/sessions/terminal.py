"""`bai session attach`: connect this terminal to a Jupyter terminal of a session."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from urllib.parse import quote

import click
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from bai_services.core.errors import Conflict, NotFound, Unavailable
from bai_services.tunnel.client import raise_if_permanent

from .. import output
from ..command import Connection, connected, example
from .remote import Remote, find_running_session

DETACH = b"\x1d"  # Ctrl-]
_CHUNK_BYTES = 16 * 1024
_CONNECT_TIMEOUT_SECONDS = 20.0
_RECONNECT_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.5
# HTTP statuses that mean that the terminal or the session's server no longer exists.
_ENDED = (404, 410, 424)
_CONNECTION_ERRORS = (OSError, HTTPError, StreamClosedError, WebSocketClosedError)


@click.command(epilog=example("bai session attach my-lab"))
@click.argument("session")
@click.argument("terminal", required=False)
@connected
async def attach(connection: Connection, session: str, *, terminal: str | None) -> None:
    """Open a new terminal in a session, or reattach to TERMINAL. Ctrl-] detaches from it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "attach needs a terminal; to run a command without a terminal, use bai session exec"
        )
    remote = await find_running_session(connection, session)
    if terminal is None:
        terminal = (await remote.request("POST", "api/terminals"))["name"]
    else:
        await remote.request("GET", f"api/terminals/{quote(terminal, safe='')}")
    with _raw_terminal():
        has_ended = await TerminalConnection(remote, terminal).run()
    if has_ended:
        output.note(f"terminal {terminal} of {session} has ended")
    else:
        output.note(f"detached; reattach with: bai session attach {session} {terminal}")


class TerminalConnection:
    """Forwards input, output and window size between this terminal and one in the session."""

    def __init__(self, remote: Remote, name: str) -> None:
        address = remote.url.replace("http", "ws", 1)
        self._url = f"{address}terminals/websocket/{quote(name, safe='')}"
        self._name = name
        self._token = remote.token
        # A read can end in the middle of a multi-byte character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # Messages to the session's terminal; None detaches.
        self._outgoing: asyncio.Queue[list[object] | None] = asyncio.Queue()
        self._has_output = False

    async def run(self) -> bool:
        """Return True when the terminal has ended, False when the user has detached.

        Raises
        ------
        NotSignedIn, Forbidden, NotFound
            If the session rejects the token or the user, or has no such terminal.
        Conflict
            If the session rejects the connection for another reason.
        Unavailable
            If the session does not respond for a minute.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read_input)
        loop.add_signal_handler(signal.SIGWINCH, self._send_size)
        try:
            while True:
                websocket = await self._connect()
                try:
                    has_ended = await self._forward(websocket)
                finally:
                    websocket.close()
                if has_ended is not None:
                    return has_ended
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)

    def _read_input(self) -> None:
        content = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
        before, detach, _ = content.partition(DETACH)
        if text := self._decoder.decode(before):
            self._outgoing.put_nowait(["stdin", text])
        if detach or not content:
            self._outgoing.put_nowait(None)

    def _send_size(self) -> None:
        # Query the terminal, because the variables COLUMNS and LINES do not change when the window
        # is resized.
        size = os.get_terminal_size(sys.stdin.fileno())
        self._outgoing.put_nowait(["set_size", size.lines, size.columns])

    async def _connect(self) -> WebSocketClientConnection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _RECONNECT_TIMEOUT_SECONDS
        while True:
            request = HTTPRequest(
                self._url,
                headers={"Authorization": f"token {self._token}"},
                request_timeout=_CONNECT_TIMEOUT_SECONDS,
            )
            try:
                return await websocket_connect(request)
            except _CONNECTION_ERRORS as error:
                raise_if_permanent(error)
                if isinstance(error, HTTPError) and error.code in _ENDED:
                    raise NotFound(
                        f"the session or its terminal {self._name} has ended: {error}"
                    ) from error
                if isinstance(error, HTTPError) and error.code < 500 and error.code != 429:
                    raise Conflict(f"the session rejects the connection: {error}") from error
                if loop.time() > deadline:
                    raise Unavailable(f"the session does not respond: {error}") from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def _forward(self, websocket: WebSocketClientConnection) -> bool | None:
        """Forward until the terminal ends, the user detaches or the connection is lost.

        Return True if the terminal has ended, False if the user has detached, and None if the
        connection was lost.
        """
        self._send_size()
        sending = asyncio.ensure_future(self._send(websocket))
        receiving = asyncio.ensure_future(self._receive(websocket))
        try:
            await asyncio.wait((sending, receiving), return_when="FIRST_COMPLETED")
            if receiving.done():
                return True if receiving.result() else None
            return False if sending.result() else None
        finally:
            for task in (sending, receiving):
                task.cancel()

    async def _send(self, websocket: WebSocketClientConnection) -> bool:
        """Return True when the user detaches, False when the connection is lost."""
        with contextlib.suppress(*_CONNECTION_ERRORS):
            while (message := await self._outgoing.get()) is not None:
                await websocket.write_message(json.dumps(message))
            return True
        return False

    async def _receive(self, websocket: WebSocketClientConnection) -> bool:
        """Return True when the terminal has ended, False when the connection is lost."""
        # After a reconnect, the server sends the content of the screen again.
        if self._has_output:
            _write(b"\x1b[2J\x1b[H")
        self._has_output = True
        while (message := await websocket.read_message()) is not None:
            kind, *content = json.loads(message)
            if kind == "stdout":
                _write(content[0].encode())
            elif kind == "disconnect":
                return True
        return False


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Switch this terminal to raw mode, so that Ctrl-C goes to the session; restore it at exit."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setraw(number)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
