"""The translation files, the choice of a language, and translators."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from bai_services.core.coded_text import TextTemplate
from bai_services.core.refusal_texts import RefusalText
from bai_services.i18n.catalogue import LANGUAGES, Translator, pick_language, translator

# The English texts of reasons are in the code, because the manager writes them to the log and the
# command line shows them.
REASONS = {f"reasons.{template.code}": template.value for template in (*TextTemplate, *RefusalText)}
ENGLISH = {**translator("en").texts, **REASONS}


def forms(text: object) -> list[str]:
    assert isinstance(text, (str, dict))
    return [text] if isinstance(text, str) else list(text.values())


def placeholders(text: object) -> set[str]:
    return {name for form in forms(text) for _, name, _, _ in Formatter().parse(form) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_all_keys_and_placeholders(language: str) -> None:
    texts = ENGLISH if language == "en" else translator(language).texts
    assert texts.keys() == ENGLISH.keys()
    assert {key: placeholders(text) for key, text in texts.items()} == {
        key: placeholders(text) for key, text in ENGLISH.items()
    }
    for key, text in texts.items():
        assert all(form.strip() == form and form for form in forms(text)), key
        if not isinstance(text, str):
            assert text.keys() == {"one", "other"}, key


@pytest.mark.parametrize(
    "language, script",
    [("ko", r"[가-힣]"), ("ja", r"[ぁ-んァ-ヶ一-龠]"), ("th", r"[ก-๛]")],
)
def test_translation_contains_the_script_of_the_language(language: str, script: str) -> None:
    """Finds English texts that were copied instead of translated."""
    copied = [
        key
        for key, text in translator(language).texts.items()
        if text == ENGLISH[key]
        and not re.search(script, str(text))
        and re.search("[a-z]{4}", re.sub(r"{[^}]*}", "", str(text)))
    ]
    # Only names may be the same as in English.
    assert all(re.search(r"(^|\.)name_|_name$|\.app_", key) for key in copied), copied


@pytest.mark.parametrize(
    "chosen, accept_language, expected",
    [
        pytest.param("ko", "ja", "ko", id="chosen language precedes Accept-Language"),
        pytest.param("xx", "ja", "ja", id="unknown choice is ignored"),
        pytest.param("", "th-TH,th;q=0.9,en;q=0.8", "th", id="region is ignored"),
        pytest.param("", "fr;q=1.0, ja;q=0.5, ko;q=0.7", "ko", id="highest weight wins"),
        pytest.param("", "ja,ko", "ja", id="equal weight: first language wins"),
        pytest.param("", "ko;q=0, fr", "en", id="weight 0 excludes a language"),
        pytest.param("", "ko;q=odd", "en", id="invalid weight excludes a language"),
        pytest.param("", "", "en", id="default is English"),
    ],
)
def test_language_is_chosen_from_cookie_and_header(
    chosen: str, accept_language: str, expected: str
) -> None:
    assert pick_language(chosen, accept_language) == expected


def test_codes_of_reasons_and_refusals_differ() -> None:
    assert len(REASONS) == len(TextTemplate) + len(RefusalText)


def test_count_selects_the_plural_form() -> None:
    translate = Translator("en", {"a.b": {"one": "{count} day", "other": "{count} days"}})
    assert [translate("a.b", count=n) for n in (0, 1, 2)] == ["0 days", "1 day", "2 days"]


def test_missing_text_falls_back_to_english_then_to_the_key() -> None:
    assert translator("ko")("sign_in.no_such_text") == "sign_in.no_such_text"
    assert Translator("ko", {})("sign_in.submit") == "Sign in"


def test_texts_of_an_area_have_keys_without_the_prefix() -> None:
    area = translator("ja").area("password")
    assert area["title"] == "パスワードの変更"
    assert not any("." in key for key in area)
