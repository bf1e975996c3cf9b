"""Password hashes: argon2id, computed in threads, at most ``AT_ONCE`` at a time."""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

# Each hash uses its memory until it is done; more at once than there are cores gains nothing.
AT_ONCE = 2
PARALLELISM = 1


class Passwords:
    """Hashes and verifies without blocking the event loop."""

    def __init__(self, memory_kib: int, rounds: int) -> None:
        self._hasher = PasswordHasher(
            time_cost=rounds, memory_cost=memory_kib, parallelism=PARALLELISM
        )
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        async with self._turn:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password is right.

        Without a hash, the same work is done on a hash that matches nothing, so that the time taken
        does not reveal whether an account exists.
        """
        if self._dummy is None:
            self._dummy = await self.hash("nobody's password")
        async with self._turn:
            is_right = await asyncio.to_thread(self._verify, password_hash or self._dummy, password)
        return is_right and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether the hash was made with other parameters than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False
