"""A connection of a client: parses the requests one after the other, and sends the responses."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from .exchange import HEALTH_PATH, METRICS_PATH, Exchange, Gateway, Request, no_grpc
from .heads import Headers, Refusal, json_response
from .http_2_refusal import PREFACE, Http2Refusal
from .limits import (
    BODY_BYTES_PER_SECOND,
    BODY_SECONDS,
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_HELD_BYTES,
    MAX_PIPELINED,
    MAX_READ_BYTES,
    STALLED_BYTES,
    STALLED_SECONDS,
    WRITE_BUFFER_BYTES,
)

# After an early response, the rest of the body is read and dropped for this time: an immediate
# close would reset the connection before the client has read the response.
LINGER_SECONDS = 5.0


class Server(Gateway, Protocol):
    """Interface of the process for connections."""

    connections: set[ClientConnection]
    # Connections without a request, in the order in which they became idle.
    idle: dict[ClientConnection, None]
    is_behind_haproxy: bool

    def client_address(self, peer: str, forwarded: str) -> str: ...
    def health(self) -> dict[str, object]: ...
    def metrics(self, authorization: bytes) -> bytes: ...


class ClientConnection(asyncio.Protocol):
    """Runs one request at a time; pipelined requests wait."""

    def __init__(self, server: Server) -> None:
        self.address = ""
        self._server = server
        self._peer = ""
        self._peer_address = ""
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._running: Exchange | None = None
        self._receiving: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._unparsed: list[bytes] = []
        self._unparsed_bytes = 0
        self._url = b""
        self._headers: Headers = []
        self._head_bytes = 0
        self._is_in_head = True
        self._is_raw = False
        self._http_2: Http2Refusal | None = None
        self._is_closing = False
        self._is_reading_paused = False
        self._body_since = 0.0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._deadline = float("inf")
        self._stalled_at = float("inf")
        self._unread_before = 0

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if len(self._server.connections) >= self._server.max_connections:
            oldest = next(iter(self._server.idle), None)
            if oldest is None:
                transport.abort()
                return
            # Other clients must be able to connect even if many clients are idle or send no
            # request.
            del self._server.idle[oldest]
            oldest.abort()
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        # A peer on a Unix socket has no address.
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self.address = self._peer_address = self._server.client_address(self._peer, "")
        self._server.connections.add(self)
        self._server.idle[self] = None
        self._deadline = time.monotonic() + HEAD_SECONDS

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._http_2 is not None:
            self._refuse_http_2(data)
            return
        if self._is_raw:
            if self._running is not None:
                self._running.request_raw(data)
            return
        if self._running is not None and self._receiving is None:
            # The next request; it is parsed when the response to the current request has ended.
            self._unparsed.append(data)
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > MAX_HELD_BYTES:
                self.pause_reading()
            return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._receiving is not None:
            self._body_bytes += len(data)
            seconds = BODY_SECONDS + self._body_bytes / BODY_BYTES_PER_SECOND
            self._deadline = self._body_since + seconds
            self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if data.startswith(PREFACE) and self._running is None:
                # The deadline for the head of an HTTP/1.1 request applies.
                self._http_2 = Http2Refusal(no_grpc())
                self._refuse_http_2(data)
                return
            self._reject_invalid()
            return
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._reject_head()
        elif self._receiving is not None and self._framing_bytes > MAX_READ_BYTES:
            self._reject(HTTPStatus.BAD_REQUEST, "trailers and chunk extensions are too large")

    def _upgrade(self, rest: bytes) -> None:
        # The parser stops after a request to change the protocol. Only websockets are forwarded;
        # for other protocols the change is ignored, and the request is the last on this connection.
        self._is_raw = True
        if rest and self._running is not None:
            self._running.request_raw(rest)

    def _refuse_http_2(self, data: bytes) -> None:
        assert self._http_2 is not None
        answer = self._http_2.receive(data)
        if answer is None:
            self.abort()
        else:
            self.write(answer)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.idle.pop(self, None)
        self._transport = None
        self._is_closing = True
        running, self._running = self._running, None
        self._waiting.clear()
        self._receiving = None
        if running is not None:
            running.client_lost()

    def pause_writing(self) -> None:
        self._stalled_at = time.monotonic() + STALLED_SECONDS
        self._unread_before = self.unread_bytes
        if self._running is not None:
            self._running.pause_response()

    def resume_writing(self) -> None:
        self._stalled_at = float("inf")
        if self._running is not None:
            self._running.resume_response()

    def sweep(self, now: float) -> None:
        """Close the connection if a time limit has expired."""
        if self._is_closing:
            if now < self._deadline:
                return
            if not self._reads():
                self.abort()
            else:
                # The client is slow, but is still reading the end of the response.
                self._unread_before, self._deadline = self.unread_bytes, now + STALLED_SECONDS
        elif now >= self._stalled_at and self._reads():
            # The client is slow, but is still reading.
            self._unread_before, self._stalled_at = self.unread_bytes, now + STALLED_SECONDS
        elif now >= self._stalled_at:
            self.abort()
        elif now >= self._deadline:
            self._expire()
        elif self._running is not None and not self.is_stalled and now >= self._running.deadline:
            self._running.expire()

    def _reads(self) -> bool:
        """Return whether the client has read enough since the last check, and has more to read."""
        unread = self.unread_bytes
        return unread > 0 and self._unread_before - unread >= STALLED_BYTES

    @property
    def is_stalled(self) -> bool:
        """Return whether reading from the replica must pause: the client reads too slowly."""
        return self._stalled_at < float("inf")

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _expire(self) -> None:
        self._deadline = float("inf")
        if self._receiving is None and not self._head_bytes:
            self.abort()
        elif self._running is not None:
            self._running.refuse(_too_slow())
        else:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, _too_slow().message)

    # Methods for exchanges

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self.is_stalled and self._running is not None:
                # The client has not read the previous response yet.
                self._running.pause_response()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._is_reading_paused:
            if not self._transport.is_closing():
                self._transport.pause_reading()
            self._is_reading_paused = True
            # No deadline applies: the gateway has paused reading, so the client cannot be blamed.
            if self._receiving is not None:
                self._deadline = float("inf")

    def resume_reading(self) -> None:
        if self._transport is not None and self._is_reading_paused:
            if not self._transport.is_closing():
                self._transport.resume_reading()
            self._is_reading_paused = False
            if self._receiving is not None:
                self._body_since, self._body_bytes = time.monotonic(), 0
                self._deadline = self._body_since + BODY_SECONDS

    def finished(self, *, keeps_open: bool) -> None:
        """Continue with the next request after a response, or close unless ``keeps_open``."""
        self._running = None
        if not keeps_open or self._is_raw:
            self._close()
            return
        self.resume_reading()
        if self._waiting:
            self._run(self._waiting.popleft())
            return
        unparsed, self._unparsed, self._unparsed_bytes = self._unparsed, [], 0
        self._deadline = time.monotonic() + IDLE_SECONDS
        self._server.idle[self] = None
        if unparsed:
            self._parse(b"".join(unparsed))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> bool:
        """Close the connection if it has no request; return whether it has one."""
        if self._running is None and self._transport is not None:
            self._transport.close()
        return self._running is not None

    def _close(self) -> None:
        transport = self._transport
        if transport is None or self._is_closing:
            return
        self._is_closing = True
        self._server.idle.pop(self, None)
        self._unread_before = self.unread_bytes
        seconds = STALLED_SECONDS if self._unread_before else LINGER_SECONDS
        self._deadline = time.monotonic() + seconds
        if self._receiving is not None and transport.can_write_eof() and not transport.is_closing():
            self.resume_reading()
            self._receiving = None
            try:
                transport.write_eof()
            except OSError:  # the client has left
                transport.abort()
            return
        transport.close()

    def _reject(self, status: HTTPStatus, message: str) -> None:
        """Reject bytes that are not a complete request."""
        if self._is_closing:
            # The bytes belong to a request that was refused before its body arrived.
            return
        running = self._running
        if running is not None:
            self._running = None
            running.client_lost()
            self.abort()
            return
        self.write(Refusal(status, "invalid-request", message).response(closes=True))
        self._close()

    def _reject_invalid(self) -> None:
        running, message = self._running, "the request is not valid HTTP/1.1"
        if running is not None and running is self._receiving and not running.is_response_begun:
            # The connection ends after the response, because the body is incomplete.
            running.refuse(Refusal(HTTPStatus.BAD_REQUEST, "invalid-request", message))
        else:
            self._reject(HTTPStatus.BAD_REQUEST, message)

    def _reject_head(self) -> None:
        self._reject(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"the line and headers of the request exceed {MAX_HEAD_BYTES} bytes, or there are more "
            f"than {MAX_HEADERS} headers",
        )

    # Parser

    def on_message_begin(self) -> None:
        self._url, self._headers, self._head_bytes, self._is_in_head = b"", [], 0, True
        if self._running is None:
            self._deadline = time.monotonic() + HEAD_SECONDS
            self._head_bytes = 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers arrive after the head and are not forwarded.
        if self._is_in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if self._is_closing:
            return
        head_bytes = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if head_bytes > MAX_HEAD_BYTES or len(self._headers) > MAX_HEADERS:
            self._reject_head()
            return
        request = Request(
            self._parser.get_method(), self._url, self._headers, self._parser.get_http_version()
        )
        # A request to change the protocol must be the last one, because the parser ignores all
        # further bytes.
        request.keeps_open = self._parser.should_keep_alive() and not request.header(b"upgrade")
        exchange = self._receiving = Exchange(self._server, self, request)
        self._body_since, self._body_bytes = time.monotonic(), 0
        self._framing_bytes = 0
        self._deadline = self._body_since + BODY_SECONDS
        if self._running is not None:
            self._waiting.append(exchange)
            if len(self._waiting) > MAX_PIPELINED:
                self.abort()
            return
        self._run(exchange)

    def _run(self, exchange: Exchange) -> None:
        self._running = exchange
        self._server.idle.pop(self, None)
        # Determine the client for each request, because a proxy may send requests of several
        # clients over one connection.
        self.address = self._peer_address
        peer = exchange.peer if self._server.is_behind_haproxy else self._peer
        forwarded = exchange.forwarded_for
        if forwarded or self._server.is_behind_haproxy:
            self.address = self._server.client_address(peer, forwarded.decode("latin-1"))
        if exchange.own_path == HEALTH_PATH:
            exchange.respond(json_response(HTTPStatus.OK, self._server.health(), {}))
            return
        if exchange.own_path == METRICS_PATH:
            exchange.respond(self._server.metrics(exchange.authorization))
            return
        exchange.begin()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        if self._receiving is not None:
            self._receiving.request_body(body)

    def on_message_complete(self) -> None:
        receiving, self._receiving = self._receiving, None
        self._deadline = float("inf")
        self._is_in_head = False
        self._head_bytes = 0
        if receiving is not None:
            receiving.request_end()
            if self._running is None and not self._is_closing:
                self._deadline = time.monotonic() + IDLE_SECONDS


def _too_slow() -> Refusal:
    return Refusal(
        HTTPStatus.REQUEST_TIMEOUT, "invalid-request", "the request did not arrive in time"
    )
