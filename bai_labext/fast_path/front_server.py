"""HTTP server that forwards authorized requests itself and passes all others to Jupyter.

Jupyter's checks of a request often take longer than the app and the transfer together, and their
result is usually the same for consecutive requests of a client. Therefore a request with a cached
authorization is sent directly to the app if an idle connection to the app exists, and a short
response is sent directly back. For any other request the connection is passed to Jupyter. The same
happens if a response turns out to be long or slow after its request was sent to the app: Jupyter
then forwards that response.
"""

from __future__ import annotations

import asyncio
import re
import socket
from asyncio import Future, Task
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, SSLIOStream, StreamClosedError

from bai_labext.app_proxy.upstream import (
    HEAD_END,
    MAX_BUFFERED_BYTES,
    AppAddress,
    Connection,
    pool,
)
from bai_labext.fast_path.auth_cache import AuthCache, AuthorizedRequest

# A response that is not complete after this time is passed to Jupyter, which has longer timeouts.
RESPONSE_TIMEOUT_SECONDS = 1.0
MAX_RESPONSE_BYTES = 128 * 1024
# Response head, in lower case, that every HTTP parser interprets in the same way.
_HEAD = re.compile(rb"http/1\.1 20[0-35-9][^\r\n]*(?:\r\n[a-z0-9!#$%&'*+.^_`|~-]+:[^\r\n\0]*)+")
_LENGTH = b"\r\ncontent-length:"
_CONNECTION = b"\r\nconnection:"
_KEEP_ALIVE = (b"", b"keep-alive")
# Headers that only Jupyter's handler processes, such as the target of a redirect.
_NOT_PLAIN = (b"\r\ntransfer-encoding:", b"\r\nlocation:", b"\r\nproxy-connection:")
_HOP_BY_HOP = (b"connection:", b"keep-alive:")


