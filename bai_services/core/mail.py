"""Mails in the queue, and the times of their delivery attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

FIRST_RETRY = timedelta(seconds=30)
MAX_RETRY = timedelta(hours=1)
# Time after which an undelivered mail is discarded.
DEFAULT_LIFETIME = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail in the queue.

    ``kind`` selects the text templates; ``values`` are their values. ``values`` must contain no
    secret: the sender adds a secret link at the time of the delivery (``Mails.prepare``).
    """

    id: str
    created_at: datetime
    kind: str
    recipient: str
    language: str
    expires_at: datetime
    values: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class MailStatus:
    """State of the mail settings and of the queue; ``last_error``: error of a pending mail."""

    is_configured: bool
    server: str
    security: str
    sender: str
    pending: int
    last_error: str


@dataclass(frozen=True, slots=True)
class SentTestMail:
    """A test mail that the mail server has accepted."""

    recipient: str
    server: str


def retry_delay(attempts: int) -> timedelta:
    """Return the delay of the next attempt after ``attempts`` failed attempts.

    >>> [retry_delay(n).total_seconds() for n in (1, 2, 3, 8, 1000)]
    [30.0, 60.0, 120.0, 3600.0, 3600.0]
    """
    return min(MAX_RETRY, FIRST_RETRY * (1 << min(attempts - 1, 10)))
