"""Sign-ins with a correct password that the user still has to confirm.

The credentials are kept in memory for two minutes, so that neither the page nor the browser has to
store the password. The confirmed sign-in is checked again like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LIFETIME_SECONDS = 120.0
MAX_PENDING = 1000


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str
    password: str = field(repr=False)


class PendingSignIns:
    """Stores credentials under a secret key that can be used once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending: dict[str, tuple[float, Credentials]] = {}

    def add(self, credentials: Credentials) -> str:
        """Store the credentials and return the key for ``take``.

        If ``MAX_PENDING`` sign-ins are stored already, drop the oldest one.
        """
        now = self._clock()
        self._pending = {key: entry for key, entry in self._pending.items() if entry[0] > now}
        while len(self._pending) >= MAX_PENDING:
            self._pending.pop(next(iter(self._pending)))
        key = secrets.token_urlsafe(32)
        self._pending[key] = (now + LIFETIME_SECONDS, credentials)
        return key

    def take(self, key: str) -> Credentials | None:
        """Return and remove the credentials; None if the key is unknown, used or expired."""
        ends_at, credentials = self._pending.pop(key, (0.0, None))
        return credentials if ends_at > self._clock() else None
