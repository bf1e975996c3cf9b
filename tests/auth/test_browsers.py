"""Descriptions of browsers, and sign-ins that wait for a confirmation."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

from bai_auth.pending_sign_ins import (
    LIFETIME_SECONDS,
    MAX_PENDING,
    MAX_PENDING_PER_ACCOUNT,
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


class Time:
    """A clock that runs the due timers when a test advances it."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.seconds

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._timers.append((self.seconds + delay, call))

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        due = [call for at, call in self._timers if at <= self.seconds]
        self._timers = [timer for timer in self._timers if timer[0] > self.seconds]
        for call in due:
            call()


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def pending(now: Time) -> PendingSignIns:
    return PendingSignIns(now.call_later, now)


def test_a_pending_sign_in_can_be_used_once(pending: PendingSignIns) -> None:
    first, other = pending.add("kim", KIM), pending.add("kim", KIM)
    assert len({first.key, first.browser, other.key, other.browser}) == 4
    assert pending.take(first.key, first.browser) == KIM
    assert pending.take(first.key, first.browser) is None
    assert pending.take("made up", first.browser) is None
    assert pending.take(other.key, other.browser) == KIM


def test_a_pending_sign_in_belongs_to_one_browser(pending: PendingSignIns) -> None:
    sign_in, other = pending.add("kim", KIM), pending.add("kim", KIM)
    for browser in ("", other.browser, sign_in.browser[:-1], "\u00e9", "\udce9"):
        assert pending.take(sign_in.key, browser) is None
    # Attempts of other browsers do not end the sign-in.
    assert pending.take(sign_in.key, sign_in.browser) == KIM


def test_the_password_of_an_expired_sign_in_is_not_kept(now: Time, pending: PendingSignIns) -> None:
    class Password(Credentials):
        """Credentials with support for weak references."""

    credentials = Password("kim", "Correct-horse-7")
    late, early = pending.add("kim", KIM), pending.add("kim", KIM)
    pending.add("kim", credentials)
    now.advance(LIFETIME_SECONDS - 1)
    assert pending.take(early.key, early.browser) == KIM
    is_kept = weakref.ref(credentials)
    del credentials
    assert is_kept() is not None
    now.advance(2)
    assert pending.take(late.key, late.browser) is None
    assert is_kept() is None


def test_pending_sign_ins_of_an_account_do_not_displace_others(pending: PendingSignIns) -> None:
    other = pending.add("lee", KIM)
    added = [pending.add("kim", KIM) for _ in range(MAX_PENDING + MAX_PENDING_PER_ACCOUNT)]
    taken = [pending.take(keys.key, keys.browser) for keys in added]
    assert taken == [None] * MAX_PENDING + [KIM] * MAX_PENDING_PER_ACCOUNT
    assert pending.take(other.key, other.browser) == KIM


def test_pending_sign_ins_are_limited_and_their_repr_contains_no_password(
    pending: PendingSignIns,
) -> None:
    first = pending.add("first", KIM)
    for number in range(MAX_PENDING):
        last = pending.add(f"user-{number}", KIM)
    assert pending.take(first.key, first.browser) is None
    assert pending.take(last.key, last.browser) == KIM
    assert KIM.password not in repr(KIM)
