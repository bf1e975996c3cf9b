"""Before Jupyter's own server: short answers of apps go straight to who was just let in.

Jupyter looks at each request for longer than the app and the way there take together, and what it
finds is the same for one request after the other. So a request that has a shortcut is sent on here,
and a short answer sent back. Everything else is Jupyter's: it gets the connection until its answer
has left, with the app already asked where that was begun here.
"""

from __future__ import annotations

import asyncio
import re
import socket
from asyncio import Future, Task
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError

from bai_labext.fast_path.auth_cache import Admitted, shortcuts
from bai_labext.fast_path.upstream import (
    HEAD_END,
    MOST_WAITING_BYTES,
    Connection,
    Place,
    connections,
)

# For longer an answer is waited for in Jupyter, which knows what to say when none comes.
QUICK_SECONDS = 1.0
MOST_ANSWER_BYTES = 128 * 1024
# A head without anything that two readers could take for different things.
_HEAD = re.compile(rb"http/1\.1 20[0-35-9][^\r\n]*(?:\r\n[a-z0-9!#$%&'*+.^_`|~-]+:[^\r\n\0]*)+")
_LENGTH = b"\r\ncontent-length:"
_CONNECTION = b"\r\nconnection:"
_IS_KEPT = (b"", b"keep-alive")
# Jupyter's way looks at these: how long an answer is, where it leads to.
_NOT_PLAIN = (b"\r\ntransfer-encoding:", b"\r\nlocation:", b"\r\nproxy-connection:")
_OF_A_HOP = (b"connection:", b"keep-alive:")


class FrontServer(HTTPServer):
    """Jupyter's server, to which connections go by turns; `HTTPServer.configure` makes it so."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self._coming: set[Task[Any]] = set()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Take a new connection."""
        if isinstance(stream, SSLIOStream):
            super().handle_stream(stream, address)
            return
        connected = stream.socket.dup()
        stream.close()
        if shortcuts.are_any:
            self.welcome(connected, address, b"")
        else:
            self.give(Turn(self, connected, address))

    def give(self, turn: Turn) -> None:
        """Give Jupyter a connection for its turn."""
        super().handle_stream(turn, turn.address)

    def welcome(self, connected: socket.socket, address: Any, said: bytes) -> None:
        """Take a connection, of which something may have been read already."""
        loop = asyncio.get_running_loop()
        coming = loop.create_task(
            loop.connect_accepted_socket(lambda: Guest(self, address, said), connected)
        )
        self._coming.add(coming)
        coming.add_done_callback(self._coming.discard)


class Turn(IOStream):
    """A connection while it is Jupyter's: for a request, or as long as nobody has a shortcut."""

    def __init__(
        self,
        server: FrontServer,
        connected: socket.socket,
        address: Any,
        said: bytes = b"",
        begun: tuple[Place, Connection] | None = None,
    ) -> None:
        super().__init__(connected, server.max_buffer_size, server.read_chunk_size)
        self.address = address
        self.head = b""
        self._server, self._said, self._begun = server, said, begun

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        """Read what was said already, and then from the connection."""
        if not self._said:
            return super().read_from_fd(buf)
        count = min(len(buf), len(self._said))
        buf[:count] = self._said[:count]
        self._said = self._said[count:]
        return count

    def read_until_regex(self, regex: bytes, max_bytes: int | None = None) -> Future[bytes]:
        """Read the head of the next request, or give the connection back instead."""
        if self.head:
            self._drop_begun()
            if shortcuts.are_any:
                self._give_back()
                raise StreamClosedError
        coming = asyncio.ensure_future(super().read_until_regex(regex, max_bytes))
        if coming.done():
            self._note(coming)
        else:
            coming.add_done_callback(self._note)
        return coming

    def close_fd(self) -> None:
        self._drop_begun()
        super().close_fd()

    def take_begun(self, place: Place) -> Connection | None:
        """Return the connection over which the app was asked already for this request."""
        if self._begun is None or self._begun[0] != place:
            return None
        connection, self._begun = self._begun[1], None
        return connection

    def _give_back(self) -> None:
        more = asyncio.ensure_future(super().read_bytes(MOST_WAITING_BYTES, partial=True))
        said = more.result() if more.done() and not more.exception() else b""
        if self.closed():
            return
        connected = self.socket.dup()
        self.close()
        self._server.welcome(connected, self.address, said)

    def _note(self, coming: Future[bytes]) -> None:
        if not coming.cancelled() and not coming.exception():
            self.head = coming.result()

    def _drop_begun(self) -> None:
        if self._begun is not None:
            self._begun[1].close()
            self._begun = None


