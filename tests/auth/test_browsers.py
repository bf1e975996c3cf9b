"""Descriptions of browsers, and sign-ins that wait for a confirmation."""

from __future__ import annotations

import pytest

from bai_auth.pending_sign_ins import (
    LIFETIME_SECONDS,
    MAX_PENDING,
    Credentials,
    PendingSignIns,
)
from bai_auth.user_agent import describe

MOZILLA = "Mozilla/5.0"
WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
KIM = Credentials("kim", "Correct-horse-7")


@pytest.mark.parametrize(
    "user_agent, text",
    [
        (
            f"{MOZILLA} (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "Firefox on Linux",
        ),
        (
            f"{MOZILLA} (Windows NT 10.0; Win64; x64) {WEBKIT} Chrome/126.0 Edg/126.0",
            "Edge on Windows",
        ),
        (
            f"{MOZILLA} (Linux; Android 14) {WEBKIT} Chrome/126.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        (
            f"{MOZILLA} (iPhone; CPU iPhone OS 17_5 like Mac OS X) {WEBKIT} Safari/604.1",
            "Safari on iOS",
        ),
        (f"{MOZILLA} (Macintosh; Intel Mac OS X 14_5) {WEBKIT} Safari/605.1.15", "Safari on macOS"),
        ("curl/8.5.0", "unknown browser"),
        ("", "unknown browser"),
    ],
)
def test_user_agent_is_described_by_browser_and_system(user_agent: str, text: str) -> None:
    assert describe(user_agent) == text


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_pending_sign_in_can_be_used_once() -> None:
    pending = PendingSignIns()
    first, other = pending.add(KIM), pending.add(KIM)
    assert len({first.key, first.browser, other.key, other.browser}) == 4
    assert pending.take(first.key, first.browser) == KIM
    assert pending.take(first.key, first.browser) is None
    assert pending.take("made up", first.browser) is None
    assert pending.take(other.key, other.browser) == KIM


def test_a_pending_sign_in_belongs_to_one_browser() -> None:
    pending = PendingSignIns()
    sign_in, other = pending.add(KIM), pending.add(KIM)
    for browser in ("", other.browser, sign_in.browser[:-1], "\u00e9", "\udce9"):
        assert pending.take(sign_in.key, browser) is None
    # Attempts of other browsers do not end the sign-in.
    assert pending.take(sign_in.key, sign_in.browser) == KIM


def test_a_pending_sign_in_expires() -> None:
    clock = Clock()
    pending = PendingSignIns(clock)
    late, early = pending.add(KIM), pending.add(KIM)
    clock.seconds += LIFETIME_SECONDS - 1
    assert pending.take(early.key, early.browser) == KIM
    clock.seconds += 2
    assert pending.take(late.key, late.browser) is None


def test_pending_sign_ins_are_limited_and_their_repr_contains_no_password() -> None:
    pending = PendingSignIns()
    first = pending.add(KIM)
    for _ in range(MAX_PENDING):
        last = pending.add(KIM)
    assert pending.take(first.key, first.browser) is None
    assert pending.take(last.key, last.browser) == KIM
    assert KIM.password not in repr(KIM)
