"""Count failed sign-ins per account, per typed name and per address, and lock or delay
attempts.

Responses to failed sign-ins depend only on the typed name and the address, never on whether an
account exists.
The counter of an account has a single effect: after too many failures, correct passwords from
unknown addresses are rejected with the response for a wrong password.
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
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import SignInBlocked
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.sign_in_attempts import SignInAttemptStore
from bai_services.db.database import Database

# Maximum number of concurrently delayed attempts with one name from one address.
MAX_DELAYED = 8
# An IPv6 network with this prefix length is assumed to belong to one customer.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in attempt, counted before the password is checked.

    ``name``, ``account``, ``address`` and ``pair`` (name and address) are keyed hashes.
    """

    user_id: str | None
    name: str
    account: str
    address: str
    pair: str
    blocked_until: datetime | None  # end of the block of the name or address, if blocked
    is_locked: bool  # a locked account rejects correct passwords from unknown addresses
    is_from_known_address: bool
    # Whether this account has signed in from the address. During a block of the name or address:
    # whether any account has signed in from the address.
    is_address_known: bool
    delay_seconds: float

    @property
    def is_accepted(self) -> bool:
        """Return whether a correct password is accepted."""
        return self.is_from_known_address or not (self.is_locked or self.blocked_until)

    @property
    def is_rejected_for_every_account(self) -> bool:
        """Return whether the attempt is rejected for every account, with any password.

        The result depends only on the name and the address.
        """
        return self.blocked_until is not None and not self.is_address_known


