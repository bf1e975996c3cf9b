"""HTTP client for the apps of a session: connections, their pool, and responses."""

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

CONNECT_TIMEOUT_SECONDS = 60.0
# Timeout until the head of a response has arrived; the body has no timeout.
RESPONSE_HEAD_TIMEOUT_SECONDS = 300.0
# This timeout is shorter than the idle timeout of apps (often 5 s). An idle connection blocks an
# app that serves one connection at a time, so the timeout limits how long other requests wait.
IDLE_TIMEOUT_SECONDS = 2.0
MAX_IDLE_PER_APP = 128
MAX_CONTENT_LENGTH_DIGITS = 18
MAX_HEAD_BYTES = 256 * 1024
# Reading from an app pauses when more than this is buffered. It continues when at most half of this
# is left.
MAX_BUFFERED_BYTES = 512 * 1024

LOCAL = "localhost"
LOOPBACK = ("127.0.0.1", "::1")
RESPONSE_HOP_BY_HOP = ("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding")
HEAD_END = b"\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")

AppAddress = tuple[str, int]
"""Host and port of an app, or the path of its Unix socket and 0."""

Move = Callable[[int, int, int], Awaitable[int]]
"""``move(source, target, count)``: move at most ``count`` bytes between two sockets, given by their
descriptors, and return the number of bytes moved.
"""


class ConnectionCut(ConnectionError):
    """The app closed its connection before the response was complete."""


