"""Requests and tunnels through a session's server to apps, including unusual HTTP responses."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from bai_labext.app_proxy.upstream import MAX_IDLE_PER_APP
from bai_services.tunnel.streams import MAX_STREAMS
from tests.labext.test_tunnel import connection_to, echo, echo_through, tunnel_port
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.e2e

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
BIG = bytes(range(256)) * 8192


class App:
    """An app that responds with the given bytes and records the requests.

    It closes a connection after ``requests`` requests. It sends ``rest`` when ``may_continue`` is
    set.
    """

    def __init__(self, answer: bytes = PLAIN, rest: bytes = b"", requests: int = 1000) -> None:
        self.received: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self.may_continue = asyncio.Event()
        self.readers: list[asyncio.StreamReader] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._answer, self._rest, self._requests = answer, rest, requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.readers.append(reader)
        self.writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            for _ in range(self._requests):
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.received.append(head + await reader.readexactly(int(length or 0)))
                writer.write(self._answer)
                await writer.drain()
                if self._rest:
                    await self.may_continue.wait()
                    writer.write(self._rest)
                    await writer.drain()
        self.open -= 1
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def serving_app(app: App) -> AsyncIterator[App]:
    listener = await asyncio.start_server(app.serve, "127.0.0.1", 0)
    async with listener:
        app.port = listener.sockets[0].getsockname()[1]
        yield app
        listener.close()
        for writer in app.writers:
            # A transport that is closed and has sent everything cannot be aborted.
            if not writer.transport.is_closing() or writer.transport.get_write_buffer_size():
                # Close the connection. Otherwise the session's server would keep it open.
                writer.transport.abort()
        await wait_until_async(lambda: app.open == 0, 60, "the app's connections to end")


@asynccontextmanager
async def client_of(server: JupyterServer, app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"{server.url}proxy/{app.port}/", headers=server.headers(), timeout=60
    ) as client:
        yield client


async def test_a_connection_serves_several_requests(server: JupyterServer) -> None:
    async with serving_app(App()) as app, client_of(server, app) as client:
        for number in range(20):
            answer = await client.get(f"page?number={number}&a=b%20c")
            assert (answer.status_code, answer.text) == (200, "hello")
    assert app.connections < len(app.received) == 20
    first, *lines = app.received[3].decode().split("\r\n")
    assert first == "GET /page?number=3&a=b%20c HTTP/1.1"
    assert f"X-Forwarded-Prefix: /proxy/{app.port}" in lines


async def test_a_connection_that_the_app_closed_is_opened_again(server: JupyterServer) -> None:
    async with serving_app(App(requests=1)) as app, client_of(server, app) as client:
        for _ in range(5):
            assert (await client.get("")).text == "hello"
    assert app.connections == 5


async def test_unsafe_requests_are_sent_once_with_their_body(server: JupyterServer) -> None:
    async with serving_app(App(requests=1)) as app, client_of(server, app) as client:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            content = b"" if method == "GET" else BIG
            assert (await client.request(method, "", content=content)).text == "hello"
    received = [head.split(b" ")[0] for head in app.received]
    assert received == [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"]
    assert all(head.endswith(BIG) for head in app.received[1:])


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS, b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, b"hello"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200\r\nContent-Length: %d\r\n\r\n" % len(BIG) + BIG, BIG),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BIG, BIG),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
    ],
    ids=[
        "chunked",
        "after an interim response",
        "until the connection closes",
        "long with a length",
        "long until the connection closes",
        "empty",
    ],
)
async def test_each_framing_of_a_response_is_supported(
    server: JupyterServer, answer: bytes, expected: bytes
) -> None:
    async with serving_app(App(answer, requests=1)) as app, client_of(server, app) as client:
        got = await client.get("")
    assert (got.status_code, got.content) == (200, expected)


async def test_response_headers_are_forwarded(server: JupyterServer) -> None:
    response = (
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere?a=1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
    )
    async with serving_app(App(response)) as app, client_of(server, app) as client:
        answer = await client.get("")
    assert answer.headers["Location"] == f"/proxy/{app.port}/elsewhere?a=1"
    # The third cookie is Jupyter's own: Jupyter sends it to clients that use its token.
    assert answer.headers.get_list("Set-Cookie")[:2] == ["a=1", "b=2"]
    assert not {"keep-alive", "etag"} & set(answer.headers)


async def test_responses_without_a_body_keep_their_headers(server: JupyterServer) -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    async with serving_app(App(response)) as app, client_of(server, app) as client:
        answer = await client.head("")
    assert (answer.headers["Content-Length"], answer.content) == ("1234", b"")
    response = b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'
    async with serving_app(App(response)) as app, client_of(server, app) as client:
        answer = await client.get("", headers={"If-None-Match": '"x"'})
    assert (answer.status_code, answer.headers["ETag"]) == (304, '"x"')


async def test_responses_are_streamed(server: JupyterServer) -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
    app = App(response, rest=b"data: 2\n\n", requests=1)
    async with (
        serving_app(app),
        client_of(server, app) as client,
        client.stream("GET", "events") as answer,
    ):
        pieces = answer.aiter_raw()
        assert await anext(pieces) == b"data: 1\n\n"
        app.may_continue.set()
        assert await anext(pieces) == b"data: 2\n\n"


async def test_a_disconnected_client_ends_the_request_to_the_app(server: JupyterServer) -> None:
    app = App(b"HTTP/1.1 200 OK\r\n\r\nfirst", rest=BIG * 20, requests=1)
    async with serving_app(app), client_of(server, app) as client:
        async with client.stream("GET", "") as answer:
            assert await anext(answer.aiter_raw()) == b"first"
        app.may_continue.set()
        await wait_until_async(lambda: app.open == 0, 60, "the app's connection to be closed")


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + BIG,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nnot all of it",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    ],
    ids=[
        "shorter than its Content-Length",
        "incomplete chunk",
        "invalid chunk size",
        "chunk longer than its declared size",
    ],
)
async def test_an_incomplete_or_malformed_body_is_an_error_for_the_client(
    server: JupyterServer, response: bytes
) -> None:
    async with serving_app(App(response, requests=1)) as app, client_of(server, app) as client:
        with pytest.raises(httpx.TransportError):
            await client.get("")


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP server"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "response is not a number",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "transfer encoding"),
        (b"HTTP/1.1 2", "closed the connection"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"x" * 300 * 1024 + b"\r\n\r\n",
            "longer than 256 KiB",
        ),
    ],
)
async def test_an_invalid_response_is_an_error_with_the_reason(
    server: JupyterServer, response: bytes, why: str
) -> None:
    async with serving_app(App(response, requests=1)) as app, client_of(server, app) as client:
        answer = await client.get("")
    assert answer.status_code == 500 and why in answer.text


async def test_a_port_without_a_listener_is_an_error_with_the_reason(server: JupyterServer) -> None:
    app = App()
    app.port = free_port()
    async with client_of(server, app) as client:
        answer = await client.get("")
    assert answer.status_code == 500 and f"nothing listens on port {app.port}" in answer.text


async def test_apps_need_the_token_of_the_session(server: JupyterServer) -> None:
    async with serving_app(App()) as app:
        async with client_of(server, app) as client:
            assert (await client.get("")).text == "hello"
        for headers in ({}, {"Authorization": "token another"}):
            async with httpx.AsyncClient(timeout=60) as stranger:
                for path in (f"proxy/{app.port}/", f"proxy/absolute/{app.port}/"):
                    answer = await stranger.get(server.url + path, headers=headers)
                    assert answer.status_code in (302, 403)
    assert len(app.received) == 1


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files: a connection needs up to three sockets of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MAX_STREAMS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may have no more than {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Fewer than the listener's queue can hold: connections that do not fit into it hang.
CONNECTIONS_PER_BATCH = 50


async def open_connections(port: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    some = (asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_PER_BATCH))
    return list(await asyncio.gather(*some))


@pytest.mark.usefixtures("many_files")
async def test_a_tunnel_rejects_streams_above_its_limit(
    server: JupyterServer,
) -> None:
    messages: list[str] = []
    async with (
        echo() as (port, serve),
        tunnel_port(server, f"tcp:{port}", messages.append) as local,
    ):
        idle = []
        for count in range(CONNECTIONS_PER_BATCH, MAX_STREAMS, CONNECTIONS_PER_BATCH):
            idle += await open_connections(local)
            await wait_until_async(lambda n=count: serve.open == n, 60, "the idle connections")
        for _ in range(MAX_STREAMS - len(idle)):
            idle.append(await asyncio.open_connection("127.0.0.1", local))
        await wait_until_async(lambda: serve.open == MAX_STREAMS, 60, "all streams of the tunnel")
        with suppress(OSError):
            assert await echo_through(local, b"one more") == b""
        await wait_until_async(lambda: messages, 60, "the rejection of one more stream")
        assert messages[0] == f"a tunnel has at most {MAX_STREAMS} streams; close some"
        _, last = idle.pop()
        last.close()
        await wait_until_async(
            lambda: serve.open < MAX_STREAMS, 60, "one more stream to be accepted"
        )
        assert await echo_through(local, BIG) == BIG + b"%d bytes" % len(BIG)
        for _, writer in idle:
            writer.close()
        await wait_until_async(lambda: serve.open == 0, 120, "the idle connections to end")


@pytest.mark.usefixtures("many_files")
async def test_idle_clients_keep_few_connections_to_the_app(
    server: JupyterServer,
) -> None:
    server_port = int(server.url.rstrip("/").rpartition(":")[2])
    async with serving_app(App()) as app:
        lines = [f"GET /proxy/{app.port}/ HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in server.headers().items()]
        request = "\r\n".join([*lines, "", ""]).encode()

        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(request)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")

        idle = []
        while len(idle) < 1000:
            some = await open_connections(server_port)
            await asyncio.gather(*(ask(*one) for one in some))
            idle += some
        async with connection_to(server_port) as one:
            await ask(*one)
        await wait_until_async(
            lambda: app.open <= MAX_IDLE_PER_APP, 60, "the connections to the app to be closed"
        )
        for _, writer in idle:
            writer.close()
    assert len(app.received) == 1001
