"""Rules for passwords."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.accounts.passwords import broken_rules, check_password, is_expired
from bai_services.core.errors import InvalidRequest


@pytest.mark.parametrize(
    "password, broken",
    [
        pytest.param("abc-1234", [], id="minimum length"),
        pytest.param("пароль-1", [], id="letters of another script"),
        pytest.param("abc 1234", [], id="a space counts as a special character"),
        pytest.param("ab-1", ["at least 8"], id="too short"),
        pytest.param("12345678-", ["a letter"], id="no letter"),
        pytest.param("abcdefg-h", ["a digit"], id="no digit"),
        pytest.param("abcd1234", ["neither a letter nor a digit"], id="no special character"),
        pytest.param("abc", ["at least 8", "a digit", "neither"], id="several violated rules"),
        pytest.param("xx-ADAM-12", ["the user name"], id="contains the user name"),
        pytest.param(
            "1 adam@example.org", ["user name", "e-mail"], id="contains the email address"
        ),
        pytest.param("abc-1234\n", ["control characters"], id="line break at the end"),
        pytest.param("a1-" * 100, ["at most 256"], id="too long"),
    ],
)
def test_all_violated_rules_of_a_password_are_returned(password: str, broken: list[str]) -> None:
    found = broken_rules(password, "adam", "adam@example.org")
    assert len(found) == len(broken)
    assert all(part in text for part, text in zip(broken, found, strict=True))


def test_very_short_user_name_is_not_checked_in_passwords() -> None:
    assert broken_rules("bad-1234", "a", "") == []


def test_password_error_names_the_violated_rule() -> None:
    with pytest.raises(InvalidRequest, match="must contain a digit") as caught:
        check_password("abcdefg-h", "adam", "")
    assert caught.value.details["broken_rules"] == ["must contain a digit"]
    assert "abcdefg" not in caught.value.message


NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "changed_at, max_age_days, expired",
    [
        pytest.param(NOW - timedelta(days=400), 0, False, id="no maximum age"),
        pytest.param(NOW - timedelta(days=90), 90, False, id="last day"),
        pytest.param(NOW - timedelta(days=90, seconds=1), 90, True, id="after the last day"),
        pytest.param(None, 90, True, id="unknown age"),
    ],
)
def test_password_expires_after_its_maximum_age(
    changed_at: datetime | None, max_age_days: int, expired: bool
) -> None:
    assert is_expired(changed_at, max_age_days, NOW) is expired
