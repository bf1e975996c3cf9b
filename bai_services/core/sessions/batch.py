"""Fields of a batch session: command, begin time and timeout."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..durations import format_duration, parse_duration
from ..errors import InvalidRequest
from ..user_input import shown
from .lifecycle import SessionType

COMMAND_BYTES = 16 * 1024
MAX_TIME_CHARACTERS = 40
LATEST_START = timedelta(days=365)
LONGEST_TIMEOUT = 365 * 86400

BATCH_FIELDS = ("startup_command", "starts_at", "batch_timeout")


@dataclass(frozen=True, slots=True)
class Batch:
    """Fields that only batch sessions have; all None for others."""

    startup_command: str | None = None
    starts_at: datetime | None = None
    batch_timeout_seconds: int | None = None


def check_batch(kind: SessionType, asked: Mapping[str, Any], now: datetime) -> Batch:
    """Check the fields of a session of that type.

    ``asked`` holds ``startup_command``, ``starts_at`` and ``batch_timeout`` as received, None if
    missing.

    Raises
    ------
    InvalidRequest
        If a batch session has no command, another one has any of the three, the
        begin time is past, or a text cannot be parsed.
    """
    if kind is not SessionType.BATCH:
        given = [name for name in BATCH_FIELDS if asked.get(name) is not None]
        if given:
            raise InvalidRequest(
                f"{', '.join(given)}: only batch sessions have that; use type=batch",
                field=given[0],
            )
        return Batch()
    starts_at, timeout = asked.get("starts_at"), asked.get("batch_timeout")
    return Batch(
        _command(asked.get("startup_command")),
        None if starts_at is None else not_before(str(starts_at), now),
        None if timeout is None else _timeout(timeout),
    )


def not_before(text: str, now: datetime) -> datetime:
    """Return the time in ``text``: ISO 8601 with a time zone, or a duration from now.

    Raises
    ------
    InvalidRequest
        If it cannot be parsed, has no zone, is past or more than a year ahead.
    """
    at = _time(text, now)
    if at.tzinfo is None:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} has no time zone; write for instance "
            "2030-01-31T09:00+09:00, 2030-01-31T00:00Z, or a span from now on such as 10min",
            field="starts_at",
        )
    if at < now:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} is past: it was "
            f"{format_duration((now - at).total_seconds())} ago; "
            "leave it out to start as soon as possible",
            field="starts_at",
        )
    if at > now + LATEST_START:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} is more than {LATEST_START.days} days ahead",
            field="starts_at",
        )
    return at.astimezone(UTC)


def _command(text: str | None) -> str:
    if text is None or not text.strip():
        raise InvalidRequest(
            "a batch session needs a startup_command, such as 'python train.py'",
            field="startup_command",
        )
    if len(text.encode(errors="replace")) > COMMAND_BYTES or "\0" in text:
        raise InvalidRequest(
            f"startup_command holds a NUL or has more than {COMMAND_BYTES} bytes; put a script "
            "into a folder and call that",
            field="startup_command",
        )
    return text


def _time(text: str, now: datetime) -> datetime:
    # A bare number is in seconds, even one of eight digits, which ISO 8601 would read as a date.
    if len(text) <= MAX_TIME_CHARACTERS and not text.strip().isdigit():
        with suppress(ValueError):
            return datetime.fromisoformat(text.strip())
    return now + timedelta(seconds=parse_duration(text, "starts_at"))


def _timeout(text: str | int) -> int:
    seconds = parse_duration(text, "batch_timeout")
    if not 1 <= seconds <= LONGEST_TIMEOUT:
        raise InvalidRequest(
            f"batch_timeout={shown(text)} is not within 1 second to "
            f"{LONGEST_TIMEOUT // 86400} days",
            field="batch_timeout",
        )
    return seconds
