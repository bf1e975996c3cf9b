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
# Limit on the total growth of all windows beyond their initial size. It bounds the memory used by
# streams whose receivers hang.
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
    """The peer sends no more data; this endpoint may still send data (half-close)."""

    stream: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream has ended in both directions; ``message`` is the reason, if known."""

    stream: int
    message: str


@dataclass(frozen=True, slots=True)
class Writable:
    """All data passed to ``send`` has been sent: reading from the local socket can resume."""

    stream: int


Event = Opened | Data | Finished | Reset | Writable


@dataclass(slots=True)
class _Stream:
    # Sending.
    credit: int = FIRST_WINDOW_BYTES  # bytes that may be sent now
    pending: deque[memoryview] = field(default_factory=deque)  # data to send
    is_finishing: bool = False  # FINISH must be sent after the pending data
    has_finished: bool = False  # FINISH was sent
    # Receiving.
    window: int = FIRST_WINDOW_BYTES  # size of the window in bytes
    granted: int = FIRST_WINDOW_BYTES  # bytes that the peer may still send
    consumed: int = 0  # bytes consumed since the last CREDIT
    has_peer_finished: bool = False  # the peer sent FINISH


class Streams:
    """The streams of one endpoint. Only the client opens streams."""

    def __init__(self, *, is_client: bool, max_streams: int = MAX_STREAMS) -> None:
        self._is_client = is_client
        self._max_streams = max_streams
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        # Total growth of the windows of all streams beyond their initial size, in bytes.
        self._growth = 0
        self._control: deque[bytes] = deque()
        # Streams that can send data or FINISH now, in round-robin order.
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
        state = self._streams.get(stream)
        if state is not None and not state.is_finishing:
            state.pending.append(memoryview(content))
            self._queue(stream, state)

    def finish(self, stream: int) -> None:
        """Half-close a stream after the data passed to ``send`` so far."""
        state = self._streams.get(stream)
        if state is not None:
            state.is_finishing = True
            self._queue(stream, state)

    def reset(self, stream: int, message: str = "") -> None:
        """End a stream in both directions; discard unsent data."""
        if stream in self._streams:
            self._control.append(encode_text(FrameKind.RESET, stream, message))
            self._remove(stream)

    def consume(self, stream: int, count: int) -> None:
        """Record that ``count`` received bytes were consumed.

        Grant credit to the peer when at least half of the window is consumed.
        """
        state = self._streams.get(stream)
        if state is None:
            return
        state.consumed += count
        if state.has_peer_finished or state.consumed * 2 < state.window:
            return
        grant = state.consumed
        # The peer has used at least three quarters of its window: the window limits this stream, so
        # grow it.
        if state.granted * 4 <= state.window < MAX_WINDOW_BYTES:
            growth = min(state.window, GROWTH_BYTES - self._growth)
            self._growth += growth
            state.window += growth
            grant += growth
        state.consumed = 0
        state.granted += grant
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
        state = self._streams.get(frame.stream)
        if state is None:
            return ()  # the peer sent this before it received the RESET or FINISH of this endpoint
        match frame.kind:
            case FrameKind.DATA:
                return self._data(frame, state)
            case FrameKind.CREDIT:
                state.credit += frame.count
                self._queue(frame.stream, state)
                return ()
            case FrameKind.FINISH:
                if state.has_peer_finished:
                    raise ProtocolError(f"second FINISH for stream {frame.stream}")
                state.has_peer_finished = True
                self._remove_if_finished(frame.stream, state)
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
        state = self._streams[stream]
        if not state.pending:
            state.has_finished = True
            self._remove_if_finished(stream, state)
            return encode(FrameKind.FINISH, stream), None
        data = state.pending[0]
        max_bytes = min(state.credit, MAX_DATA_BYTES)
        if len(data) > max_bytes:
            state.pending[0] = data[max_bytes:]
            data = data[:max_bytes]
        else:
            state.pending.popleft()
        state.credit -= len(data)
        self._queue(stream, state)
        is_writable = not state.pending and not state.is_finishing
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

    def _data(self, frame: Frame, state: _Stream) -> Sequence[Event]:
        count = len(frame.payload)
        if state.has_peer_finished or count > state.granted:
            raise ProtocolError(f"DATA for stream {frame.stream} after FINISH or beyond its credit")
        state.granted -= count
        return (Data(frame.stream, frame.payload),)

    def _queue(self, stream: int, state: _Stream) -> None:
        can_send = state.credit > 0 if state.pending else state.is_finishing
        if can_send and not state.has_finished:
            self._ready.setdefault(stream)

    def _remove_if_finished(self, stream: int, state: _Stream) -> None:
        if state.has_finished and state.has_peer_finished:
            self._remove(stream)

    def _remove(self, stream: int) -> None:
        state = self._streams.pop(stream)
        self._growth -= state.window - FIRST_WINDOW_BYTES
        self._ready.pop(stream, None)
