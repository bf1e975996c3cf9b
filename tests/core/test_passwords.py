"""Rules for passwords."""

from __future__ import annotations

import pytest

from bai_services.core.accounts.passwords import broken_rules, check_password
from bai_services.core.errors import InvalidRequest


@pytest.mark.parametrize(
    "password, broken",
    [
        pytest.param("abc-1234", [], id="as short as may be"),
        pytest.param("пароль-1", [], id="letters of any script"),
        pytest.param("abc 1234", [], id="a blank counts as another character"),
        pytest.param("ab-1", ["at least 8"], id="too short"),
        pytest.param("12345678-", ["a letter"], id="no letter"),
        pytest.param("abcdefg-h", ["a digit"], id="no digit"),
        pytest.param("abcd1234", ["neither a letter nor a digit"], id="nothing else"),
        pytest.param("abc", ["at least 8", "a digit", "neither"], id="all that is wrong at once"),
        pytest.param("xx-ADAM-12", ["the user name"], id="the user name inside"),
        pytest.param("1 adam@example.org", ["user name", "e-mail"], id="the address inside"),
        pytest.param("abc-1234\n", ["control characters"], id="a line end"),
        pytest.param("a1-" * 100, ["at most 256"], id="too long"),
    ],
)
def test_broken_rules_of_a_password(password: str, broken: list[str]) -> None:
    found = broken_rules(password, "adam", "adam@example.org")
    assert len(found) == len(broken)
    assert all(part in text for part, text in zip(broken, found, strict=True))


def test_very_short_user_name_is_not_checked_in_passwords() -> None:
    assert broken_rules("bad-1234", "a", "") == []


def test_password_error_names_the_broken_rule() -> None:
    with pytest.raises(InvalidRequest, match="must contain a digit") as caught:
        check_password("abcdefg-h", "adam", "")
    assert caught.value.details["broken_rules"] == ["must contain a digit"]
    assert "abcdefg" not in caught.value.message
