"""``Client``: keypairs, pages, streams and uploads; see also ``test_rest_clients.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tornado.testing import bind_unused_port

from bai_services.client import Client, Keypair, is_loopback
from bai_services.core import errors
from bai_services.core.accounts import signature
from tests.rest_server import NUMBERS, TOKEN, rest_server

KEYPAIR = Keypair("AKEXAMPLE", "the-secret-key")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with rest_server() as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url, TOKEN) as client:
        yield client


@pytest.mark.parametrize("method", ["put", "patch"])
async def test_put_and_patch_send_json(client: Client, method: str) -> None:
    response = await getattr(client, method)("/echo", {"name": "ü"})
    assert (response["method"], response["body"]) == (method.upper(), '{"name":"ü"}')


async def test_query_parameters_may_be_named_path_and_timeout(client: Client) -> None:
    response = await client.get("/echo", path="a/b c.txt", timeout="5")
    assert response["path"] == "a/b c.txt"


async def test_request_without_credential_has_no_authorization(url: str) -> None:
    async with Client(url) as client:
        assert "Authorization" not in (await client.get("/echo"))["headers"]


@pytest.mark.parametrize("body", [None, {"a": 1}], ids=["without a body", "with a body"])
async def test_keypair_signs_the_request(url: str, body: Any) -> None:
    async with Client(url, KEYPAIR) as client:
        response = await client.call(
            "POST", "/echo%2Fx", body=body, query={"name": "ü &", "b": "1"}
        )
    headers = response["headers"]
    access_key, given = signature.parse_authorization(headers["Authorization"])
    date = datetime.fromisoformat(headers["Date"])
    expected = signature.sign(
        KEYPAIR.secret_key,
        method="POST",
        path=response["uri"],
        host=headers["Host"],
        date=date,
        content_type=headers.get("Content-Type", ""),
        content_digest=headers.get("Content-Digest", ""),
    )
    assert ("Content-Digest" in headers) == (body is not None)
    assert (access_key, given) == ("AKEXAMPLE", expected)
    signature.check_date(date, datetime.now(UTC))


async def test_date_of_a_signed_request_is_read_from_the_clock(url: str) -> None:
    now = datetime(2026, 11, 26, 12, 0, 0, 500, tzinfo=UTC)
    async with Client(url, KEYPAIR, clock=lambda: now) as client:
        response = await client.get("/echo")
    assert response["headers"]["Date"] == "2026-11-26T12:00:00+00:00"


async def test_items_yields_all_pages(client: Client) -> None:
    assert [item["n"] async for item in client.items("/numbers")] == list(NUMBERS)


async def test_stream_of_an_unreachable_manager_is_unavailable() -> None:
    socket, port = bind_unused_port()
    socket.close()
    async with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
        with pytest.raises(errors.Unavailable):
            async with client.stream("/echo"):
                pass


async def test_stream_yields_the_whole_body(client: Client) -> None:
    async with client.stream("/stream") as response:
        assert b"".join([chunk async for chunk in response.aiter_bytes()]) == b"one two three"


async def test_stream_raises_the_error_of_the_response(client: Client) -> None:
    with pytest.raises(errors.NotFound, match="message"):
        async with client.stream("/fail/not-found"):
            pass


async def test_content_of_an_iterator_is_sent_completely(client: Client) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"one ", b"two"):
            yield chunk

    response = await client.call("PUT", "/echo", content=chunks())
    assert response["body"] == "one two"


def test_repr_contains_no_secrets() -> None:
    assert "secret" not in repr(KEYPAIR)
    assert "a-hub-token" not in repr(TOKEN)


@pytest.mark.parametrize(
    "host, expected",
    [
        ("localhost", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("127.example.com", False),
        ("192.0.2.1", False),
        ("", False),
    ],
)
def test_loopback_host_is_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