class Connection(asyncio.Protocol):
    """One connection to an app, reused for consecutive requests."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._is_paused = False
        self._error: Exception | None = None
        self._move: asyncio.Future[int] | None = None
        self.is_at_end = False
        # Called whenever data has arrived, and when the connection ends.
        self.on_data: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
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
        """Whether the connection is open and has no unread data."""
        return not self.is_at_end and not self._chunks

    @property
    def buffered(self) -> bytes:
        """The unread data."""
        if len(self._chunks) > 1:
            self._chunks = deque([b"".join(self._chunks)])
        return self._chunks[0] if self._chunks else b""

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
        """Return the head of a response: the bytes up to and including the first empty line.

        Raises
        ------
        ConnectionCut
            If the connection ends before that line.
        HTTPInputError
            If the head is longer than `MAX_HEAD_BYTES`.
        """
        return await self._read_until(HEAD_END, "the head")

    def discard(self, count: int) -> None:
        """Remove ``count`` bytes from the buffered data."""
        rest = self.buffered[count:]
        self._chunks.clear()
        self._buffered_bytes = 0
        self._put_back(rest)

    async def read_line(self) -> bytes:
        """Return one line with its line break; raise the same errors as ``read_head``."""
        return await self._read_until(b"\n", "a line")

    async def _read_until(self, delimiter: bytes, part: str) -> bytes:
        """Return the data up to and including ``delimiter``; ``part`` names the data in errors."""
        data = b""
        while (start := data.find(delimiter)) < 0 and len(data) <= MAX_HEAD_BYTES:
            data += await self.read_some()
        end = start + len(delimiter)
        if start < 0 or end > MAX_HEAD_BYTES:
            raise HTTPInputError(f"{part} of the app's response is longer than 256 KiB")
        self._put_back(data[end:])
        return data[:end]

    async def read_some(self, max_bytes: int = MAX_BUFFERED_BYTES) -> bytes:
        """Return between 1 and ``max_bytes`` bytes; wait until data arrives.

        Raises
        ------
        ConnectionCut
            If the connection has ended and no data is left.
        """
        while not self._chunks:
            if self.is_at_end:
                raise ConnectionCut(str(self._error or "the app closed the connection"))
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        chunk = self._chunks.popleft()
        self._buffered_bytes -= len(chunk)
        if len(chunk) > max_bytes:
            self._put_back(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        if self._is_paused and self._buffered_bytes <= MAX_BUFFERED_BYTES // 2:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return chunk

    async def move(self, target: socket.socket, count: int, move: Move) -> int:
        """Move at most ``count`` arriving bytes to ``target`` with ``move``.

        Return the number of bytes moved.

        Raises
        ------
        ConnectionCut
            If either side fails, or this connection is closed in the meantime.
        """
        assert self._transport is not None
        self._transport.pause_reading()
        # Use duplicates, because the event loop already watches the original descriptors.
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
            raise ConnectionCut("the connection to the app was closed locally") from None
        finally:
            self._move = None
            os.close(source)
            os.close(sink)
            self._transport.resume_reading()

    def _put_back(self, data: bytes) -> None:
        if data:
            self._chunks.appendleft(data)
            self._buffered_bytes += len(data)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if self.on_data is not None:
            self.on_data()


class ConnectionPool:
    """Idle connections to apps, closed `IDLE_TIMEOUT_SECONDS` after their last response."""

    def __init__(self) -> None:
        self._idle: dict[AppAddress, list[tuple[Connection, asyncio.TimerHandle]]] = {}

    def take(self, app: AppAddress) -> Connection | None:
        """Remove and return the most recently used idle connection, or None."""
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
        """Return a connection to the pool after the whole response was read from it."""
        idle = self._idle.setdefault(app, [])
        if len(idle) >= MAX_IDLE_PER_APP or not connection.is_reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(IDLE_TIMEOUT_SECONDS, self._close_idle, app, connection)
        idle.append((connection, timer))

    def _close_idle(self, app: AppAddress, connection: Connection) -> None:
        others = [each for each in self._idle.get(app, []) if each[0] is not connection]
        if others:
            self._idle[app] = others
        else:
            self._idle.pop(app, None)
        connection.close()

    @staticmethod
    async def open(app: AppAddress) -> Connection:
        """Open a connection to an app and return it.

        Raises
        ------
        OSError
            If the app refuses the connection, or does not accept it within 60 s.
        """
        loop = asyncio.get_running_loop()
        host, port = app
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            if not port:
                return (await loop.create_unix_connection(Connection, host))[1]
            if host != LOCAL:
                return (await loop.create_connection(Connection, host, port))[1]
            # Do not resolve the name: the lookup takes a thread, and its result can lack IPv6.
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
        self._is_keep_alive = False

    async def read_head(self) -> None:
        """Wait for the head and parse it; skip informational responses (1xx).

        Raises
        ------
        ConnectionCut
            If the connection ends before the head is complete.
        HTTPInputError
            If the head is too long or not valid HTTP.
        """
        while self.code < 200:
            first, _, rest = (await self.connection.read_head()).decode("latin-1").partition("\r\n")
            version, _, status = first.partition(" ")
            number, _, self.reason = status.partition(" ")
            if not (version.startswith("HTTP/1.") and re.fullmatch("[0-9]{3}", number)):
                raise HTTPInputError("the program at this address is not an HTTP server")
            self.code = int(number)
            self.headers = HTTPHeaders.parse(rest)
        self._is_keep_alive = (
            version != "HTTP/1.0" and "close" not in self.headers.get("Connection", "").lower()
        )
        coding = self.headers.get("Transfer-Encoding", "").lower()
        if coding not in ("", "chunked"):
            raise HTTPInputError(
                f"the app's response has an unsupported transfer encoding: {coding!r}"
            )
        self._is_chunked = bool(coding)
        if self._method == "HEAD" or self.code in (204, 304):
            self.length = 0
            self._is_chunked = False
        elif coding:
            # With both headers, the end of the body is ambiguous, so do not reuse the connection.
            self._is_keep_alive = self._is_keep_alive and "Content-Length" not in self.headers
            remove_headers(self.headers, ("Content-Length",))
        elif (text := self.headers.get("Content-Length")) is not None:
            if not (text.isascii() and text.isdecimal() and len(text) <= MAX_CONTENT_LENGTH_DIGITS):
                raise HTTPInputError("the Content-Length of the app's response is not a number")
            self.length = int(text)
        remove_headers(self.headers, RESPONSE_HOP_BY_HOP)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raise the same errors as ``read_head``."""
        if self._is_chunked:
            while size := _chunk_size(await self.connection.read_line()):
                async for chunk in self._read(size):
                    yield chunk
                if (await self.connection.read_line()).strip():
                    raise HTTPInputError(
                        "a chunk of the app's response is longer than its declared size"
                    )
            while (await self.connection.read_line()).strip():
                pass  # trailers
        elif self.length is None:
            self._is_keep_alive = False
            with suppress(ConnectionCut):
                while True:
                    yield await self.connection.read_some()
        else:
            async for chunk in self._read(self.length):
                yield chunk

    async def send_body(self, stream: IOStream, move: Move) -> None:
        """Send a body of known length to the client.

        Bytes that ``move`` does not move are copied.

        Raises
        ------
        ConnectionCut
            If the app closes its connection before the end of the body, or ``move`` fails.
        OSError
            If the client closes its connection.
        """
        left = self.length or 0
        while left and self.connection.buffered:
            chunk = await self.connection.read_some(left)
            left -= len(chunk)
            await stream.write(chunk)
        left -= await self.connection.move(stream.socket, left, move)
        async for chunk in self._read(left):
            await stream.write(chunk)

    def end(self, app: AppAddress) -> None:
        """Release the connection after the whole body was read."""
        if self._is_keep_alive:
            pool.release(app, self.connection)
        else:
            self.connection.close()

    async def _read(self, count: int) -> AsyncIterator[bytes]:
        while count:
            chunk = await self.connection.read_some(count)
            count -= len(chunk)
            yield chunk


async def response_over(connection: Connection, method: str, message: bytes) -> AppResponse:
    """Send a request over a connection and return the response once its head has arrived.

    ``message`` is empty if the app has already received the request. The connection is closed if
    an error is raised.

    Raises
    ------
    TimeoutError
        If the head does not arrive in time.
    ConnectionCut, HTTPInputError
        See ``AppResponse.read_head``.
    """
    response = AppResponse(connection, method)
    try:
        if message:
            connection.send(message)
        async with asyncio.timeout(RESPONSE_HEAD_TIMEOUT_SECONDS):
            await response.read_head()
    except BaseException:
        connection.close()
        raise
    return response


def remove_headers(headers: HTTPHeaders, names: Iterable[str]) -> None:
    for name in names:
        if name in headers:
            del headers[name]


def _chunk_size(line: bytes) -> int:
    match = _CHUNK_LINE.fullmatch(line)
    if match is None:
        raise HTTPInputError("the app's response contains a chunk without a valid size")
    return int(match[1], 16)
