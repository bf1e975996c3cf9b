"""Connections to a session's apps, kept for the next request, and what an app answers over one."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

from tornado.httputil import HTTPHeaders, HTTPInputError
from tornado.iostream import IOStream

from bai_labext.fast_path.splice import moved

CONNECT_SECONDS = 60.0
# Until an app begins to answer; what it says from then on takes as long as it takes.
ANSWER_SECONDS = 300.0
# Apps close what is idle for longer (5 s are usual), and one that serves a single connection at a
# time is held up no longer than that.
KEPT_SECONDS = 2.0
MOST_KEPT = 128
_LENGTH_DIGITS = 18
MOST_HEAD_BYTES = 256 * 1024
# What has come and is not taken yet; then no more is read.
MOST_WAITING_BYTES = 512 * 1024

LOCAL = "localhost"
LOOPBACK = ("127.0.0.1", "::1")
OF_AN_ANSWERS_HOP = ("Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding")
HEAD_END = b"\r\n\r\n"

Place = tuple[str, int]
"""Where an app listens: host and port, or the path of its socket and 0."""


class Cut(ConnectionError):
    """The app closed its connection before it had said all."""


class Connection(asyncio.Protocol):
    """One connection to an app, for one request after the other."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_paused = False
        self._error: Exception | None = None
        self._moving: asyncio.Future[int] | None = None
        self.is_at_end = False
        # Called whenever something has come, and at the end.
        self.on_news: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > MOST_WAITING_BYTES and self._transport is not None:
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
    def is_quiet(self) -> bool:
        """Whether the next request may have it: nothing came unasked, and it is open."""
        return not self.is_at_end and not self._pieces

    @property
    def waiting(self) -> bytes:
        """What has come and is not taken yet."""
        if len(self._pieces) > 1:
            self._pieces = deque([b"".join(self._pieces)])
        return self._pieces[0] if self._pieces else b""

    def close(self) -> None:
        self.is_at_end = True
        if self._moving is not None:
            self._moving.cancel()
        if self._transport is not None:
            self._transport.abort()

    def send(self, content: bytes) -> None:
        assert self._transport is not None
        self._transport.write(content)

    async def head(self) -> bytes:
        """Return the bytes up to the empty line.

        Raises
        ------
        Cut
            If they end before.
        """
        found = b""
        while (end := found.find(HEAD_END)) < 0:
            if len(found) > MOST_HEAD_BYTES:
                raise HTTPInputError("the head of its answer is too long")
            found += await self.some()
        end += len(HEAD_END)
        self._put_back(found[end:])
        return found[:end]

    def take(self, count: int) -> None:
        """Take so many bytes of what is waiting."""
        rest = self.waiting[count:]
        self._pieces.clear()
        self._waiting_bytes = 0
        self._put_back(rest)

    async def line(self) -> bytes:
        """Return one line with its end; raises as ``head``."""
        found = b""
        while (end := found.find(b"\n")) < 0:
            if len(found) > MOST_HEAD_BYTES:
                raise HTTPInputError("a line of its answer is too long")
            found += await self.some()
        self._put_back(found[end + 1 :])
        return found[: end + 1]

    async def some(self, most: int = MOST_WAITING_BYTES) -> bytes:
        """Return what has come, at most so much of it, and wait until anything has.

        Raises
        ------
        Cut
            If nothing more comes.
        """
        while not self._pieces:
            if self.is_at_end:
                raise Cut(str(self._error or "the app closed the connection"))
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        piece = self._pieces.popleft()
        self._waiting_bytes -= len(piece)
        if len(piece) > most:
            self._put_back(piece[most:])
            piece = piece[:most]
        if self._is_paused and self._waiting_bytes <= MOST_WAITING_BYTES // 2:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return piece

    async def move(self, target: socket.socket, count: int) -> int:
        """Let the kernel move up to ``count`` bytes that come now; return how many went.

        Fewer at the end of what comes, or where the kernel cannot.

        Raises
        ------
        Cut
            If either side breaks, or this is closed.
        """
        assert self._transport is not None
        self._transport.pause_reading()
        # Numbers of our own: the event loop watches both sockets under their other ones.
        numbers = [
            os.dup(each.fileno()) for each in (self._transport.get_extra_info("socket"), target)
        ]
        self._moving = asyncio.ensure_future(moved(numbers[0], numbers[1], count))
        try:
            return await self._moving
        except OSError as error:
            raise Cut(str(error)) from error
        except asyncio.CancelledError:
            if not self.is_at_end:
                raise
            raise Cut("it was closed here") from None
        finally:
            self._moving = None
            for number in numbers:
                os.close(number)
            self._transport.resume_reading()

    def _put_back(self, piece: bytes) -> None:
        if piece:
            self._pieces.appendleft(piece)
            self._waiting_bytes += len(piece)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        if self.on_news is not None:
            self.on_news()


