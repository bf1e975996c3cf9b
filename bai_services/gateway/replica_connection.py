"""A connection to a replica: sends one request at a time, and parses the responses."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from .heads import Headers
from .limits import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_IDLE_CONNECTIONS,
    MAX_READ_BYTES,
    REUSE_SECONDS,
    WRITE_BUFFER_BYTES,
)


class ResponseSink(Protocol):
    """The request whose response a connection receives."""

    def response_head(self, status: int, headers: Headers) -> None: ...
    def response_body(self, piece: bytes) -> None: ...
    def response_end(self) -> None: ...
    def response_upgraded(self) -> None: ...
    def flush(self) -> None:
        """Send everything that the parser has passed on since the last call."""

    def response_lost(self, *, is_broken: bool) -> None:
        """Handle the end of the connection before the end of the response."""

    def pause_request(self) -> None: ...
    def resume_request(self) -> None: ...


class InvalidResponse(Exception):
    """Ends the parsing of a response: the parser raises ``HttpParserError``."""


class ReplicaConnection(asyncio.Protocol):
    """Passes each response on as it arrives; pauses reading to bound the unread bytes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: ResponseSink | None = None
        self._headers: Headers = []
        self._head_bytes = 0
        self._is_in_head = True
        self._is_informational = False
        self._is_head_request = False
        self._framing_bytes = 0
        self._is_complete = False
        self._is_upgraded = False
        self._is_broken = False
        self._is_paused = False
        self._idle_since = 0.0

    # Requests

    def attach(self, sink: ResponseSink, *, is_head_request: bool) -> None:
        """Start a request: ``sink`` gets its response."""
        self._sink = sink
        self._is_head_request = is_head_request

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def keep(self, idle: list[ReplicaConnection], now: float) -> None:
        """Keep the connection for another request."""
        self._sink = None
        if (
            not self.is_open
            or self._is_broken
            or len(idle) >= MAX_IDLE_CONNECTIONS
            or self._has_unsent_bytes()
        ):
            self.close()
            return
        self.resume_reading()
        self._idle_since = now
        idle.append(self)

    def _has_unsent_bytes(self) -> bool:
        # The replica responded before reading the whole body. Writing is already paused, so the
        # transport would not pause the next request, and the body of that request could fill the
        # memory.
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def is_reusable(self, now: float) -> bool:
        return self.is_open and not self._is_broken and now - self._idle_since < REUSE_SECONDS

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close the connection at once; the sink is no longer called."""
        self._sink = None
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self.is_open and not self._is_paused and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True

    def resume_reading(self) -> None:
        if self.is_open and self._is_paused and self._transport is not None:
            self._transport.resume_reading()
            self._is_paused = False

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:
            # The replica sent bytes without a request, so the connection cannot be reused.
            self._is_broken = True
            self.close()
            return
        if self._is_upgraded:
            sink.response_body(data)
            sink.flush()
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._is_upgraded = True
            sink.response_upgraded()
            if rest := data[upgrade.args[0] :]:
                sink.response_body(rest)
        except httptools.HttpParserError:
            self._is_broken = True
        if self._is_complete:
            # Finish only after checking for further bytes: the next request may start at once and
            # would receive them as its response.
            self._finish()
            return
        if self._is_in_head and not self._is_upgraded:
            self._head_bytes += len(data)
            self._is_broken |= self._head_bytes > MAX_HEAD_BYTES
        elif not self._is_upgraded:
            self._is_broken |= self._framing_bytes > MAX_READ_BYTES
        sink.flush()
        if self._is_broken and self._sink is sink:
            self.close()
            sink.response_lost(is_broken=True)

    def connection_lost(self, exc: Exception | None) -> None:
        sink, self._sink = self._sink, None
        self._transport = None
        if sink is not None:
            sink.response_lost(is_broken=exc is not None)

    def pause_writing(self) -> None:
        if self._sink is not None:
            self._sink.pause_request()

    def resume_writing(self) -> None:
        if self._sink is not None:
            self._sink.resume_request()

    # Parser

    def on_message_begin(self) -> None:
        self._headers, self._head_bytes, self._is_in_head = [], 0, True
        # Bytes after a complete response mean that the connection cannot be reused.
        self._is_broken |= self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers arrive after the head and are not forwarded.
        if self._is_in_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        status = self._parser.get_status_code()
        if not 100 <= status <= 599:
            raise InvalidResponse("the status is not valid")
        head_bytes = sum(len(name) + len(value) for name, value in self._headers)
        if head_bytes > MAX_HEAD_BYTES or len(self._headers) > MAX_HEADERS:
            raise InvalidResponse("the head of the response is too large")
        # 100 and 103 precede the response; 101 is forwarded.
        self._is_informational = status < 200 and status != 101
        if self._sink is None or self._is_informational or self._is_complete:
            return
        self._framing_bytes = 0
        self._sink.response_head(status, self._headers)
        if self._is_head_request and self._sink is not None:
            # The connection cannot be reused, because the parser would wait for the body that
            # Content-Length announces.
            self._is_broken = self._is_complete = True

    def on_body(self, body: bytes) -> None:
        if self._is_informational:
            # The client would receive these bytes before the head of the response, and would read
            # them as a response; its headers were not checked.
            raise InvalidResponse("an informational response has a body")
        self._framing_bytes = 0
        if self._sink is not None and not self._is_complete:
            self._sink.response_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head = True
        if self._sink is None or self._is_informational or self._parser.get_status_code() == 101:
            return
        self._is_complete = True
        if not self._parser.should_keep_alive():
            self._is_broken = True

    def _finish(self) -> None:
        self._is_complete = False
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.response_end()
