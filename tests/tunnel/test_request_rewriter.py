"""Requests of a browser are rewritten or rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.tunnel.request_rewriter import (
    MAX_CHUNK_LINE_BYTES,
    MAX_HEAD_BYTES,
    RequestRejected,
    RequestRewriter,
)

BASE = "/user/u/s/"


def rewrite(*chunks: bytes) -> bytes:
    rewriter = RequestRewriter("secret", BASE, "vscode/")
    return b"".join(bytes(data) for chunk in chunks for data in rewriter.feed(chunk))


def request(first: str = "GET / HTTP/1.1", *fields: str) -> bytes:
    return "\r\n".join([first, "Host: 127.0.0.1:8080", *fields, "", ""]).encode()


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", BASE + "vscode/"),
        ("/static/x?y=1", BASE + "vscode/static/x?y=1"),
        (BASE + "vscode/a", BASE + "vscode/a"),
        (BASE + "api/status", BASE + "api/status"),
    ],
)
def test_app_is_available_at_the_root_and_at_its_own_path(path: str, target: str) -> None:
    assert rewrite(request(f"GET {path} HTTP/1.1")).startswith(
        f"GET {target} HTTP/1.1\r\n".encode()
    )


def test_token_replaces_the_credentials_of_the_browser() -> None:
    done = rewrite(request("GET / HTTP/1.1", "authorization: Basic x", "X-Kept: yes"))
    assert done.count(b"uthorization:") == 1
    assert b"Authorization: token secret\r\n" in done and b"X-Kept: yes\r\n" in done


STREAM = (
    request()
    + request("POST /a HTTP/1.1", "Content-Length: 5")
    + b"hello"
    + request("POST /b HTTP/1.1", "Transfer-Encoding: chunked")
    + b"3;x=1\r\nabc\r\n2\r\n\r\n\r\n0\r\nTrailer: 1\r\n\r\n"
    + request("GET /c HTTP/1.1")
    + request("GET /ws HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade")
    + b"GET / HTTP/1.1\r\n\r\n\x00raw"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_requests_are_rewritten_in_the_same_way_wherever_they_are_split(cuts: list[int]) -> None:
    positions = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[a:b] for a, b in zip(positions, positions[1:], strict=False)]
    done = rewrite(*chunks)
    assert done == rewrite(STREAM)
    assert done.count(b"token secret") == 5
    assert done.endswith(b"GET / HTTP/1.1\r\n\r\n\x00raw")
    assert b"hello" in done and b"abc" in done


REJECTED = {
    "host name (DNS rebinding)": b"GET / HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "cross-site origin": request("POST / HTTP/1.1", "Origin: http://evil.example"),
    "origin on another port": request("POST / HTTP/1.1", "Origin: http://127.0.0.1:1"),
    "origin null": request("POST / HTTP/1.1", "Origin: null"),
    "image on a cross-site page": request(
        "GET / HTTP/1.1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"
    ),
    "absolute URL (proxy request)": request("GET http://127.0.0.1/ HTTP/1.1"),
    "CONNECT": request("CONNECT 127.0.0.1:22 HTTP/1.1"),
    "two lengths": request("POST / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "negative length": request("POST / HTTP/1.1", "Content-Length: -1"),
    "not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "folded header": request("GET / HTTP/1.1", " Authorization: x"),
    "folded header after another": request("GET / HTTP/1.1", "X: a", " b"),
    "invalid host": b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    "invalid origin": request("POST / HTTP/1.1", "Origin: http://["),
    "two hosts": request("GET / HTTP/1.1", "Host: 127.0.0.1:8080"),
    "two hosts, the first of another site": b"GET / HTTP/1.1\r\nHost: evil.example\r\n"
    b"host: 127.0.0.1:8080\r\n\r\n",
    "different lengths": request("POST / HTTP/1.1", "Content-Length: 1", "content-length: 50"),
    "equal lengths": request("POST / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"),
    "list of lengths": request("POST / HTTP/1.1", "Content-Length: 1, 1"),
    "length with a sign": request("POST / HTTP/1.1", "Content-Length: +1"),
    "length after a form feed": request("POST / HTTP/1.1", "Content-Length: \f1"),
    "two codings": request(
        "POST / HTTP/1.1", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"
    ),
    "repeated coding": request(
        "POST / HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"
    ),
    "coding of HTTP 1.0": request("POST / HTTP/1.0", "Transfer-Encoding: chunked"),
    "two origins": request(
        "POST / HTTP/1.1", "Origin: http://evil.example", "Origin: http://127.0.0.1:8080"
    ),
    "line feed in a header": request("POST / HTTP/1.1", "X: a\nTransfer-Encoding: chunked"),
    "carriage return in a header": request("POST / HTTP/1.1", "X: a\rContent-Length: 5"),
    "line feed in the request line": b"GET /\nHost: HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "null in a header": request("POST / HTTP/1.1", "X: a\0b"),
    "space before the colon": request("POST / HTTP/1.1", "Content-Length : 5"),
    "header without a colon": request("POST / HTTP/1.1", "Content-Length"),
    "unknown version": request("GET / HTTP/2.0"),
    "head too long": b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES,
}


@pytest.mark.parametrize("content", REJECTED.values(), ids=REJECTED)
def test_invalid_or_cross_site_request_gets_a_4xx_response(content: bytes) -> None:
    with pytest.raises(RequestRejected) as rejected:
        rewrite(content)
    assert rejected.value.response.startswith(b"HTTP/1.1 4")


CHUNKED = request("POST / HTTP/1.1", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    "chunks",
    [
        b"0x1\r\na\r\n",
        b"+1\r\na\r\n",
        b"1_0\r\n",
        b"-1\r\n",
        b"\r\n",
        b"f" * 16 + b"\r\n",
        b"1;a\nb\r\na\r\n",
        b"1\r\nabc\r\n",
        b"0\r\nX: a\nb\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
    ],
)
def test_ambiguous_chunks_are_rejected(chunks: bytes) -> None:
    with pytest.raises(RequestRejected) as rejected:
        rewrite(CHUNKED + chunks)
    assert rejected.value.response.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, "the request head is too long"),
        (CHUNKED + b"1;" + b"x" * MAX_CHUNK_LINE_BYTES, "chunk size is too long"),
        (CHUNKED + b"0\r\nX: " + b"x" * MAX_CHUNK_LINE_BYTES, "a trailer of the request is too"),
        (CHUNKED + b"1\r\na" + b"x" * (MAX_CHUNK_LINE_BYTES + 1), "invalid end of a chunk"),
    ],
)
def test_message_names_the_part_that_is_too_long(content: bytes, message: str) -> None:
    with pytest.raises(RequestRejected, match=message):
        rewrite(content)


@pytest.mark.parametrize(
    "fields",
    [
        ("Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: same-origin"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
        ("Sec-Fetch-Site: none",),
    ],
)
def test_same_origin_requests_and_navigation_are_allowed(fields: tuple[str, ...]) -> None:
    assert b"token secret" in rewrite(request("GET / HTTP/1.1", *fields))
