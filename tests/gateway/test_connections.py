"""Clients that misbehave, replicas that end, and tokens that are revoked while requests run."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from bai_services.core.serving.gateway_records import ReplicaRoute
from bai_services.gateway import limits
from bai_services.gateway.exchange import Exchange, Request
from bai_services.gateway.replica_connection import ReplicaConnection
from bai_services.gateway.routes import Endpoint, Routes
from bai_services.gateway.server import GatewayServer
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, Upstream, both_engines, endpoint_route, token_route

HEAD = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"

# Messages by which a websocket shows that its connection has ended.
ENDS = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


async def raw(bed: Bed, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.gateways[0].port, limit=2**16)
    bed.stack.callback(writer.close)
    writer.write(data)
    return reader, writer


def request(path: str, more: str = "") -> bytes:
    return f"GET /services/bai-serve/chat{path} HTTP/1.1\r\n{HEAD}{more}\r\n".encode()


@both_engines
@pytest.mark.parametrize("repeated", ["Host: y", "Authorization: Bearer other"])
async def test_repeated_headers_that_decide_about_a_request_are_refused(
    bed: Bed, upstream: Upstream, repeated: str
) -> None:
    # A proxy in front of the gateway may use the first value, the gateway the last.
    for head in (f"{repeated}\r\n{HEAD}", f"{HEAD}{repeated}\r\n"):
        reader, _ = await raw(
            bed, f"GET /services/bai-serve/chat/echo HTTP/1.1\r\n{head}\r\n".encode()
        )
        response = await reader.read(2000)
        assert response.split()[1] == b"400"
        # HAProxy itself refuses a second Host header.
        assert b"must not be repeated" in response or b"<h1>400 Bad request</h1>" in response
    assert not upstream.requests


@both_engines
async def test_revoked_token_ends_its_running_stream(bed: Bed, upstream: Upstream) -> None:
    other = token_route("other")
    await bed.set(endpoint_route(upstream.route(), tokens=(token_route(), other)))
    headers = {"Authorization": "Bearer other"}
    async with (
        bed.http.get(bed.url("/stream")) as revoked,
        bed.http.get(bed.url("/stream"), headers=headers) as kept,
    ):
        await revoked.content.readuntil(b"\n\n")
        await kept.content.readuntil(b"\n\n")
        began = time.monotonic()
        await bed.manager.set(endpoint_route(upstream.route(), tokens=(other,)))
        with pytest.raises(aiohttp.ClientPayloadError):
            await revoked.read()
        assert time.monotonic() - began < 5
        await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")
        upstream.release.set()
        assert (await kept.read()).endswith(b"[DONE]\n\n")
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 401


async def test_expired_token_ends_its_running_request(bed: Bed, upstream: Upstream) -> None:
    soon = token_route(expires_at=time.time() + 3600)
    await bed.manager.set(endpoint_route(upstream.route(), tokens=(soon,)))
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    await wait_until_async(lambda: endpoint.route.tokens == (soon,), 5, "token")
    waiting = asyncio.create_task(bed.http.get(bed.url("/wait")))
    await wait_until_async(lambda: upstream.running, 5, "request")
    endpoint.update(endpoint_route(upstream.route(), tokens=(token_route(expires_at=1.0),)))
    bed.gateways[0].sweep(time.monotonic())
    async with await waiting as response:
        assert response.status == 401


@both_engines
@pytest.mark.parametrize("reason", ["expired", "revoked", "deleted"])
async def test_stream_and_websocket_end_with_their_token(
    bed: Bed, upstream: Upstream, reason: str
) -> None:
    expires_at = time.time() + 2 if reason == "expired" else None
    await bed.set(endpoint_route(upstream.route(), tokens=(token_route(expires_at=expires_at),)))
    async with (
        bed.http.get(bed.url("/stream")) as stream,
        bed.http.ws_connect(bed.url("/ws")) as socket,
    ):
        await stream.content.readuntil(b"\n\n")
        await socket.send_str("a")
        assert (await socket.receive()).data == "echo a"
        began = time.monotonic()
        if reason == "revoked":
            await bed.manager.set(endpoint_route(upstream.route(), tokens=()))
        elif reason == "deleted":
            await bed.manager.set()
        async with asyncio.timeout(10):
            with pytest.raises(aiohttp.ClientPayloadError):
                await stream.read()
            assert (await socket.receive()).type in ENDS
        assert time.monotonic() - began < 5
    await wait_until_async(lambda: not upstream.running, 5, "the end at the replica")


async def test_requests_that_wait_end_with_their_token(bed: Bed, upstream: Upstream) -> None:
    """The waiting requests must not start when the running requests end."""
    await bed.manager.set(endpoint_route(upstream.route(), max_concurrent_per_replica=1))
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    await wait_until_async(lambda: endpoint.route.max_concurrent_per_replica == 1, 5, "limit")
    calls = [asyncio.create_task(bed.http.get(bed.url("/wait"))) for _ in range(4)]
    await wait_until_async(lambda: len(endpoint.queue) == 3, 5, "the queue")
    await bed.manager.set(endpoint_route(upstream.route(), tokens=(), max_concurrent_per_replica=1))
    assert [response.status for response in await asyncio.gather(*calls)] == [401] * 4
    await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")
    assert len(upstream.requests) == 1


async def test_requests_without_a_token_end_when_the_endpoint_is_not_public_any_more(
    bed: Bed, upstream: Upstream
) -> None:
    public = endpoint_route(
        upstream.route(), is_public=True, tokens=(), max_concurrent_per_replica=1
    )
    await bed.manager.set(public)
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    await wait_until_async(lambda: endpoint.route.is_public, 5, "the public endpoint")
    headers = {"Authorization": ""}
    for changed, status in ((replace(public, is_public=False), 401), (None, 404)):
        await bed.manager.set(public)
        await wait_until_async(lambda: endpoint.route.is_public, 5, "the public endpoint")
        async with bed.http.get(bed.url("/stream"), headers=headers) as running:
            await running.content.readuntil(b"\n\n")
            waiting = asyncio.create_task(bed.http.get(bed.url("/stream"), headers=headers))
            await wait_until_async(lambda: endpoint.queue, 5, "the queue")
            await bed.manager.set(*([] if changed is None else [changed]))
            with pytest.raises(aiohttp.ClientPayloadError):
                await running.read()
            assert (await waiting).status == status
    assert [each.path for each in upstream.requests] == ["/stream"] * 2


async def test_endpoint_with_the_name_of_a_deleted_one_inherits_nothing(
    bed: Bed, upstream: Upstream
) -> None:
    running = asyncio.create_task(bed.http.get(bed.url("/wait")))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    new = endpoint_route(upstream.route(), id="e2", tokens=(token_route("new"),))
    await bed.manager.set(new)
    async with await running as response:
        assert response.status == 404
    await bed.ready()
    found = []
    for token in (TOKEN, "new"):
        headers = {"Authorization": f"Bearer {token}"}
        async with bed.http.get(bed.url("/echo"), headers=headers) as response:
            found.append(response.status)
    assert found == [401, 200]
    await wait_until_async(lambda: bed.manager.total("requests"), 5, "the report")
    reported = [each for report in bed.manager.reports for each in report["endpoints"]]
    assert {each["id"]: each["requests"] for each in reported if each["requests"]} == {"e2": 1}


async def test_client_that_never_reads_is_bounded_and_ends(bed: Bed, upstream: Upstream) -> None:
    _, writer = await raw(bed, request("/endless"))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    gateway = bed.gateways[0]
    await wait_until_async(lambda: gateway.connections, 5, "the connection")
    (connection,) = gateway.connections
    await wait_until_async(lambda: connection.is_stalled, 5, "full buffers")
    # The data that can be in transit: socket buffers of the kernel (a few MB) and 256 KiB in the
    # gateway.
    assert connection.unread_bytes < 2 * limits.WRITE_BUFFER_BYTES
    gateway.sweep(time.monotonic() + limits.STALLED_SECONDS + 1)
    await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")


async def test_slow_heads_and_bodies_end(bed: Bed, upstream: Upstream) -> None:
    head, _ = await raw(bed, b"GET /services/bai-serve/chat/echo HTT")
    silent, _ = await raw(bed, b"")
    body, _ = await raw(bed, request("/echo", "Content-Length: 100\r\n") + b"x")
    gateway = bed.gateways[0]
    await wait_until_async(lambda: len(gateway.connections) == 3, 5, "connections")
    await wait_until_async(lambda: upstream.running, 5, "the request with a body")
    gateway.sweep(time.monotonic() + limits.HEAD_SECONDS + 1)
    assert (await head.readline()).split()[1] == b"408"
    assert await silent.read() == b""
    assert upstream.running
    gateway.sweep(time.monotonic() + limits.BODY_SECONDS + 1)
    assert (await body.readline()).split()[1] == b"408"


async def test_large_head_is_refused(bed: Bed, upstream: Upstream) -> None:
    reader, _ = await raw(bed, request("/echo", f"X-Large: {'x' * 100_000}\r\n"))
    assert (await reader.readline()).split()[1] == b"431"
    reader, _ = await raw(bed, b"GET / HTTP/1.1\r\nX-Endless: " + b"x" * 400_000)
    assert (await reader.readline()).split()[1] == b"431"


@both_engines
@pytest.mark.parametrize(
    "more",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Content-Length: -1\r\n",
        "X-Name : x\r\n",
        "X-Name: a\rb\r\n",
        "no header\r\n",
    ],
)
async def test_ambiguous_request_is_refused(bed: Bed, upstream: Upstream, more: str) -> None:
    reader, _ = await raw(bed, request("/echo", more) + b"0\r\n\r\n")
    status = (await reader.readline()).split()[1]
    if bed.engine == "haproxy" and more.startswith("Content-Length: 5\r\nTransfer"):
        # The gateway drops the length (RFC 9112, 6.3), so the request is no longer ambiguous.
        assert status == b"200"
        assert "content-length" not in upstream.requests[0].headers
        return
    assert status in (b"400", b"501")
    await reader.read()
    assert upstream.requests == []


async def test_garbage_after_a_refused_request_does_not_disturb_the_response(
    bed: Bed, upstream: Upstream
) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    head = b"POST /services/bai-serve/chat/echo HTTP/1.1\r\nHost: x\r\n"
    reader, _ = await raw(bed, head + b"Transfer-Encoding: chunked\r\n\r\nno length\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
    assert problems == []


async def test_disconnect_during_a_token_revocation_does_not_stop_the_gateway(
    bed: Bed, upstream: Upstream
) -> None:
    client = socket.create_connection(("127.0.0.1", bed.gateways[0].port))
    client.sendall(request("/wait", "Content-Length: 100\r\n"))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    endpoint = bed.gateways[0].routes.by_name[b"chat"]
    client.close()
    # Revoke the token before the event loop notices the disconnect.
    endpoint.update(endpoint_route(upstream.route(), tokens=()))
    assert not endpoint.in_flight


async def test_pipelined_requests_are_answered_in_order(bed: Bed, upstream: Upstream) -> None:
    reader, writer = await raw(bed, request("/wait") + request("/usage"))
    await wait_until_async(lambda: upstream.running == 1, 5, "the first request")
    writer.write(request("/echo", "Connection: close\r\n"))
    upstream.release.set()
    text = (await reader.read()).decode()
    assert text.count("HTTP/1.1 200 OK") == 3
    assert text.index('"replica": "r1"}') < text.index('"usage"') < text.index('"sha256"')


async def test_too_many_pipelined_requests_end_the_connection(bed: Bed, upstream: Upstream) -> None:
    reader, _ = await raw(bed, request("/wait") * 100)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    gateway = bed.gateways[0]
    await wait_until_async(lambda: not gateway.connections, 5, "the end of the connection")
    assert gateway.routes.by_name[b"chat"].in_flight == 0


@both_engines
async def test_http_1_0_client_gets_a_response_that_ends_with_the_connection(
    bed: Bed, upstream: Upstream
) -> None:
    upstream.release.set()
    data = request("/stream").replace(b"HTTP/1.1", b"HTTP/1.0")
    reader, _ = await raw(bed, data)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"data: ") and body.endswith(b"[DONE]\n\n")


@both_engines
async def test_expect_100_continue_is_answered_before_the_body(
    bed: Bed, upstream: Upstream
) -> None:
    more = "Content-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n"
    reader, writer = await raw(bed, request("/echo", more))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert b'"bytes": 4' in await reader.read()


@both_engines
async def test_disconnected_client_ends_the_request_at_the_replica(
    bed: Bed, upstream: Upstream
) -> None:
    _, writer = await raw(bed, request("/wait"))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    writer.close()
    await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")


async def test_a_thousand_idle_connections_do_not_disturb_requests(
    bed: Bed, upstream: Upstream
) -> None:
    for _ in range(1000):
        await raw(bed, b"")
    gateway = bed.gateways[0]
    await wait_until_async(lambda: len(gateway.connections) == 1000, 5, "connections")
    began = time.process_time()
    gateway.sweep(time.monotonic())
    assert time.process_time() - began < 0.1
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 200
    gateway.sweep(time.monotonic() + limits.IDLE_SECONDS + 1)
    await wait_until_async(lambda: not gateway.connections, 5, "closed connections")


@both_engines
async def test_replica_that_breaks_off_fails_its_requests(bed: Bed, upstream: Upstream) -> None:
    async with bed.http.get(bed.url("/broken")) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    waiting = asyncio.create_task(bed.http.get(bed.url("/wait")))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    await upstream.stop()
    async with await waiting as response:
        assert (response.status, (await response.json())["error"]) == (502, "unavailable")


@both_engines
async def test_replica_that_does_not_respond_in_time_fails_its_request(
    bed: Bed, upstream: Upstream
) -> None:
    await bed.set(endpoint_route(upstream.route(), request_seconds=1))
    async with bed.http.get(bed.url("/wait")) as response:
        assert (response.status, (await response.json())["error"]) == (504, "unavailable")
    await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")


SMUGGLED = f"GET /smuggled HTTP/1.1\r\n{HEAD}\r\n"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("Connection: Upgrade\r\nUpgrade: other\r\n", b"200"),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: {}\r\n", b"400"),
        ("Upgrade: websocket\r\nContent-Length: {}\r\n", b"200"),
    ],
)
async def test_replica_never_gets_a_request_inside_of_another(
    bed: Bed, upstream: Upstream, more: str, status: bytes
) -> None:
    """The response to such a request would go to the next client of the connection."""
    replica = bed.gateways[0].routes.by_name[b"chat"].replicas["r1"]
    for is_connected in (False, True):
        if is_connected:
            async with bed.http.get(bed.url("/first")) as response:
                assert response.status == 200
            await wait_until_async(lambda: replica.idle, 5, "an open connection")
        else:
            replica.close_idle()
        reader, _ = await raw(
            bed, request("/outer", more.format(len(SMUGGLED))) + SMUGGLED.encode()
        )
        assert (await reader.readline()).split()[1] == status
        await reader.read()
        async with bed.http.get(bed.url("/last")) as response:
            assert (await response.json())["path"] == "/last"
    assert "/smuggled" not in [each.path for each in upstream.requests]


class RawReplica:
    """Answers the first request of each connection with fixed bytes; ``is_endless`` repeats them.

    The health check succeeds.
    """

    def __init__(self, response: bytes, *, is_endless: bool = False) -> None:
        self.response = response
        self.is_endless = is_endless
        self.answered = 0

    async def start(self, bed: Bed) -> ReplicaRoute:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        bed.stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        return ReplicaRoute("r1", "v1", f"http://127.0.0.1:{port}", "", False)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /health"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                writer.write(self.response)
                self.answered += 1
                while self.is_endless:
                    writer.write(b"x" * 65536)
                    await writer.drain()
                await reader.read()
        writer.close()


async def raw_replica(bed: Bed, replica: RawReplica, **changes: Any) -> None:
    await bed.manager.set(endpoint_route(await replica.start(bed), **changes))
    await bed.gateway()
    await bed.ready()


@both_engines
@pytest.mark.parametrize("header", ["X-Text: a\0b\r\n", "X-\0Text: a\r\n", "X-Text: \0\r\n"])
async def test_nul_in_a_header_reaches_no_replica(bed: Bed, header: str) -> None:
    replica = RawReplica(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await raw_replica(bed, replica)
    reader, _ = await raw(bed, request("/any", header))
    assert (await reader.readline()).split()[1] == b"400"
    assert replica.answered == 0


async def test_endless_trailer_of_a_replica_is_not_kept(bed: Bed) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Endless: "
    replica, received = RawReplica(head, is_endless=True), b""
    await raw_replica(bed, replica)
    reader, _ = await raw(bed, request("/any"))
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            while part := await reader.read(65536):
                received += part
    assert replica.answered == 1
    assert b"X-Endless" not in received


@pytest.mark.parametrize("start", [b"0\r\nX-Endless: ", b"1;x="])
async def test_endless_trailer_of_a_client_is_not_kept(
    bed: Bed, upstream: Upstream, start: bytes
) -> None:
    _, writer = await raw(bed, request("/wait", "Transfer-Encoding: chunked\r\n") + start)
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
    await wait_until_async(lambda: not bed.gateways[0].connections, 5, "the end")


async def test_bytes_after_a_response_are_not_the_next_response(bed: Bed) -> None:
    """The second request waits for the first, and starts when that response ends."""
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    replica = RawReplica(one + b"1" + one + b"2")
    await raw_replica(bed, replica, max_concurrent_per_replica=1)
    texts = [bed.http.get(bed.url("/any")) for _ in range(2)]
    responses = await asyncio.gather(*texts)
    assert [await response.text() for response in responses] == ["1", "1"]
    assert replica.answered == 2


@both_engines
async def test_headers_that_concern_the_whole_host_are_not_passed_on(bed: Bed) -> None:
    headers = {
        "NEL": '{"report_to": "x", "max_age": 999999, "success_fraction": 1}',
        "Report-To": '{"group": "x", "max_age": 999999, "endpoints": []}',
        "Clear-Site-Data": '"*"',
        "Service-Worker-Allowed": "/",
        "X-Accel-Redirect": "/hub/home",
        "WWW-Authenticate": 'Basic realm="Hub"',
        "Secure-Session-Registration": '(ES256);path="/hub"',
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    await raw_replica(
        bed, RawReplica(f"HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n".encode())
    )
    async with bed.http.get(bed.url("/any")) as response:
        assert response.status == 200
        assert not headers.keys() & set(response.headers)


async def test_slow_client_gets_the_end_of_a_response_before_its_connection_closes(
    bed: Bed,
) -> None:
    body = b"x" * 200_000
    await raw_replica(
        bed, RawReplica(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    )
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", bed.gateways[0].port))
    reader, writer = await asyncio.open_connection(sock=client, limit=4096)
    bed.stack.callback(writer.close)
    gateway = bed.gateways[0]
    await wait_until_async(lambda: gateway.connections, 5, "the connection")
    (connection,) = gateway.connections
    transport = connection._transport  # noqa: SLF001
    assert transport is not None
    of_gateway = transport.get_extra_info("socket")
    of_gateway.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    writer.write(request("/any", "Connection: close\r\n"))
    # The gateway has received the whole response, but the client has not.
    await wait_until_async(lambda: connection.unread_bytes > 100_000, 5, "the response")
    assert not gateway.routes.by_name[b"chat"].in_flight
    gateway.sweep(time.monotonic() + limits.STALLED_SECONDS / 2)
    assert (await reader.read()).endswith(body)


async def test_client_that_reads_almost_nothing_ends(bed: Bed, upstream: Upstream) -> None:
    """If the gateway missed the disconnect, the client would occupy a slot of the replica."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", bed.gateways[0].port))
    reader, writer = await asyncio.open_connection(sock=client, limit=2048)
    bed.stack.callback(writer.close)
    gateway = bed.gateways[0]
    await wait_until_async(lambda: gateway.connections, 5, "the connection")
    (connection,) = gateway.connections
    transport = connection._transport  # noqa: SLF001
    assert transport is not None
    of_gateway = transport.get_extra_info("socket")
    of_gateway.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    writer.write(request("/endless"))
    await wait_until_async(lambda: connection.is_stalled, 5, "full buffers")
    before = connection.unread_bytes
    while connection.unread_bytes == before:
        await reader.readexactly(1024)
        await asyncio.sleep(0)
    assert connection.is_stalled
    gateway.sweep(time.monotonic() + limits.STALLED_SECONDS + 1)
    await wait_until_async(lambda: upstream.cancelled == 1, 5, "end at the replica")


