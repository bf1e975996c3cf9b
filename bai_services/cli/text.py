"""Make untrusted text safe for a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

# Matches sequences that set colors and styles, not those that move the cursor or set the title.
_STYLE = re.compile(r"(\x1b\[[0-9;:]*m)")


def printable(text: object) -> str:
    """Return ``text`` with control and format characters replaced, except newlines and tabs.

    Names and messages can come from other users: an escape sequence in them must not
    control the terminal of the user who lists them.
    """
    return "".join(
        letter if letter in "\n\t" or not _is_control(letter) else "\ufffd" for letter in str(text)
    )


def printable_log(text: str) -> str:
    """Return ``text`` like `printable`, but keep colors and carriage returns."""
    parts = _STYLE.split(text)
    # The parts with odd indexes are the style sequences.
    return "".join(
        part if number % 2 else "\r".join(map(printable, part.split("\r")))
        for number, part in enumerate(parts)
    )


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a JSON document, in which control characters of strings are escaped."""
    document = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return "".join(
        letter if letter == "\n" or not _is_control(letter) else json.dumps(letter)[1:-1]
        for letter in document
    )


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cf")
