"""Forgotten passwords: users set a new password with a link that they get by mail.

A request does not read the account. The link is created when the mail is delivered, so the response
and the response time do not reveal whether an account exists.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import NoReturn

from bai_services.core import names
from bai_services.core.accounts.passwords import MAX_LENGTH, check_password
from bai_services.core.accounts.records import PendingSignOut
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import BaiError, Conflict, InvalidRequest, SignInRefused
from bai_services.core.mail import Mail
from bai_services.db.accounts.callers import AccountStore, PasswordAccount
from bai_services.db.accounts.password_resets import PasswordResetStore
from bai_services.db.accounts.users import Account

from ..context import ManagerContext
from ..mail.mails import Mails
from . import authorizer
from .callers import refusal
from .lockouts import network_of
from .passwords import PasswordHashes
from .request_limits import RequestLimits
from .sign_outs import TokenRevocations

MAIL_KIND = "password_reset"
LINK_LIFETIME = timedelta(minutes=30)
# A mail that arrives much later would surprise the user.
MAIL_LIFETIME = timedelta(hours=1)
# These roles have access to all domains, so control of a mailbox must not give access to them.
EXCLUDED_ROLES = frozenset({Role.SUPERADMIN, Role.MONITOR})


class PasswordResets:
    """Sends and redeems the links; called by the Hub when users submit the forms of its pages."""

    def __init__(
        self,
        context: ManagerContext,
        mails: Mails,
        passwords: PasswordHashes,
        limits: RequestLimits,
        revocations: TokenRevocations,
    ) -> None:
        self._store = PasswordResetStore(context.database)
        self._accounts = AccountStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._read_only = context.read_only
        self._mails = mails
        self._passwords = passwords
        self._limits = limits
        self._revocations = revocations
        self._sign_outs_due = context.sign_outs_due
        mails.prepare(MAIL_KIND, self._prepare_mail)

    async def request(
        self, caller: Caller, email: str, client_ip: str, language: str, page: str
    ) -> None:
        """Send a mail to ``email``, if an account has this e-mail address.

        The mail contains a link to ``page``, or says that the password cannot be reset by mail.

        Raises
        ------
        InvalidRequest
            If the text is not an e-mail address.
        Conflict
            If no mail server is configured.
        SignInBlocked
            If there were too many requests from this network address. Above the limit of requests
            for one e-mail address, no mail is sent, but the response is the same.
        """
        authorizer.require(caller, "account.reset-password")
        self._read_only.require_writable(Role.USER)
        address = names.check_email(email)
        if not self._mails.is_configured:
            raise Conflict("no mail server is configured: set BAI_MAIL_HOST and BAI_MAIL_FROM")
        if await self._limits.count("password reset", client_ip, self._clock(), address):
            values = {"page": page, "client_ip": client_ip}
            await self._mails.add(
                self._mails.new(MAIL_KIND, address, language, MAIL_LIFETIME, **values)
            )

    async def redeem(
        self,
        caller: Caller,
        token: str,
        email: str,
        new_password: str,
        client_ip: str,
        language: str,
    ) -> str:
        """Set a new password; return the user name.

        All browser sign-ins of the user end, and all API tokens are revoked. A mail informs the
        user.

        Raises
        ------
        InvalidRequest
            If the link is not valid (field ``token``), if the account has another e-mail address
            (field ``email``), or if the password breaks a rule or equals the old one (field
            ``password``).
        SignInRefused
            If the account may not sign in, for example not from this network address.
        SignInBlocked, Unavailable
            If there were too many requests from this network address, or too many are in progress.
        """
        authorizer.require(caller, "account.reset-password")
        self._read_only.require_writable(Role.USER)
        now = self._clock()
        await self._limits.count("password reset link", client_ip, now)
        found = await self._store.find(_hash(token), now)
        if found is None:
            _reject_link()
        reset, candidate = found
        account = candidate.account
        if not hmac.compare_digest(reset.email.encode(), email.strip().lower().encode()):
            raise InvalidRequest("the link belongs to another e-mail address", field="email")
        if not _may_reset(candidate):
            _reject_link()
        denial = refusal(account, client_ip)
        if denial is not None:
            raise SignInRefused(denial.text, reason=denial.reason)
        check_password(new_password, account.username, account.email)
        await self._require_new(candidate, new_password, client_ip)
        hashed = await self._passwords.hash(new_password)
        notice = self._mails.new("password_changed", account.email, language)
        entry = self._audit.entry(
            _as_caller(account, client_ip),
            "user.reset-password",
            account.id,
            domain=account.domain,
            name=account.username,
        )
        if not await self._store.redeem(reset, hashed, self._clock(), entry, notice):
            _reject_link()
        self._mails.wake()
        try:
            await self._revocations.revoke(PendingSignOut(account.id, account.username, "all"))
        except BaiError:
            # The password has changed; the sign-out loop retries the revocations at the Hub.
            self._sign_outs_due()
        return account.username

    async def _require_new(self, candidate: PasswordAccount, password: str, client_ip: str) -> None:
        is_old = await self._passwords.verify_attempt(
            network_of(client_ip), candidate.password_hash, password[:MAX_LENGTH]
        )
        if is_old:
            raise InvalidRequest(
                "the new password equals the old one",
                field="password",
                broken_rules=["must be new"],
            )

    async def _prepare_mail(self, mail: Mail) -> tuple[str, Mapping[str, str]] | None:
        """Create the link of a mail; return None if there is no account.

        If the account may not reset its password, the mail says so instead.
        """
        candidate = await self._accounts.by_sign_in_name(mail.recipient)
        if candidate is None or candidate.account.status == "deleted":
            return None
        account = candidate.account
        if not _may_reset(candidate) or refusal(account, None) is not None:
            return "password_reset_refused", {}
        token = secrets.token_urlsafe(32)
        now = self._clock()
        sender = Caller(Role.USER, username="(not signed in)", client_ip=mail.values["client_ip"])
        entry = self._audit.entry(
            sender,
            "user.send-password-link",
            account.id,
            domain=account.domain,
            name=account.username,
        )
        await self._store.add(_hash(token), account, now, now + LINK_LIFETIME, entry)
        minutes = int(LINK_LIFETIME.total_seconds() // 60)
        # The part after # is not sent in requests, so it appears neither in access logs nor in
        # Referer headers.
        link = f"{mail.values['page']}?lang={mail.language}#{token}"
        return MAIL_KIND, {"minutes": str(minutes), "link": link}


def _may_reset(candidate: PasswordAccount) -> bool:
    """Return whether the account may get a password by mail.

    The user of an account without a password has only keypairs or external identities; an
    administrator decides whether the account gets a password.
    """
    return candidate.password_hash is not None and candidate.account.role not in EXCLUDED_ROLES


def _reject_link() -> NoReturn:
    raise InvalidRequest("the link is invalid, used or expired; request a new one", field="token")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _as_caller(account: Account, client_ip: str) -> Caller:
    return Caller(
        account.role,
        user_id=account.id,
        username=account.username,
        domain=account.domain,
        client_ip=client_ip,
    )
