"""Reliable delivery over successive websockets: retransmit frames that were not acknowledged."""

from __future__ import annotations

from collections import deque

from .frames import Frame, FrameKind, Hello, ProtocolError, encode, encode_ack, encode_text
from .streams import Event, Streams

# Maximum bytes kept for retransmission.
MAX_KEPT_BYTES = 8 * 1024 * 1024
ACK_EVERY_BYTES = 512 * 1024
ACK_EVERY_FRAMES = 64


class Goodbye(Exception):
    """The peer has closed the tunnel permanently; the message is its reason."""


class Link:
    """Number the stream frames, and keep unacknowledged frames for retransmission; no I/O."""

    def __init__(self, key: bytes, streams: Streams) -> None:
        self.key = key
        self.streams = streams
        self._received = 0
        self._unacked_bytes = 0
        self._unacked_frames = 0
        # Unacknowledged frames, the number of the first of them, and their total size.
        self._kept: deque[bytes] = deque()
        self._first_kept = 0
        self._kept_bytes = 0
        # Those of them that are still to be sent again on this websocket.
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
            If ``received`` is impossible.
        """
        self._control.clear()
        self._resend.clear()
        self._unacked_bytes = self._unacked_frames = 0
        self._acknowledge(received)
        self._resend = deque(self._kept)

    def restart(self) -> None:
        """Reset the state, for a peer that has lost its own."""
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
        """Process a frame of the websocket; return a frame of a stream, None for any other.

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

    def _acknowledge(self, number: int) -> None:
        """Drop the kept frames up to the frame count ``number``."""
        count = number - self._first_kept
        # The peer cannot acknowledge a frame that is still to be sent again.
        if not 0 <= count <= len(self._kept) - len(self._resend):
            raise ProtocolError(f"ACK of {number} frames, of which some were not sent")
        for _ in range(count):
            self._kept_bytes -= len(self._kept.popleft())
        self._first_kept = number
