"""Client endpoint of a tunnel: connect to a session, reconnect after each loss, open streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
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

from .endpoint import Stream, TunnelEndpoint
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
from .memory import retain_freed_memory

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 20.0
GOODBYE_TIMEOUT_SECONDS = 2.0
# Maximum time to reconnect: long enough for a restart of the proxy or Hub, but shorter than the
# lifetime of detached streams in the session (``DETACHED_TIMEOUT_SECONDS`` of
# ``bai_labext.tunnel.handler``).
RECONNECT_TIMEOUT_SECONDS = 100.0
FIRST_CONNECT_TIMEOUT_SECONDS = 15.0
# Exponential backoff between attempts.
MIN_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 3.0
_CONNECTION_ERRORS = (
    OSError, HTTPClientError, StreamClosedError, WebSocketClosedError, WebSocketError,
)  # fmt: skip


class _Wire:
    """Adapter of tornado's websocket client to ``endpoint.Wire``."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        await self._connection.write_message(message, binary=True)

    def close(self) -> None:
        self._connection.close()


class TunnelClient:
    """A tunnel to the session's server at ``url`` (http or https).

    ``on_change`` is called with a message for each lost connection, reconnect and failed
    stream. ``raise_if_gone`` is called after each failed attempt to reconnect. It raises a
    ``BaiError`` if further attempts are pointless.
    """

    def __init__(
        self,
        url: str,
        token: str,
        on_change: Callable[[str], None] = log.info,
        raise_if_gone: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._raise_if_gone = raise_if_gone
        self._url = url.rstrip("/").replace("http", "ws", 1) + "/bai/tunnel"
        self._token = token
        self._on_change = on_change
        self._endpoint = TunnelEndpoint(secrets.token_bytes(KEY_BYTES), on_failure=on_change)
        self._has_connected = False
        self._task: asyncio.Task[None] | None = None
        self._connection: _Connection | None = None
        self._is_renewing = False

    async def __aenter__(self) -> TunnelClient:
        """Connect to the session.

        Raises
        ------
        NotSignedIn, Forbidden
            If the session rejects the token, or belongs to another user.
        Unavailable
            If the session does not respond.
        """
        retain_freed_memory()
        first = await self._connect_with_retries(FIRST_CONNECT_TIMEOUT_SECONDS)
        self._task = asyncio.create_task(self._run(first))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._connection is not None:
            with suppress(*_CONNECTION_ERRORS, TimeoutError):
                async with asyncio.timeout(GOODBYE_TIMEOUT_SECONDS):
                    await self._connection.send_goodbye()
        self._endpoint.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, BaiError):
                await self._task

    def stream(self, target: str) -> Stream:
        """Return the asyncio protocol of a new stream, for a local connection."""
        return Stream(self._endpoint, target)

    def renew(self, token: str) -> None:
        """Switch to a new token before the old one expires; streams continue."""
        self._token = token
        if self._connection is not None:
            self._is_renewing = True
            self._connection.leave()

    async def attach(self, target: str, local: socket.socket) -> None:
        """Connect a local socket to a new stream."""
        local.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.stream(target), sock=local)

    async def wait_lost(self) -> None:
        """Wait until the tunnel has failed permanently, and raise its error."""
        assert self._task is not None
        await asyncio.shield(self._task)

    async def _run(self, connection: _Connection) -> None:
        """Run the tunnel over successive websockets."""
        try:
            while True:
                self._connection = connection
                await connection.run()
                self._connection = None
                is_renewal, self._is_renewing = self._is_renewing, False
                if not is_renewal:
                    self._on_change("connection lost; reconnecting")
                connection = await self._connect_with_retries(RECONNECT_TIMEOUT_SECONDS)
                if not is_renewal:
                    self._on_change("reconnected")
        finally:
            self._endpoint.close()

    async def _connect_with_retries(self, timeout_seconds: float) -> _Connection:
        """Connect and return the connection; raise ``Unavailable`` after ``timeout_seconds``.

        Retry with backoff, because the proxy or the session may be restarting.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_seconds, MIN_PAUSE_SECONDS
        while True:
            try:
                return await self._connect()
            except _CONNECTION_ERRORS as error:
                raise_if_permanent(error)
                if self._has_connected and self._raise_if_gone is not None:
                    await self._raise_if_gone()
                if loop.time() + pause > deadline:
                    raise Unavailable(
                        f"the session does not respond: {error}; see bai session info",
                        url=self._url,
                    ) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def _connect(self) -> _Connection:
        connection = _Connection(self._endpoint)
        request = HTTPRequest(
            self._url,
            headers={"Authorization": f"token {self._token}"},
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            request_timeout=CONNECT_TIMEOUT_SECONDS,
        )
        websocket = await websocket_connect(
            request,
            on_message_callback=connection.on_message,
            max_message_size=MAX_FRAME_BYTES,
        )
        try:
            await connection.begin(websocket, is_resumed=self._has_connected)
        except BaseException:
            websocket.close()
            raise
        self._has_connected = True
        return connection


class _Connection:
    """One websocket of a tunnel."""

    def __init__(self, endpoint: TunnelEndpoint) -> None:
        self._endpoint = endpoint
        # Number of frames that the peer has received, as its HELLO states.
        self._received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._websocket: WebSocketClientConnection | None = None

    async def begin(self, websocket: WebSocketClientConnection, *, is_resumed: bool) -> None:
        """Exchange HELLO with the peer."""
        self._websocket = websocket
        protocol = websocket.protocol
        if protocol is not None and protocol.stream is not None:
            protocol.stream.set_nodelay(True)
            protocol.stream.read_chunk_size = MAX_FRAME_BYTES
        await websocket.write_message(self._endpoint.hello(is_resumed=is_resumed), binary=True)
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await asyncio.wait((self._received, self._closed), return_when="FIRST_COMPLETED")
        if not self._received.done():
            self._closed.result()
            raise StreamClosedError()

    async def send_goodbye(self) -> None:
        """Make the peer close the tunnel immediately, instead of waiting for a reconnect."""
        if self._websocket is not None:
            await self._websocket.write_message(encode_text(FrameKind.BYE, 0, ""), binary=True)

    def leave(self) -> None:
        """Close this websocket; the tunnel continues on the next one."""
        if self._websocket is not None:
            self._websocket.close()

    async def run(self) -> None:
        """Run the tunnel until this websocket is lost.

        Raises
        ------
        BaiError
            If the peer has closed the tunnel, or does not follow the protocol.
        """
        assert self._websocket is not None
        wire = _Wire(self._websocket)
        sending = asyncio.ensure_future(self._endpoint.run(wire, self._received.result()))
        try:
            await asyncio.wait((sending, self._closed), return_when="FIRST_COMPLETED")
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, *_CONNECTION_ERRORS):
                await sending
            await self._close()
        self._closed.result()

    async def _close(self) -> None:
        assert self._websocket is not None
        self._websocket.close()
        await asyncio.wait((self._closed,), timeout=GOODBYE_TIMEOUT_SECONDS)
        # The close handshake of an unresponsive websocket never completes: close its socket.
        if (protocol := self._websocket.protocol) is not None and protocol.stream is not None:
            protocol.stream.close()
        self._set_closed(None)
        self._closed.exception()

    def on_message(self, message: str | bytes | None) -> None:
        try:
            if message is None:
                self._set_closed(None)
            elif isinstance(message, str):
                raise ProtocolError("unexpected text message")
            elif self._received.done():
                self._endpoint.receive(message)
            else:
                self._receive_hello(message)
        except Goodbye as error:
            self._set_closed(Unavailable(f"the session has ended the tunnel: {error}"))
        except ProtocolError as error:
            self._set_closed(Unavailable(f"protocol error in the tunnel of the session: {error}"))

    def _receive_hello(self, message: bytes) -> None:
        frame = decode(message)
        if frame.kind is FrameKind.BYE:
            raise Goodbye(frame.text)
        hello = decode_hello(frame)
        if not hello.is_resumed:
            self._endpoint.reset_all("the session's server was restarted")
        self._received.set_result(hello.received)

    def _set_closed(self, error: BaiError | None) -> None:
        if self._closed.done():
            return
        if error is None:
            self._closed.set_result(None)
        else:
            self._closed.set_exception(error)


def raise_if_permanent(error: Exception) -> None:
    """Raise an error if it is pointless to retry the connection to a session after ``error``.

    Raises
    ------
    Forbidden
        If the caller is not the owner of the session.
    NotSignedIn
        If the token is invalid.
    """
    if not isinstance(error, HTTPClientError):
        return
    if error.code == 403:
        raise Forbidden(
            "the session denies the connection: only its owner can connect, with a valid token"
        ) from error
    if error.code == 401 or 300 <= error.code < 400:
        raise NotSignedIn("the session rejects this token; sign in again") from error
