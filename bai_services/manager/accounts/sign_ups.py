"""Sign-up: users create their own accounts on the Hub's page, within the operator's rules.

With e-mail verification there is no account until the user has opened the link in a mail and has
entered the password again. Otherwise an attacker could sign up with the address of another user,
who would then confirm an account without knowing its password.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from bai_services.core import names
from bai_services.core.accounts.passwords import BLOCK_TIME, MAX_LENGTH, check_password
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.accounts.sign_ups import (
    NextStep,
    PendingSignUp,
    SignUpForm,
    SignUpRules,
    check_email_domain,
)
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    SignInBlocked,
    Unavailable,
)
from bai_services.core.mail import Mail
from bai_services.db.accounts.sign_ups import SignUpStore

from ..context import ManagerContext
from ..mail.mails import Mails
from . import authorizer
from .domains import DEFAULT_POLICY, DEFAULT_PROJECT
from .keypair_secrets import KeypairSecrets, new_keypair
from .lockouts import network_of
from .passwords import PasswordHashes
from .request_limits import RequestLimits

MAIL_KIND = "verify_email"
LINK_LIFETIME = timedelta(hours=24)
AWAITS_APPROVAL = "waits for the approval of an administrator"


class SignUps:
    """Creates accounts for users who sign up on the Hub's pages."""

    def __init__(
        self,
        context: ManagerContext,
        mails: Mails,
        passwords: PasswordHashes,
        limits: RequestLimits,
        secrets: KeypairSecrets,
    ) -> None:
        self._store = SignUpStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._read_only = context.read_only
        self._mails = mails
        self._passwords = passwords
        self._limits = limits
        self._secrets = secrets
        mails.prepare(MAIL_KIND, self._prepare_mail)

    async def sign_up(
        self,
        caller: Caller,
        form: SignUpForm,
        rules: SignUpRules,
        client_ip: str,
        language: str,
        page: str,
    ) -> NextStep:
        """Create an account, or send a link to ``page`` if the e-mail address must be verified.

        With verification, the response does not reveal whether an account has the e-mail address.

        Raises
        ------
        InvalidRequest
            If a field of the form is not valid; ``field`` names it.
        AlreadyExists
            If the user name or, without verification, the e-mail address is taken.
        Conflict
            If the e-mail address must be verified, but no mail server is configured.
        SignInBlocked
            If there were too many requests with this e-mail address or from this network address.
        Unavailable
            If the domain is not active, or too many requests are in progress.
        """
        authorizer.require(caller, "account.sign-up")
        self._read_only.require_writable(Role.USER)
        now = self._clock()
        username = names.check_username(form.username)
        email = names.check_email(form.email)
        await self._limits.count("sign-up form", client_ip, now)
        if rules.verifies_email and not self._mails.is_configured:
            raise Conflict("no mail server is configured: set BAI_MAIL_HOST and BAI_MAIL_FROM")
        check_email_domain(email, rules.email_domains)
        check_password(form.password, username, email)
        invitation_id, domain = await self._admission(form, rules)
        await self._require_active(domain)
        if await self._store.is_username_taken(username):
            raise AlreadyExists(f"the user name {username} is taken", field="username")
        if not await self._limits.count("sign-up", client_ip, now, email):
            raise SignInBlocked(
                "too many sign-ups with this e-mail address; try again in 20 min",
                retry_after_seconds=BLOCK_TIME.total_seconds(),
            )
        with self._passwords.attempt(network_of(client_ip)):
            password_hash = await self._passwords.hash(form.password)
        sign_up = PendingSignUp(
            id=str(uuid.uuid4()),
            username=username,
            email=email,
            full_name=form.full_name,
            password_hash=password_hash,
            domain=domain,
            invitation_id=invitation_id,
            needs_approval=rules.needs_approval,
            consents=form.consents,
        )
        if not rules.verifies_email:
            return await self._create(sign_up, client_ip, is_verified=False)
        mail = self._mails.new(
            MAIL_KIND, email, language, LINK_LIFETIME, sign_up=sign_up.id, page=page
        )
        await self._store.add_pending(sign_up, now, now + LINK_LIFETIME, mail)
        self._mails.wake()
        return "verify-email"

    async def verify(
        self, caller: Caller, token: str, password: str, rules: SignUpRules, client_ip: str
    ) -> NextStep:
        """Create the account of a sign-up, after the user has opened the link and typed the
        password.

        ``rules`` are the current rules; they may have changed since the sign-up.

        Raises
        ------
        InvalidRequest
            If the link (field ``token``), the password or the invitation is not valid, or if the
            rules no longer allow the sign-up.
        AlreadyExists
            If another account now has the user name or the e-mail address.
        SignInBlocked, Unavailable
            If there were too many requests from this address, if too many are in progress, or if
            the domain is not active.
        """
        authorizer.require(caller, "account.sign-up")
        self._read_only.require_writable(Role.USER)
        now = self._clock()
        await self._limits.count("sign-up link", client_ip, now)
        sign_up = await self._store.pending(hash_of_token(token), now)
        if sign_up is None:
            _reject("token", "the link is invalid, used or expired; sign up again")
        is_correct = await self._passwords.verify_attempt(
            network_of(client_ip), sign_up.password_hash, password[:MAX_LENGTH]
        )
        if not is_correct:
            _reject(
                "password", "the password differs from the one that you entered for the sign-up"
            )
        check_email_domain(sign_up.email, rules.email_domains)
        if sign_up.invitation_id is None:
            if rules.needs_invitation:
                _reject("invitation", "an invitation is required now; sign up again")
            if sign_up.domain != rules.domain:
                _reject("token", "the domain for new accounts has changed; sign up again")
        await self._require_active(sign_up.domain)
        needs_approval = sign_up.needs_approval or rules.needs_approval
        sign_up = replace(sign_up, needs_approval=needs_approval)
        return await self._create(sign_up, client_ip, is_verified=True)

    async def _require_active(self, domain: str) -> None:
        if not await self._store.is_domain_active(domain):
            raise Unavailable(f"sign-ups are not possible now: domain {domain} is not active")

    async def _admission(self, form: SignUpForm, rules: SignUpRules) -> tuple[str | None, str]:
        """Return the id of the invitation, if any, and the domain of the account."""
        token = form.invitation.strip()
        if not token:
            if rules.needs_invitation:
                _reject("invitation", "an invitation is required")
            return None, rules.domain
        invitation = await self._store.usable(hash_of_token(token), self._clock())
        if invitation is None:
            _reject("invitation", "the invitation is invalid, has expired or is used up")
        return invitation.id, invitation.domain

    async def _create(
        self, sign_up: PendingSignUp, client_ip: str, *, is_verified: bool
    ) -> NextStep:
        now, user_id = self._clock(), str(uuid.uuid4())
        keypair = new_keypair()
        values: dict[str, Any] = {
            "id": user_id,
            "created_at": now,
            "username": sign_up.username,
            "email": sign_up.email,
            "full_name": sign_up.full_name,
            "password_hash": sign_up.password_hash,
            "password_changed_at": now,
            # The role is always user, because only superadmins appoint administrators.
            "role": Role.USER,
            "domain": sign_up.domain,
            "status": "inactive" if sign_up.needs_approval else "active",
            "status_info": AWAITS_APPROVAL if sign_up.needs_approval else "",
            "awaits_approval": sign_up.needs_approval,
            "resource_policy": DEFAULT_POLICY,
            "main_access_key": keypair.access_key,
        }
        keypair_columns = {
            "access_key": keypair.access_key,
            "created_at": now,
            "secret_key_encrypted": self._secrets.encrypt(keypair.secret_key),
            "user_id": user_id,
            "resource_policy": DEFAULT_POLICY,
        }
        creator = Caller(Role.USER, user_id, sign_up.username, sign_up.domain, client_ip=client_ip)
        entry = self._audit.entry(
            creator,
            "user.sign-up",
            user_id,
            domain=sign_up.domain,
            name=sign_up.username,
            email_verified=is_verified,
            invitation=sign_up.invitation_id,
            consents=[*sign_up.consents],
        )
        await self._store.create_account(
            values, keypair_columns, sign_up.invitation_id, DEFAULT_PROJECT, now, entry
        )
        return "await-approval" if sign_up.needs_approval else "sign-in"

    async def _prepare_mail(self, mail: Mail) -> tuple[str, Mapping[str, str]] | None:
        """Create the link of a mail; the owner of an existing account is informed instead."""
        sign_up_id = mail.values["sign_up"]
        if await self._store.is_email_taken(mail.recipient):
            await self._store.remove_pending(sign_up_id)
            return "already_registered", {}
        token = secrets.token_urlsafe(32)
        if not await self._store.set_token(sign_up_id, hash_of_token(token)):
            return None
        hours = int(LINK_LIFETIME.total_seconds() // 3600)
        # The part after # is not sent in requests, so it appears neither in access logs nor in
        # Referer headers.
        link = f"{mail.values['page']}?lang={mail.language}#{token}"
        return MAIL_KIND, {"hours": str(hours), "link": link}


def hash_of_token(token: str) -> str:
    """Return the hash under which the token of an invitation or a link is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def _reject(field: str, text: str) -> NoReturn:
    raise InvalidRequest(text, field=field, reason=f"{field}-rejected")
