"""`bai session attach`: a terminal of a session in this terminal, through Jupyter's websocket."""

from __future__ import annotations

import asyncio
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

from bai_services.core.errors import Unavailable

from .. import output
from ..command import Connection, connected, example
from .remote import Remote, running

DETACH = b"\x1d"  # Ctrl-]
_PIECE_BYTES = 16 * 1024
_CONNECT_SECONDS = 20.0
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
_BROKEN = (OSError, HTTPError, StreamClosedError, WebSocketClosedError)


@click.command(epilog=example("bai session attach my-lab"))
@click.argument("session")
@click.argument("terminal", required=False)
@connected
async def attach(connection: Connection, session: str, *, terminal: str | None) -> None:
    """Open a terminal of a session here, or go on in TERMINAL; Ctrl-] leaves it running."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("attach needs a terminal; bai session exec runs a command without")
    remote = await running(connection, session)
    if terminal is None:
        terminal = (await remote.ask("POST", "api/terminals"))["name"]
    else:
        await remote.ask("GET", f"api/terminals/{quote(terminal, safe='')}")
    with _raw_terminal():
        is_over = await _Screen(remote, terminal).run()
    if is_over:
        output.note(f"terminal {terminal} of {session} has ended")
    else:
        output.note(f"left; go on with: bai session attach {session} {terminal}")


class _Screen:
    """One terminal: what is typed goes there, what it shows comes here, its size follows ours."""

    def __init__(self, remote: Remote, name: str) -> None:
        address = remote.url.replace("http", "ws", 1)
        self._url = f"{address}terminals/websocket/{quote(name, safe='')}"
        self._token = remote.token
        self._typed: asyncio.Queue[list[object] | None] = asyncio.Queue()
        self._is_shown = False

    async def run(self) -> bool:
        """Return True when the terminal has ended, False when its user has left it."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        try:
            while True:
                websocket = await self._connect()
                try:
                    ended = await self._carry(websocket)
                finally:
                    websocket.close()
                if ended is not None:
                    return ended
        finally:
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGWINCH)

    def _read(self) -> None:
        content = os.read(sys.stdin.fileno(), _PIECE_BYTES)
        before, leaves, _ = content.partition(DETACH)
        if before:
            self._typed.put_nowait(["stdin", before.decode(errors="replace")])
        if leaves or not content:
            self._typed.put_nowait(None)

    def _resized(self) -> None:
        # Of the terminal itself: COLUMNS and LINES of the environment do not follow it.
        size = os.get_terminal_size(sys.stdin.fileno())
        self._typed.put_nowait(["set_size", size.lines, size.columns])

    async def _connect(self) -> WebSocketClientConnection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        while True:
            request = HTTPRequest(
                self._url,
                headers={"Authorization": f"token {self._token}"},
                request_timeout=_CONNECT_SECONDS,
            )
            try:
                return await websocket_connect(request)
            except _BROKEN as error:
                if loop.time() > deadline:
                    raise Unavailable(f"the session does not answer: {error}") from error
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _carry(self, websocket: WebSocketClientConnection) -> bool | None:
        """Carry both ways; return None when the connection is lost."""
        self._resized()
        typing = asyncio.ensure_future(self._type(websocket))
        showing = asyncio.ensure_future(self._show(websocket))
        try:
            await asyncio.wait((typing, showing), return_when="FIRST_COMPLETED")
            if showing.done():
                return True if showing.result() else None
            return False if typing.result() else None
        finally:
            for task in (typing, showing):
                task.cancel()

    async def _type(self, websocket: WebSocketClientConnection) -> bool:
        """Return True when the user leaves, False when the connection is lost."""
        with contextlib.suppress(*_BROKEN):
            while (message := await self._typed.get()) is not None:
                await websocket.write_message(json.dumps(message))
            return True
        return False

    async def _show(self, websocket: WebSocketClientConnection) -> bool:
        """Return True when the terminal has ended, False when the connection is lost."""
        # After a loss the server shows again what was on the screen.
        if self._is_shown:
            _write(b"\x1b[2J\x1b[H")
        self._is_shown = True
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
    """Give every key to the session's terminal, Ctrl-C too, and put this one back at last."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setraw(number)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
