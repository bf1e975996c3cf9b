"""The rule for passwords and the rule for repeated failures."""

from __future__ import annotations

import unicodedata
from datetime import timedelta

from ..errors import InvalidRequest

MIN_LENGTH = 8
# Longer ones only cost time to hash.
MAX_LENGTH = 256

FAILURES_ALLOWED = 10
BLOCK_TIME = timedelta(seconds=1200)
# Of any names, from one address: many people may share one.
ADDRESS_FAILURES_ALLOWED = 100
MAX_DELAY_SECONDS = 10.0


def delay_seconds(attempts: int) -> float:
    """Return for how long to hold up an attempt, by how many there were of late, itself included.

    >>> [delay_seconds(n) for n in (1, 10, 11, 12, 13, 14, 15, 1000)]
    [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    """
    if attempts <= FAILURES_ALLOWED:
        return 0.0
    doublings = min(attempts - FAILURES_ALLOWED - 1, 8)
    return min(MAX_DELAY_SECONDS, float(2**doublings))


def broken_rules(password: str, username: str, email: str) -> list[str]:
    """Return what is wrong with a new password, each as the end of "the password …"."""
    found = []
    if len(password) < MIN_LENGTH:
        found.append(f"must have at least {MIN_LENGTH} characters")
    if len(password) > MAX_LENGTH:
        # The other rules look at every character.
        return [f"must have at most {MAX_LENGTH} characters"]
    if any(unicodedata.category(char) == "Cc" for char in password):
        found.append("must not hold control characters")
    if not any(char.isalpha() for char in password):
        found.append("must hold a letter")
    if not any(char.isdigit() for char in password):
        found.append("must hold a digit")
    if all(char.isalpha() or char.isdigit() for char in password):
        found.append("must hold a character that is neither letter nor digit")
    lower = password.lower()
    # A name of one or two letters is inside of almost everything.
    if len(username) > 2 and username.lower() in lower:
        found.append("must not hold the user name")
    if email and email.lower() in lower:
        found.append("must not hold the e-mail address")
    return found


def check_password(password: str, username: str, email: str) -> None:
    """Raise ``InvalidRequest`` naming every part of the rule that a new password breaks."""
    found = broken_rules(password, username, email)
    if found:
        raise InvalidRequest(
            "the password " + ", ".join(found), field="password", broken_rules=found
        )