class Guest(asyncio.Protocol):
    """A connection whose requests have shortcuts, until one has none."""

    _transport: asyncio.Transport
    _upstream: Connection | None = None
    _place: Place
    _timer: asyncio.TimerHandle

    def __init__(self, server: FrontServer, address: Any, said: bytes) -> None:
        self._server, self._address, self._said = server, address, said
        self._asked = b""
        self._is_writing = self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # It says then whenever something is left to be written.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        if self._said:
            self._take_up()

    def data_received(self, data: bytes) -> None:
        self._said = self._said + data if self._said else data
        if self._upstream is None and not self._is_writing:
            self._take_up()
        elif len(self._said) > MOST_WAITING_BYTES:
            self._is_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_writing = True

    def resume_writing(self) -> None:
        self._is_writing = False
        if self._said and self._upstream is None:
            self._take_up()

    def connection_lost(self, error: Exception | None) -> None:
        if self._upstream is not None:
            self._let_go(self._upstream)
            self._upstream.close()

    def _take_up(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        admitted = shortcuts.find(self._said)
        connection = None if admitted is None else connections.kept(admitted.place)
        if admitted is None or connection is None:
            self._give_up(self._said, None)
        else:
            self._ask(connection, admitted)

    def _ask(self, connection: Connection, admitted: Admitted) -> None:
        self._asked, self._said = self._said, b""
        self._place, self._upstream = admitted.place, connection
        self._timer = asyncio.get_running_loop().call_later(QUICK_SECONDS, self._hand_over)
        connection.on_news = self._hear
        admitted.note()
        connection.send(admitted.message)

    def _hear(self) -> None:
        """Send the answer on once it is whole; Jupyter does where it is not for here."""
        connection = self._upstream
        assert connection is not None
        answer = None if connection.is_at_end else plain_answer(connection.waiting)
        if answer is None:
            self._hand_over()
            return
        whole, count = answer
        if not whole:
            return
        self._let_go(connection)
        self._upstream = None
        connection.take(count)
        connections.keep(self._place, connection)
        self._transport.write(whole)
        if self._said and not self._is_writing:
            self._take_up()

    def _hand_over(self) -> None:
        """Let Jupyter go on with what was begun here."""
        connection = self._upstream
        assert connection is not None
        self._let_go(connection)
        self._upstream = None
        self._give_up(self._asked + self._said, (self._place, connection))

    def _give_up(self, said: bytes, begun: tuple[Place, Connection] | None) -> None:
        connected = self._transport.get_extra_info("socket").dup()
        self._transport.abort()
        self._server.give(Turn(self._server, connected, self._address, said, begun))

    def _let_go(self, connection: Connection) -> None:
        self._timer.cancel()
        connection.on_news = None


def plain_answer(said: bytes) -> tuple[bytes, int] | None:
    """Return an answer as it is passed on, and how many bytes of ``said`` it is.

    None if it is not for here, and nothing yet (and 0) where the rest is to come.
    """
    end = said.find(HEAD_END)
    if end < 0:
        return None if len(said) > MOST_ANSWER_BYTES else (b"", 0)
    head = said[:end].lower()
    if not _HEAD.fullmatch(head) or any(word in head for word in _NOT_PLAIN):
        return None
    text = _value(head, _LENGTH)
    if (
        head.count(_LENGTH) != 1
        or not text.isdigit()
        or len(text) > 18
        or int(text) > MOST_ANSWER_BYTES
    ):
        return None
    count = end + len(HEAD_END) + int(text)
    has_hops = _CONNECTION in head or b"\r\nkeep-alive:" in head
    if has_hops and (head.count(_CONNECTION) > 1 or _value(head, _CONNECTION) not in _IS_KEPT):
        return None
    if len(said) < count:
        return b"", 0
    if not has_hops:
        return said[:count], count
    lines = said[:end].split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(_OF_A_HOP)]
    return b"\r\n".join(kept) + said[end:count], count


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(name)[2].partition(b"\r\n")[0].strip()
