"""Requests to apps with the fast path on and off: same responses and same authorization."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import tornado.web

from bai_labext.app_proxy.upstream import AppAddress, pool, response_over
from bai_labext.fast_path import front_server
from bai_labext.fast_path.auth_cache import AuthCache
from bai_labext.fast_path.front_server import MAX_RESPONSE_BYTES, FrontServer, plain_response
from tests.labext.test_app_proxy import BIG, OK, PLAIN, App, serving_app
from tests.labext.test_tunnel import connection_to
from tests.testbed.jupyter import JupyterServer
from tests.testbed.ports import free_port
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.e2e


class Caller:
    """A persistent connection to the session's server, like a connection of the Hub's proxy."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        self._reader, self.writer, self._port = reader, writer, port

    def send_request(
        self, path: str, *lines: str, method: str = "GET", prefix: str | None = None
    ) -> None:
        place = f"/proxy/{self._port}/" if prefix is None else prefix
        head = [f"{method} {place}{path} HTTP/1.1", "Host: 127.0.0.1", *lines]
        self.writer.write("\r\n".join([*head, "", ""]).encode())

    async def receive(self) -> tuple[bytes, bytes]:
        """Return the head and the body of the next response."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        low = head.lower()
        if b"transfer-encoding: chunked" in low:
            body = b""
            while size := int(await self._reader.readline(), 16):
                body += await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
            return head, body
        length = low.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return head, await self._reader.readexactly(int(length or 0))

    async def fetch(self, path: str, *lines: str, method: str = "GET") -> tuple[bytes, bytes]:
        self.send_request(path, *lines, method=method)
        return await self.receive()


@asynccontextmanager
async def caller_of(server: JupyterServer, app: App) -> AsyncIterator[Caller]:
    port = int(server.url.rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield Caller(reader, writer, app.port)
    finally:
        writer.close()
        await writer.wait_closed()


def authorization_header(server: JupyterServer) -> str:
    return "".join(f"{name}: {value}" for name, value in server.headers().items())


def is_from_jupyter(head: bytes) -> bool:
    """Return whether the response with this head is Jupyter's: only Jupyter sets this cookie."""
    return b"set-cookie: username-" in head.lower()


async def test_only_the_fast_path_bypasses_jupyter(server: JupyterServer, fast_path: str) -> None:
    async with serving_app(App()) as app, caller_of(server, app) as caller:
        heads = []
        for number in range(20):
            head, body = await caller.fetch(f"page?n={number}", authorization_header(server))
            assert body == b"hello"
            heads.append(head)
    assert is_from_jupyter(heads[0])
    assert [is_from_jupyter(head) for head in heads[1:3]] == [fast_path == "off"] * 2
    lines = app.received[2].decode().split("\r\n")
    assert lines[0] == "GET /page?n=2 HTTP/1.1"
    assert f"X-Forwarded-Prefix: /proxy/{app.port}" in lines
    assert lines[1:] == app.received[0].decode().split("\r\n")[1:]


async def test_an_authorization_is_not_reused_for_other_headers_or_apps(
    server: JupyterServer,
) -> None:
    async with serving_app(App()) as app, caller_of(server, app) as caller:
        for _ in range(3):
            await caller.fetch("", authorization_header(server))
        for lines in ((), ("Authorization: token guess",), (authorization_header(server) + "x",)):
            head, body = await caller.fetch("", *lines)
            assert head.split()[1] in (b"302", b"403") and body != b"hello"
        assert (await caller.fetch("", authorization_header(server)))[1] == b"hello"
        other = App()
        async with serving_app(other), caller_of(server, other) as stranger:
            head, _ = await stranger.fetch("", authorization_header(server))
            assert is_from_jupyter(head)
            head, _ = await stranger.fetch("")
            assert head.split()[1] in (b"302", b"403")
    assert len(app.received) == 4 and len(other.received) == 1


@pytest.mark.parametrize("name", ["token", "%74oken", "to%6Ben"])
async def test_a_token_in_the_url_does_not_authorize_other_requests(
    server: JupyterServer, name: str
) -> None:
    async with serving_app(App()) as app, caller_of(server, app) as caller:
        for _ in range(3):
            assert (await caller.fetch(f"?{name}={server.token}"))[1] == b"hello"
            head, body = await caller.fetch("")
            assert head.split()[1] in (b"302", b"403") and body != b"hello"
    assert len(app.received) == 3


