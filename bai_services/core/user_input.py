"""Parse numbers in user input; truncate user input for error messages."""

from __future__ import annotations

import re
from decimal import Decimal

# Limited because the run time of int() grows faster than the length of the text.
MAX_NUMBER_CHARACTERS = 40
_WHOLE = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,2})?", re.IGNORECASE)
_USER_INFO = re.compile(r"//[^/]*@")
_SHOWN = 40


def read_whole(text: str) -> int | None:
    """Parse a whole number of at most 40 ASCII digits; return None for any other text."""
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARACTERS or _WHOLE.fullmatch(text) is None:
        return None
    return int(text)


def read_decimal(text: str) -> Decimal | None:
    """Parse a non-negative decimal number; return None for any other text.

    The number has ASCII digits with at most one decimal point, and an optional exponent of at most
    two digits: at most 40 characters in total. Signs, underscores, NaN and infinity are invalid.
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARACTERS or _DECIMAL.fullmatch(text) is None:
        return None
    return Decimal(text)


def number_text(value: object) -> str | None:
    """Return a number or text from JSON or YAML as text; None for other types and for integers
    with more than 40 digits.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_CHARACTERS:
        return None
    return str(value)


def without_user_info(url: str) -> str:
    """Return a URL for an error message, without the user name and password that it may contain."""
    return _USER_INFO.sub("//…@", url)


def shown(value: object) -> str:
    """Return a value from a user for an error message, truncated to 40 characters."""
    if isinstance(value, str):
        return value[:_SHOWN] + ("…" if len(value) > _SHOWN else "")
    if value is None:
        return "null"
    # Convert only numbers: the text of any other type can have any length.
    text = number_text(value)
    return shown(text) if text is not None else f"a value of type {type(value).__name__}"
