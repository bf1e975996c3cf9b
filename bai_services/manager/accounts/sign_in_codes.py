"""Codes that let a signed-in browser sign in the CLI (`bai login`; PKCE, S256)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bai_services.core.errors import InvalidRequest

LIFETIME = timedelta(minutes=2)
MAX_PENDING = 1000
# The codes of one user must not evict those of other users.
MAX_PENDING_PER_USER = 10


@dataclass(frozen=True, slots=True)
class SignInCode:
    """An issued code; ``token`` is the Hub token of the browser's sign-in."""

    username: str
    challenge: str
    token: str
    expires_at: datetime


class SignInCodes:
    """Issues codes that can be used once.

    The codes are in memory only: after a restart, the user must start the browser sign-in again.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._issued: dict[str, SignInCode] = {}

    def create(self, username: str, challenge: str, token: str) -> tuple[str, SignInCode]:
        """Return a code, which requires the verifier with the SHA-256 ``challenge``.

        At the limit of the user, evict the user's oldest code; at the total limit, evict the oldest
        code.

        Raises
        ------
        InvalidRequest
            If the challenge is not a SHA-256.
        """
        now = self._clock()
        if len(challenge) != 43:
            raise InvalidRequest(
                "the challenge is not a SHA-256 in URL-safe base64", field="challenge"
            )
        self._issued = {k: c for k, c in self._issued.items() if c.expires_at > now}
        own = [key for key, issued in self._issued.items() if issued.username == username]
        if len(own) >= MAX_PENDING_PER_USER:
            del self._issued[own[0]]
        elif len(self._issued) >= MAX_PENDING:
            del self._issued[next(iter(self._issued))]
        code = secrets.token_urlsafe(32)
        issued = SignInCode(username, challenge, token, now + LIFETIME)
        self._issued[_sha256(code)] = issued
        return code, issued

    def take(self, code: str, verifier: str) -> SignInCode | None:
        """Return and invalidate a code; None if it has expired or the verifier is wrong."""
        issued = self._issued.pop(_sha256(code), None)
        is_valid = (
            issued is not None
            and issued.expires_at > self._clock()
            and hmac.compare_digest(issued.challenge, _sha256(verifier))
        )
        return issued if is_valid else None

    def discard(self, username: str) -> None:
        """Invalidate the codes of a user."""
        self._issued = {k: c for k, c in self._issued.items() if c.username != username}


def _sha256(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
