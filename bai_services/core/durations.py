"""Spans of time as people write them: ``90``, ``10min``, ``1h30m``, ``2 days``."""

from __future__ import annotations

import re

from .errors import InvalidRequest

_UNITS = {
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
    "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*", re.ASCII)


def parse_duration(text: str | int, field: str) -> int:
    """Return the seconds that ``text`` means; a bare number counts seconds.

    Raises
    ------
    InvalidRequest
        If it is no span of time, naming ``field``.
    """
    lowered = str(text).strip().lower()
    if re.fullmatch(r"\d{1,9}", lowered, re.ASCII):
        return int(lowered)
    seconds, end = 0, 0
    while end < len(lowered):
        part = _PART.match(lowered, end)
        if part is None or part[2] not in _UNITS:
            break
        seconds += int(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not lowered or end < len(lowered):
        raise InvalidRequest(
            f"{str(text)[:40]!r} is no span of time; write for instance 90, 10min, 2h or 1h30m",
            field=field,
        )
    return seconds


def format_duration(seconds: float) -> str:
    """Return a span of time in its two largest units: ``1h 30min``."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
