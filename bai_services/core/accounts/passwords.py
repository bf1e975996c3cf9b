"""Rules for new passwords, the expiry of passwords, and delays after failed sign-ins."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta

from ..errors import InvalidRequest

MIN_LENGTH = 8
# Limited because the cost of hashing grows with the length of the password.
MAX_LENGTH = 256

FAILURES_ALLOWED = 10
BLOCK_TIME = timedelta(seconds=1200)
# Limit per IP address, for all user names together. It is higher than the limit per user name,
# because many users may share an address.
ADDRESS_FAILURES_ALLOWED = 100
MAX_DELAY_SECONDS = 10.0
# Reason of a sign-in that is rejected because too many sign-ins are in progress.
OVERLOADED = "overloaded"


def delay_seconds(attempts: int) -> float:
    """Return the delay of a sign-in attempt in seconds, from 0 to 10.

    ``attempts`` is the number of recent failed attempts, plus one for the current attempt.

    >>> [delay_seconds(n) for n in (1, 10, 11, 12, 13, 14, 15, 1000)]
    [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    if attempts <= FAILURES_ALLOWED:
        return 0.0
    doublings = min(attempts - FAILURES_ALLOWED - 1, 8)
    return min(MAX_DELAY_SECONDS, float(2**doublings))


def is_expired(changed_at: datetime | None, max_age_days: int, now: datetime) -> bool:
    """Return whether a password is older than ``max_age_days``; 0 means no maximum age.

    If there is a maximum age, a password of unknown age counts as expired.

    >>> from datetime import UTC
    >>> changed_at, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    >>> [is_expired(changed_at, days, now) for days in (0, 30, 90)]
    [False, True, False]
    """
    if not max_age_days:
        return False
    return changed_at is None or now - changed_at > timedelta(days=max_age_days)


def broken_rules(password: str, username: str, email: str) -> list[str]:
    """Return the rules that a new password breaks, each as a phrase such as "must contain a digit".

    For a password that is too long, only the rule about the length is returned.
    """
    broken = []
    if len(password) < MIN_LENGTH:
        broken.append(f"must have at least {MIN_LENGTH} characters")
    if len(password) > MAX_LENGTH:
        # Return at once: the other rules examine every character.
        return [f"must have at most {MAX_LENGTH} characters"]
    if any(unicodedata.category(char) == "Cc" for char in password):
        broken.append("must not contain control characters")
    if not any(char.isalpha() for char in password):
        broken.append("must contain a letter")
    if not any(char.isdigit() for char in password):
        broken.append("must contain a digit")
    if all(char.isalpha() or char.isdigit() for char in password):
        broken.append("must contain a character that is neither a letter nor a digit")
    lower = password.lower()
    # User names of one or two characters are not checked: many passwords contain them by chance.
    if len(username) > 2 and username.lower() in lower:
        broken.append("must not contain the user name")
    if email and email.lower() in lower:
        broken.append("must not contain the e-mail address")
    return broken


def check_password(password: str, username: str, email: str) -> None:
    """Raise ``InvalidRequest`` with all broken rules if a new password breaks any."""
    broken = broken_rules(password, username, email)
    if broken:
        raise InvalidRequest(
            "the password " + ", ".join(broken), field="password", broken_rules=broken
        )
