"""Formatting of durations."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """Return a duration, rounded to seconds, in its two largest non-zero units: ``1h 30min``."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
