"""Counts with their nouns in messages."""

from __future__ import annotations

import pytest

from bai_services.core.counts import counted, with_article


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "agents", "0 agents"),
        (1, "agents", "1 agent"),
        (2, "agents", "2 agents"),
        (1, "live sessions", "1 live session"),
        (1, "users as their main keypair", "1 user as their main keypair"),
    ],
)
def test_noun_is_singular_after_1(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


@pytest.mark.parametrize(
    ("noun", "text"),
    [("image alias", "an image alias"), ("user", "a user"), ("preset", "a preset")],
)
def test_article_is_an_before_a_vowel_sound_and_a_otherwise(noun: str, text: str) -> None:
    assert with_article(noun) == text
