"""Connection pool to a session's apps, and the responses received over its connections."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress

from tornado.httputil import HTTPHeaders, HTTPInputError
from tornado.iostream import IOStream

CONNECT_SECONDS = 60.0
# Time until the head of a response; its body has no limit.
RESPONSE_HEAD_SECONDS = 300.0
# Shorter than the idle time after which apps close a connection (often 5 s); an app that serves
# one connection at a time is blocked no longer than this.
IDLE_SECONDS = 2.0
MAX_IDLE_PER_APP = 128
MAX_LENGTH_DIGITS = 18
MAX_HEAD_BYTES = 256 * 1024
# Reading from an app pauses while this much of its response is buffered.
MAX_BUFFERED_BYTES = 512 * 1024

LOCAL = "localhost"
LOOPBACK = ("127.0.0.1", "::1")
RESPONSE_HOP_BY_HOP = ("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding")
HEAD_END = b"\r\n\r\n"

AppAddress = tuple[str, int]
"""Host and port of an app, or the path of its Unix socket and 0."""

Move = Callable[[int, int, int], Awaitable[int]]
"""Moves up to so many bytes between two sockets, by their descriptors; returns how many it did."""


class ConnectionCut(ConnectionError):
    """The app closed its connection before the response was complete."""


class Connection(asyncio.Protocol):
    """One connection to an app, reused for consecutive requests."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._is_paused = False
        self._error: Exception | None = None
        self._move: asyncio.Future[int] | None = None
        self.is_at_end = False
        # Called whenever data has arrived, and at the end.
        self.on_data: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > MAX_BUFFERED_BYTES and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True
        self._wake()

    def eof_received(self) -> None:
        self.is_at_end = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_at_end, self._error = True, error
        self._wake()

    @property
    def is_reusable(self) -> bool:
        """Whether it is open and has no unread data."""
        return not self.is_at_end and not self._pieces

    @property
    def buffered(self) -> bytes:
        """The data that has arrived and was not read yet."""
        if len(self._pieces) > 1:
            self._pieces = deque([b"".join(self._pieces)])
        return self._pieces[0] if self._pieces else b""

    def close(self) -> None:
        self.is_at_end = True
        if self._move is not None:
            self._move.cancel()
        if self._transport is not None:
            self._transport.abort()

    def send(self, content: bytes) -> None:
        assert self._transport is not None
        self._transport.write(content)

    async def read_head(self) -> bytes:
        """Return the bytes up to and including the empty line.

        Raises
        ------
        ConnectionCut
            If the connection ends before.
        """
        found = b""
        while (end := found.find(HEAD_END)) < 0:
            if len(found) > MAX_HEAD_BYTES:
                raise HTTPInputError("the head of its response is too long")
            found += await self.read_some()
        end += len(HEAD_END)
        self._put_back(found[end:])
        return found[:end]

    def discard(self, count: int) -> None:
        """Remove ``count`` bytes from the buffered data."""
        rest = self.buffered[count:]
        self._pieces.clear()
        self._buffered_bytes = 0
        self._put_back(rest)

    async def read_line(self) -> bytes:
        """Return one line with its end; raises as ``read_head``."""
        found = b""
        while (end := found.find(b"\n")) < 0:
            if len(found) > MAX_HEAD_BYTES:
                raise HTTPInputError("a line of its response is too long")
            found += await self.read_some()
        self._put_back(found[end + 1 :])
        return found[: end + 1]

    async def read_some(self, max_bytes: int = MAX_BUFFERED_BYTES) -> bytes:
        """Return at least one and at max_bytes ``max_bytes`` bytes; wait for data if there is none.

        Raises
        ------
        ConnectionCut
            If the connection has ended.
        """
        while not self._pieces:
            if self.is_at_end:
                raise ConnectionCut(str(self._error or "the app closed the connection"))
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        piece = self._pieces.popleft()
        self._buffered_bytes -= len(piece)
        if len(piece) > max_bytes:
            self._put_back(piece[max_bytes:])
            piece = piece[:max_bytes]
        if self._is_paused and self._buffered_bytes <= MAX_BUFFERED_BYTES // 2:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return piece

    async def move(self, target: socket.socket, count: int, move: Move) -> int:
        """Let ``move`` pass up to ``count`` arriving bytes to ``target``; return how many it did.

        Raises
        ------
        ConnectionCut
            If either side fails, or this connection is closed meanwhile.
        """
        assert self._transport is not None
        self._transport.pause_reading()
        # Duplicates: the event loop watches both sockets under their own descriptors.
        source = os.dup(self._transport.get_extra_info("socket").fileno())
        sink = os.dup(target.fileno())
        self._move = asyncio.ensure_future(move(source, sink, count))
        try:
            return await self._move
        except OSError as error:
            raise ConnectionCut(str(error)) from error
        except asyncio.CancelledError:
            if not self.is_at_end:
                raise
            raise ConnectionCut("the connection was closed on this side") from None
        finally:
            self._move = None
            os.close(source)
            os.close(sink)
            self._transport.resume_reading()

    def _put_back(self, piece: bytes) -> None:
        if piece:
            self._pieces.appendleft(piece)
            self._buffered_bytes += len(piece)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if self.on_data is not None:
            self.on_data()


