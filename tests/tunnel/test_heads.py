"""What of a browser's requests goes on to the session, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.tunnel.heads import MAX_HEAD_BYTES, Refused, RequestHeads

BASE = "/user/u/s/"


def heads() -> RequestHeads:
    return RequestHeads("secret", BASE, "vscode/")


def passed(*pieces: bytes) -> bytes:
    one = heads()
    return b"".join(bytes(done) for piece in pieces for done in one.feed(piece))


def request(first: str = "GET / HTTP/1.1", *fields: str) -> bytes:
    return "\r\n".join([first, "Host: 127.0.0.1:8080", *fields, "", ""]).encode()


@pytest.mark.parametrize(
    ("path", "goes_to"),
    [
        ("/", BASE + "vscode/"),
        ("/static/x?y=1", BASE + "vscode/static/x?y=1"),
        (BASE + "vscode/a", BASE + "vscode/a"),
        (BASE + "api/status", BASE + "api/status"),
    ],
)
def test_an_app_is_found_at_the_root_and_at_its_own_address(path: str, goes_to: str) -> None:
    assert passed(request(f"GET {path} HTTP/1.1")).startswith(
        f"GET {goes_to} HTTP/1.1\r\n".encode()
    )


def test_the_token_takes_the_place_of_what_the_browser_sent() -> None:
    done = passed(request("GET / HTTP/1.1", "authorization: Basic x", "X-Kept: yes"))
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
def test_requests_are_told_apart_however_they_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in zip(places, places[1:], strict=False)]
    done = passed(*pieces)
    assert done == passed(STREAM)
    assert done.count(b"token secret") == 5
    assert done.endswith(b"GET / HTTP/1.1\r\n\r\n\x00raw")
    assert b"hello" in done and b"abc" in done


REFUSED = {
    "a name that leads here": b"GET / HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "another origin": request("POST / HTTP/1.1", "Origin: http://evil.example"),
    "another port of this machine": request("POST / HTTP/1.1", "Origin: http://127.0.0.1:1"),
    "a page without origin": request("POST / HTTP/1.1", "Origin: null"),
    "a picture on another site": request(
        "GET / HTTP/1.1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"
    ),
    "a proxy's request": request("GET http://127.0.0.1/ HTTP/1.1"),
    "a tunnel": request("CONNECT 127.0.0.1:22 HTTP/1.1"),
    "two lengths": request("POST / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "no length": request("POST / HTTP/1.1", "Content-Length: -1"),
    "not HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "a folded field": request("GET / HTTP/1.1", " Authorization: x"),
    "a head without end": b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES,
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_what_may_be_another_pages_request_is_refused_with_an_answer(content: bytes) -> None:
    with pytest.raises(Refused) as refused:
        passed(content)
    assert refused.value.answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "fields",
    [
        ("Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: same-origin"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
        ("Sec-Fetch-Site: none",),
    ],
)
def test_the_apps_own_pages_and_links_to_it_work(fields: tuple[str, ...]) -> None:
    assert b"token secret" in passed(request("GET / HTTP/1.1", *fields))
