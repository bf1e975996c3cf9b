"""Client end of a tunnel: connects to a session, reconnects after each loss, opens streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketError,
    websocket_connect,
)

from bai_services.core.errors import BaiError, Forbidden, NotSignedIn, Unavailable

from .end import End, Stream
from .frames import (
    KEY_BYTES,
    MAX_FRAME_BYTES,
    FrameKind,
    ProtocolError,
    decode,
    decode_hello,
    encode_text,
)
from .link import Goodbye
from .memory import keep_freed

log = logging.getLogger(__name__)

CONNECT_SECONDS = 20.0
GOODBYE_SECONDS = 2.0
# Time to reconnect: a restarted proxy or hub is back by then, and the session's end keeps its
# streams as long.
PATIENCE_SECONDS = 100.0
FIRST_PATIENCE_SECONDS = 15.0
MIN_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 3.0
_BROKEN = (OSError, HTTPClientError, StreamClosedError, WebSocketClosedError, WebSocketError)


class _Wire:
    """A websocket of tornado's client."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        await self._connection.write_message(message, binary=True)

    def close(self) -> None:
        self._connection.close()


class TunnelClient:
    """A tunnel to the session's server at ``url`` (http or https), with the token in the header.

    ``on_change`` is called for losses, reconnections and failed streams.
    """

    def __init__(self, url: str, token: str, on_change: Callable[[str], None] = log.info) -> None:
        self._url = url.rstrip("/").replace("http", "ws", 1) + "/bai/tunnel"
        self._token = token
        self._on_change = on_change
        self._end = End(secrets.token_bytes(KEY_BYTES), on_reset=on_change)
        self._is_known_there = False
        self._keeping: asyncio.Task[None] | None = None
        self._connection: _Connection | None = None
        self._is_renewing = False

    async def __aenter__(self) -> TunnelClient:
        """Connect.

        Raises
        ------
        NotSignedIn, Forbidden
            If the session refuses the token, or has another owner.
        Unavailable
            If it does not respond.
        """
        keep_freed()
        first = await self._patiently(FIRST_PATIENCE_SECONDS)
        self._keeping = asyncio.create_task(self._keep(first))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._connection is not None:
            with suppress(*_BROKEN, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._connection.say_goodbye()
        self._end.close()
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError, BaiError):
                await self._keeping

    def stream(self, target: str) -> Stream:
        """Return a stream as the protocol of a new local connection."""
        return Stream(self._end, target)

    def renew(self, token: str) -> None:
        """Switch to a new token before the old one expires; streams continue."""
        self._token = token
        if self._connection is not None:
            self._is_renewing = True
            self._connection.leave()

    async def attach(self, target: str, local: socket.socket) -> None:
        """Connect a socket with a stream."""
        local.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.stream(target), sock=local)

    async def wait_lost(self) -> None:
        """Wait until the tunnel has failed for good, and raise its error."""
        assert self._keeping is not None
        await asyncio.shield(self._keeping)

    async def _keep(self, connection: _Connection) -> None:
        try:
            while True:
                self._connection = connection
                await connection.run()
                self._connection = None
                is_wished, self._is_renewing = self._is_renewing, False
                if not is_wished:
                    self._on_change("connection lost; connecting again")
                connection = await self._patiently(PATIENCE_SECONDS)
                if not is_wished:
                    self._on_change("connected again")
        finally:
            self._end.close()

    async def _patiently(self, seconds: float) -> _Connection:
        """Connect, with retries while components on the way may be starting."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds, MIN_PAUSE_SECONDS
        while True:
            try:
                return await self._connect()
            except _BROKEN as error:
                _refuse_final(error)
                if loop.time() + pause > deadline:
                    raise Unavailable(
                        f"the session does not answer: {error}; see bai session info", url=self._url
                    ) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _connect(self) -> _Connection:
        connection = _Connection(self._end)
        request = HTTPRequest(
            self._url,
            headers={"Authorization": f"token {self._token}"},
            connect_timeout=CONNECT_SECONDS,
            request_timeout=CONNECT_SECONDS,
        )
        websocket = await websocket_connect(
            request,
            on_message_callback=connection.on_message,
            max_message_size=MAX_FRAME_BYTES,
        )
        try:
            await connection.begin(websocket, is_resumed=self._is_known_there)
        except BaseException:
            websocket.close()
            raise
        self._is_known_there = True
        return connection


class _Connection:
    """One websocket of a tunnel."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._websocket: WebSocketClientConnection | None = None

    async def begin(self, websocket: WebSocketClientConnection, *, is_resumed: bool) -> None:
        """Send HELLO, and wait for that of the other end."""
        self._websocket = websocket
        protocol = websocket.protocol
        if protocol is not None and protocol.stream is not None:
            protocol.stream.set_nodelay(True)
            protocol.stream.read_chunk_size = MAX_FRAME_BYTES
        await websocket.write_message(self._end.hello(is_resumed=is_resumed), binary=True)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.wait((self._received, self._closed), return_when="FIRST_COMPLETED")
        if not self._received.done():
            self._closed.result()
            raise StreamClosedError()

    async def say_goodbye(self) -> None:
        """Make the other end close the tunnel at once, instead of waiting for a reconnection."""
        if self._websocket is not None:
            await self._websocket.write_message(encode_text(FrameKind.BYE, 0, ""), binary=True)

    def leave(self) -> None:
        """Close this websocket, to continue on another one."""
        if self._websocket is not None:
            self._websocket.close()

    async def run(self) -> None:
        """Run the tunnel until this websocket is lost.

        Raises
        ------
        BaiError
            If the other end has closed the tunnel, or has another protocol version.
        """
        assert self._websocket is not None
        wire = _Wire(self._websocket)
        sending = asyncio.ensure_future(self._end.run(wire, self._received.result()))
        try:
            await asyncio.wait((sending, self._closed), return_when="FIRST_COMPLETED")
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, *_BROKEN):
                await sending
            await self._close()
        self._closed.result()

    async def _close(self) -> None:
        assert self._websocket is not None
        self._websocket.close()
        await asyncio.wait((self._closed,), timeout=GOODBYE_SECONDS)
        # For a websocket that no longer responds.
        if (protocol := self._websocket.protocol) is not None and protocol.stream is not None:
            protocol.stream.close()
        self._over(None)
        self._closed.exception()

    def on_message(self, message: str | bytes | None) -> None:
        try:
            if message is None:
                self._over(None)
            elif isinstance(message, str):
                raise ProtocolError("a text")
            elif self._received.done():
                self._end.receive(message)
            else:
                self._greeted(message)
        except Goodbye as error:
            self._over(Unavailable(f"the session has ended the tunnel: {error}"))
        except ProtocolError as error:
            self._over(Unavailable(f"the session's end of the tunnel is not ours: {error}"))

    def _greeted(self, message: bytes) -> None:
        frame = decode(message)
        if frame.kind is FrameKind.BYE:
            raise Goodbye(frame.text)
        hello = decode_hello(frame)
        if not hello.is_resumed:
            self._end.reset_all("the session's server was restarted")
        self._received.set_result(hello.received)

    def _over(self, error: BaiError | None) -> None:
        if self._closed.done():
            return
        if error is None:
            self._closed.set_result(None)
        else:
            self._closed.set_exception(error)


def _refuse_final(error: Exception) -> None:
    """Raise errors that a retry would not change."""
    if not isinstance(error, HTTPClientError):
        return
    if error.code == 403:
        raise Forbidden(
            "the session refuses: only its owner may open a tunnel to it, with a valid token"
        ) from error
    if error.code == 401 or 300 <= error.code < 400:
        raise NotSignedIn("the session does not take this token; sign in again") from error
