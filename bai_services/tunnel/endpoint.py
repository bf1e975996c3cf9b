"""Endpoint of a tunnel: local sockets on one side, successive websockets on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from .frames import decode, encode_hello
from .link import Link
from .request_rewriter import RequestRejected, RequestRewriter
from .streams import Data, Event, Finished, Opened, Reset, Streams, Writable

# Keepalive interval: shorter than the idle timeout of common proxies.
PING_SECONDS = 25.0
# Time without a message after which a websocket is considered lost.
SILENCE_SECONDS = 70.0

Connect = Callable[["Stream", str], Awaitable[None]]


class Wire(Protocol):
    """A websocket; ``send`` waits while the peer does not read (back-pressure)."""

    async def send(self, message: bytes) -> None: ...

    def close(self) -> None: ...


class Stream(asyncio.Protocol):
    """asyncio protocol of the local socket behind one tunnel stream.

    ``number`` is 0 until the endpoint has opened the stream.
    """

    def __init__(self, endpoint: TunnelEndpoint, target: str) -> None:
        self.number = 0
        self.target = target
        # Rewrites the HTTP requests that the peer sends; None: the data are passed on unchanged.
        self.requests: RequestRewriter | None = None
        # Called with the number of bytes transferred in either direction, to track activity.
        self.on_bytes: Callable[[int], None] | None = None
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._early_events: list[Data | Finished] = []
        self._is_write_paused = False
        self._unconsumed = 0
        self._has_finished = self._has_peer_finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self.number:
            self._endpoint.open(self)
        if self.number not in self._endpoint.link.streams:
            transport.abort()  # too many streams, or already reset
            return
        early, self._early_events = self._early_events, []
        for event in early:
            self.handle(event)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        if self.on_bytes is not None:
            self.on_bytes(len(data))
        self._endpoint.link.streams.send(self.number, data)
        self._endpoint.wake()

    def eof_received(self) -> bool:
        self._has_finished = True
        self._endpoint.link.streams.finish(self.number)
        self._endpoint.wake()
        # Half-close: the socket stays open until the other direction also ends.
        return not self._has_peer_finished

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self._has_finished and self._has_peer_finished:
            # Do not reset the stream: its last data may still be in transit.
            self._endpoint.remove_stream(self)
        else:
            self._endpoint.reset_stream(self, "" if error is None else str(error))

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        count, self._unconsumed = self._unconsumed, 0
        self._endpoint.consumed(self.number, count)

    def handle(self, event: Event) -> None:
        """Apply an event of the tunnel to the local socket."""
        transport = self._transport
        if isinstance(event, Reset):
            if transport is not None:
                transport.abort()
        elif isinstance(event, Writable):
            if transport is not None and not transport.is_closing():
                transport.resume_reading()
        elif transport is None:
            assert isinstance(event, Data | Finished)
            self._early_events.append(event)  # at most the initial window
        elif isinstance(event, Finished):
            self._has_peer_finished = True
            if self._has_finished:
                transport.close()
            elif not transport.is_closing():
                transport.write_eof()
        elif isinstance(event, Data):
            self._write(transport, event.content)
            if self._is_write_paused:
                self._unconsumed += len(event.content)
            else:
                self._endpoint.consumed(self.number, len(event.content))

    def refuse(self, message: str) -> None:
        """Reset the stream because there is no local connection; ``message`` is the reason."""
        self._endpoint.reset_stream(self, message)

    def _write(self, transport: asyncio.Transport, content: memoryview) -> None:
        if self.on_bytes is not None:
            self.on_bytes(len(content))
        if self.requests is None:
            transport.write(content)
            return
        try:
            for data in self.requests.feed(content):
                transport.write(data)
        except RequestRejected as rejected:
            self._endpoint.send_response(self.number, rejected.response)
            # The response is complete; discard further input.
            self._has_finished = self._has_peer_finished = True
            transport.abort()


class TunnelEndpoint:
    """An endpoint. Call ``run`` for each successive websocket, and finally ``close``.

    ``connect`` makes the local connection of a stream that the peer has opened; a client passes
    None. ``on_failure`` is called with the reason if a stream fails.
    """

    def __init__(
        self,
        key: bytes,
        connect: Connect | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self.link = Link(key, Streams(is_client=connect is None))
        self._connect = connect
        self._on_failure = on_failure
        self._streams: dict[int, Stream] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._work_available = asyncio.Event()
        self._received_at = 0.0
        self.is_closed = False

    def open(self, stream: Stream) -> None:
        """Open a stream for a local connection.

        The number of the stream stays 0 if there are too many streams or the endpoint is closed.
        """
        number = None if self.is_closed else self.link.streams.open(stream.target)
        if number is not None:
            stream.number = number
            self._streams[number] = stream
            self.wake()
        elif self._on_failure is not None and not self.is_closed:
            self._on_failure(self.link.streams.too_many_streams_message)

    def reset_stream(self, stream: Stream, message: str) -> None:
        """Reset a stream because its local connection failed or was lost."""
        self.link.streams.reset(stream.number, message)
        self.remove_stream(stream)
        self.wake()

    def remove_stream(self, stream: Stream) -> None:
        """Remove a stream whose local connection has closed."""
        self._streams.pop(stream.number, None)

    def send_response(self, number: int, content: bytes) -> None:
        """Send a response to the peer on the stream ``number``, and half-close the stream.

        The caller closes the local connection of the stream.
        """
        self.link.streams.send(number, content)
        self.link.streams.finish(number)
        self.wake()

    def consumed(self, number: int, count: int) -> None:
        """Record that the local socket has accepted ``count`` bytes."""
        self.link.streams.consume(number, count)
        self.wake()

    def wake(self) -> None:
        """Make ``run`` send the frames that are due."""
        self._work_available.set()

    def hello(self, *, is_resumed: bool) -> bytes:
        """Return the first message for a new websocket."""
        return encode_hello(self.link.hello(is_resumed=is_resumed))

    async def run(self, wire: Wire, received: int) -> None:
        """Send frames over ``wire`` until it fails or the endpoint is closed.

        The peer has received ``received`` frames. The caller passes incoming messages to
        ``receive``.
        """
        self.link.connected(received)
        loop = asyncio.get_running_loop()
        self._received_at = loop.time()
        keepalive = loop.create_task(self._keep_alive(wire))
        try:
            while not self.is_closed:
                self._work_available.clear()
                while await self._send_next(wire):
                    pass
                await self._work_available.wait()
        finally:
            keepalive.cancel()

    def receive(self, message: bytes) -> None:
        """Process a message of the websocket.

        Raises
        ------
        ProtocolError
            If the message is invalid.
        Goodbye
            If the peer has closed the tunnel.
        """
        self._received_at = asyncio.get_running_loop().time()
        frame = self.link.receive(decode(message))
        if frame is not None:
            for event in self.link.streams.receive(frame):
                self._handle(event)
        self.wake()

    def reset_all(self, message: str) -> None:
        """End all streams locally, for example because the peer no longer has them."""
        for reset in self.link.streams.end_all(message):
            self._handle(reset)
        self.link.restart()

    def close(self) -> None:
        """End the tunnel and all its streams locally."""
        self.is_closed = True
        for task in self._connecting:
            task.cancel()
        self.reset_all("")
        self.wake()

    async def _send_next(self, wire: Wire) -> bool:
        message, event = self.link.next_frame()
        if message is None:
            return False
        try:
            await wire.send(message)
        finally:
            # Handle the event even if the send failed: the link retransmits the frame on the next
            # websocket.
            if event is not None:
                self._handle(event)
        return True

    async def _keep_alive(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PING_SECONDS)
            if loop.time() - self._received_at > SILENCE_SECONDS:
                wire.close()
                return
            self.link.ping()
            self.wake()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Opened):
            stream = self._streams[event.stream] = Stream(self, event.target)
            stream.number = event.stream
            assert self._connect is not None
            task = asyncio.ensure_future(self._connect(stream, event.target))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
            return
        known = self._streams.get(event.stream)
        if known is None:
            return
        if isinstance(event, Reset):
            del self._streams[event.stream]
            if event.message and self._on_failure is not None:
                self._on_failure(event.message)
        known.handle(event)
