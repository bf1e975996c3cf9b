"""Both endpoints of a tunnel: reconnects, flow control, limits and invalid frames."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.tunnel import streams as limits
from bai_services.tunnel.frames import (
    MAX_DATA_BYTES,
    Frame,
    FrameKind,
    Hello,
    ProtocolError,
    decode,
    decode_hello,
    encode,
    encode_ack,
    encode_credit,
    encode_hello,
    encode_text,
)
from bai_services.tunnel.link import MAX_UNACKNOWLEDGED_BYTES, Goodbye, Link
from bai_services.tunnel.streams import Data, Finished, Opened, Reset, Streams

KEY = b"k" * 16
FIRST = limits.FIRST_WINDOW_BYTES


class Endpoint:
    """One endpoint, which records the data and the end of each stream."""

    def __init__(self, *, is_client: bool) -> None:
        self.link = Link(KEY, Streams(is_client=is_client))
        self.sent: defaultdict[int, bytes] = defaultdict(bytes)
        self.got: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.ends: list[tuple[int, str]] = []
        self.wire: deque[bytes] = deque()

    @property
    def streams(self) -> Streams:
        return self.link.streams

    def send_frame(self) -> bool:
        """Send one frame; return False if there is none."""
        message, _ = self.link.next_frame()
        if message is not None:
            self.wire.append(message)
        return message is not None

    def receive_frame(self, other: Endpoint, *, consumes: bool = True) -> bool:
        """Receive one frame of the peer; return False if there is none."""
        if not other.wire:
            return False
        frame = self.link.receive(decode(other.wire.popleft()))
        for event in self.streams.receive(frame) if frame else ():
            if isinstance(event, Data):
                self.got[event.stream] += event.content
                if consumes:
                    self.streams.consume(event.stream, len(event.content))
            elif isinstance(event, Finished):
                self.ends.append((event.stream, "finished"))
            elif isinstance(event, Reset):
                self.ends.append((event.stream, event.message))
        return True


class Tunnel:
    """Two endpoints and the websocket between them."""

    def __init__(self) -> None:
        self.client, self.server = Endpoint(is_client=True), Endpoint(is_client=False)
        self.numbers: list[int] = []
        self.finished: set[tuple[bool, int]] = set()

    def side(self, is_client: bool) -> Endpoint:
        return self.client if is_client else self.server

    def settle(self) -> None:
        """Deliver all frames in both directions."""
        moving = True
        while moving:
            moving = any(
                [
                    self.client.send_frame(),
                    self.server.receive_frame(self.client),
                    self.server.send_frame(),
                    self.client.receive_frame(self.server),
                ]
            )

    def reconnect(self) -> None:
        """Break the websocket, lose all frames in transit, and reconnect."""
        for side, other in ((self.client, self.server), (self.server, self.client)):
            side.wire.clear()
            hello = decode_hello(decode(encode_hello(other.link.hello(is_resumed=True))))
            side.link.connected(hello.received)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "write", "finish", "send frame", "receive frame", "reconnect"]),
        st.booleans(),
        st.integers(0, 5),
        st.sampled_from([0, 1, 1000, FIRST, FIRST + 1, MAX_DATA_BYTES + 7]),
    ),
    max_size=60,
)


def step(tunnel: Tunnel, what: str, is_client: bool, number: int, size: int) -> None:
    side = tunnel.side(is_client)
    stream = tunnel.numbers[number % len(tunnel.numbers)] if tunnel.numbers else 0
    if what == "open":
        opened = tunnel.client.streams.open("tcp:80")
        assert opened is not None
        tunnel.numbers.append(opened)
    elif what == "send frame":
        side.send_frame()
    elif what == "receive frame":
        side.receive_frame(tunnel.side(not is_client))
    elif what == "reconnect":
        tunnel.reconnect()
    elif stream in side.streams and (is_client, stream) not in tunnel.finished:
        if what == "finish":
            tunnel.finished.add((is_client, stream))
            side.streams.finish(stream)
        elif what == "write":
            content = bytes([len(side.sent[stream]) % 251]) * size
            side.sent[stream] += content
            side.streams.send(stream, content)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_all_bytes_arrive_once_and_in_order_across_reconnects(
    steps: list[tuple[str, bool, int, int]],
) -> None:
    tunnel = Tunnel()
    for one in steps:
        step(tunnel, *one)
    tunnel.reconnect()
    tunnel.settle()
    for stream in tunnel.numbers:
        assert tunnel.server.got[stream] == tunnel.client.sent[stream]
        assert tunnel.client.got[stream] == tunnel.server.sent[stream]
        for is_client in (True, False):
            is_reported = (stream, "finished") in tunnel.side(not is_client).ends
            assert is_reported == ((is_client, stream) in tunnel.finished)
        over = {(True, stream), (False, stream)} <= tunnel.finished
        assert (stream in tunnel.client.streams) is (not over)
        assert (stream in tunnel.server.streams) is (not over)


def test_hanging_receiver_gets_at_most_its_window() -> None:
    client, server = Endpoint(is_client=True), Endpoint(is_client=False)
    stuck, free = client.streams.open("a"), client.streams.open("b")
    assert stuck and free
    client.streams.send(stuck, b"x" * 10 * FIRST)
    while client.send_frame():
        pass
    while server.receive_frame(client, consumes=False):
        pass
    assert len(server.got[stuck]) == FIRST
    # The stream whose window is full does not block other streams.
    client.streams.send(free, b"y" * 100)
    while client.send_frame():
        pass
    while server.receive_frame(client):
        pass
    assert server.got[free] == b"y" * 100


def test_streams_send_frames_in_turn() -> None:
    streams = Streams(is_client=True)
    numbers = [streams.open(str(n)) for n in range(3)]
    for number in numbers:
        assert number
        # Give credit for two full frames, so that no stream waits for credit after its first frame.
        streams.receive(decode(encode_credit(number, 2 * MAX_DATA_BYTES)))
        streams.send(number, b"z" * 2 * MAX_DATA_BYTES)
    order = []
    while (message := streams.next_frame()[0]) is not None:
        frame = decode(message)
        if frame.kind is FrameKind.DATA:
            order.append(frame.stream)
    assert order == numbers * 2


def test_windows_of_fast_streams_grow_within_the_total_limit() -> None:
    tunnel = Tunnel()
    numbers = [tunnel.client.streams.open(str(n)) for n in range(10)]
    for _ in range(12):
        for number in numbers:
            assert number
            tunnel.client.streams.send(number, b"w" * limits.MAX_WINDOW_BYTES)
        tunnel.settle()
    # Now the receiver consumes nothing: the bytes in transit fill the windows.
    before = sum(map(len, tunnel.server.got.values()))
    for number in numbers:
        assert number
        tunnel.client.streams.send(number, b"w" * 2 * limits.MAX_WINDOW_BYTES)
    while tunnel.client.send_frame() or tunnel.server.receive_frame(tunnel.client, consumes=False):
        while tunnel.server.send_frame() or tunnel.client.receive_frame(tunnel.server):
            pass
    held = sum(map(len, tunnel.server.got.values())) - before
    assert limits.MAX_WINDOW_BYTES < held <= limits.GROWTH_BYTES + len(numbers) * FIRST


def test_memory_for_retransmission_is_bounded() -> None:
    client = Endpoint(is_client=True)
    for number in range(300):
        stream = client.streams.open(str(number))
        assert stream
        client.streams.send(stream, b"k" * FIRST)
    while client.send_frame():
        pass
    assert sum(map(len, client.wire)) <= MAX_UNACKNOWLEDGED_BYTES + FIRST + 5


def test_reset_ends_a_stream_and_allows_another_stream() -> None:
    tunnel = Tunnel()
    tunnel.client.link.streams = Streams(is_client=True, max_streams=2)
    first, second = (tunnel.client.streams.open("t") for _ in range(2))
    assert first and second and tunnel.client.streams.open("t") is None
    tunnel.settle()
    tunnel.server.streams.send(first, b"unsent")
    tunnel.server.streams.reset(first, "nothing listens")
    tunnel.settle()
    assert tunnel.client.ends == [(first, "nothing listens")]
    assert tunnel.client.streams.open("t") is not None


def test_server_resets_streams_beyond_its_limit() -> None:
    tunnel = Tunnel()
    tunnel.server.link.streams = Streams(is_client=False, max_streams=1)
    numbers = [tunnel.client.streams.open("t") for _ in range(2)]
    tunnel.settle()
    assert [stream for stream, _ in tunnel.client.ends] == [numbers[1]]
    assert "at most 1" in tunnel.client.ends[0][1]


BAD: dict[str, Callable[[], bytes]] = {
    "data for an unopened stream": lambda: encode(FrameKind.DATA, 9, b"x"),
    "duplicate stream number": lambda: encode_text(FrameKind.OPEN, 1, "tcp:80"),
    "data beyond the credit": lambda: encode(FrameKind.DATA, 1, b"x" * (FIRST + 1)),
    "credit with a truncated count": lambda: encode(FrameKind.CREDIT, 1, b"xyz"),
    "second hello": lambda: encode_hello(Hello(KEY, False, 0)),
    "ack of unsent frames": lambda: encode_ack(5),
    "unknown kind": lambda: b"\xff\0\0\0\0",
    "truncated header": lambda: b"\x01\0",
    "frame too long": lambda: encode(FrameKind.DATA, 1, b"x" * (MAX_DATA_BYTES + 100)),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
def test_invalid_frame_is_a_protocol_error(message: Callable[[], bytes]) -> None:
    link = Link(KEY, Streams(is_client=False))

    def receive(content: bytes) -> list[object]:
        frame = link.receive(decode(content))
        return list(link.streams.receive(frame)) if frame else []

    assert receive(encode_text(FrameKind.OPEN, 1, "tcp:80")) == [Opened(1, "tcp:80")]
    with pytest.raises(ProtocolError):
        receive(message())


def test_data_and_finish_after_finish_are_protocol_errors() -> None:
    streams = Streams(is_client=False)
    for message in (encode_text(FrameKind.OPEN, 1, "t"), encode(FrameKind.FINISH, 1)):
        streams.receive(decode(message))
    for message in (encode(FrameKind.DATA, 1, b"x"), encode(FrameKind.FINISH, 1)):
        with pytest.raises(ProtocolError):
            streams.receive(decode(message))


# Random bytes, or frames of streams 0 to 2 with a random payload.
MESSAGES = st.binary(max_size=40) | st.builds(
    encode, st.sampled_from(FrameKind), st.integers(0, 2), st.binary(max_size=40)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MESSAGES, max_size=8))
def test_rejected_messages_open_and_end_no_stream(messages: list[bytes]) -> None:
    link = Link(KEY, Streams(is_client=False))
    link.streams.receive(decode(encode_text(FrameKind.OPEN, 1, "tcp:80")))
    for message in messages:
        before = len(link.streams)
        try:
            frame: Frame | None = link.receive(decode(message))
            if frame is not None:
                link.streams.receive(frame)
        except (ProtocolError, Goodbye):
            assert len(link.streams) == before
            break


@pytest.mark.parametrize("content", [b"", b"\x02" + b"k" * 25, encode_credit(0, 1)[5:]])
def test_hello_of_another_version_or_size_is_rejected(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_hello(decode(encode(FrameKind.HELLO, 0, content)))


def test_frame_of_another_kind_is_not_a_hello() -> None:
    with pytest.raises(ProtocolError):
        decode_hello(decode(encode(FrameKind.PING)))
