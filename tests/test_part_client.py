"""The REST client of Hub and agent against a real server; it answers as ``Client`` does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from tornado.testing import bind_unused_port

from bai_services.client import Token
from bai_services.core import errors
from bai_services.service_client import ServiceClient
from tests.test_client import TOKEN, url

__all__ = ["url"]


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceClient]:
    async with ServiceClient(url, TOKEN) as client:
        yield client


async def test_a_body_arrives_as_json(client: ServiceClient) -> None:
    answer = await client.post("/echo", {"name": "ü"})
    assert (answer["method"], answer["body"]) == ("POST", '{"name":"ü"}')
    assert answer["headers"]["Content-Type"] == "application/json"
    assert answer["headers"]["Authorization"] == "Bearer a-hub-token"


async def test_names_arrive_as_they_are(client: ServiceClient) -> None:
    answer = await client.get("/echo%2Fa%20b", path="a/b c&d=ü", timeout_seconds=5)
    assert answer["uri"].startswith("/services/bai/api/v1/echo%2Fa%20b?")
    assert answer["path"] == "a/b c&d=ü"
    assert (await client.delete("/echo", path="x"))["path"] == "x"


async def test_an_answer_without_a_body_is_none(client: ServiceClient) -> None:
    assert await client.delete("/nothing") is None


@pytest.mark.parametrize("code", sorted(errors.by_code()))
async def test_an_error_comes_back_as_what_it_was(client: ServiceClient, code: str) -> None:
    with pytest.raises(errors.BaiError) as caught:
        await client.get(f"/fail/{code}")
    assert type(caught.value) is errors.by_code()[code]
    assert (caught.value.message, caught.value.details) == ("told so", {"limit": "4"})


@pytest.mark.parametrize(
    ("path", "cls", "text"),
    [
        ("/foreign/401", errors.NotSignedIn, "answered 401"),
        ("/foreign/503", errors.Unavailable, "answered 503"),
        ("/foreign/500", errors.BaiError, "answered 500"),
        ("/elsewhere", errors.BaiError, "to https://hub.example/"),
        ("/page", errors.BaiError, "does not answer as"),
    ],
)
async def test_what_is_no_manager_is_told_apart(
    client: ServiceClient, path: str, cls: type[errors.BaiError], text: str
) -> None:
    with pytest.raises(errors.BaiError, match=text) as caught:
        await client.get(path)
    assert type(caught.value) is cls


async def test_a_manager_that_is_away_is_unavailable() -> None:
    socket, port = bind_unused_port()
    socket.close()
    async with ServiceClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable, match=f"127.0.0.1:{port}"):
            await client.get("/echo")


async def test_a_manager_that_hangs_is_unavailable() -> None:
    released = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ServiceClient(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable):
            await client.post("/echo", {}, timeout_seconds=0.05)
        released.set()


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with ServiceClient(url, Token("x")) as client:
        assert (await client.get("/echo"))["method"] == "GET"


async def test_one_that_nobody_closed_ends_without_a_word(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = ServiceClient(url, TOKEN)
    await client.get("/echo")
    del client
    gc.collect()
    assert not caplog.records
