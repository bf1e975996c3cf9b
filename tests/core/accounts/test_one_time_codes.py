"""Rules for one-time codes by domain, and the format of codes."""

from __future__ import annotations

import pytest

from bai_services.core.accounts.one_time_codes import (
    RECOVERY_ALPHABET,
    CodeRule,
    CodeRules,
    is_one_time_code,
    is_recovery_code,
)


def test_codes_are_off_by_default() -> None:
    assert CodeRules().of("default") is CodeRule.OFF


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("on", id="unknown rule"),
        pytest.param("off,staff", id="domain without a rule"),
        pytest.param("off,staff=maybe", id="domain with an unknown rule"),
        pytest.param("staff=required", id="no default"),
        pytest.param("off,staff=required,staff=off", id="two rules for a domain"),
        pytest.param("off,my staff=required", id="impossible domain"),
    ],
)
def test_invalid_rules_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        CodeRules.parse(text)


@pytest.mark.parametrize("text", ["12345", "1234567", "12345a", "１２３４５６", ""])
def test_only_six_ascii_digits_are_a_one_time_code(text: str) -> None:
    assert not is_one_time_code(text)
    assert not is_recovery_code(text)


def test_recovery_code_has_only_characters_of_the_alphabet() -> None:
    assert is_recovery_code(RECOVERY_ALPHABET[:16])
    assert not is_recovery_code("0" * 16)
