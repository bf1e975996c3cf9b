"""Tunnels to a session's server: streams, errors, reconnects, and browsers on a local port."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from bai_services.core.errors import Forbidden, InvalidRequest
from bai_services.tunnel.client import TunnelClient
from bai_services.tunnel.frames import (
    Frame,
    FrameKind,
    Hello,
    decode,
    encode,
    encode_hello,
    encode_text,
)
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.session_server import session_server
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.e2e

PAYLOAD = os.urandom(3_000_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with session_server(tmp_path_factory.mktemp("home")) as running:
        yield running


class Echo:
    """A server that echoes its input, and at the end of the input sends the number of bytes."""

    def __init__(self) -> None:
        self.open = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        count = 0
        with suppress(ConnectionError):
            while content := await reader.read(65536):
                count += len(content)
                writer.write(content)
                await writer.drain()
            writer.write(b"%d bytes" % count)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.open -= 1


@asynccontextmanager
async def echo(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, Echo]]:
    serve = Echo()
    # The listen backlog must hold all connections of a test: connections beyond it would hang.
    server = await asyncio.start_server(serve, host, 0, backlog=1024)
    async with server:
        yield server.sockets[0].getsockname()[1], serve
        server.close()
        await wait_until_async(lambda: serve.open == 0, 30, "the echo's connections to end")


@asynccontextmanager
async def forwarded_port(tunnel: TunnelClient, target: str) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: tunnel.stream(target), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def tunnel_port(
    server: JupyterServer, target: str, say: Callable[[str], None] = print
) -> AsyncIterator[int]:
    async with (
        TunnelClient(server.url, server.token, say) as tunnel,
        forwarded_port(tunnel, target) as local,
    ):
        yield local


@asynccontextmanager
async def connection_to(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def echo_through(port: int, content: bytes) -> bytes:
    """Send the content and end the stream; return everything that is received."""
    async with connection_to(port) as (reader, writer):

        async def send() -> None:
            writer.write(content)
            await writer.drain()
            writer.write_eof()

        _, got = await asyncio.gather(send(), reader.read(-1))
        return got


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_bytes_arrive_after_the_other_direction_has_ended(
    server: JupyterServer, host: str
) -> None:
    async with echo(host) as (port, _), tunnel_port(server, f"tcp:{port}") as local:
        got = await echo_through(local, PAYLOAD)
    assert got == PAYLOAD + b"%d bytes" % len(PAYLOAD)


async def test_active_streams_work_beside_many_idle_streams(server: JupyterServer) -> None:
    async with echo() as (port, serve), tunnel_port(server, f"tcp:{port}") as local:
        idle = [await asyncio.open_connection("127.0.0.1", local) for _ in range(200)]
        await wait_until_async(lambda: serve.open == 200, 60, "the idle connections")
        pieces = [os.urandom(100_000 + n) for n in range(50)]
        got = await asyncio.gather(*(echo_through(local, piece) for piece in pieces))
        assert got == [piece + b"%d bytes" % len(piece) for piece in pieces]
        for reader, writer in idle:
            writer.write(b"still there")
            writer.write_eof()
            assert await reader.read(-1) == b"still there11 bytes"
            writer.close()


async def test_a_blocked_reader_does_not_delay_other_streams(server: JupyterServer) -> None:
    async with (
        echo() as (port, _),
        tunnel_port(server, f"tcp:{port}") as local,
        connection_to(local) as (_, writer),
    ):
        # The test does not read the echo, so first the echo server blocks, then the tunnel, then
        # this writer.
        writer.write(PAYLOAD * 20)
        assert await echo_through(local, b"hello") == b"hello5 bytes"
        writer.transport.abort()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("tcp:2200", "port 2200 is reserved"),
        ("tcp:0", "not a port between"),
        ("tcp:70000", "not a port between"),
        ("tcp:10.0.0.1:80", "not a port between"),
        ("tcp:²", "not a port between"),
        ("gopher:1", "has no target 'gopher'"),
        ("", "has no target ''"),
    ],
)
async def test_reserved_ports_and_invalid_targets_are_rejected(
    server: JupyterServer, target: str, reason: str
) -> None:
    said: list[str] = []
    async with tunnel_port(server, target, said.append) as local:
        with suppress(OSError):
            assert await echo_through(local, b"hello") == b""
        await wait_until_async(lambda: said, 30, "the rejection message")
    assert reason in said[0]


async def test_a_port_without_a_listener_is_rejected_with_the_reason(server: JupyterServer) -> None:
    said: list[str] = []
    port = free_port()
    async with tunnel_port(server, f"tcp:{port}", said.append) as local:
        with suppress(OSError):
            assert await echo_through(local, b"hello") == b""
        await wait_until_async(lambda: said, 30, "the rejection message")
    assert said == [f"nothing listens on port {port} of the session"]


class Relay:
    """A proxy between client and session that can be killed and restarted."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self.port = free_port()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.forwarded_bytes = 0
        self.accepted = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += [writer, other_writer]
        await asyncio.gather(self._copy(reader, other_writer), self._copy(other_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while content := await reader.read(65536):
                self.forwarded_bytes += len(content)
                writer.write(content)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


Disturb = Callable[[Relay, TunnelClient, int], Awaitable[object]]


async def send_with_disturbance(server: JupyterServer, disturb: Disturb) -> list[str]:
    """Send content through a relay and an echo server; return the messages for the user.

    Call ``disturb`` when the relay has forwarded a quarter and when it has forwarded half of the
    bytes of both directions.
    """
    there = int(server.url.rstrip("/").rpartition(":")[2])
    relay, said = Relay(there), []
    await relay.start()
    content = PAYLOAD * 8
    async with (
        echo() as (port, _),
        TunnelClient(f"http://127.0.0.1:{relay.port}/", server.token, said.append) as tunnel,
        forwarded_port(tunnel, f"tcp:{port}") as local,
    ):
        sending = asyncio.ensure_future(echo_through(local, content))
        for part in (1, 2):
            until = part * len(content) // 2
            await wait_until_async(
                lambda until=until: relay.forwarded_bytes > until,
                60,
                "the relay to forward content",
            )
            await disturb(relay, tunnel, part)
        got = await sending
    await relay.kill()
    assert hashlib.sha256(got[: len(content)]).digest() == hashlib.sha256(content).digest()
    return said


async def test_streams_survive_a_killed_proxy(server: JupyterServer) -> None:
    async def kill(relay: Relay, tunnel: TunnelClient, part: int) -> None:
        await relay.kill()
        await relay.start()

    assert (await send_with_disturbance(server, kill)).count("reconnected") == 2


async def test_a_renewed_token_does_not_interrupt_streams(server: JupyterServer) -> None:
    async def renew(relay: Relay, tunnel: TunnelClient, part: int) -> None:
        tunnel.renew(server.token)
        await wait_until_async(
            lambda: relay.accepted > part, 60, "the relay to accept another websocket"
        )

    assert await send_with_disturbance(server, renew) == []


async def test_tunnel_without_a_valid_token_in_the_header_is_rejected(
    server: JupyterServer,
) -> None:
    with pytest.raises(Forbidden):
        async with TunnelClient(server.url, "another"):
            pass
    for headers in ({}, {"Cookie": "a=b"}, {"Authorization": "token x"}):
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "x" * 22 + "==", **headers,
        }  # fmt: skip
        for path in ("bai/tunnel", f"bai/tunnel?token={server.token}"):
            async with httpx.AsyncClient(timeout=60) as client:
                answer = await client.get(server.url + path, headers=upgrade)
            assert answer.status_code == 403, (headers, path)


async def test_invalid_messages_close_the_tunnel_with_a_reason(server: JupyterServer) -> None:
    for message in (b"", encode(FrameKind.PING), encode(FrameKind.HELLO, 0, b"\x09")):
        async with server.websocket("bai/tunnel") as websocket:
            await websocket.write_message(message, binary=True)
            answer = await websocket.read_message()
            assert isinstance(answer, bytes)
            frame = decode(answer)
            assert frame.kind is FrameKind.BYE and frame.text


async def test_only_stream_bytes_count_as_activity(server: JupyterServer) -> None:
    def activity() -> str:
        return str(server.get("api/status?no_track_activity=1").json()["last_activity"])

    async with echo() as (port, serve), server.websocket("bai/tunnel") as websocket:

        async def send(message: bytes) -> None:
            await websocket.write_message(message, binary=True)

        async def next_of(kind: FrameKind) -> Frame:
            while True:
                message = await websocket.read_message()
                assert isinstance(message, bytes), "the tunnel has ended"
                if (frame := decode(message)).kind is kind:
                    return frame

        await send(encode_hello(Hello(os.urandom(16), False, 0)))
        await next_of(FrameKind.HELLO)
        before = activity()
        await send(encode_text(FrameKind.OPEN, 1, f"tcp:{port}"))
        await wait_until_async(lambda: serve.open == 1, 30, "the connection")
        for _ in range(3):
            await send(encode(FrameKind.PING))
            await next_of(FrameKind.PONG)
        # The stream is open, but only keepalives have been sent.
        assert activity() == before
        await send(encode(FrameKind.DATA, 1, b"hello"))
        assert bytes((await next_of(FrameKind.DATA)).payload) == b"hello"
        assert activity() > before
        await send(encode(FrameKind.FINISH, 1))
        await next_of(FrameKind.FINISH)
        await send(encode(FrameKind.BYE))


@asynccontextmanager
async def browser_client(server: JupyterServer, path: str = "") -> AsyncIterator[httpx.AsyncClient]:
    async with (
        tunnel_port(server, f"http:{path}") as local,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{local}", timeout=60, trust_env=False
        ) as client,
    ):
        yield client


async def test_a_browser_needs_no_token(server: JupyterServer) -> None:
    async with browser_client(server) as client:
        assert (await client.get("/api/status")).status_code == 200
        body = {"type": "file", "format": "text", "content": "x" * 300_000}
        answer = await client.put("/api/contents/big.txt", json=body)
        assert answer.status_code == 201, answer.text
        back = await client.get("/api/contents/big.txt")
        assert back.json()["content"] == body["content"]


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}],
    ids=lambda h: next(iter(h)),
)
async def test_cross_site_requests_are_denied(
    server: JupyterServer, headers: dict[str, str]
) -> None:
    async with browser_client(server) as client:
        answer = await client.get("/api/status", headers=headers)
    assert answer.status_code == 403


def test_the_local_port_is_on_loopback_by_default() -> None:
    from bai_services.cli.sessions.remote import parse_listen_address

    assert parse_listen_address(None)[0] == "127.0.0.1" == parse_listen_address("8080")[0]
    assert parse_listen_address("[::1]:80") == ("::1", 80)
    assert socket.inet_aton(parse_listen_address("0.0.0.0:1")[0])
    for wrong in ("65536", "localhost:http", "1" * 5000):
        with pytest.raises(InvalidRequest):
            parse_listen_address(wrong)
