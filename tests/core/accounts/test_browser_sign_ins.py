"""Notes of browser sign-ins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.accounts.browser_sign_ins import (
    MAX_NOTE_CHARACTERS,
    SignInNote,
    note_of,
    parse_note,
)

WORDS = st.text("abcFirefox on.:0123", min_size=1, max_size=60)


@given(program=WORDS, address=st.just("") | WORDS)
def test_note_contains_program_and_address(program: str, address: str) -> None:
    assert parse_note(note_of(program, address)) == SignInNote(program, address)


@given(st.text(), st.text())
def test_note_is_limited(program: str, address: str) -> None:
    assert len(note_of(program, address)) <= MAX_NOTE_CHARACTERS


@pytest.mark.parametrize("note", ["", "Browser sign-in", "my token", "a Browser sign-in: b"])
def test_note_of_another_token_has_no_parts(note: str) -> None:
    assert parse_note(note) is None