async def test_failure_of_one_sweep_does_not_disable_time_limits(
    bed: Bed, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.gateway.server.SWEEP_SECONDS", 0.01)
    sweep, calls = GatewayServer.sweep, 0

    def failing(server: GatewayServer, now: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("a bug")
        sweep(server, now + limits.HEAD_SECONDS + 1)

    monkeypatch.setattr(GatewayServer, "sweep", failing)
    reader, _ = await raw(bed, b"GET /services")
    assert (await reader.readline()).split()[1] == b"408"


async def test_slow_client_does_not_time_out_its_replica(bed: Bed, upstream: Upstream) -> None:
    _, writer = await raw(bed, request("/endless"))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    gateway = bed.gateways[0]
    await wait_until_async(lambda: gateway.connections, 5, "the connection")
    (connection,) = gateway.connections
    await wait_until_async(lambda: connection.is_stalled, 5, "full buffers")
    gateway.sweep(time.monotonic() + limits.STALLED_SECONDS / 2 + 10)
    assert gateway.routes.by_name[b"chat"].in_flight


async def test_connection_with_an_unread_body_is_not_reused(bed: Bed) -> None:
    """If it were reused, the whole body of the next request would be kept in memory."""
    listening = bed.stack.enter_context(socket.socket())
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listening.bind(("127.0.0.1", 0))
    answers = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"GET /health"):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await answers.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, sock=listening, limit=4096)
    bed.stack.callback(server.close)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    await bed.manager.set(endpoint_route(ReplicaRoute("r1", "v1", url, "", False)))
    gateway = await bed.gateway()
    await bed.ready()
    length = 250_000
    reader, writer = await raw(bed, request("/any", f"Content-Length: {length}\r\n"))
    replica = gateway.routes.by_name[b"chat"].replicas["r1"]
    (token,) = gateway.routes.by_name[b"chat"].tokens.values()
    await wait_until_async(lambda: token.running, 5, "the request")
    (exchange,) = token.running
    assert isinstance(exchange, Exchange)
    await wait_until_async(lambda: exchange._connection, 5, "the head")  # noqa: SLF001
    connection = exchange._connection  # noqa: SLF001
    assert connection is not None
    transport = connection._transport  # noqa: SLF001
    assert transport is not None
    of_gateway = transport.get_extra_info("socket")
    of_gateway.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    writer.write(b"x" * length)
    await wait_until_async(lambda: exchange.is_body_complete, 5, "the whole body")
    answers.set()
    assert (await reader.readline()).split()[1] == b"200"
    assert not replica.outstanding
    assert not replica.idle