class Connections:
    """Connections to apps; those whose answer has ended are kept for a moment."""

    def __init__(self) -> None:
        self._kept: dict[Place, list[tuple[Connection, asyncio.TimerHandle]]] = {}

    def kept(self, place: Place) -> Connection | None:
        """Return one that was kept, the last one used first."""
        idle = self._kept.get(place, [])
        while idle:
            connection, timer = idle.pop()
            timer.cancel()
            if connection.is_quiet:
                return connection
            connection.close()
        self._kept.pop(place, None)
        return None

    def keep(self, place: Place, connection: Connection) -> None:
        idle = self._kept.setdefault(place, [])
        if len(idle) >= MOST_KEPT or not connection.is_quiet:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        idle.append((connection, loop.call_later(KEPT_SECONDS, self._end, place, connection)))

    def _end(self, place: Place, connection: Connection) -> None:
        left = [each for each in self._kept.get(place, []) if each[0] is not connection]
        if left:
            self._kept[place] = left
        else:
            self._kept.pop(place, None)
        connection.close()

    @staticmethod
    async def fresh(place: Place) -> Connection:
        """Return a new one.

        Raises
        ------
        OSError
            If nothing listens there.
        """
        loop = asyncio.get_running_loop()
        host, port = place
        async with asyncio.timeout(CONNECT_SECONDS):
            if not port:
                return (await loop.create_unix_connection(Connection, host))[1]
            if host != LOCAL:
                return (await loop.create_connection(Connection, host, port))[1]
            # Not every machine knows that name for IPv6, and looking it up takes a thread.
            for address in LOOPBACK:
                with suppress(OSError):
                    return (await loop.create_connection(Connection, address, port))[1]
        raise ConnectionRefusedError(f"nothing listens on port {port} of the session")


connections = Connections()


class Answer:
    """What an app answers to one request."""

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
        """Wait for its head.

        Raises
        ------
        Cut, HTTPInputError
            If there is none.
        """
        while self.code < 200:
            first, _, rest = (await self.connection.head()).decode("latin-1").partition("\r\n")
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
            raise HTTPInputError(f"an answer coded as {coding!r}")
        self._is_chunked = bool(coding)
        if self._method == "HEAD" or self.code in (204, 304):
            self.length = 0
            self._is_chunked = False
        elif coding:
            leave_out(self.headers, ("Content-Length",))
        elif (text := self.headers.get("Content-Length")) is not None:
            if not (text.isascii() and text.isdecimal() and len(text) <= _LENGTH_DIGITS):
                raise HTTPInputError("an answer of unclear length")
            self.length = int(text)
        leave_out(self.headers, OF_AN_ANSWERS_HOP)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its body as it comes; raises as ``begin``."""
        if self._is_chunked:
            while size := _chunk_size(await self.connection.line()):
                async for piece in self._counted(size):
                    yield piece
                await self.connection.line()
            while (await self.connection.line()).strip():
                pass  # trailers
        elif self.length is None:
            self._is_kept = False
            with suppress(Cut):
                while True:
                    yield await self.connection.some()
        else:
            async for piece in self._counted(self.length):
                yield piece

    async def send(self, stream: IOStream) -> None:
        """Send its body, whose length is known, to who asked; raises as ``begin``, or `OSError`."""
        left = self.length or 0
        while left and self.connection.waiting:
            piece = await self.connection.some(left)
            left -= len(piece)
            await stream.write(piece)
        left -= await self.connection.move(stream.socket, left)
        async for piece in self._counted(left):
            await stream.write(piece)

    def end(self, place: Place) -> None:
        """Let go of the connection, after all of the body was taken."""
        if self._is_kept:
            connections.keep(place, self.connection)
        else:
            self.connection.close()

    async def _counted(self, left: int) -> AsyncIterator[bytes]:
        while left:
            piece = await self.connection.some(left)
            left -= len(piece)
            yield piece


async def answered(connection: Connection, method: str, message: bytes) -> Answer:
    """Ask over a connection and return the answer once its head is there.

    ``message`` is empty where the app was asked already. Raises as ``Answer.begin``, or
    `TimeoutError`; the connection is closed then.
    """
    answer = Answer(connection, method)
    try:
        if message:
            connection.send(message)
        async with asyncio.timeout(ANSWER_SECONDS):
            await answer.begin()
    except BaseException:
        connection.close()
        raise
    return answer


def leave_out(headers: HTTPHeaders, names: Iterable[str]) -> None:
    for name in names:
        if name in headers:
            del headers[name]


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise HTTPInputError("a chunk without a size") from None
