"""Numbers in text from users; the length is checked before any arithmetic."""

from __future__ import annotations

import re
from decimal import Decimal

# int() and Decimal() take more than linear time in the length of the text.
MAX_NUMBER_CHARACTERS = 40
_WHOLE = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,2})?", re.IGNORECASE)
_SHOWN = 40


def read_whole(text: str) -> int | None:
    """Return a whole number of ASCII digits; None for any other text, and for more than 40."""
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARACTERS or _WHOLE.fullmatch(text) is None:
        return None
    return int(text)


def read_decimal(text: str) -> Decimal | None:
    """Return an exact number of 0 or more, None for any other text.

    ASCII digits with at most one point and an exponent of at most two digits,
    40 characters in all. No sign, no underscore, no NaN or infinity.
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARACTERS or _DECIMAL.fullmatch(text) is None:
        return None
    return Decimal(text)


def number_text(value: object) -> str | None:
    """Return a number or text from JSON or YAML as text to read; None for other types.

    Integers that have more than 40 digits are None, too.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_CHARACTERS:
        return None
    return str(value)


def shown(value: object) -> str:
    """Return a user's value for an error message: its first 40 characters."""
    if isinstance(value, str):
        return value[:_SHOWN] + ("…" if len(value) > _SHOWN else "")
    # The text of a nested value or of a huge integer can be of any length.
    text = number_text(value)
    return shown(text) if text is not None else f"a value of type {type(value).__name__}"
