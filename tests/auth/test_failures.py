"""Messages and statuses for failed sign-ins and password changes."""

from __future__ import annotations

import pytest

from bai_auth.failures import password_text, sign_in_failed
from bai_services.core import errors
from bai_services.core.accounts.passwords import OVERLOADED
from bai_services.i18n.catalogue import translator

ENGLISH = translator("en")

FAILURES = [
    pytest.param(
        errors.SignInRefused("no", reason="credentials"),
        403,
        "User name or password is wrong.",
        id="wrong password",
    ),
    pytest.param(
        errors.SignInRefused("no"),
        403,
        "User name or password is wrong.",
        id="error without a reason",
    ),
    pytest.param(
        errors.SignInRefused("no", reason="inactive"),
        403,
        "This account is not active. Ask your administrator.",
        id="inactive account",
    ),
    pytest.param(
        errors.SignInBlocked("no", retry_after_seconds=841),
        403,
        "Too many failed attempts. Try again in 15 minutes.",
        id="blocked: minutes are rounded up",
    ),
    pytest.param(
        errors.SignInBlocked("no", retry_after_seconds=1),
        403,
        "Too many failed attempts. Try again in 1 second.",
        id="blocked: 1 second is singular",
    ),
    pytest.param(
        errors.SignInBlocked("no", reason=OVERLOADED, retry_after_seconds=5),
        403,
        "Too many sign-ins are in progress. Try again in 5 seconds.",
        id="too many sign-ins from the address",
    ),
    pytest.param(
        errors.Unavailable("no", reason=OVERLOADED, retry_after_seconds=5),
        503,
        "Too many sign-ins are in progress. Try again in 5 seconds.",
        id="too many sign-ins from all addresses",
    ),
    pytest.param(
        errors.InvalidRequest("name: too long"),
        403,
        "User name or password is wrong.",
        id="invalid user name",
    ),
    pytest.param(
        errors.Unavailable("no answer"),
        503,
        ENGLISH("sign_in.unavailable"),
        id="manager unavailable",
    ),
    pytest.param(
        errors.Forbidden("bad hub token"),
        503,
        ENGLISH("sign_in.unavailable"),
        id="wrong secret of the Hub: sign-in is unavailable",
    ),
]


@pytest.mark.parametrize("error, status, text", FAILURES)
def test_sign_in_failure_has_message_and_status(
    error: errors.BaiError, status: int, text: str
) -> None:
    failed = sign_in_failed(error, ENGLISH)
    assert (failed.status_code, failed.get_message()) == (status, text)


@pytest.mark.parametrize(
    "error, seconds",
    [
        (errors.SignInBlocked("no", retry_after_seconds=90.2), "91"),
        (errors.SignInBlocked("no", reason=OVERLOADED, retry_after_seconds=5), "5"),
        (errors.Unavailable("no", reason=OVERLOADED, retry_after_seconds=5), "5"),
    ],
    ids=["blocked", "too many from the address", "too many from all addresses"],
)
def test_temporarily_rejected_sign_in_has_a_retry_after_header(
    error: errors.BaiError, seconds: str
) -> None:
    assert sign_in_failed(error, ENGLISH).headers == {"Retry-After": seconds}


@pytest.mark.parametrize(
    "error, text",
    [
        (errors.SignInRefused("no", reason="credentials"), "The current password is wrong."),
        (errors.SignInRefused("no", reason="address"), ENGLISH("sign_in.address")),
        (errors.InvalidRequest("x", broken_rules=["y"]), "This password cannot be used."),
        (errors.InvalidRequest("something else"), "something else"),
        (
            errors.SignInBlocked("no", retry_after_seconds=30),
            "Too many failed attempts. Try again in 30 seconds.",
        ),
        (errors.Unavailable("no answer"), ENGLISH("sign_in.unavailable")),
    ],
    ids=[
        "wrong password",
        "address not allowed",
        "password rule broken",
        "other invalid request",
        "blocked",
        "manager unavailable",
    ],
)
def test_password_failure_has_a_message(error: errors.BaiError, text: str) -> None:
    assert password_text(error, ENGLISH) == text