class PausedClient:
    """A client's connection that only records whether reading is paused."""

    address = "127.0.0.1"
    is_paused = False

    def write(self, data: bytes) -> None: ...
    def finished(self, *, keeps_open: bool) -> None: ...
    def abort(self) -> None: ...

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class FullConnection(ReplicaConnection):
    """A connection to a replica that reads nothing: its buffers are full after the first write."""

    def write(self, data: bytes) -> None:
        self.pause_writing()

    def is_reusable(self, now: float) -> bool:
        return True


async def test_client_stays_paused_if_the_replica_does_not_read_the_kept_body() -> None:
    """The transport requests only one pause. If reading resumed, the rest of the body would fill
    the memory.
    """
    replica = ReplicaRoute("r1", "v1", "http://127.0.0.1:1", "", False)
    endpoint = Endpoint(endpoint_route(replica))
    endpoint.replicas["r1"].idle.append(FullConnection())
    client = PausedClient()
    headers = [(b"Content-Length", b"1000000")]
    exchange = Exchange(GatewayServer(Routes()), client, Request(b"POST", b"/", headers, "1.1"))
    exchange.endpoint = endpoint
    exchange.request_body(b"x" * (limits.MAX_HELD_BYTES + 1))
    assert client.is_paused
    exchange.start(endpoint.replicas["r1"])
    assert client.is_paused
    exchange.resume_request()
    assert not client.is_paused