class Lockouts:
    """Counts failed attempts, and delays attempts after many failures.

    The lock of an account does not apply to addresses from which the account has signed in within
    90 days.
    """

    def __init__(self, database: Database, subject_key: bytes) -> None:
        """Names and addresses are stored as hashes keyed with ``subject_key``."""
        self._store = SignInAttemptStore(database)
        self._key = subject_key
        self._delay_locks: dict[str, asyncio.Lock] = {}
        self._delayed_counts: dict[str, int] = {}
        self.pause: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def begin(
        self, typed_name: str, user_id: str | None, client_ip: str, now: datetime
    ) -> Attempt:
        """Count an attempt as failed, before its password is checked; return the attempt.

        After a correct password, ``record_success`` corrects the counts.
        """
        name, address = self._subject("name", typed_name), self._address(client_ip)
        account = self._subject("account", user_id or f"nobody {typed_name}")
        pair = self._subject("pair", f"{name} {address}")
        allowed = {
            name: FAILURES_ALLOWED,
            account: FAILURES_ALLOWED,
            address: ADDRESS_FAILURES_ALLOWED,
            pair: None,
        }
        counted = await self._store.count_attempt(allowed, now, BLOCK_TIME)
        known = await self._store.is_known(user_id or "", address)
        ends = [until for s in (name, address) if (until := counted[s].blocked_until) is not None]
        blocked_until = max(ends, default=None)
        is_address_known = blocked_until is not None and await self._store.is_used(address)
        return Attempt(
            user_id=user_id,
            name=name,
            account=account,
            address=address,
            pair=pair,
            blocked_until=blocked_until,
            is_locked=counted[account].blocked_until is not None,
            is_from_known_address=known,
            is_address_known=known or is_address_known,
            delay_seconds=delay_seconds(counted[pair].count),
        )

    async def record_success(
        self,
        attempt: Attempt,
        password_changed_at: datetime | None,
        now: datetime,
        audit: AuditEntry,
        *,
        is_known: bool,
        has_code: bool = False,
    ) -> bool:
        """Reset the failures of the account, name and pair after a correct password.

        With ``is_known``, also store the address as known. With ``has_code``, also reset the count
        of the account's wrong one-time codes.

        Return False, without a change, if the password has changed since ``password_changed_at``.

        The failures of the address are not reset, but this attempt is subtracted from them unless
        the address is blocked. If the account is locked, only the failures of the pair are reset,
        so the account remains locked for unknown addresses.
        """
        subjects_to_reset = [attempt.pair]
        if not attempt.is_locked:
            subjects_to_reset += [attempt.name, attempt.account]
        if has_code and attempt.user_id is not None:
            subjects_to_reset.append(self._codes(attempt.user_id))
        return await self._store.reset_after_sign_in(
            attempt.user_id or "",
            subjects_to_reset,
            attempt.address,
            (attempt.address, now) if is_known else None,
            password_changed_at,
            audit,
        )

    async def withdraw(self, attempt: Attempt) -> None:
        """Subtract an attempt with a correct password whose one-time code is still missing.

        Unlike ``record_success`` this resets nothing: otherwise an attacker who knows the password
        could reset the counts between wrong codes.
        """
        allowed: dict[str, int | None] = {attempt.pair: None}
        # Do not subtract the attempt from counts that were blocked: during a block, attempts are
        # not counted.
        if attempt.blocked_until is None:
            allowed[attempt.name] = FAILURES_ALLOWED
            allowed[attempt.address] = ADDRESS_FAILURES_ALLOWED
        if not attempt.is_locked:
            allowed[attempt.account] = FAILURES_ALLOWED
        await self._store.withdraw(allowed)

    async def count_code(self, user_id: str, now: datetime) -> datetime | None:
        """Count a one-time code as wrong, before it is checked.

        Return the end of the block if codes of the account are blocked. This also applies to known
        addresses, because six digits can be guessed.
        """
        subject = self._codes(user_id)
        counted = await self._store.count_attempt({subject: FAILURES_ALLOWED}, now, BLOCK_TIME)
        return counted[subject].blocked_until

    async def reset_codes(self, user_id: str) -> None:
        """Reset the count of an account's wrong one-time codes, after a correct one."""
        await self._store.forget([self._codes(user_id)])

    async def locked_until(self, user_ids: Sequence[str], now: datetime) -> dict[str, datetime]:
        """Return the end of the lock of each locked account, by user id."""
        subjects = {self._subject("account", user_id): user_id for user_id in user_ids}
        found = await self._store.blocked(list(subjects), now)
        return {subjects[subject]: until for subject, until in found.items()}

    async def unlock(self, user: CheckedUser, names: Sequence[str], audit: AuditEntry) -> None:
        """Reset the failures of an account and of its sign-in names."""
        subjects = [self._subject("account", user.id), self._codes(user.id)]
        subjects += [self._subject("name", canonical(name)) for name in names]
        await self._store.reset(user, subjects, audit)

    async def delay(self, attempt: Attempt) -> None:
        """Delay an attempt after many failures with its name and address.

        Raises
        ------
        SignInBlocked
            If too many attempts with this name from this address are already delayed.
        """
        pair, seconds = attempt.pair, attempt.delay_seconds
        if not seconds:
            return
        if self._delayed_counts.get(pair, 0) >= MAX_DELAYED:
            raise SignInBlocked(
                f"{MAX_DELAYED} attempts with this name are pending; try again in {seconds:.0f} s",
                retry_after_seconds=int(seconds),
            )
        self._delayed_counts[pair] = self._delayed_counts.get(pair, 0) + 1
        try:
            # Serialize the delays: otherwise concurrent attempts would wait in parallel.
            async with self._delay_locks.setdefault(pair, asyncio.Lock()):
                await self.pause(seconds)
        finally:
            self._delayed_counts[pair] -= 1
            if not self._delayed_counts[pair]:
                del self._delayed_counts[pair], self._delay_locks[pair]

    def _codes(self, user_id: str) -> str:
        return self._subject("codes", user_id)

    def _address(self, client_ip: str) -> str:
        return self._subject("address", network_of(client_ip))

    def _subject(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()


def canonical(name: str) -> str:
    """Return the normalized form of a typed name, under which the name is counted and looked up."""
    return unicodedata.normalize("NFKC", name).strip().lower()


def network_of(client_ip: str) -> str:
    """Return the network that counts as one client: an IPv4 address or an IPv6 /64.

    Return an empty string if ``client_ip`` is not an IP address.
    """
    try:
        address = ipaddress.ip_address(client_ip)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return str(address)
