"""Hash and verify passwords with argon2id, in threads."""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

# Limits the peak memory: each hash uses ``memory_kib`` (64 MiB by default) while it is computed.
MAX_CONCURRENT_HASHES = 2
PARALLELISM = 1


class PasswordHashes:
    """Hashes and verifies without blocking the event loop."""

    def __init__(self, memory_kib: int, rounds: int) -> None:
        self._hasher = PasswordHasher(
            time_cost=rounds, memory_cost=memory_kib, parallelism=PARALLELISM
        )
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_HASHES)
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        async with self._slots:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches the hash.

        If the hash is None, a dummy hash is verified, so that the response time does not reveal
        whether an account exists.
        """
        if self._dummy is None:
            self._dummy = await self.hash("dummy")
        async with self._slots:
            matches = await asyncio.to_thread(self._verify, password_hash or self._dummy, password)
        return matches and password_hash is not None

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether the hash was computed with parameters other than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False
