"""Hash and verify passwords with argon2id, in threads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from bai_services.core.accounts.passwords import OVERLOADED
from bai_services.core.errors import SignInBlocked, Unavailable

# Limits the peak memory: each hash uses ``memory_kib`` (64 MiB by default) while it is computed.
MAX_CONCURRENT_HASHES = 2
PARALLELISM = 1
# Maximum number of sign-in attempts in progress, per client and of all clients. When half of this
# number is reached, each client can have only one attempt in progress, so that a few clients cannot
# block all others.
MAX_ATTEMPTS_PER_CLIENT = 16
MAX_ATTEMPTS = 256
RETRY_AFTER_SECONDS = 5


class PasswordHashes:
    """Hashes and verifies without blocking the event loop."""

    def __init__(self, memory_kib: int, rounds: int) -> None:
        self._hasher = PasswordHasher(
            time_cost=rounds, memory_cost=memory_kib, parallelism=PARALLELISM
        )
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_HASHES)
        self._dummy: str | None = None
        self._attempts: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    @contextmanager
    def attempt(self, client: str) -> Iterator[None]:
        """Reserve a place in the queue for an attempt; ``client`` is the sender's address.

        Raises
        ------
        SignInBlocked
            If too many attempts of the client are in progress.
        Unavailable
            If too many attempts of all clients are in progress.
        """
        total = self._attempts.total()
        if self._attempts[client] >= (MAX_ATTEMPTS_PER_CLIENT if total < MAX_ATTEMPTS // 2 else 1):
            raise SignInBlocked(
                "too many sign-ins from this address are in progress; try again in "
                f"{RETRY_AFTER_SECONDS} s",
                reason=OVERLOADED,
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if total >= MAX_ATTEMPTS:
            raise Unavailable(
                f"too many sign-ins are in progress; try again in {RETRY_AFTER_SECONDS} s",
                reason=OVERLOADED,
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        self._attempts[client] += 1
        self._turns.setdefault(client, asyncio.Lock())
        try:
            yield
        finally:
            self._attempts[client] -= 1
            if not self._attempts[client]:
                del self._attempts[client], self._turns[client]

    async def hash(self, password: str) -> str:
        async with self._slots:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify_attempt(self, client: str, password_hash: str | None, password: str) -> bool:
        """Verify the password of an attempt, after the client's earlier attempts.

        Each client has at most one computation in the shared queue, so a client with many attempts
        delays other clients by at most one computation.
        """
        with self.attempt(client):
            async with self._turns[client]:
                return await self.verify(password_hash, password)

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
