"""The translation files, and how a page's language is found."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from bai_services.i18n.catalogue import LANGUAGES, Translator, pick_language, translator

ENGLISH = translator("en").texts


def forms(text: object) -> list[str]:
    assert isinstance(text, (str, dict))
    return [text] if isinstance(text, str) else list(text.values())


def places(text: object) -> set[str]:
    return {name for form in forms(text) for _, name, _, _ in Formatter().parse(form) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text(language: str) -> None:
    texts = translator(language).texts
    assert texts.keys() == ENGLISH.keys()
    assert {key: places(text) for key, text in texts.items()} == {
        key: places(text) for key, text in ENGLISH.items()
    }
    for key, text in texts.items():
        assert all(form.strip() == form and form for form in forms(text)), key
        if not isinstance(text, str):
            assert text.keys() == {"one", "other"}, key


@pytest.mark.parametrize(
    "language, script",
    [("ko", r"[가-힣]"), ("ja", r"[ぁ-んァ-ヶ一-龠]"), ("th", r"[ก-๛]")],
)
def test_a_translation_is_in_its_own_script(language: str, script: str) -> None:
    """A text that was copied from English would pass the test above."""
    copied = [
        key
        for key, text in translator(language).texts.items()
        if text == ENGLISH[key]
        and not re.search(script, str(text))
        and re.search("[a-z]{4}", str(text))
    ]
    # Names of things that are called the same everywhere.
    assert all(re.search(r"(^|\.)name_|_name$|\.app_", key) for key in copied), copied


@pytest.mark.parametrize(
    "chosen, accept_language, expected",
    [
        pytest.param("ko", "ja", "ko", id="a choice beats what the browser says"),
        pytest.param("xx", "ja", "ja", id="an unknown choice is none"),
        pytest.param("", "th-TH,th;q=0.9,en;q=0.8", "th", id="a region is left out"),
        pytest.param("", "fr;q=1.0, ja;q=0.5, ko;q=0.7", "ko", id="the highest weight wins"),
        pytest.param("", "ja,ko", "ja", id="ties go to the first"),
        pytest.param("", "ko;q=0, fr", "en", id="a weight of zero means not this one"),
        pytest.param("", "ko;q=odd", "en", id="a weight that is no number counts as none"),
        pytest.param("", "", "en", id="English where nothing is said"),
    ],
)
def test_language(chosen: str, accept_language: str, expected: str) -> None:
    assert pick_language(chosen, accept_language) == expected


def test_places_and_plural_forms() -> None:
    translate = Translator("en", {"a.b": {"one": "{count} day", "other": "{count} days"}})
    assert [translate("a.b", count=n) for n in (0, 1, 2)] == ["0 days", "1 day", "2 days"]


def test_a_missing_key_shows_itself_instead_of_breaking_the_page() -> None:
    assert translator("ko")("sign_in.no_such_text") == "sign_in.no_such_text"
    assert Translator("ko", {})("sign_in.submit") == "Sign in"


def test_an_area_is_handed_to_a_script_without_its_prefix() -> None:
    area = translator("ja").area("password")
    assert area["title"] == "パスワードの変更"
    assert not any("." in key for key in area)
