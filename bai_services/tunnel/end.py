"""One end of a tunnel in an event loop: sockets on one side, successive websockets on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from .frames import decode, encode_hello
from .heads import Refused, RequestHeads
from .link import Link
from .streams import Data, Event, Finished, Opened, Reset, Streams, Writable

# Keep-alive interval: shorter than the idle timeout of usual proxies.
PING_SECONDS = 25.0
SILENCE_SECONDS = 70.0

Connect = Callable[["Stream", str], Awaitable[None]]


class Wire(Protocol):
    """A websocket: sends one message, and blocks while the other end does not read
    (back-pressure).
    """

    async def send(self, message: bytes) -> None: ...

    def close(self) -> None: ...


class Stream(asyncio.Protocol):
    """A stream of a tunnel as the protocol of a local socket."""

    def __init__(self, end: End, target: str) -> None:
        self.number = 0
        self.target = target
        # Set where the data from the other end are a browser's requests.
        self.requests: RequestHeads | None = None
        # Called with the bytes in either direction, to track activity.
        self.on_bytes: Callable[[int], None] | None = None
        self._end = end
        self._transport: asyncio.Transport | None = None
        self._early: list[Data | Finished] = []
        self._is_write_paused = False
        self._unconsumed = 0
        self._is_finished_here = self._is_finished_there = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self.number:
            self._end.open(self)
        if self.number not in self._end.link.streams:
            transport.abort()  # refused or ended meanwhile
            return
        early, self._early = self._early, []
        for event in early:
            self.handle(event)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        if self.on_bytes is not None:
            self.on_bytes(len(data))
        self._end.link.streams.send(self.number, data)
        self._end.wake()

    def eof_received(self) -> bool:
        self._is_finished_here = True
        self._end.link.streams.finish(self.number)
        self._end.wake()
        # Half-close: the socket is closed when the other direction ends, too.
        return not self._is_finished_there

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self._is_finished_here and self._is_finished_there:
            self._end.forget(self)  # its last data may still be in transit
        else:
            self._end.gone(self, "" if error is None else str(error))

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        count, self._unconsumed = self._unconsumed, 0
        self._end.consumed(self.number, count)

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
            self._early.append(event)  # at most the first window
        elif isinstance(event, Finished):
            self._is_finished_there = True
            if self._is_finished_here:
                transport.close()
            elif not transport.is_closing():
                transport.write_eof()
        elif isinstance(event, Data):
            self._write(transport, event.content)
            if self._is_write_paused:
                self._unconsumed += len(event.content)
            else:
                self._end.consumed(self.number, len(event.content))

    def refuse(self, message: str) -> None:
        """Tell the other end that there is no connection."""
        self._end.gone(self, message)

    def _write(self, transport: asyncio.Transport, content: memoryview) -> None:
        if self.on_bytes is not None:
            self.on_bytes(len(content))
        if self.requests is None:
            transport.write(content)
            return
        try:
            for piece in self.requests.feed(content):
                transport.write(piece)
        except Refused as refused:
            self._end.answer(self.number, refused.answer)
            # Nothing more to send, and received data have no receiver.
            self._is_finished_here = self._is_finished_there = True
            transport.abort()


class End:
    """One end. Pass it a websocket with ``run``, again after each loss, and finally call ``close``.

    ``connect`` makes the local connection of a stream opened by the other end; ``on_reset`` is
    called with the reason when a stream of this end fails.
    """

    def __init__(
        self,
        key: bytes,
        connect: Connect | None = None,
        on_reset: Callable[[str], None] | None = None,
    ) -> None:
        self.link = Link(key, Streams(is_client=connect is None))
        self._connect = connect
        self._on_reset = on_reset
        self._streams: dict[int, Stream] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._received_at = 0.0
        self.is_closed = False

    def open(self, stream: Stream) -> None:
        """Open a stream for a local connection; its number stays 0 if there are too many."""
        number = None if self.is_closed else self.link.streams.open(stream.target)
        if number is not None:
            stream.number = number
            self._streams[number] = stream
            self.wake()
        elif self._on_reset is not None and not self.is_closed:
            self._on_reset(self.link.streams.limit)

    def gone(self, stream: Stream, message: str) -> None:
        """Note that the local connection of a stream broke."""
        self.link.streams.reset(stream.number, message)
        self.forget(stream)
        self.wake()

    def forget(self, stream: Stream) -> None:
        """Note that the local connection of a stream has ended."""
        self._streams.pop(stream.number, None)

    def answer(self, number: int, content: bytes) -> None:
        """Send a final answer instead of a local connection."""
        self.link.streams.send(number, content)
        self.link.streams.finish(number)
        self.wake()

    def consumed(self, number: int, count: int) -> None:
        self.link.streams.consume(number, count)
        self.wake()

    def wake(self) -> None:
        self._news.set()

    def hello(self, *, is_resumed: bool) -> bytes:
        """Return the first message for a new websocket."""
        return encode_hello(self.link.hello(is_resumed=is_resumed))

    async def run(self, wire: Wire, received: int) -> None:
        """Send over ``wire`` until it breaks or falls silent; ``received`` frames have arrived
        there.

        Messages from there are passed to ``receive``.
        """
        self.link.connected(received)
        loop = asyncio.get_running_loop()
        self._received_at = loop.time()
        keeping = loop.create_task(self._keep_alive(wire))
        try:
            while not self.is_closed:
                self._news.clear()
                while await self._send_next(wire):
                    pass
                await self._news.wait()
        finally:
            keeping.cancel()

    def receive(self, message: bytes) -> None:
        """Process a message of the websocket.

        Raises
        ------
        ProtocolError
            If the message is invalid.
        Goodbye
            If the other end has closed the tunnel.
        """
        self._received_at = asyncio.get_running_loop().time()
        frame = self.link.receive(decode(message))
        if frame is not None:
            for event in self.link.streams.receive(frame):
                self._handle(event)
        self.wake()

    def reset_all(self, message: str) -> None:
        """End all streams, which the other end no longer knows."""
        for reset in self.link.streams.end_all(message):
            self._handle(reset)
        self.link.restart()

    def close(self) -> None:
        """End everything on this side."""
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
            # Also after a loss: the link keeps the frame.
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
        found = self._streams.get(event.stream)
        if found is None:
            return
        if isinstance(event, Reset):
            del self._streams[event.stream]
            if event.message and self._on_reset is not None:
                self._on_reset(event.message)
        found.handle(event)
