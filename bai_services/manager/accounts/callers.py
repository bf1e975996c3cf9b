"""Authenticate users; each authentication reads the account from the database."""

from __future__ import annotations

import contextlib
import hmac
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from bai_services.core.accounts import signature
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.client_networks import is_inside
from bai_services.core.counts import counted
from bai_services.core.errors import Forbidden, NotSignedIn, RateLimited, Unavailable
from bai_services.core.sliding_count import SlidingCount
from bai_services.db.accounts.callers import AccountStore, KeypairAccount
from bai_services.db.accounts.users import Account
from bai_services.db.database import Database

from ..clock import Clock
from . import authorizer
from .keypair_secrets import KeypairSecrets, new_secret_key

# Minimum interval between updates of a keypair's ``last_used``, so that not every request writes to
# the database.
LAST_USED_INTERVAL = timedelta(minutes=5)

_REASONS = {
    "inactive": "this account is not active; ask an administrator of your domain",
    "before-verification": "this account is not verified yet; ask an administrator",
    "deleted": "this account is deleted",
}


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The keypair signature of a request, and the parts of the request that it covers."""

    access_key: str
    signature: str
    method: str
    path: str
    host: str
    date: datetime
    content_type: str
    content_digest: str = ""


class Callers:
    """Authenticates credentials and returns the ``Caller`` that the services require."""

    def __init__(self, database: Database, clock: Clock, secrets: KeypairSecrets) -> None:
        self._store = AccountStore(database)
        self._clock = clock
        self._secrets = secrets
        self._counts: dict[str, SlidingCount] = {}
        self._dummy_secret = new_secret_key()

    async def by_username(self, username: str, client_ip: str) -> Caller:
        """Return the caller that the Hub has identified.

        Raises
        ------
        NotSignedIn
            If the account is unknown, not active, or not allowed from that address.
        """
        account = await self._account(username)
        return _caller(account, account.main_access_key, client_ip)

    async def in_session(self, username: str, client_ip: str) -> Caller:
        """Return the caller for a request sent by a session of that user.

        The account's allowed addresses do not apply: the request comes from the session's address.

        Raises
        ------
        NotSignedIn
            If the account is unknown or not active.
        """
        account = await self._active_account(username)
        caller = _as_caller(account, None, client_ip)
        return replace(caller, role=Role.SESSION)

    async def for_schedule(self, username: str) -> Caller:
        """Return the caller for sessions that the manager creates for the user's schedules and
        endpoints.

        The account's allowed addresses do not apply: there is no client.

        Raises
        ------
        NotSignedIn
            If the account is unknown or not active.
        """
        account = await self._active_account(username)
        return _as_caller(account, account.main_access_key, "")

    async def viewer(self, caller: Caller, username: str) -> Caller:
        """Return the caller for a user on whose behalf the Hub reads data.

        Raises
        ------
        Forbidden
            If the caller is not the Hub, or the account is unknown or not active.
        """
        authorizer.require(caller, "account.read")
        account = await self._store.by_username(username)
        if account is None or refusal(account, None) is not None:
            raise Forbidden(
                f"there is no active account {username!r}; viewer must name an active account",
                viewer=username,
            )
        return _as_caller(account, None, caller.client_ip)

    async def by_signature(self, request: SignedRequest, client_ip: str) -> Caller:
        """Return the caller whose keypair signed the request.

        Raises
        ------
        NotSignedIn
            If the date differs too much from the manager's clock, if the keypair is unknown or not
            active, if the signature is wrong, or if the account is not accepted.
        RateLimited
            If the keypair has exceeded its rate limit (requests per 15 minutes).
        """
        now = self._clock()
        signature.check_date(request.date, now)
        keypair = await self._store.by_access_key(request.access_key)
        # The check of an unknown access key must take as long as the check of a wrong signature,
        # and raise the same error.
        secret = (
            self._dummy_secret
            if keypair is None
            else self._secrets.decrypt(keypair.secret_key_encrypted)
        )
        expected = signature.sign(
            secret,
            method=request.method,
            path=request.path,
            host=request.host,
            date=request.date,
            content_type=request.content_type,
            content_digest=request.content_digest,
        )
        if not hmac.compare_digest(expected, request.signature) or keypair is None:
            raise NotSignedIn("the keypair or its signature is wrong")
        if not keypair.is_active:
            raise NotSignedIn(f"keypair {keypair.access_key} is not active")
        caller = _caller(keypair.account, keypair.access_key, client_ip)
        self._count(keypair, now)
        if keypair.last_used is None or now - keypair.last_used > LAST_USED_INTERVAL:
            # Read requests must succeed even if the database cannot write (disk full).
            with contextlib.suppress(Unavailable):
                await self._store.record_use(keypair.access_key, now)
        return caller

    async def recheck_keypair(self, caller: Caller) -> Caller:
        """Return the caller of an earlier signed request, with the account's current data.

        Raises
        ------
        NotSignedIn
            If the keypair is no longer active, or its account is no longer accepted.
        """
        keypair = await self._store.by_access_key(caller.access_key or "")
        if keypair is None or not keypair.is_active:
            raise NotSignedIn(f"keypair {caller.access_key} is not active")
        return _caller(keypair.account, keypair.access_key, caller.client_ip)

    async def _account(self, username: str) -> Account:
        account = await self._store.by_username(username)
        if account is None:
            raise NotSignedIn(f"{username} has no account here; ask an administrator")
        return account

    async def _active_account(self, username: str) -> Account:
        """Return the account without a check of its allowed addresses."""
        account = await self._account(username)
        denial = refusal(account, None)
        if denial is not None:
            raise NotSignedIn(denial.text, reason=denial.reason)
        return account

    def _count(self, keypair: KeypairAccount, now: datetime) -> None:
        count = self._counts.setdefault(keypair.access_key, SlidingCount())
        if count.total(now) >= keypair.rate_limit:
            wait_seconds = count.seconds_until_allowed(now)
            raise RateLimited(
                f"keypair {keypair.access_key} has used up its "
                f"{counted(keypair.rate_limit, 'requests')} in 15 minutes; try again in "
                f"{wait_seconds} s",
                limit=keypair.rate_limit,
                retry_after_seconds=wait_seconds,
            )
        count.add(now)


class Refusal(NamedTuple):
    """The reason why an account is not accepted: a code for programs and a text for users."""

    reason: str
    text: str


def refusal(account: Account, client_ip: str | None) -> Refusal | None:
    """Return why an account is not accepted now; None if it is accepted.

    The result reveals facts about the account: show it only to a user who has proved ownership of
    the account. With ``client_ip`` None the allowed addresses are not checked.
    """
    if account.status != "active":
        text = _REASONS.get(account.status, "this account may not sign in")
        return Refusal(account.status, text)
    # Superadmins can reactivate domains themselves, so a deactivated domain must not lock them out.
    if not account.is_domain_active and account.role is not Role.SUPERADMIN:
        return Refusal("inactive", f"domain {account.domain} is not active; ask an administrator")
    if client_ip is not None and not is_inside(client_ip, account.allowed_client_ip):
        return Refusal(
            "address", f"this account may not be used from {client_ip or 'this address'}"
        )
    return None


def _caller(account: Account, access_key: str | None, client_ip: str) -> Caller:
    denial = refusal(account, client_ip)
    if denial is not None:
        raise NotSignedIn(denial.text, reason=denial.reason)
    return _as_caller(account, access_key, client_ip)


def _as_caller(account: Account, access_key: str | None, client_ip: str) -> Caller:
    return Caller(
        role=account.role,
        user_id=account.id,
        username=account.username,
        domain=account.domain,
        projects=frozenset(project_id for project_id, _ in account.projects),
        access_key=access_key,
        client_ip=client_ip,
    )
