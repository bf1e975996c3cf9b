"""Reliable delivery over successive websockets: retransmit frames that were not acknowledged."""

from __future__ import annotations

from collections import deque

from .frames import Frame, FrameKind, Hello, ProtocolError, encode, encode_ack, encode_text
from .streams import Event, Streams

# No new stream frame is sent while the total size of the frames stored for retransmission is at
# least this limit.
MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024
ACK_EVERY_BYTES = 512 * 1024
ACK_EVERY_FRAMES = 64


class Goodbye(Exception):
    """The peer has closed the tunnel permanently; the message is its reason."""


class Link:
    """Counts stream frames, and stores unacknowledged frames for retransmission; no I/O."""

    def __init__(self, key: bytes, streams: Streams) -> None:
        self.key = key
        self.streams = streams
        self._received = 0
        self._bytes_since_ack = 0
        self._frames_since_ack = 0
        # Unacknowledged frames, the number of the first of them, and their total size.
        self._unacknowledged: deque[bytes] = deque()
        self._first_unacknowledged = 0
        self._unacknowledged_bytes = 0
        # The unacknowledged frames that remain to be retransmitted on this websocket.
        self._resend: deque[bytes] = deque()
        self._control: deque[bytes] = deque()

    def hello(self, *, is_resumed: bool) -> Hello:
        """Return the HELLO for a new websocket."""
        return Hello(self.key, is_resumed, self._received)

    def connected(self, received: int) -> None:
        """Start on a new websocket; the peer has received ``received`` stream frames so far.

        Raises
        ------
        ProtocolError
            If this endpoint has not sent that many frames, or the peer acknowledged more before.
        """
        self._control.clear()
        self._resend.clear()
        self._bytes_since_ack = self._frames_since_ack = 0
        self._acknowledge(received)
        self._resend = deque(self._unacknowledged)

    def restart(self) -> None:
        """Reset the state, because the peer has lost its state."""
        self._received = self._first_unacknowledged = self._unacknowledged_bytes = 0
        self._unacknowledged.clear()
        self._resend.clear()
        self._control.clear()
        self._bytes_since_ack = self._frames_since_ack = 0

    def ping(self) -> None:
        self._control.append(encode(FrameKind.PING))

    def bye(self, message: str) -> None:
        self._control.append(encode_text(FrameKind.BYE, 0, message))

    def receive(self, frame: Frame) -> Frame | None:
        """Process a frame of the websocket; return it if it belongs to a stream, else None.

        Raises
        ------
        ProtocolError
            If the frame is not allowed.
        Goodbye
            If the peer closes the tunnel.
        """
        match frame.kind:
            case FrameKind.PING:
                self._control.append(encode(FrameKind.PONG))
            case FrameKind.PONG:
                pass
            case FrameKind.ACK:
                self._acknowledge(frame.number)
            case FrameKind.BYE:
                raise Goodbye(frame.text)
            case FrameKind.HELLO:
                raise ProtocolError("unexpected second HELLO")
            case _:
                self._count(len(frame.payload))
                return frame
        return None

    def next_frame(self) -> tuple[bytes | None, Event | None]:
        """Return the next frame to send, if any, and the event that sending it causes locally."""
        if self._control:
            return self._control.popleft(), None
        if self._resend:
            return self._resend.popleft(), None
        if self._unacknowledged_bytes >= MAX_UNACKNOWLEDGED_BYTES:
            return None, None
        message, event = self.streams.next_frame()
        if message is not None:
            self._unacknowledged.append(message)
            self._unacknowledged_bytes += len(message)
        return message, event

    def _count(self, size: int) -> None:
        self._received += 1
        self._frames_since_ack += 1
        self._bytes_since_ack += size
        if self._bytes_since_ack >= ACK_EVERY_BYTES or self._frames_since_ack >= ACK_EVERY_FRAMES:
            self._bytes_since_ack = self._frames_since_ack = 0
            self._control.append(encode_ack(self._received))

    def _acknowledge(self, number: int) -> None:
        """Drop the frames that the peer has received; ``number``: how many it has received."""
        count = number - self._first_unacknowledged
        # Frames that have not been sent again yet do not count, because the peer cannot acknowledge
        # them.
        if not 0 <= count <= len(self._unacknowledged) - len(self._resend):
            raise ProtocolError(f"invalid ACK: the peer cannot have received {number} frames")
        for _ in range(count):
            self._unacknowledged_bytes -= len(self._unacknowledged.popleft())
        self._first_unacknowledged = number
