"""Limits for requests of users who are not signed in, per network address and per name."""

from __future__ import annotations

import hashlib
import hmac
import math
from datetime import datetime

from bai_services.core.accounts.passwords import BLOCK_TIME
from bai_services.core.errors import SignInBlocked
from bai_services.db.accounts.sign_in_attempts import SignInAttemptStore
from bai_services.db.database import Database

from .lockouts import network_of

# Number of requests before a block of 20 minutes. The count is reset 20 minutes after the last
# request.
MAX_REQUESTS_PER_ADDRESS = 20
MAX_REQUESTS_PER_NAME = 3


class RequestLimits:
    """Counts requests like failed sign-ins, under separate subjects.

    The counts depend only on the address and the name in the request, never on whether an account
    with this name exists.
    """

    def __init__(self, database: Database, subject_key: bytes) -> None:
        self._store = SignInAttemptStore(database)
        self._key = subject_key

    async def count(self, kind: str, client_ip: str, now: datetime, name: str = "") -> bool:
        """Count a request; return whether the limit for the name permits the request.

        Raises
        ------
        SignInBlocked
            If there were too many requests from this address.
        """
        address = self._subject(f"{kind} address", network_of(client_ip))
        allowed: dict[str, int | None] = {address: MAX_REQUESTS_PER_ADDRESS}
        named = self._subject(f"{kind} name", name)
        if name:
            # The attempt that reaches the maximum is the last one that is permitted.
            allowed[named] = MAX_REQUESTS_PER_NAME
        counted = await self._store.count_attempt(allowed, now, BLOCK_TIME)
        until = counted[address].blocked_until
        if until is not None:
            seconds = max(1, math.ceil((until - now).total_seconds()))
            raise SignInBlocked(
                f"too many requests from this address; try again in {math.ceil(seconds / 60)} min",
                retry_after_seconds=seconds,
            )
        return not name or counted[named].blocked_until is None

    def _subject(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()
