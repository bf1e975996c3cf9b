"""Displayed values of the settings that the Hub and agents report."""

from __future__ import annotations

import pytest

from bai_services.core.operations.component_settings import (
    MAX_CHARS,
    SettingOrigin,
    reported,
    setting_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (0.5, "0.5"),
        (30.0, "30"),
        ({"b", "a"}, '["a", "b"]'),
        ({"docker": dict}, '{"docker": "<class \'dict\'>"}'),
        (dict, "builtins.dict"),
        ([{"name": "campus", "client_secret": "geheim"}, {"secret": "geheim"}], '["campus", "?"]'),
        ("ssh://user:geh@eim@host/path", "ssh://…@host/path"),
        (["https://u:geheim@a", "https://b"], '["https://…@a", "https://b"]'),
        ("a\x00b\ud800", "ab?"),
        ("x" * 9999, "x" * (MAX_CHARS - 1) + "…"),
    ],
)
def test_values_are_bounded_texts_without_secrets(value: object, text: str) -> None:
    assert setting_text(value) == text


@pytest.mark.parametrize(
    "name", ["A.hub_token_file", "A.password", "A.key", "A.client_secret", "A.api_token"]
)
def test_secrets_have_no_value(name: str) -> None:
    setting = reported(name, "geheim", "", SettingOrigin.FILE)
    assert (setting.value, setting.default, setting.origin) == (None, None, "file")


def test_names_that_only_contain_the_word_of_a_secret_have_a_value() -> None:
    setting = reported("A.token_expires_in_max_seconds", 60, 0, SettingOrigin.FILE)
    assert setting.value == "60"
