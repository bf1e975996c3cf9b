"""Streams of a tunnel: credit, half-close, resets, fairness. Events in, frames out; no I/O."""

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

# Initial window: bytes that either end may send before it receives credit.
FIRST_WINDOW_BYTES = 64 * 1024
MAX_WINDOW_BYTES = 4 * 1024 * 1024
# Limit on the total growth of all windows: the maximum memory used by streams whose receivers hang.
GROWTH_BYTES = 32 * 1024 * 1024
MAX_STREAMS = 1024


@dataclass(frozen=True, slots=True)
class Opened:
    """The other end opens a stream to ``target``."""

    stream: int
    target: str


@dataclass(frozen=True, slots=True)
class Data:
    stream: int
    content: memoryview


@dataclass(frozen=True, slots=True)
class Finished:
    """The other end sends no more; this end still may."""

    stream: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream has ended in both directions; the message has the reason, if known."""

    stream: int
    message: str


@dataclass(frozen=True, slots=True)
class Writable:
    """All data given to ``send`` have been sent."""

    stream: int


Event = Opened | Data | Finished | Reset | Writable


@dataclass(slots=True)
class _Stream:
    credit: int = FIRST_WINDOW_BYTES
    waiting: deque[memoryview] = field(default_factory=deque)
    is_finishing: bool = False
    has_finished: bool = False
    window: int = FIRST_WINDOW_BYTES
    # What the other end may still send, and what was consumed since the last CREDIT.
    granted: int = FIRST_WINDOW_BYTES
    consumed: int = 0
    is_finished_there: bool = False


class Streams:
    """One end's streams. Only the client opens streams."""

    def __init__(self, *, is_client: bool, most_streams: int = MAX_STREAMS) -> None:
        self._is_client = is_client
        self._most = most_streams
        self._streams: dict[int, _Stream] = {}
        self._last = 0
        self._growth = 0
        self._control: deque[bytes] = deque()
        # Streams with data and credit, in round-robin order.
        self._turns: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, stream: int) -> bool:
        return stream in self._streams

    @property
    def limit(self) -> str:
        """Return the message for too many streams."""
        return f"a tunnel has at most {self._most} streams; close some"

    def open(self, target: str) -> int | None:
        """Return a new stream to ``target``; None if there are too many."""
        if len(self._streams) >= self._most:
            return None
        self._last += 1
        self._streams[self._last] = _Stream()
        self._control.append(encode_text(FrameKind.OPEN, self._last, target))
        return self._last

    def send(self, stream: int, content: bytes) -> None:
        """Send data on a stream; the caller waits for ``Writable`` before sending more."""
        found = self._streams.get(stream)
        if found is not None and not found.is_finishing:
            found.waiting.append(memoryview(content))
            self._queue(stream, found)

    def finish(self, stream: int) -> None:
        """Send no more after the data given so far."""
        found = self._streams.get(stream)
        if found is not None:
            found.is_finishing = True
            self._queue(stream, found)

    def reset(self, stream: int, message: str = "") -> None:
        """End a stream in both directions; unsent data are dropped."""
        if stream in self._streams:
            self._control.append(encode_text(FrameKind.RESET, stream, message))
            self._forget(stream)

    def consume(self, stream: int, count: int) -> None:
        """Note that ``count`` received bytes were passed on, so the other end may send more."""
        found = self._streams.get(stream)
        if found is None:
            return
        found.consumed += count
        if found.is_finished_there or found.consumed * 2 < found.window:
            return
        grant = found.consumed
        # Nearly all credit was used before more was granted: the window limits this stream, so grow
        # it.
        if found.granted * 4 <= found.window < MAX_WINDOW_BYTES:
            growth = min(found.window, GROWTH_BYTES - self._growth)
            self._growth += growth
            found.window += growth
            grant += growth
        found.consumed = 0
        found.granted += grant
        self._control.append(encode_credit(stream, grant))

    def receive(self, frame: Frame) -> Sequence[Event]:
        """Return the events of a frame of the other end.

        Raises
        ------
        ProtocolError
            If it is not allowed.
        """
        if frame.kind is FrameKind.OPEN:
            return self._opened(frame)
        if frame.stream > self._last:
            raise ProtocolError(f"{frame.kind.name} for stream {frame.stream}, never opened")
        found = self._streams.get(frame.stream)
        if found is None:
            return ()  # sent before the end of the stream was known there
        match frame.kind:
            case FrameKind.DATA:
                return self._data(frame, found)
            case FrameKind.CREDIT:
                found.credit += frame.count
                self._queue(frame.stream, found)
                return ()
            case FrameKind.FINISH:
                if found.is_finished_there:
                    raise ProtocolError(f"stream {frame.stream} finished twice")
                found.is_finished_there = True
                self._forget_if_over(frame.stream, found)
                return (Finished(frame.stream),)
            case FrameKind.RESET:
                self._forget(frame.stream)
                return (Reset(frame.stream, frame.text),)
            case _:
                raise ProtocolError(f"{frame.kind.name} does not belong to a stream")

    def next_frame(self) -> tuple[bytes | None, Event | None]:
        """Return the frame to send now and the event that sending it causes; round-robin over
        streams.
        """
        if self._control:
            return self._control.popleft(), None
        if not self._turns:
            return None, None
        stream, _ = self._turns.popitem(last=False)
        found = self._streams[stream]
        if not found.waiting:
            found.has_finished = True
            self._forget_if_over(stream, found)
            return encode(FrameKind.FINISH, stream), None
        piece = found.waiting[0]
        most = min(found.credit, MAX_DATA_BYTES)
        if len(piece) > most:
            found.waiting[0] = piece[most:]
            piece = piece[:most]
        else:
            found.waiting.popleft()
        found.credit -= len(piece)
        self._queue(stream, found)
        is_writable = not found.waiting and not found.is_finishing
        return encode(FrameKind.DATA, stream, piece), Writable(stream) if is_writable else None

    def end_all(self, message: str) -> list[Reset]:
        """Remove every stream, after the loss of the other end, and return them."""
        ended = [Reset(stream, message) for stream in self._streams]
        for reset in ended:
            self._forget(reset.stream)
        self._control.clear()
        return ended

    def _opened(self, frame: Frame) -> Sequence[Event]:
        if self._is_client:
            raise ProtocolError("the server opens no streams")
        if frame.stream <= self._last or len(frame.payload) > MAX_TEXT_BYTES:
            raise ProtocolError(f"stream {frame.stream} cannot be opened")
        self._last = frame.stream
        if len(self._streams) >= self._most:
            self._control.append(encode_text(FrameKind.RESET, frame.stream, self.limit))
            return ()
        self._streams[frame.stream] = _Stream()
        return (Opened(frame.stream, frame.text),)

    def _data(self, frame: Frame, found: _Stream) -> Sequence[Event]:
        count = len(frame.payload)
        if found.is_finished_there or count > found.granted:
            raise ProtocolError(f"data for stream {frame.stream} beyond its end or its credit")
        found.granted -= count
        return (Data(frame.stream, frame.payload),)

    def _queue(self, stream: int, found: _Stream) -> None:
        can_send = found.credit > 0 if found.waiting else found.is_finishing
        if can_send and not found.has_finished:
            self._turns.setdefault(stream)

    def _forget_if_over(self, stream: int, found: _Stream) -> None:
        if found.has_finished and found.is_finished_there:
            self._forget(stream)

    def _forget(self, stream: int) -> None:
        found = self._streams.pop(stream)
        self._growth -= found.window - FIRST_WINDOW_BYTES
        self._turns.pop(stream, None)
