"""Rules of schedules: the days and times of day at which sessions start or stop.

A rule is ``DAYS TIMES``, such as ``mon-fri 08:00`` or ``sat,sun 09:30,14:00``, or a cron expression
of five fields. Libraries for cron are not used: they accept more than users need (names of months,
seconds, ``L`` and ``#``), and none limits the number of times per day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from ...errors import InvalidRequest

MAX_RULE_CHARS = 200
# Maximum number of times per day, which limits the number of runs of a schedule.
MAX_TIMES_PER_DAY = 24
DAILY = "daily"
# In the order of ``date.weekday``.
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_NUMBER = r"[0-9]{1,2}"
_CRON_PART = re.compile(
    rf"(?:\*|(?P<first>{_NUMBER}|[a-z]{{3}})(?:-(?P<last>{_NUMBER}|[a-z]{{3}}))?)(?:/(?P<step>{_NUMBER}))?"
)
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_MINUTES, _HOURS, _DAYS, _MONTHS = (0, 59), (0, 23), (1, 31), (1, 12)
# Weekdays of cron: 0 and 7 are Sunday.
_CRON_WEEKDAYS = (0, 7)


@dataclass(frozen=True, slots=True)
class Rule:
    """Wall-clock times on matching days.

    ``times`` are minutes after midnight, ascending. A day matches if its month is in ``months``
    and its day of the month and weekday (0: Monday) are in ``days`` and ``weekdays``; with
    ``is_any_day``, a match of ``days`` or ``weekdays`` is enough.
    """

    times: tuple[int, ...]
    weekdays: frozenset[int]
    days: frozenset[int] = frozenset(range(1, 32))
    months: frozenset[int] = frozenset(range(1, 13))
    is_any_day: bool = False

    def matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.weekday() in self.weekdays
        return (is_day or is_weekday) if self.is_any_day else (is_day and is_weekday)


def parse_rule(text: str, field: str) -> Rule:
    """Parse a rule; ``field`` is the field of the request.

    Raises
    ------
    InvalidRequest
        If the text is not a rule, or the rule has too many times per day.
    """
    try:
        return _parse(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{field}: {error}; write days and times ('mon-fri 08:00', 'daily 09:30,14:00') or a "
            "cron expression ('0 8 * * 1-5')",
            field=field,
        ) from None


def _parse(text: str) -> Rule:
    if len(text) > MAX_RULE_CHARS:
        raise ValueError(f"a rule has at most {MAX_RULE_CHARS} characters")
    parts = text.lower().split()
    if len(parts) == 2:
        return Rule(_checked_times(map(_time, parts[1].split(","))), _weekdays(parts[0]))
    if len(parts) == 5:
        return _cron(parts)
    raise ValueError(f"a rule has two or five parts separated by spaces, not {len(parts)}")


def _weekdays(text: str) -> frozenset[int]:
    if text == DAILY:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start, end = _weekday(first), _weekday(last if dash else first)
        # fri-mon is Friday to Monday.
        found |= {(start + n) % 7 for n in range((end - start) % 7 + 1)}
    return frozenset(found)


def _weekday(text: str) -> int:
    if text not in WEEKDAYS:
        raise ValueError(f"{text[:20]!r} is not a day ({', '.join(WEEKDAYS)} or {DAILY})")
    return WEEKDAYS.index(text)


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None or int(found[1]) > 23 or int(found[2]) > 59:
        raise ValueError(f"{text[:20]!r} is not a time of day (08:00)")
    return int(found[1]) * 60 + int(found[2])


def _checked_times(minutes: Iterable[int]) -> tuple[int, ...]:
    times = tuple(sorted(set(minutes)))
    if len(times) > MAX_TIMES_PER_DAY:
        raise ValueError(f"{len(times)} times per day; at most {MAX_TIMES_PER_DAY} are allowed")
    return times


def _cron(parts: list[str]) -> Rule:
    minutes, hours = _cron_field(parts[0], _MINUTES), _cron_field(parts[1], _HOURS)
    weekdays = frozenset((n - 1) % 7 for n in _cron_field(parts[4], _CRON_WEEKDAYS))
    return Rule(
        times=_checked_times(hour * 60 + minute for hour in hours for minute in minutes),
        weekdays=weekdays,
        days=_cron_field(parts[2], _DAYS),
        months=_cron_field(parts[3], _MONTHS),
        # As in cron: if both are restricted, a day matches if one of them matches.
        is_any_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )


def _cron_field(text: str, bounds: tuple[int, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:20]!r} is not a part of a cron expression")
        first, last = bounds
        if bounds is _CRON_WEEKDAYS:
            last = 6
        if (start := match["first"]) is not None:
            first = _cron_number(start, bounds)
            # N/STEP begins at N.
            is_single = match["last"] is None and match["step"] is None
            last = first if is_single else max(first, last)
            if (end := match["last"]) is not None:
                # In sun-thu, Sunday is 0; in fri-sun, it is 7.
                last = 7 if end == "sun" and first > 0 else _cron_number(end, bounds)
        step = int(match["step"] or 1)
        if step == 0 or first > last:
            raise ValueError(f"{part[:20]!r} is empty")
        found |= set(range(first, last + 1, step))
    return frozenset(found)


def _cron_number(text: str, bounds: tuple[int, int]) -> int:
    if not text.isdigit():
        if bounds is not _CRON_WEEKDAYS:
            raise ValueError(f"{text!r} is not a number")
        return (_weekday(text) + 1) % 7
    number = int(text)
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{number} is not between {bounds[0]} and {bounds[1]}")
    return number
