"""Checks of an endpoint's tokens: digest, expiry, client address, requests per minute."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# Longer texts are not tokens and are rejected without hashing.
MAX_TOKEN_CHARACTERS = 256


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(slots=True)
class RequestRate:
    """Limits the requests per minute; all requests of a minute may come in one burst."""

    per_minute: int
    _left: float = 0.0
    _at: float | None = None

    def take(self, now: float) -> float:
        """Count a request and return 0, or reject it and return the seconds to wait."""
        if self._at is None:
            self._left = float(self.per_minute)
        else:
            refill = max(0.0, now - self._at) * self.per_minute / 60
            self._left = min(float(self.per_minute), self._left + refill)
        self._at = now
        if self._left >= 1 - 1e-9:
            self._left -= 1
            return 0.0
        return (1 - self._left) * 60 / self.per_minute if self.per_minute else 60.0
