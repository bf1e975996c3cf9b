"""Messages for failed sign-ins."""

from __future__ import annotations

import pytest

from bai_auth.account import authentication, is_username
from bai_auth.failures import password_text, sign_in_failed
from bai_services.core import errors
from bai_services.i18n.catalogue import translator

ENGLISH = translator("en")

FAILURES = [
    pytest.param(
        errors.SignInRefused("no", reason="credentials"),
        403,
        "User name or password is wrong.",
        id="a wrong password",
    ),
    pytest.param(
        errors.SignInRefused("no"), 403, "User name or password is wrong.", id="no reason named"
    ),
    pytest.param(
        errors.SignInRefused("no", reason="inactive"),
        403,
        "This account is not active. Ask your administrator.",
        id="an inactive account",
    ),
    pytest.param(
        errors.SignInBlocked("no", retry_after_seconds=841),
        403,
        "Too many failed attempts. Try again in 15 minutes.",
        id="minutes are rounded up",
    ),
    pytest.param(
        errors.SignInBlocked("no", retry_after_seconds=1),
        403,
        "Too many failed attempts. Try again in 1 second.",
        id="one second is singular",
    ),
    pytest.param(
        errors.InvalidRequest("name: too long"),
        403,
        "User name or password is wrong.",
        id="a name that nobody can have",
    ),
    pytest.param(
        errors.Unavailable("no answer"), 503, ENGLISH("sign_in.unavailable"), id="manager down"
    ),
    pytest.param(
        errors.Forbidden("bad hub token"),
        503,
        ENGLISH("sign_in.unavailable"),
        id="the Hub's own secret is wrong: never the person's fault",
    ),
]


@pytest.mark.parametrize("error, status, text", FAILURES)
def test_sign_in_failure(error: errors.BaiError, status: int, text: str) -> None:
    failed = sign_in_failed(error, ENGLISH)
    assert (failed.status_code, failed.get_message()) == (status, text)


def test_block_end_is_in_retry_after_header_and_details() -> None:
    failed = sign_in_failed(errors.SignInBlocked("no", retry_after_seconds=90.2), ENGLISH)
    assert failed.headers == {"Retry-After": "91"}


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
    ids=["wrong password", "foreign address", "against the rule", "other", "blocked", "down"],
)
def test_password_failure(error: errors.BaiError, text: str) -> None:
    assert password_text(error, ENGLISH) == text


def account(**changes: object) -> dict[str, object]:
    return {
        "username": "kim",
        "hub_groups": ["d-default"],
        "hub_roles": [],
    } | changes


DEFAULT_ROLES = [
    {"name": "user", "description": "", "scopes": ["self"]},
    {"name": "admin", "description": "", "scopes": ["admin-ui"]},
]


def test_an_account_keeps_the_hubs_own_roles() -> None:
    """The Hub removes roles that are not listed, and without `user` an account may do nothing."""
    role = {"name": "bai-domain-admin-x", "description": "", "scopes": ["admin-ui"]}
    model = authentication(account(hub_roles=[role]), DEFAULT_ROLES)
    assert model == {
        "name": "kim",
        "admin": False,
        "groups": ["d-default"],
        "roles": [DEFAULT_ROLES[0], role],
    }


def test_nobody_is_an_admin_of_the_hub() -> None:
    """The Hub's role `admin` starts servers and issues tokens for every user."""
    role = {"name": "bai-superadmin", "description": "", "scopes": ["admin-ui"]}
    model = authentication(account(hub_roles=[role]), DEFAULT_ROLES)
    assert model["admin"] is False
    assert [role["name"] for role in model["roles"]] == ["user", "bai-superadmin"]


@pytest.mark.parametrize("name", ["a", "kim.1", "x" * 64, "0_-"])
def test_user_names(name: str) -> None:
    assert is_username(name)


@pytest.mark.parametrize("name", ["", "Kim", ".kim", "a/b", "a b", "x" * 65, "kim\n"])
def test_invalid_user_name(name: str) -> None:
    assert not is_username(name)
