"""Batch sessions: validation of command, start time and timeout."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ..duration_text import format_duration
from ..durations import parse_duration
from ..errors import InvalidRequest
from ..user_input import shown
from .lifecycle import SessionType

MAX_COMMAND_BYTES = 16 * 1024
MAX_TIME_CHARACTERS = 40
MAX_START_DELAY = timedelta(days=365)
MAX_TIMEOUT_SECONDS = 365 * 86400

BATCH_FIELDS = ("startup_command", "starts_at", "batch_timeout")


@dataclass(frozen=True, slots=True)
class Batch:
    """Validated fields of a batch session; all None for a session of another type."""

    startup_command: str | None = None
    starts_at: datetime | None = None
    batch_timeout_seconds: int | None = None


def check_batch(kind: SessionType, requested: Mapping[str, Any], now: datetime) -> Batch:
    """Validate the batch fields of a request for a session of type ``kind``.

    ``requested`` has ``startup_command``, ``starts_at`` and ``batch_timeout`` as received; a
    missing field is None.

    Raises
    ------
    InvalidRequest
        If a batch session has no command, a session of another type has one of these fields, or the
        command, the start time or the timeout is not valid. Of these fields, a replica has only the
        command.
    """
    if kind is SessionType.INFERENCE:
        return Batch(_command(requested.get("startup_command")))
    if kind is not SessionType.BATCH:
        given = [name for name in BATCH_FIELDS if requested.get(name) is not None]
        if given:
            raise InvalidRequest(
                f"{', '.join(given)}: only batch sessions have these fields; use type=batch",
                field=given[0],
            )
        return Batch()
    starts_at, timeout = requested.get("starts_at"), requested.get("batch_timeout")
    return Batch(
        _command(requested.get("startup_command")),
        None if starts_at is None else parse_start_time(str(starts_at), now),
        None if timeout is None else _timeout(timeout),
    )


def parse_start_time(text: str, now: datetime) -> datetime:
    """Parse a start time: ISO 8601 with a time zone, or a duration from now.

    Raises
    ------
    InvalidRequest
        If the text cannot be parsed, has no time zone, or is in the past or more than a year ahead.
    """
    at = _time(text, now)
    if at.tzinfo is None:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} has no time zone; write a time such as "
            "2030-01-31T09:00+09:00 or 2030-01-31T00:00Z, or a duration from now such as 10min",
            field="starts_at",
        )
    if at < now:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} is in the past: it was "
            f"{format_duration((now - at).total_seconds())} ago; "
            "omit it to start as soon as possible",
            field="starts_at",
        )
    if at > now + MAX_START_DELAY:
        raise InvalidRequest(
            f"starts_at={shown(text)!r} is more than {MAX_START_DELAY.days} days ahead",
            field="starts_at",
        )
    return at.astimezone(UTC)


def _command(text: str | None) -> str:
    if text is None or not text.strip():
        raise InvalidRequest(
            "a batch session needs a command, such as 'python train.py'",
            field="startup_command",
        )
    if len(text.encode(errors="replace")) > MAX_COMMAND_BYTES or "\0" in text:
        raise InvalidRequest(
            f"startup_command contains a NUL or has more than {MAX_COMMAND_BYTES} bytes; store a "
            "script in a folder and run it",
            field="startup_command",
        )
    return text


def _time(text: str, now: datetime) -> datetime:
    # A number is a duration in seconds, even with eight digits, which could be an ISO 8601 date.
    if len(text) <= MAX_TIME_CHARACTERS and not text.strip().isdigit():
        with suppress(ValueError):
            return datetime.fromisoformat(text.strip())
    return now + timedelta(seconds=parse_duration(text, "starts_at"))


def _timeout(text: str | int) -> int:
    seconds = parse_duration(text, "batch_timeout")
    if not 1 <= seconds <= MAX_TIMEOUT_SECONDS:
        raise InvalidRequest(
            f"batch_timeout={shown(text)} must be 1 second to {MAX_TIMEOUT_SECONDS // 86400} days",
            field="batch_timeout",
        )
    return seconds
