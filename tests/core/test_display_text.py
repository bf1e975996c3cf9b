"""Free texts and file names that other users read."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.display_text import MAX_COMBINING_MARKS, file_name_problem, text_problem
from bai_services.core.errors import InvalidRequest
from bai_services.core.names import check_email
from bai_services.storage.safe_paths import parse_new_path

# Unicode's embeddings, overrides and isolates, which set the direction of the text after them.
DIRECTION_CONTROLS = "\u202a\u202b\u202d\u202e\u2066\u2067\u2068"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("Zoë O'Neill <b>&amp;</b>", id="markup"),
        pytest.param("김철수 山田太郎 สมชาย", id="Korean, Japanese, Thai"),
        pytest.param("שלום مرحبا", id="Hebrew, Arabic"),
        pytest.param("می\u200cخواهم", id="Persian with a non-joiner"),
        pytest.param(
            "👩\u200d🔬 👨\u200d👩\u200d👧 ❤\ufe0f 1\ufe0f\u20e3", id="emoji with joiners"
        ),
        pytest.param("ต\u0e37\u0e49 Vie\u0302\u0323t", id="combining marks"),
        pytest.param("e" + "\u0301" * MAX_COMBINING_MARKS, id="maximum number of combining marks"),
    ],
)
def test_readable_text_is_accepted(text: str) -> None:
    assert text_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a\x1b[2J", "the control character U+001B at position 2", id="escape"),
        pytest.param("a\x9b2J", "the control character U+009B", id="C1 control"),
        pytest.param("a\x7f", "the control character U+007F", id="delete"),
        pytest.param("a\nb", "the control character U+000A", id="line break"),
        pytest.param("a\u2028b", "the invisible character U+2028", id="line separator"),
        pytest.param("moc\u202etxt", "U+202E, which changes the direction", id="override"),
        pytest.param("a\u2066b", "U+2066, which changes the direction", id="isolate"),
        pytest.param("ad\u200bmin", "the invisible character U+200B", id="zero-width space"),
        pytest.param("ad\u00admin", "the invisible character U+00AD", id="soft hyphen"),
        pytest.param("\ufeffadmin", "the invisible character U+FEFF", id="byte order mark"),
        pytest.param("\u3164", "the invisible character U+3164", id="Hangul filler"),
        pytest.param("a\u200d", "the invisible character U+200D", id="joiner at the end"),
        pytest.param("\u200da", "the invisible character U+200D", id="joiner at the start"),
        pytest.param("a\u200d\u200db", "U+200D at position 3", id="two joiners in a row"),
        pytest.param(
            "e" + "\u0301" * (MAX_COMBINING_MARKS + 1),
            f"at most {MAX_COMBINING_MARKS} are allowed",
            id="too many combining marks",
        ),
        pytest.param(
            "e" + ("\u0301" * MAX_COMBINING_MARKS + "\ufe0f") * 2,
            f"at most {MAX_COMBINING_MARKS} are allowed",
            id="too many combining marks with a variation selector between them",
        ),
    ],
)
def test_deceptive_text_is_rejected_with_the_position_of_the_character(
    text: str, problem: str
) -> None:
    found = text_problem(text)
    assert problem in found
    assert re.search(r"(position|character) \d+", found)
    assert "remove" in found


def test_description_may_have_several_lines() -> None:
    assert text_problem("one\n\ttwo", is_multiline=True) == ""
    assert text_problem("one\r\ntwo", is_multiline=True)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_accepted_text_has_only_visible_characters_and_joiners(text: str) -> None:
    """Accepted text cannot control a terminal, and cannot reorder or hide other text."""
    if text_problem(text):
        return
    for letter in text.replace("\u200c", "").replace("\u200d", ""):
        assert unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from(DIRECTION_CONTROLS)))
def test_accepted_text_cannot_reorder_the_text_after_it(text: str) -> None:
    """Texts and file names must not contain a character that starts another direction."""
    if not text_problem(text) or not file_name_problem(text):
        assert not set(text) & set(DIRECTION_CONTROLS)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_accepted_text_remains_accepted_if_a_letter_follows(text: str) -> None:
    if not text_problem(text):
        assert not text_problem(text + "x")


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1))
def test_new_path_is_rejected_if_its_name_has_a_problem(name: str) -> None:
    problem = file_name_problem(name)
    if problem:
        with pytest.raises(InvalidRequest, match="position"):
            parse_new_path(name)
    elif name not in (".", "..") and len(name.encode()) <= 255:
        assert parse_new_path(name) == (name,)


@pytest.mark.parametrize("name", ["a\u202eb@example.com", "a\u200bb@example.com", "\x85@x.org"])
def test_email_with_invisible_characters_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest, match="e-mail"):
        check_email(name)