async def test_long_upload_does_not_time_out_its_replica(bed: Bed, upstream: Upstream) -> None:
    reader, writer = await raw(bed, request("/wait", "Content-Length: 2\r\n") + b"x")
    gateway = bed.gateways[0]
    await wait_until_async(lambda: upstream.running, 5, "the request")
    (token,) = gateway.routes.by_name[b"chat"].tokens.values()
    (exchange,) = token.running
    assert isinstance(exchange, Exchange)
    exchange.deadline = 0  # the deadline has passed
    writer.write(b"x")
    await wait_until_async(lambda: exchange.is_body_complete, 5, "the body")
    gateway.sweep(time.monotonic())
    upstream.release.set()
    assert (await reader.readline()).split()[1] == b"200"


async def test_idle_connections_do_not_lock_out_others(bed: Bed) -> None:
    upstream = await bed.upstream()
    await bed.manager.set(endpoint_route(upstream.route()))
    gateway = await bed.gateway(max_connections=20)
    await bed.ready()
    running, _ = await raw(bed, request("/wait"))
    await wait_until_async(lambda: upstream.running, 5, "the request")
    # One connection has no request yet, and the requests of the other connections are incomplete.
    oldest, _ = await raw(bed, b"")
    await wait_until_async(lambda: len(gateway.connections) == 2, 5, "the connection")
    for _ in range(18):
        await raw(bed, b"GET /services/bai-serve/chat/echo HTT")
    await wait_until_async(lambda: len(gateway.connections) == 20, 5, "connections")
    reader, writer = await raw(bed, request("/echo"))
    assert (await reader.readline()).split()[1] == b"200"
    with suppress(ConnectionResetError):
        assert await oldest.read() == b""
    # After its response, a connection is idle again, and is closed after the other idle
    # connections.
    await raw(bed, b"")
    await wait_until_async(lambda: len(gateway.connections) == 20, 5, "a closed connection")
    writer.write(request("/echo"))
    await reader.readuntil(b"HTTP/1.1 200")
    upstream.release.set()
    assert (await running.readline()).split()[1] == b"200"


