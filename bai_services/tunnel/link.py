"""One tunnel over successive websockets: frames lost with one are sent again on the next."""

from __future__ import annotations

from collections import deque

from .frames import Frame, FrameKind, Hello, ProtocolError, encode, encode_ack, encode_text
from .streams import Event, Streams

# Maximum bytes kept for retransmission.
MAX_KEPT_BYTES = 8 * 1024 * 1024
ACK_EVERY_BYTES = 512 * 1024
ACK_EVERY_FRAMES = 64


class Goodbye(Exception):
    """The other end has closed the tunnel for good, with a reason."""


class Link:
    """Numbers the frames of streams, and keeps those that are not acknowledged; no I/O."""

    def __init__(self, key: bytes, streams: Streams) -> None:
        self.key = key
        self.streams = streams
        self._received = 0
        self._unacked_bytes = 0
        self._unacked_frames = 0
        # Number of the oldest kept frame, the kept frames, and how many of them were sent on this
        # websocket.
        self._first_kept = 0
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._resend: deque[bytes] = deque()
        self._control: deque[bytes] = deque()

    def hello(self, *, is_resumed: bool) -> Hello:
        """Return the HELLO for a new websocket."""
        return Hello(self.key, is_resumed, self._received)

    def connected(self, received: int) -> None:
        """Start on a new websocket; the other end has received ``received`` frames so far.

        Raises
        ------
        ProtocolError
            If that number is impossible.
        """
        self._control.clear()
        self._resend.clear()
        self._unacked_bytes = self._unacked_frames = 0
        self._acknowledged(received)
        self._resend = deque(self._kept)

    def restart(self) -> None:
        """Start again with an end that has lost its state."""
        self._received = self._first_kept = self._kept_bytes = 0
        self._kept.clear()
        self._resend.clear()
        self._control.clear()
        self._unacked_bytes = self._unacked_frames = 0

    def ping(self) -> None:
        self._control.append(encode(FrameKind.PING))

    def bye(self, message: str) -> None:
        self._control.append(encode_text(FrameKind.BYE, 0, message))

    def receive(self, frame: Frame) -> Frame | None:
        """Return a frame that belongs to a stream, None for any other.

        Raises
        ------
        ProtocolError
            If the frame is not allowed.
        Goodbye
            If the other end closes the tunnel.
        """
        match frame.kind:
            case FrameKind.PING:
                self._control.append(encode(FrameKind.PONG))
            case FrameKind.PONG:
                pass
            case FrameKind.ACK:
                self._acknowledged(frame.number)
            case FrameKind.BYE:
                raise Goodbye(frame.text)
            case FrameKind.HELLO:
                raise ProtocolError("HELLO after the start")
            case _:
                self._count(len(frame.payload))
                return frame
        return None

    def next_frame(self) -> tuple[bytes | None, Event | None]:
        """Return the frame to send now, if any, and the event that sending it causes here."""
        if self._control:
            return self._control.popleft(), None
        if self._resend:
            return self._resend.popleft(), None
        if self._kept_bytes >= MAX_KEPT_BYTES:
            return None, None
        message, event = self.streams.next_frame()
        if message is not None:
            self._kept.append(message)
            self._kept_bytes += len(message)
        return message, event

    def _count(self, size: int) -> None:
        self._received += 1
        self._unacked_frames += 1
        self._unacked_bytes += size
        if self._unacked_bytes >= ACK_EVERY_BYTES or self._unacked_frames >= ACK_EVERY_FRAMES:
            self._unacked_bytes = self._unacked_frames = 0
            self._control.append(encode_ack(self._received))

    def _acknowledged(self, number: int) -> None:
        count = number - self._first_kept
        # A frame that is sent again cannot have arrived on this websocket yet.
        if not 0 <= count <= len(self._kept) - len(self._resend):
            raise ProtocolError(f"{number} frames acknowledged that were not sent")
        for _ in range(count):
            self._kept_bytes -= len(self._kept.popleft())
        self._first_kept = number
