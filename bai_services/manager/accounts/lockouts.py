"""Counters of failed sign-ins: per account, per typed name and per address.

Answers depend only on the typed name and the address, never on whether an account exists. The
counter of an account decides, without a visible difference, whether a correct password from a new
address is accepted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bai_services.core.accounts.passwords import (
    ADDRESS_FAILURES_ALLOWED,
    BLOCK_TIME,
    FAILURES_ALLOWED,
    delay_seconds,
)
from bai_services.core.errors import SignInBlocked
from bai_services.db.accounts.sign_in_failures import SignInFailureStore
from bai_services.db.audit import AuditEntry
from bai_services.db.database import Database

# Attempts with one name from one address that may wait at the same time.
MAX_WAITING = 8
# An IPv6 network with this prefix length is assumed to belong to one customer.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in attempt, counted before its outcome is known."""

    user_id: str | None
    name: str
    account: str
    address: str
    pair: str
    blocked_until: datetime | None  # shown to the client
    is_locked: bool  # locked accounts reject even a correct password from a new address
    is_from_known_address: bool

    @property
    def is_accepted(self) -> bool:
        """Whether a correct password is accepted."""
        return self.is_from_known_address or not (self.is_locked or self.blocked_until)


class Lockouts:
    """Counts failures; a known address is slowed down but never locked out."""

    def __init__(self, database: Database, subject_key: bytes) -> None:
        """``subject_key`` keys the hash that hides names and addresses in the table of failures."""
        self._store = SignInFailureStore(database)
        self._key = subject_key
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self.pause: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def begin(
        self, typed: str, user_id: str | None, client_ip: str, now: datetime
    ) -> Attempt:
        """Count an attempt, and delay it after many from this address.

        Raises
        ------
        SignInBlocked
            If too many attempts from this address are waiting already.
        """
        name, address = self._subject("name", typed), self._address(client_ip)
        account = self._subject("account", user_id or f"nobody {typed}")
        pair = self._subject("pair", f"{name} {address}")
        allowed = {
            name: FAILURES_ALLOWED,
            account: FAILURES_ALLOWED,
            address: ADDRESS_FAILURES_ALLOWED,
            pair: None,
        }
        counted = await self._store.count_attempt(allowed, now, BLOCK_TIME)
        known = await self._store.is_known(user_id or "", address)
        await self._slow_down(pair, delay_seconds(counted[pair].count))
        ends = [until for s in (name, address) if (until := counted[s].blocked_until) is not None]
        return Attempt(
            user_id=user_id,
            name=name,
            account=account,
            address=address,
            pair=pair,
            blocked_until=max(ends, default=None),
            is_locked=counted[account].blocked_until is not None,
            is_from_known_address=known,
        )

    async def succeeded(self, attempt: Attempt, now: datetime, audit: AuditEntry) -> None:
        """Reset the failures, and store the address as a known one of the account.

        A sign-in from a known address does not unlock the account for other addresses.
        """
        forgiven = [attempt.pair]
        if not attempt.is_locked:
            forgiven += [attempt.name, attempt.account]
        await self._store.reset_after_sign_in(
            forgiven, attempt.address, (attempt.user_id or "", attempt.address, now), audit
        )

    async def locked_until(self, user_ids: Sequence[str], now: datetime) -> dict[str, datetime]:
        """Return the time until which each locked account is locked."""
        subjects = {self._subject("account", user_id): user_id for user_id in user_ids}
        found = await self._store.blocked(list(subjects), now)
        return {subjects[subject]: until for subject, until in found.items()}

    async def unlock(self, user_id: str, names: Sequence[str], audit: AuditEntry) -> None:
        """Reset the failures of an account and of the names that it signs in with."""
        subjects = [self._subject("account", user_id)]
        subjects += [self._subject("name", canonical(name)) for name in names]
        await self._store.forget(subjects, audit)

    async def _slow_down(self, pair: str, seconds: float) -> None:
        if not seconds:
            return
        if self._waiting.get(pair, 0) >= MAX_WAITING:
            raise SignInBlocked(
                f"{MAX_WAITING} attempts with this name wait already; try again in {seconds:.0f} s",
                retry_after_seconds=int(seconds),
            )
        self._waiting[pair] = self._waiting.get(pair, 0) + 1
        try:
            # One at a time: concurrent attempts would not be slowed down.
            async with self._turns.setdefault(pair, asyncio.Lock()):
                await self.pause(seconds)
        finally:
            self._waiting[pair] -= 1
            if not self._waiting[pair]:
                del self._waiting[pair], self._turns[pair]

    def _address(self, client_ip: str) -> str:
        return self._subject("address", network_of(client_ip))

    def _subject(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()


def canonical(name: str) -> str:
    """Return the normalized spelling by which variants of a name are counted and looked up."""
    return unicodedata.normalize("NFKC", name).strip().lower()


def network_of(client_ip: str) -> str:
    """Return the network that counts as one address: an IPv4 address, or an IPv6 /64."""
    try:
        address = ipaddress.ip_address(client_ip)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return str(address)
