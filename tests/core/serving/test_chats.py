"""Limits and titles of chats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import TooLarge
from bai_services.core.serving.chats import (
    MAX_CHAT_BYTES,
    MAX_TITLE,
    UNTITLED,
    chat_size,
    message_count,
    title_of,
)


def card(*texts: str) -> dict[str, Any]:
    """Return a card with alternating messages of the user and the model."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "text": text} for n, text in enumerate(texts)]}


def test_title_is_the_first_text_of_the_user() -> None:
    assert title_of([card("  Hello\n  world ", "Hi")]) == "Hello world"
    assert title_of([card(), card("Second card")]) == "Second card"
    assert title_of([card()]) == title_of([card(" \n")]) == UNTITLED


@given(st.text())
def test_title_is_one_line_of_limited_length(text: str) -> None:
    title = title_of([card(text)])
    assert 0 < len(title) <= MAX_TITLE
    assert title == " ".join(title.split())


def test_size_is_bounded() -> None:
    assert chat_size([]) == 2
    assert message_count([card("a", "b"), card("c")]) == 3
    # The size is that of UTF-8, in which this letter has three bytes.
    assert chat_size([card("한" * 1000)]) > 3000
    chat_size([card("x" * (MAX_CHAT_BYTES - 100))])
    with pytest.raises(TooLarge, match="begin a new chat"):
        chat_size([card("한" * (MAX_CHAT_BYTES // 3))])
