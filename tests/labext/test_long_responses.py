"""Long responses of apps, which the fast path forwards with splice(2)."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import httpx
import pytest

from bai_labext.app_proxy.handler import MIN_FAST_MOVE_BYTES
from bai_labext.fast_path.splice import splice_sockets
from tests.labext.test_app_proxy import OK, App, client_of, serving_app
from tests.testbed.jupyter import JupyterServer
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.e2e

LONG = os.urandom(MIN_FAST_MOVE_BYTES * 4 + 7)
HEAD = OK + b"Content-Length: %d\r\n\r\n" % len(LONG)


async def test_long_responses_are_complete_and_reuse_the_connection(
    server: JupyterServer, fast_path: str
) -> None:
    async with serving_app(App(HEAD + LONG)) as app, client_of(server, app) as client:
        for _ in range(3):
            answer = await client.get("")
            assert answer.content == LONG
            assert ("Connection" in answer.headers) == (fast_path == "on")
    assert len(app.received) == 3 and app.connections == 1


async def test_concurrent_long_responses_are_complete(server: JupyterServer) -> None:
    async with serving_app(App(HEAD + LONG)) as app, client_of(server, app) as client:
        answers = await asyncio.gather(*(client.get(f"?{number}") for number in range(8)))
    assert all(answer.content == LONG for answer in answers)


async def test_an_incomplete_long_response_is_an_error_for_the_client(
    server: JupyterServer,
) -> None:
    async with (
        serving_app(App(HEAD + LONG[:-1], requests=1)) as app,
        client_of(server, app) as client,
    ):
        with pytest.raises(httpx.TransportError):
            await client.get("")


@pytest.mark.parametrize(
    "first", [1, MIN_FAST_MOVE_BYTES * 2], ids=["while the app waits", "while the app sends"]
)
async def test_a_disconnected_client_ends_a_long_response(
    server: JupyterServer, first: int
) -> None:
    app = App(HEAD + LONG[:first], rest=LONG[first:], requests=1)
    async with serving_app(app), client_of(server, app) as client:
        async with client.stream("GET", "") as answer:
            assert (await anext(answer.aiter_raw()))[:1] == LONG[:1]
        app.may_continue.set()
        await wait_until_async(lambda: app.open == 0, 60, "the app's connection to be closed")


async def test_a_pause_does_not_end_a_long_response(server: JupyterServer) -> None:
    app = App(HEAD + LONG[:MIN_FAST_MOVE_BYTES], rest=LONG[MIN_FAST_MOVE_BYTES:], requests=1)
    async with (
        serving_app(app),
        client_of(server, app) as client,
        client.stream("GET", "") as answer,
    ):
        pieces, got = answer.aiter_raw(), b""
        while len(got) < MIN_FAST_MOVE_BYTES:
            got += await anext(pieces)
        app.may_continue.set()
        async for piece in pieces:
            got += piece
    assert got == LONG


async def test_splice_moves_nothing_if_the_kernel_does_not_support_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_einval(*_: int) -> int:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "splice", raise_einval)
    (ours, source), (target, theirs) = socket.socketpair(), socket.socketpair()
    with ours, source, target, theirs:
        ours.send(b"hello")
        assert await splice_sockets(source.fileno(), target.fileno(), 5) == 0
        assert source.recv(5) == b"hello"


async def test_splice_returns_the_bytes_moved_before_the_end() -> None:
    (ours, source), (target, theirs) = socket.socketpair(), socket.socketpair()
    with ours, source, target, theirs:
        source.setblocking(False)
        target.setblocking(False)
        ours.send(b"hello")
        ours.close()
        assert await splice_sockets(source.fileno(), target.fileno(), 50) == 5
        assert theirs.recv(50) == b"hello"
