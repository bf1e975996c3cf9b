"""Shortcuts: who was let in asks on in the same way, for the same app, for a moment."""

from __future__ import annotations

import pytest

from bai_labext.fast_path.auth_cache import MOST_BLOCKS, SHORTCUT_SECONDS, Admitted, Shortcuts

BLOCK = b"Host: hub\r\nCookie: a=1\r\n\r\n"
SENT = b"Host: hub\r\nX-Forwarded-Prefix: /user/ann/lab/proxy/80\r\n\r\n"
PREFIX = b"/user/ann/lab/proxy/80/"
PLACE = ("127.0.0.1", 80)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Known:
    """Shortcuts with a clock, and the uses that they told of."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.shortcuts = Shortcuts(self.clock)
        self.uses: list[str] = []

    def issue(self, rest: bytes = b"x", block: bytes = BLOCK, target: bytes = b"/") -> None:
        head = b"GET " + PREFIX + rest + b" HTTP/1.1\r\n" + block
        sent = b"GET " + target + rest + b" HTTP/1.1\r\n" + SENT
        self.shortcuts.issue(head, sent, PREFIX, PLACE, self.uses.append)

    def find(self, rest: bytes, block: bytes = BLOCK) -> Admitted | None:
        return self.shortcuts.find(b"GET " + PREFIX + rest + b" HTTP/1.1\r\n" + block)


@pytest.fixture
def known() -> Known:
    found = Known()
    found.issue()
    return found


def test_the_same_headers_get_further_paths_of_the_app(known: Known) -> None:
    admitted = known.find(b"static/a.js?v=1&b=%20")
    assert admitted is not None
    assert admitted.message == b"GET /static/a.js?v=1&b=%20 HTTP/1.1\r\n" + SENT
    assert admitted.place == PLACE
    admitted.note()
    assert known.uses == ["/static/a.js"]


def test_an_app_that_is_asked_with_its_whole_path_stays_so() -> None:
    known = Known()
    known.issue(b"a", target=PREFIX)
    admitted = known.find(b"b")
    assert admitted is not None
    assert admitted.message.startswith(b"GET " + PREFIX + b"b HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "said",
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
def test_nothing_else_has_a_shortcut(known: Known, said: bytes) -> None:
    assert known.shortcuts.find(said) is None


@pytest.mark.parametrize(
    "rest",
    [
        *(b"../81/x", b"a/../b", b"a//b", b"a%2e%2e/b", b"a b", b"a\tb", b"\xc3\xa9", b"a#b"),
        *(b"x?token=guess", b'x"', b"x\x00"),
    ],
)
def test_a_path_that_may_mean_something_else_has_none(known: Known, rest: bytes) -> None:
    assert known.find(rest) is None


def test_a_shortcut_ends(known: Known) -> None:
    known.clock.now += SHORTCUT_SECONDS - 0.01
    assert known.find(b"x") and known.shortcuts.are_any
    known.clock.now += 0.02
    assert not known.find(b"x") and not known.shortcuts.are_any


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"GET " + PREFIX + b"a HTTP/1.1", b"GET /rewritten/a HTTP/1.1"),
        (b"GET " + PREFIX + b"a HTTP/1.1", b"GET /b HTTP/1.1"),
        (b"GET /user/ann/lab/proxy/80 HTTP/1.1", b"GET / HTTP/1.1"),
        (b"HEAD " + PREFIX + b"a HTTP/1.1", b"HEAD /a HTTP/1.1"),
    ],
)
def test_where_more_lies_between_than_the_prefix_there_is_none(head: bytes, sent: bytes) -> None:
    known = Known()
    known.shortcuts.issue(
        head + b"\r\n" + BLOCK, sent + b"\r\n" + SENT, PREFIX, PLACE, known.uses.append
    )
    assert known.find(b"a") is None


def test_there_are_only_so_many(known: Known) -> None:
    blocks = [b"Host: hub\r\nCookie: a=%d\r\n\r\n" % number for number in range(3 * MOST_BLOCKS)]
    for block in blocks:
        known.issue(block=block)
    assert known.find(b"x", blocks[-1])
    assert sum(known.find(b"x", block) is not None for block in blocks) <= MOST_BLOCKS