@both_engines
async def test_owners_together_cannot_use_up_the_connections(bed: Bed) -> None:
    """If N owners are busy, 1/(N + 1) of the connections remain available to other owners."""
    upstream = await bed.upstream()
    names = ("chat", "second", "third")
    await bed.manager.set(
        *(
            endpoint_route(
                upstream.route(id=f"r{name}", revision_id=f"v{name}"), id=f"e{name}", name=name,
                weights={f"v{name}": 1}, tokens=(token_route(id=f"t{name}"),),
                owner_id=f"o{name}",
            )
            for name in names
        )
    )  # fmt: skip
    await bed.gateway(max_connections=12)
    await bed.ready(3)

    async def fill(name: str) -> int:
        """Send requests that do not end, until one is refused; return how many were accepted."""
        before = upstream.running
        while True:
            expected = upstream.running + 1
            reader, writer = await raw(
                bed, request("/wait").replace(b"/chat/", f"/{name}/".encode())
            )
            answer = asyncio.create_task(reader.readline())
            await wait_until_async(
                lambda expected=expected, answer=answer: (
                    upstream.running == expected or answer.done()
                ),
                30, "a request or its refusal",
            )  # fmt: skip
            if answer.done():
                assert answer.result().split()[1] == b"503"
                writer.close()
                await reader.read()
                return upstream.running - before
            bed.stack.callback(writer.close)
            bed.stack.callback(answer.cancel)

    assert [await fill(name) for name in names] == [6, 3, 2]
    upstream.release.set()


