"""Forwarded and rejected requests of the gateway."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from bai_services.core.serving.gateway_records import ANONYMOUS
from tests.testbed.wait import wait_until_async

from .conftest import TOKEN, Bed, Upstream, both_engines, endpoint_route, token_route

pytestmark = both_engines


async def test_request_and_response_are_passed_on(bed: Bed, upstream: Upstream) -> None:
    body = b"x" * 200_000
    url = bed.url("/v1/chat/completions?a=%20b")
    headers = {
        "Cookie": "jupyterhub-session-id=1", "X-Custom": "yes", "Connection": "keep-alive, X-Hop",
        "X-Hop": "1", "X-Forwarded-For": "203.0.113.9", "X-Forwarded-User": "admin",
        "X-Forwarded-Proto": "https",
        # WSGI servers do not distinguish "_" from "-".
        "X_Forwarded_User": "admin", "X_Real-IP": "203.0.113.9", "x_custom": "yes",
    }  # fmt: skip
    async with bed.http.post(url, data=body, headers=headers) as response:
        document = await response.json()
        assert response.status == 200
        assert not {"Set-Cookie", "Keep-Alive"} & set(response.headers)
        assert response.headers["Content-Security-Policy"].startswith("sandbox")
    assert (document["method"], document["path"]) == ("POST", "/v1/chat/completions?a=%20b")
    assert (document["bytes"], document["sha256"]) == (200_000, hashlib.sha256(body).hexdigest())
    received = document["headers"]
    assert received["authorization"] == "token s3cret"
    assert TOKEN not in str(received)
    assert received["x-custom"] == received["x_custom"] == "yes"
    assert not {"cookie", "x-hop", "connection", "x_real-ip"} & set(received)
    assert {name for name in received if "forwarded" in name} == {"x-forwarded-for"}
    assert received["x-forwarded-for"] == "127.0.0.1"


async def test_chunked_request_is_passed_on(bed: Bed, upstream: Upstream) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"piece"

    async with bed.http.post(bed.url("/echo"), data=pieces()) as response:
        document = await response.json()
    assert document["bytes"] == 25
    assert document["headers"]["transfer-encoding"] == "chunked"


async def test_response_to_a_head_request_has_no_body(bed: Bed, upstream: Upstream) -> None:
    for _ in range(2):
        async with bed.http.head(bed.url("/echo")) as response:
            assert response.status == 200
            assert await response.read() == b""


@pytest.mark.parametrize(
    ("authorization", "status", "code"),
    [
        ("", 401, "not-signed-in"),
        ("Bearer wrong", 401, "not-signed-in"),
        (f"token {TOKEN}", 401, "not-signed-in"),
        ("Bearer " + "x" * 5000, 401, "not-signed-in"),
    ],
)
async def test_request_without_a_valid_token_is_refused(
    bed: Bed, upstream: Upstream, authorization: str, status: int, code: str
) -> None:
    async with bed.http.get(bed.url("/echo"), headers={"Authorization": authorization}) as response:
        assert (response.status, (await response.json())["error"]) == (status, code)
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/", "/services/bai-serve", "/services/bai-serve/other/x", "/x"])
async def test_unknown_address_is_refused(bed: Bed, upstream: Upstream, path: str) -> None:
    async with bed.http.get(f"http://127.0.0.1:{bed.gateways[0].port}{path}") as response:
        assert (response.status, (await response.json())["error"]) == (404, "not-found")


async def test_expiry_networks_and_rate_of_tokens_are_enforced(
    bed: Bed, upstream: Upstream
) -> None:
    tokens = (
        token_route("expired", expires_at=1.0),
        token_route("elsewhere", networks=("192.0.2.0/24",)),
        token_route("here", networks=("127.0.0.0/8",), requests_per_minute=2),
    )
    await bed.set(endpoint_route(upstream.route(), tokens=tokens))
    found = []
    for name in ("expired", "elsewhere", "here", "here", "here"):
        headers = {"Authorization": f"Bearer {name}"}
        async with bed.http.get(bed.url("/echo"), headers=headers) as response:
            found.append(response.status)
            retry_after = response.headers.get("Retry-After")
    assert found == [401, 403, 200, 200, 429]
    assert retry_after == "30"


async def test_public_endpoint_needs_no_token(bed: Bed, upstream: Upstream) -> None:
    await bed.set(endpoint_route(upstream.route(), is_public=True, tokens=()))
    for authorization in ("", "Bearer anything"):
        async with bed.http.get(
            bed.url("/echo"), headers={"Authorization": authorization}
        ) as response:
            assert response.status == 200
            assert "authorization" not in (await response.json())["headers"]
    manager = bed.manager
    await wait_until_async(lambda: manager.total("requests") == 2, 5, "the report")
    used = [(use["id"], use["requests"]) for report in manager.reports for use in report["tokens"]]
    assert {token for token, _ in used} == {f"{ANONYMOUS}e1"}
    assert sum(count for _, count in used) == 2


async def test_paused_endpoint_and_large_body_are_refused(bed: Bed, upstream: Upstream) -> None:
    await bed.set(endpoint_route(upstream.route(), max_body_bytes=1000))

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    for data in (b"x" * 1001, pieces()):
        async with bed.http.post(bed.url("/echo"), data=data) as response:
            assert (response.status, (await response.json())["error"]) == (413, "too-large")
    await bed.set(endpoint_route(upstream.route(), is_paused=True))
    async with bed.http.get(bed.url("/echo")) as response:
        assert (response.status, "Retry-After" in response.headers) == (503, True)


async def test_body_of_100_mb_is_forwarded(bed: Bed, upstream: Upstream) -> None:
    piece = bytes(2**20)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield piece

    headers = {"Content-Length": str(100 * 2**20)}
    async with bed.http.post(bed.url("/echo"), data=pieces(), headers=headers) as response:
        assert (await response.json())["bytes"] == 100 * 2**20


async def test_websocket_is_forwarded_with_a_valid_token(bed: Bed, upstream: Upstream) -> None:
    async with bed.http.ws_connect(bed.url("/ws"), protocols=["chat"]) as socket:
        assert socket.protocol == "chat"
        for text in ("a", "b" * 70_000):
            await socket.send_str(text)
            message = await socket.receive()
            assert message.data == f"echo {text}"
    await wait_until_async(lambda: not upstream.running, 5, "end of the websocket")
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await bed.http.ws_connect(bed.url("/ws"), headers={"Authorization": "Bearer no"})


async def test_stream_arrives_piece_by_piece_and_its_tokens_are_counted(
    bed: Bed, upstream: Upstream
) -> None:
    async with bed.http.get(bed.url("/stream")) as response:
        assert await response.content.readuntil(b"\n\n") == b'data: {"delta": "a"}\n\n'
        upstream.release.set()
        rest = await response.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    async with bed.http.get(bed.url("/usage")) as response:
        await response.read()
    manager = bed.manager
    await wait_until_async(lambda: manager.total("requests") == 2, 5, "the report")
    tokens = [token for report in manager.reports for token in report["tokens"]]
    assert sum(token["requests"] for token in tokens) == 2
    # HAProxy does not read bodies, so it counts no tokens.
    used = 0 if bed.engine == "haproxy" else 1
    assert sum(token["input_tokens"] for token in tokens) == 12 * used
    assert sum(token["output_tokens"] for token in tokens) == 5 * used
