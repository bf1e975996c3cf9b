"""A cached authorization is valid for identical headers and the same app, for a limited time."""

from __future__ import annotations

import pytest

from bai_labext.fast_path.auth_cache import (
    CACHE_TTL_SECONDS,
    MAX_HEADER_BLOCKS,
    AuthCache,
    AuthorizedRequest,
)

BLOCK = b"Host: hub\r\nCookie: a=1\r\n\r\n"
SENT = b"Host: hub\r\nX-Forwarded-Prefix: /user/ann/lab/proxy/80\r\n\r\n"
PREFIX = b"/user/ann/lab/proxy/80/"
ADDRESS = ("127.0.0.1", 80)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class CacheUnderTest:
    """A cache with a clock that tests set, and the list of the recorded uses."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cache = AuthCache(self.clock)
        self.uses: list[str] = []

    def add(self, rest: bytes = b"x", block: bytes = BLOCK, target: bytes = b"/") -> None:
        head = b"GET " + PREFIX + rest + b" HTTP/1.1\r\n" + block
        sent = b"GET " + target + rest + b" HTTP/1.1\r\n" + SENT
        self.cache.add(head, sent, PREFIX, ADDRESS, self.uses.append)

    def find(self, rest: bytes, block: bytes = BLOCK) -> AuthorizedRequest | None:
        return self.cache.find(b"GET " + PREFIX + rest + b" HTTP/1.1\r\n" + block)


@pytest.fixture
def cache_with_entry() -> CacheUnderTest:
    cached = CacheUnderTest()
    cached.add()
    return cached


def test_identical_headers_authorize_other_paths_of_the_app(
    cache_with_entry: CacheUnderTest,
) -> None:
    authorized = cache_with_entry.find(b"static/a.js?v=1&b=%20")
    assert authorized is not None
    assert authorized.message == b"GET /static/a.js?v=1&b=%20 HTTP/1.1\r\n" + SENT
    assert authorized.address == ADDRESS
    authorized.record_use()
    assert cache_with_entry.uses == ["/static/a.js"]


def test_an_app_that_needs_the_path_prefix_receives_the_prefix() -> None:
    cached = CacheUnderTest()
    cached.add(b"a", target=PREFIX)
    authorized = cached.find(b"b")
    assert authorized is not None
    assert authorized.message.startswith(b"GET " + PREFIX + b"b HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "received",
    [
        b"GET /user/ann/lab/proxy/81/x HTTP/1.1\r\n" + BLOCK,
        b"GET /user/ann/lab/api/contents HTTP/1.1\r\n" + BLOCK,
        b"GET /user/ann/lab/proxy/80 HTTP/1.1\r\n" + BLOCK,
        b"POST " + PREFIX + b"x HTTP/1.1\r\n" + BLOCK,
        b"GET " + PREFIX + b"x HTTP/1.0\r\n" + BLOCK,
        b"GET " + PREFIX + b"x HTTP/1.1\r\n" + BLOCK[:-1],
        b"GET " + PREFIX + b"x HTTP/1.1\r\n" + BLOCK + b"GET /",
        b"GET " + PREFIX + b"x HTTP/1.1\r\n" + BLOCK.replace(b"a=1", b"a=2"),
        b"GET " + PREFIX + b"x HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"GET " + PREFIX + b"x HTTP/1.1\nX: y\r\n" + BLOCK,
        b"",
    ],
)
def test_no_other_request_is_authorized(cache_with_entry: CacheUnderTest, received: bytes) -> None:
    assert cache_with_entry.cache.find(received) is None


@pytest.mark.parametrize(
    "rest",
    [
        *(b"../81/x", b"a/../b", b"a//b", b"a%2e%2e/b", b"a b", b"a\tb", b"\xc3\xa9", b"a#b"),
        *(b"x?token=guess", b'x"', b"x\x00"),
    ],
)
def test_a_request_with_an_ambiguous_path_or_a_token_is_not_authorized(
    cache_with_entry: CacheUnderTest, rest: bytes
) -> None:
    assert cache_with_entry.find(rest) is None


def test_an_authorization_expires(cache_with_entry: CacheUnderTest) -> None:
    cache_with_entry.clock.now += CACHE_TTL_SECONDS - 0.01
    assert cache_with_entry.find(b"x") and cache_with_entry.cache.may_have_valid_entries
    cache_with_entry.clock.now += 0.02
    assert not cache_with_entry.find(b"x") and not cache_with_entry.cache.may_have_valid_entries


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"GET " + PREFIX + b"a HTTP/1.1", b"GET /rewritten/a HTTP/1.1"),
        (b"GET " + PREFIX + b"a HTTP/1.1", b"GET /b HTTP/1.1"),
        (b"GET /user/ann/lab/proxy/80 HTTP/1.1", b"GET / HTTP/1.1"),
        (b"HEAD " + PREFIX + b"a HTTP/1.1", b"HEAD /a HTTP/1.1"),
    ],
)
def test_a_rewritten_or_unsupported_request_is_not_cached(head: bytes, sent: bytes) -> None:
    cached = CacheUnderTest()
    cached.cache.add(
        head + b"\r\n" + BLOCK, sent + b"\r\n" + SENT, PREFIX, ADDRESS, cached.uses.append
    )
    assert cached.find(b"a") is None


def test_the_size_of_the_cache_is_limited(cache_with_entry: CacheUnderTest) -> None:
    blocks = [
        b"Host: hub\r\nCookie: a=%d\r\n\r\n" % number for number in range(3 * MAX_HEADER_BLOCKS)
    ]
    for block in blocks:
        cache_with_entry.add(block=block)
    assert cache_with_entry.find(b"x", blocks[-1])
    assert (
        sum(cache_with_entry.find(b"x", block) is not None for block in blocks) <= MAX_HEADER_BLOCKS
    )