@both_engines
async def test_endpoints_of_an_owner_cannot_use_up_the_connections_of_others(bed: Bed) -> None:
    upstream = await bed.upstream()
    other = endpoint_route(
        upstream.route(id="r2", revision_id="v2"), id="e2", name="other", weights={"v2": 1},
        tokens=(token_route(id="t2"),), owner_id="o2",
    )  # fmt: skip
    second = endpoint_route(
        upstream.route(id="r3", revision_id="v3"), id="e3", name="second", weights={"v3": 1},
        tokens=(token_route(id="t3"),),
    )  # fmt: skip
    await bed.manager.set(endpoint_route(upstream.route()), other, second)
    await bed.gateway(max_owner_requests=3)
    await bed.ready(3)
    running = [
        asyncio.create_task(bed.http.get(bed.url("/wait", name=name)))
        for name in ("chat", "second", "second")
    ]
    await wait_until_async(lambda: upstream.running == 3, 5, "requests")
    for name in ("chat", "second"):
        async with bed.http.get(bed.url("/echo", name=name)) as response:
            assert (response.status, "Retry-After" in response.headers) == (503, True)
            assert "too many connections" in (await response.json())["message"]
    async with bed.http.get(bed.url("/echo", name="other")) as response:
        assert response.status == 200
    upstream.release.set()
    for task in running:
        async with await task as response:
            assert response.status == 200
    async with bed.http.get(bed.url("/echo")) as response:
        assert response.status == 200