async def test_one_connection_serves_apps_and_jupyter_in_turn(server: JupyterServer) -> None:
    async with serving_app(App()) as app, caller_of(server, app) as caller:
        for _ in range(4):
            assert (await caller.fetch("", authorization_header(server)))[1] == b"hello"
            caller.send_request("api/status", authorization_header(server), prefix="/")
            assert b'"kernels"' in (await caller.receive())[1]
            assert (await caller.fetch("", authorization_header(server)))[1] == b"hello"
            content = f"Content-Length: {len(BIG)}"
            caller.send_request("post", authorization_header(server), content, method="POST")
            caller.writer.write(BIG)
            assert (await caller.receive())[1] == b"hello"
    posts = [request for request in app.received if request.startswith(b"POST")]
    assert len(posts) == 4 and all(request.endswith(BIG) for request in posts)


async def test_split_and_pipelined_requests_are_answered_in_order(
    server: JupyterServer,
) -> None:
    async with serving_app(App()) as app, caller_of(server, app) as caller:
        await caller.fetch("first", authorization_header(server))
        fields = f"Host: 127.0.0.1\r\n{authorization_header(server)}"
        head = f"GET /proxy/{app.port}/slow HTTP/1.1\r\n{fields}\r\n\r\n"
        for at in (10, 40, len(head) - 3):
            caller.writer.write(head[:at].encode())
            await caller.writer.drain()
            caller.writer.write(head[at:].encode())
            assert (await caller.receive())[1] == b"hello"
        for number in range(30):
            caller.send_request(f"many?{number}", authorization_header(server))
        for _ in range(30):
            assert (await caller.receive())[1] == b"hello"
    many = [request.split()[1] for request in app.received if b"/many" in request]
    assert many == [b"/many?%d" % number for number in range(30)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello"),
        (OK + b"Content-Length: %d\r\n\r\n" % len(BIG) + BIG, BIG),
        (OK + b"connection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 5\r\n\r\nhello",
         b"hello"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
    ],
    ids=["chunked", "long", "keep-alive header", "status 404", "empty"],
)  # fmt: skip
async def test_each_request_is_sent_once_and_its_response_is_complete(
    server: JupyterServer, answer: bytes, expected: bytes
) -> None:
    async with serving_app(App(answer)) as app, caller_of(server, app) as caller:
        for number in range(6):
            head, body = await caller.fetch(f"?{number}", authorization_header(server))
            assert body == expected
            assert b"timeout=5" not in head
            assert head.split()[1] == answer.split()[1]
    assert [request.split()[1] for request in app.received] == [
        b"/?%d" % number for number in range(6)
    ]


async def test_a_redirect_target_is_rewritten(server: JupyterServer) -> None:
    response = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
    async with serving_app(App(response)) as app, caller_of(server, app) as caller:
        for _ in range(3):
            head, _ = await caller.fetch("", authorization_header(server))
            assert f"Location: /proxy/{app.port}/there".encode() in head
    assert len(app.received) == 3


async def test_a_slow_response_does_not_time_out(server: JupyterServer) -> None:
    app = App(b"HTTP/1.1 200 OK\r\nContent-Le", rest=b"ngth: 5\r\n\r\nhello")
    async with serving_app(app), caller_of(server, app) as caller:
        caller.send_request("", authorization_header(server))
        await wait_until_async(lambda: app.received, 60, "the first request")
        app.may_continue.set()
        assert (await caller.receive())[1] == b"hello"
        app.may_continue.clear()
        caller.send_request("slow", authorization_header(server))
        await wait_until_async(lambda: len(app.received) == 2, 60, "the second request")
        app.may_continue.set()
        assert (await caller.receive())[1] == b"hello"
    assert len(app.received) == 2


async def test_a_closed_connection_to_the_app_is_replaced(
    server: JupyterServer,
) -> None:
    async with serving_app(App(requests=2)) as app, caller_of(server, app) as caller:
        for _ in range(9):
            assert (await caller.fetch("", authorization_header(server)))[1] == b"hello"
    assert len(app.received) == 9 and app.connections == 5


