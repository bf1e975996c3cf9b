"""Names and e-mail addresses given by users."""

from __future__ import annotations

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.names import (
    check_email,
    check_slug,
    check_username,
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("default", id="plain"),
        pytest.param("team-1_a.b", id="all separators"),
        pytest.param("7", id="one digit"),
        pytest.param("a" * 64, id="maximum length"),
    ],
)
def test_valid_slug_is_unchanged(name: str) -> None:
    assert check_slug("project", name) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("a" * 65, id="too long"),
        pytest.param("Team", id="upper case"),
        pytest.param("a b", id="space"),
        pytest.param("../etc", id="relative path"),
        pytest.param("a..b", id="two dots"),
        pytest.param("a--b", id="two hyphens"),
        pytest.param("-a", id="hyphen first"),
        pytest.param("a-", id="hyphen last"),
        pytest.param("a/b", id="slash"),
        pytest.param("a\n", id="line break at the end"),
        pytest.param("ｆｏｏ", id="full-width letters"),
        pytest.param("a!group=b", id="scope filter of JupyterHub"),
    ],
)
def test_invalid_slug_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a project"):
        check_slug("project", name)


def test_user_name_is_normalized_or_rejected() -> None:
    assert check_username(" Ada.L ") == "ada.l"
    assert check_username("ada_") == "ada_"
    for wrong in ("", ".ada", "a b", "a..b", "a@b", "ü", "a" * 65):
        with pytest.raises(InvalidRequest, match="cannot be a user name"):
            check_username(wrong)


def test_email_address_is_normalized_or_rejected() -> None:
    assert check_email("Ada@Example.org") == "ada@example.org"
    for wrong in (
        "ada",
        "@example.org",
        "a@b@c",
        "a b@c",
        "a@-c",
        "a@c\nd",
        "a@b..c",
        "a" * 60 + "@b.cd",
    ):
        with pytest.raises(InvalidRequest, match="not an e-mail address"):
            check_email(wrong)
