"""Streams of a tunnel: flow control by credit, half-close, resets, round-robin order; no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .frames import (
    MAX_DATA_BYTES,
    MAX_TEXT_BYTES,
    Frame,
    FrameKind,
    ProtocolError,
    encode,
    encode_credit,
    encode_text,
)

# Initial window: bytes that an endpoint may send before it receives credit.
FIRST_WINDOW_BYTES = 64 * 1024
MAX_WINDOW_BYTES = 4 * 1024 * 1024
# Limit on the total growth of all windows: the maximum memory used by streams whose receivers hang.
GROWTH_BYTES = 32 * 1024 * 1024
MAX_STREAMS = 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a stream to ``target``."""

    stream: int
    target: str


@dataclass(frozen=True, slots=True)
class Data:
    stream: int
    content: memoryview


@dataclass(frozen=True, slots=True)
class Finished:
    """The peer sends no more data; this endpoint still may (half-close)."""

    stream: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream has ended in both directions; ``message`` is the reason, if known."""

    stream: int
    message: str


@dataclass(frozen=True, slots=True)
class Writable:
    """All data passed to ``send`` were sent: the local socket may be read again."""

    stream: int


Event = Opened | Data | Finished | Reset | Writable


@dataclass(slots=True)
class _Stream:
    # Sending: bytes that may be sent, data to send, whether FINISH is due or was sent.
    credit: int = FIRST_WINDOW_BYTES
    pending: deque[memoryview] = field(default_factory=deque)
    is_finishing: bool = False
    has_finished: bool = False
    # Receiving: window size, bytes that the peer may still send, bytes consumed since the last
    # CREDIT, whether the peer sent FINISH.
    window: int = FIRST_WINDOW_BYTES
    granted: int = FIRST_WINDOW_BYTES
    consumed: int = 0
    has_peer_finished: bool = False


class Streams:
    """The streams of one endpoint. Only the client opens streams."""

    def __init__(self, *, is_client: bool, max_streams: int = MAX_STREAMS) -> None:
        self._is_client = is_client
        self._max_streams = max_streams
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        # Sum over all streams of the window size beyond the initial window.
        self._growth = 0
        self._control: deque[bytes] = deque()
        # Streams with data and credit, in round-robin order.
        self._ready: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, stream: int) -> bool:
        return stream in self._streams

    @property
    def too_many_streams_message(self) -> str:
        return f"a tunnel has at most {self._max_streams} streams; close some"

    def open(self, target: str) -> int | None:
        """Open a stream to ``target``; return its number, None if there are too many."""
        if len(self._streams) >= self._max_streams:
            return None
        self._last += 1
        self._streams[self._last] = _Stream()
        self._control.append(encode_text(FrameKind.OPEN, self._last, target))
        return self._last

    def send(self, stream: int, content: bytes) -> None:
        """Send data on a stream; the caller waits for ``Writable`` before sending more."""
        found = self._streams.get(stream)
        if found is not None and not found.is_finishing:
            found.pending.append(memoryview(content))
            self._queue(stream, found)

    def finish(self, stream: int) -> None:
        """Half-close a stream after the data passed to ``send`` so far."""
        found = self._streams.get(stream)
        if found is not None:
            found.is_finishing = True
            self._queue(stream, found)

    def reset(self, stream: int, message: str = "") -> None:
        """End a stream in both directions; discard unsent data."""
        if stream in self._streams:
            self._control.append(encode_text(FrameKind.RESET, stream, message))
            self._remove(stream)

    def consume(self, stream: int, count: int) -> None:
        """Record that ``count`` received bytes were consumed; grant credit to the peer."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.consumed += count
        if found.has_peer_finished or found.consumed * 2 < found.window:
            return
        grant = found.consumed
        # The peer has used at least three quarters of its window: the window limits this stream, so
        # grow it.
        if found.granted * 4 <= found.window < MAX_WINDOW_BYTES:
            growth = min(found.window, GROWTH_BYTES - self._growth)
            self._growth += growth
            found.window += growth
            grant += growth
        found.consumed = 0
        found.granted += grant
        self._control.append(encode_credit(stream, grant))

    def receive(self, frame: Frame) -> Sequence[Event]:
        """Process a frame of the peer; return its events.

        Raises
        ------
        ProtocolError
            If the frame is not allowed.
        """
        if frame.kind is FrameKind.OPEN:
            return self._opened(frame)
        if frame.stream > self._last:
            raise ProtocolError(f"{frame.kind.name} for unopened stream {frame.stream}")
        found = self._streams.get(frame.stream)
        if found is None:
            return ()  # the peer sent this before it received the RESET or FINISH of this endpoint
        match frame.kind:
            case FrameKind.DATA:
                return self._data(frame, found)
            case FrameKind.CREDIT:
                found.credit += frame.count
                self._queue(frame.stream, found)
                return ()
            case FrameKind.FINISH:
                if found.has_peer_finished:
                    raise ProtocolError(f"second FINISH for stream {frame.stream}")
                found.has_peer_finished = True
                self._remove_if_finished(frame.stream, found)
                return (Finished(frame.stream),)
            case FrameKind.RESET:
                self._remove(frame.stream)
                return (Reset(frame.stream, frame.text),)
            case _:
                raise ProtocolError(f"{frame.kind.name} is not a frame of a stream")

    def next_frame(self) -> tuple[bytes | None, Event | None]:
        """Return the next frame to send, if any, and the event that sending it causes locally.

        Streams take turns (round-robin).
        """
        if self._control:
            return self._control.popleft(), None
        if not self._ready:
            return None, None
        stream, _ = self._ready.popitem(last=False)
        found = self._streams[stream]
        if not found.pending:
            found.has_finished = True
            self._remove_if_finished(stream, found)
            return encode(FrameKind.FINISH, stream), None
        data = found.pending[0]
        max_bytes = min(found.credit, MAX_DATA_BYTES)
        if len(data) > max_bytes:
            found.pending[0] = data[max_bytes:]
            data = data[:max_bytes]
        else:
            found.pending.popleft()
        found.credit -= len(data)
        self._queue(stream, found)
        is_writable = not found.pending and not found.is_finishing
        return encode(FrameKind.DATA, stream, data), Writable(stream) if is_writable else None

    def end_all(self, message: str) -> list[Reset]:
        """Remove all streams because the peer has lost them; return a ``Reset`` for each."""
        ended = [Reset(stream, message) for stream in self._streams]
        for reset in ended:
            self._remove(reset.stream)
        self._control.clear()
        return ended

    def _opened(self, frame: Frame) -> Sequence[Event]:
        if self._is_client:
            raise ProtocolError("OPEN from the server")
        if frame.stream <= self._last or len(frame.payload) > MAX_TEXT_BYTES:
            raise ProtocolError(f"invalid OPEN for stream {frame.stream}")
        self._last = frame.stream
        if len(self._streams) >= self._max_streams:
            message = self.too_many_streams_message
            self._control.append(encode_text(FrameKind.RESET, frame.stream, message))
            return ()
        self._streams[frame.stream] = _Stream()
        return (Opened(frame.stream, frame.text),)

    def _data(self, frame: Frame, found: _Stream) -> Sequence[Event]:
        count = len(frame.payload)
        if found.has_peer_finished or count > found.granted:
            raise ProtocolError(f"DATA for stream {frame.stream} after FINISH or beyond its credit")
        found.granted -= count
        return (Data(frame.stream, frame.payload),)

    def _queue(self, stream: int, found: _Stream) -> None:
        can_send = found.credit > 0 if found.pending else found.is_finishing
        if can_send and not found.has_finished:
            self._ready.setdefault(stream)

    def _remove_if_finished(self, stream: int, found: _Stream) -> None:
        if found.has_finished and found.has_peer_finished:
            self._remove(stream)

    def _remove(self, stream: int) -> None:
        found = self._streams.pop(stream)
        self._growth -= found.window - FIRST_WINDOW_BYTES
        self._ready.pop(stream, None)