async def test_the_request_to_the_app_is_aborted_when_the_client_disconnects(
    server: JupyterServer,
) -> None:
    app = App(b"HTTP/1.1 200 OK\r\n", rest=b"Content-Length: 0\r\n\r\n")
    async with serving_app(app):
        async with caller_of(server, app) as caller:
            app.may_continue.set()
            await caller.fetch("", authorization_header(server))
            app.may_continue.clear()
            caller.send_request("", authorization_header(server))
            await wait_until_async(lambda: len(app.received) == 2, 60, "the second request")
        # The client is disconnected before the app sends the rest of its response.
        await wait_until_async(app.readers[0].at_eof, 60, "the app's connection to be closed")
        app.may_continue.set()
    assert app.connections == 1


async def test_a_slow_request_is_passed_to_jupyter_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_server, "RESPONSE_TIMEOUT_SECONDS", 0.01)
    cache = AuthCache()
    address: AppAddress = ("127.0.0.1", 0)

    class Jupyter(tornado.web.RequestHandler):
        async def get(self) -> None:
            stream: Any = getattr(self.request.connection, "stream")  # noqa: B009  (not in the declared type)
            pending = stream.take_pending(address)
            if pending is None:
                head = b"GET / HTTP/1.1\r\n\r\n"
                cache.add(stream.head, head, b"/app/", address, lambda _: None)
                pool.release(address, await pool.open(address))
                return
            app.may_continue.set()
            response = await response_over(pending, "GET", b"")
            async for chunk in response.chunks():
                self.write(chunk)
            response.end(address)

    app = App(b"HTTP/1.1 200 OK\r\n", rest=b"Content-Length: 5\r\n\r\nhello", requests=1)
    server = FrontServer(tornado.web.Application([("/app/(?:.*)", Jupyter)]), cache=cache)
    server.listen(port := free_port(), "127.0.0.1")
    async with serving_app(app):
        address = ("127.0.0.1", app.port)
        async with connection_to(port) as (reader, writer):
            caller = Caller(reader, writer, 0)
            for expected in (b"", b"hello"):
                caller.send_request("", prefix="/app/")
                assert (await caller.receive())[1] == expected
    server.stop()
    assert len(app.received) == 1


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (PLAIN, (PLAIN, len(PLAIN))),
        (PLAIN + b"more", (PLAIN, len(PLAIN))),
        (PLAIN[:-1], (b"", 0)),
        (PLAIN[:20], (b"", 0)),
        (b"", (b"", 0)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", None),
        (b"HTTP/1.1 101 Switching\r\nContent-Length: 0\r\n\r\n", None),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", None),
        (OK + b"\r\n", None),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", None),
        (OK + b"Content-Length: -5\r\n\r\n", None),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n", None),
        (OK + b"Content-Length: 0\r\nConnection:close\r\n\r\n", None),
        (OK + b"Content-Length: 0\r\nConnection: x, close\r\n\r\n", None),
        (OK + b"Content-Length: 0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", None),
        (OK + b"Content-Length : 5\r\n\r\nhello", None),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n\r\nhello", None),
        (OK + b"Content-Length: 5\r\nX: a\r\n b\r\n\r\nhello", None),
        (OK + b"Content-Length: 5\r\nX: a\nY: b\r\n\r\nhello", None),
        (OK + b"Content-Length: 5\r\nLocation: /\r\n\r\nhello", None),
        (OK + b"Content-Length: %d\r\n\r\n" % (MAX_RESPONSE_BYTES + 1), None),
        (b"x" * (MAX_RESPONSE_BYTES + 1), None),
    ],
)
def test_only_plain_responses_are_forwarded(
    response: bytes, expected: tuple[bytes, int] | None
) -> None:
    assert plain_response(response) == expected


def test_hop_by_hop_headers_are_removed() -> None:
    response = (
        OK + b"Keep-Alive: timeout=5\r\nX-A: b\r\nConnection: keep-alive\r\nContent-Length: 1\r\n"
    )
    answer = plain_response(response + b"\r\ny")
    assert answer == (OK + b"X-A: b\r\nContent-Length: 1\r\n\r\ny", len(response) + 3)