class FrontServer(HTTPServer):
    """HTTP server of Jupyter, which tornado creates because of `HTTPServer.configure`."""

    def initialize(  # type: ignore[override]  # the parameters of the base class, and ``cache``
        self, *args: Any, cache: AuthCache, **kwargs: Any
    ) -> None:
        super().initialize(*args, **kwargs)
        self.cache = cache
        self._accepting: set[Task[Any]] = set()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Accept a new connection."""
        if isinstance(stream, SSLIOStream):
            super().handle_stream(stream, address)
            return
        client = stream.socket.dup()
        stream.close()
        if self.cache.may_have_valid_entries:
            self.take_connection(client, address, b"")
        else:
            self.pass_to_jupyter(JupyterStream(self, client, address))

    def pass_to_jupyter(self, stream: JupyterStream) -> None:
        """Let Jupyter serve a connection."""
        super().handle_stream(stream, stream.address)

    def take_connection(self, client: socket.socket, address: Any, received: bytes) -> None:
        """Serve a connection on the fast path; the bytes ``received`` have already been read from
        it.
        """
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(
            loop.connect_accepted_socket(lambda: FastConnection(self, address, received), client)
        )
        self._accepting.add(accepting)
        accepting.add_done_callback(self._accepting.discard)


class JupyterStream(IOStream):
    """A connection while Jupyter serves it.

    After each response, the connection returns to the fast path if an authorization is cached.
    """

    def __init__(
        self,
        server: FrontServer,
        client: socket.socket,
        address: Any,
        received: bytes = b"",
        pending: tuple[AppAddress, Connection] | None = None,
    ) -> None:
        super().__init__(client, server.max_buffer_size, server.read_chunk_size)
        self.address = address
        self.head = b""
        self._server, self._received, self._pending = server, received, pending

    def read_from_fd(self, buf: bytearray | memoryview) -> int | None:
        """Read first the bytes that the fast path has received, then from the socket."""
        if not self._received:
            return super().read_from_fd(buf)
        count = min(len(buf), len(self._received))
        buf[:count] = self._received[:count]
        self._received = self._received[count:]
        return count

    def read_until_regex(self, regex: bytes, max_bytes: int | None = None) -> Future[bytes]:
        """Read the head of the next request, or return the connection to the fast path.

        Jupyter calls this method for each request. If the connection returns to the fast path, the
        method raises ``StreamClosedError``, so that Jupyter stops serving the connection.
        """
        if self.head:
            self._close_pending()
            if self._server.cache.may_have_valid_entries:
                self._return_to_fast_path()
                raise StreamClosedError
        reading = asyncio.ensure_future(super().read_until_regex(regex, max_bytes))
        if reading.done():
            self._store_head(reading)
        else:
            reading.add_done_callback(self._store_head)
        return reading

    def close_fd(self) -> None:
        self._close_pending()
        super().close_fd()

    def take_pending(self, address: AppAddress) -> Connection | None:
        """Return the connection on which this request was sent to the app; None if it was not."""
        if self._pending is None or self._pending[0] != address:
            return None
        connection, self._pending = self._pending[1], None
        return connection

    def _return_to_fast_path(self) -> None:
        buffered = asyncio.ensure_future(super().read_bytes(MAX_BUFFERED_BYTES, partial=True))
        received = buffered.result() if buffered.done() and not buffered.exception() else b""
        if self.closed():
            return
        client = self.socket.dup()
        self.close()
        self._server.take_connection(client, self.address, received)

    def _store_head(self, reading: Future[bytes]) -> None:
        if not reading.cancelled() and not reading.exception():
            self.head = reading.result()

    def _close_pending(self) -> None:
        if self._pending is not None:
            self._pending[1].close()
            self._pending = None


class FastConnection(asyncio.Protocol):
    """A connection while the fast path serves it, until a request or response needs Jupyter."""

    _transport: asyncio.Transport
    _upstream: Connection | None = None
    _app: AppAddress
    _timer: asyncio.TimerHandle

    def __init__(self, server: FrontServer, address: Any, received: bytes) -> None:
        self._server, self._address, self._received = server, address, received
        self._request = b""
        self._is_writing = self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        # With limit 0 `pause_writing` is called whenever the socket does not accept all bytes.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        if self._received:
            self._next_request()

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        if self._upstream is None and not self._is_writing:
            self._next_request()
        elif len(self._received) > MAX_BUFFERED_BYTES:
            self._is_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_writing = True

    def resume_writing(self) -> None:
        self._is_writing = False
        if self._received and self._upstream is None:
            self._next_request()

    def connection_lost(self, error: Exception | None) -> None:
        if self._upstream is not None:
            self._stop_waiting(self._upstream)
            self._upstream.close()

    def _next_request(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        request = self._server.cache.find(self._received)
        connection = None if request is None else pool.take(request.address)
        if request is None or connection is None:
            self._pass_to_jupyter(self._received, None)
        else:
            self._send(connection, request)

    def _send(self, connection: Connection, request: AuthorizedRequest) -> None:
        self._request, self._received = self._received, b""
        self._app, self._upstream = request.address, connection
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(RESPONSE_TIMEOUT_SECONDS, self._pass_request_to_jupyter)
        connection.on_data = self._response_received
        request.record_use()
        connection.send(request.message)

    def _response_received(self) -> None:
        """Send a complete response to the client, or pass an unsuitable one to Jupyter."""
        connection = self._upstream
        assert connection is not None
        response = None if connection.is_at_end else plain_response(connection.buffered)
        if response is None:
            self._pass_request_to_jupyter()
            return
        message, count = response
        if not message:
            return
        self._stop_waiting(connection)
        self._upstream = None
        connection.discard(count)
        pool.release(self._app, connection)
        self._transport.write(message)
        if self._received and not self._is_writing:
            self._next_request()

    def _pass_request_to_jupyter(self) -> None:
        """Let Jupyter wait for the response; the request has already been sent to the app."""
        connection = self._upstream
        assert connection is not None
        self._stop_waiting(connection)
        self._upstream = None
        self._pass_to_jupyter(self._request + self._received, (self._app, connection))

    def _pass_to_jupyter(
        self, received: bytes, pending: tuple[AppAddress, Connection] | None
    ) -> None:
        client = self._transport.get_extra_info("socket").dup()
        self._transport.abort()
        stream = JupyterStream(self._server, client, self._address, received, pending)
        self._server.pass_to_jupyter(stream)

    def _stop_waiting(self, connection: Connection) -> None:
        self._timer.cancel()
        connection.on_data = None


def plain_response(received: bytes) -> tuple[bytes, int] | None:
    """Parse a short response of an app.

    Return the message for the client and the length of the response in ``received``; ``(b"", 0)``
    while it is incomplete; None if Jupyter must handle it.
    """
    end = received.find(HEAD_END)
    if end < 0:
        return None if len(received) > MAX_RESPONSE_BYTES else (b"", 0)
    head = received[:end].lower()
    if not _HEAD.fullmatch(head) or any(word in head for word in _NOT_PLAIN):
        return None
    text = _value(head, _LENGTH)
    if (
        head.count(_LENGTH) != 1
        or not text.isdigit()
        or len(text) > 18
        or int(text) > MAX_RESPONSE_BYTES
    ):
        return None
    count = end + len(HEAD_END) + int(text)
    has_hops = _CONNECTION in head or b"\r\nkeep-alive:" in head
    if has_hops and (head.count(_CONNECTION) > 1 or _value(head, _CONNECTION) not in _KEEP_ALIVE):
        return None
    if len(received) < count:
        return b"", 0
    if not has_hops:
        return received[:count], count
    lines = received[:end].split(b"\r\n")
    forwarded = [line for line in lines if not line.lower().startswith(_HOP_BY_HOP)]
    return b"\r\n".join(forwarded) + received[end:count], count


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(name)[2].partition(b"\r\n")[0].strip()
