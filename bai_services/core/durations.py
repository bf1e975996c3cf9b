"""Parsing of durations such as ``90``, ``10min``, ``1h30m`` or ``2 days``."""

from __future__ import annotations

import re

from .errors import InvalidRequest
from .user_input import number_text, read_whole, shown

MAX_DURATION_CHARACTERS = 40
# About 68 years, the largest value of a 32-bit integer column.
MAX_DURATION_SECONDS = 2**31 - 1

_UNITS = {
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
    "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*", re.ASCII)


def parse_duration(text: str | int, field: str) -> int:
    """Parse a duration and return it in seconds; a number without a unit is in seconds.

    Raises
    ------
    InvalidRequest
        If the text is not a duration or has more than 40 characters, or if the duration exceeds
        2,147,483,647 seconds. ``field`` is the field name in the error.
    """
    number = number_text(text)
    seconds = None if number is None else _seconds(number.strip().lower())
    if seconds is None:
        raise InvalidRequest(
            f"{shown(text)!r} is not a duration, such as 90, 10min, 2h or 1h30m",
            field=field,
        )
    if seconds > MAX_DURATION_SECONDS:
        raise InvalidRequest(
            f"{shown(text)!r} is longer than {MAX_DURATION_SECONDS} seconds "
            f"({MAX_DURATION_SECONDS // 86400} days)",
            field=field,
        )
    return seconds


def _seconds(text: str) -> int | None:
    if len(text) > MAX_DURATION_CHARACTERS or not text:
        return None
    bare = read_whole(text)
    if bare is not None:
        return bare
    seconds, end = 0, 0
    while end < len(text):
        part = _PART.match(text, end)
        if part is None or part[2] not in _UNITS:
            return None
        seconds += int(part[1]) * _UNITS[part[2]]
        end = part.end()
    return seconds
