"""Format values of the REST API: sizes, resource slots, durations and times."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import CPU, MEM, format_amount, parse_amount

_SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
# Units of a duration: length in seconds and symbol.
_DURATION_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_TIME_LENGTH = len("2030-01-31T09:00:00Z")


def size(amount: int) -> str:
    """Format a number of bytes with a binary unit, rounded: ``1.5 GiB``."""
    if amount < 1024:
        return f"{amount} B"
    power = 1
    while power < len(_SIZE_UNITS) and amount >= 1023.5 * 1024**power:
        power += 1
    number, unit = amount / 1024**power, _SIZE_UNITS[power - 1]
    return f"{number:.3g} {unit}" if number < 100 else f"{number:.0f} {unit}"


def slots(amounts: Mapping[str, str]) -> str:
    """Format resource slots with their units: ``1 CPU, 1 GiB, cuda.shares=0.25``."""
    return ", ".join(slot(name, text) for name, text in amounts.items())


def slot(name: str, text: str) -> str:
    """Format one resource slot with its unit: ``1 CPU``, ``1 GiB``, ``cuda.shares=0.25``."""
    if name == CPU:
        return f"{text} CPU"
    if name == MEM:
        return memory(text)
    return f"{name}={text}"


def memory(text: str) -> str:
    """Format an amount of memory such as ``1536m`` as a size; return any other text unchanged."""
    try:
        return size(parse_amount(MEM, text))
    except InvalidRequest:
        return text


def amount(name: str, number: int) -> str:
    """Format an integer amount of slot ``name``: bytes as a size, other slots without a unit.

    ``number`` has the unit of ``core.resources.slot_type``.
    """
    return size(number) if name == MEM else format_amount(name, number)


def money(number: float, currency: str) -> str:
    """Format an amount of money with two decimal places: ``12.50 EUR``."""
    return f"{number:.2f} {currency}".strip()


def with_currency(item: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return an object in which the amounts ``names`` are texts with its currency.

    An amount below zero is the excess over a budget: ``0.22 EUR over``.
    """
    texts = {
        name: money(abs(item[name]), item["currency"])
        + (" over" if round(item[name], 2) < 0 else "")
        for name in names
        if item.get(name) is not None
    }
    return {**item, **texts}


def duration(seconds: float) -> str:
    """Format a duration in its largest unit: ``12 h``.

    A number of days or hours below 10 is followed by the next smaller unit, unless that is 0:
    ``1 h 5 min``. Seconds appear only below 1 min.
    """
    whole = max(0, int(seconds))
    for number, (unit_seconds, unit) in enumerate(_DURATION_UNITS):
        if whole >= unit_seconds:
            count, rest = divmod(whole, unit_seconds)
            text = f"{count} {unit}"
            if count < 10 and number + 1 < len(_DURATION_UNITS):
                smaller_seconds, smaller = _DURATION_UNITS[number + 1]
                if more := rest // smaller_seconds:
                    text += f" {more} {smaller}"
            return text
    return f"{whole} s"


def clock(seconds: float) -> str:
    """Format a number of elapsed seconds like a clock: ``0:12``, ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def parse_time(text: str | None) -> datetime | None:
    """Parse a time of the REST API; return None for any other text."""
    if text is None or len(text) < _TIME_LENGTH or text[10:11] != "T":
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def since(text: str | None, until: str | None = None) -> str:
    """Format the time from ``text`` to ``until`` (default: now).

    Return an empty string if ``text`` is not a time of the REST API.
    """
    begin = parse_time(text)
    end = parse_time(until) or datetime.now(UTC)
    return "" if begin is None else duration((end - begin).total_seconds())


def relative(when: datetime) -> str:
    """Format a time relative to now: ``just now``, ``4 min ago``, ``in 45 s``, ``in 2 h``.

    For a time more than 30 days away, return the date in the local time zone.
    """
    seconds = (datetime.now(UTC) - when).total_seconds()
    if abs(seconds) > 30 * 86400:
        return when.astimezone().strftime("%Y-%m-%d")
    if seconds <= -1:
        return f"in {duration(-seconds)}"
    return "just now" if seconds < 60 else f"{duration(seconds)} ago"


def relative_text(text: str | None) -> str:
    """Format a time of the REST API relative to now; empty for no time."""
    when = parse_time(text)
    return "" if when is None else relative(when)


def is_ahead(text: str) -> bool:
    """Return whether a time of the REST API is at least a second ahead."""
    when = parse_time(text)
    return when is not None and (when - datetime.now(UTC)).total_seconds() >= 1


def local(when: datetime) -> str:
    """Format a time in the local time zone, to the second."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def with_local_times(text: str) -> str:
    """Replace each time of the REST API in a message by the time in the local time zone."""

    def replace(match: re.Match[str]) -> str:
        when = parse_time(match[0])
        return match[0] if when is None else local(when)

    return _TIME.sub(replace, text)