class ConnectionPool:
    """Idle connections to apps, kept for `IDLE_SECONDS` after a response."""

    def __init__(self) -> None:
        self._idle: dict[AppAddress, list[tuple[Connection, asyncio.TimerHandle]]] = {}

    def take(self, app: AppAddress) -> Connection | None:
        """Return the idle connection that was used last; None if there is none."""
        idle = self._idle.get(app, [])
        while idle:
            connection, timer = idle.pop()
            timer.cancel()
            if connection.is_reusable:
                return connection
            connection.close()
        self._idle.pop(app, None)
        return None

    def release(self, app: AppAddress, connection: Connection) -> None:
        """Keep a connection whose response has ended for the next request."""
        idle = self._idle.setdefault(app, [])
        if len(idle) >= MAX_IDLE_PER_APP or not connection.is_reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        idle.append((connection, loop.call_later(IDLE_SECONDS, self._end, app, connection)))

    def _end(self, app: AppAddress, connection: Connection) -> None:
        left = [each for each in self._idle.get(app, []) if each[0] is not connection]
        if left:
            self._idle[app] = left
        else:
            self._idle.pop(app, None)
        connection.close()

    @staticmethod
    async def open(app: AppAddress) -> Connection:
        """Return a new connection.

        Raises
        ------
        OSError
            If nothing listens there.
        """
        loop = asyncio.get_running_loop()
        host, port = app
        async with asyncio.timeout(CONNECT_SECONDS):
            if not port:
                return (await loop.create_unix_connection(Connection, host))[1]
            if host != LOCAL:
                return (await loop.create_connection(Connection, host, port))[1]
            # Not every machine resolves that name for IPv6, and a lookup takes a thread.
            for address in LOOPBACK:
                with suppress(OSError):
                    return (await loop.create_connection(Connection, address, port))[1]
        raise ConnectionRefusedError(f"nothing listens on port {port} of the session")


pool = ConnectionPool()


class AppResponse:
    """The response of an app to one request."""

    def __init__(self, connection: Connection, method: str) -> None:
        self.connection = connection
        self._method = method
        self.code = 0
        self.reason = ""
        self.headers = HTTPHeaders()
        self.length: int | None = None
        self._is_chunked = False
        self._is_kept = False

    async def begin(self) -> None:
        """Wait for the head.

        Raises
        ------
        ConnectionCut, HTTPInputError
            If there is none, or it is not valid.
        """
        while self.code < 200:
            first, _, rest = (await self.connection.read_head()).decode("latin-1").partition("\r\n")
            version, _, words = first.partition(" ")
            number, _, self.reason = words.partition(" ")
            if not (version.startswith("HTTP/1.") and re.fullmatch("[0-9]{3}", number)):
                raise HTTPInputError("what listens there does not speak HTTP")
            self.code = int(number)
            self.headers = HTTPHeaders.parse(rest)
        self._is_kept = (
            version != "HTTP/1.0" and "close" not in self.headers.get("Connection", "").lower()
        )
        coding = self.headers.get("Transfer-Encoding", "").lower()
        if coding not in ("", "chunked"):
            raise HTTPInputError(f"a response with the transfer encoding {coding!r}")
        self._is_chunked = bool(coding)
        if self._method == "HEAD" or self.code in (204, 304):
            self.length = 0
            self._is_chunked = False
        elif coding:
            remove_headers(self.headers, ("Content-Length",))
        elif (text := self.headers.get("Content-Length")) is not None:
            if not (text.isascii() and text.isdecimal() and len(text) <= MAX_LENGTH_DIGITS):
                raise HTTPInputError("a response whose Content-Length is not a number")
            self.length = int(text)
        remove_headers(self.headers, RESPONSE_HOP_BY_HOP)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises as ``begin``."""
        if self._is_chunked:
            while size := _chunk_size(await self.connection.read_line()):
                async for piece in self._counted(size):
                    yield piece
                await self.connection.read_line()
            while (await self.connection.read_line()).strip():
                pass  # trailers
        elif self.length is None:
            self._is_kept = False
            with suppress(ConnectionCut):
                while True:
                    yield await self.connection.read_some()
        else:
            async for piece in self._counted(self.length):
                yield piece

    async def send_body(self, stream: IOStream, move: Move) -> None:
        """Send the body, whose length is known, to the client; raises as ``begin``, or `OSError`.

        ``move`` passes as much of it as it can; the rest is copied here.
        """
        left = self.length or 0
        while left and self.connection.buffered:
            piece = await self.connection.read_some(left)
            left -= len(piece)
            await stream.write(piece)
        left -= await self.connection.move(stream.socket, left, move)
        async for piece in self._counted(left):
            await stream.write(piece)

    def end(self, app: AppAddress) -> None:
        """Release the connection after the whole body was read."""
        if self._is_kept:
            pool.release(app, self.connection)
        else:
            self.connection.close()

    async def _counted(self, left: int) -> AsyncIterator[bytes]:
        while left:
            piece = await self.connection.read_some(left)
            left -= len(piece)
            yield piece


async def response_over(connection: Connection, method: str, message: bytes) -> AppResponse:
    """Send a request over a connection and return its response once the head has arrived.

    ``message`` is empty if the app has already received the request. Raises as
    ``AppResponse.begin``, or `TimeoutError`; the connection is closed then.
    """
    response = AppResponse(connection, method)
    try:
        if message:
            connection.send(message)
        async with asyncio.timeout(RESPONSE_HEAD_SECONDS):
            await response.begin()
    except BaseException:
        connection.close()
        raise
    return response


def remove_headers(headers: HTTPHeaders, names: Iterable[str]) -> None:
    for name in names:
        if name in headers:
            del headers[name]


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise HTTPInputError("a response with a chunk that has no size") from None
