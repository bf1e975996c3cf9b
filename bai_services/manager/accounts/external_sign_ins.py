"""Sign-in with identities at OpenID providers, which the Hub has verified."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import NoReturn

from bai_services.core import names
from bai_services.core.accounts.external_identities import (
    INVALID_NAME,
    MAX_SIGNED_TOKEN_SECONDS,
    NAME_TAKEN,
    NO_EMAIL,
    NOT_LINKED,
    ExternalUser,
    Identity,
    OwnIdentities,
    ProviderRules,
)
from bai_services.core.accounts.one_time_codes import SecondFactor
from bai_services.core.accounts.records import VerifiedAccount
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.audit import AuditEntry
from bai_services.core.display_text import text_problem
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInRefused,
)
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.external_identities import IdentityStore
from bai_services.db.accounts.users import Account

from ..context import ManagerContext
from ..metrics import Metrics
from . import authorizer
from .callers import refusal
from .lockouts import Lockouts
from .one_time_codes import CheckedFactor, OneTimeCodes
from .sign_in import SignIns, hub_account
from .users import Users

ACTION = "sign-in.openid"
MAX_FULL_NAME = 64
_MANAGER = Caller(Role.SUPERADMIN, username="manager")


class ExternalSignIns:
    """Finds, creates and links the accounts of external identities.

    An identity is identified by its issuer and subject, not by a name or an e-mail address, which
    may later belong to another person.
    """

    def __init__(
        self,
        context: ManagerContext,
        users: Users,
        one_time_codes: OneTimeCodes,
        lockouts: Lockouts,
        metrics: Metrics,
        sign_ins: SignIns,
    ) -> None:
        self._identities = IdentityStore(context.database)
        self._accounts = AccountStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._read_only = context.read_only
        self._users = users
        self._one_time_codes = one_time_codes
        self._lockouts = lockouts
        self._metrics = metrics
        self._sign_ins = sign_ins

    async def verify(
        self,
        caller: Caller,
        user: ExternalUser,
        rules: ProviderRules,
        client_ip: str,
        factor: SecondFactor,
    ) -> VerifiedAccount:
        """Return the account of an identity.

        If no account has the identity, link or create one, if the rules allow it.

        Raises
        ------
        SignInRefused
            If there is no account, if it is not accepted, or if its one-time code is missing or
            wrong; the error has the reason.
        SignInBlocked
            If there were too many wrong one-time codes.
        """
        authorizer.require(caller, "account.verify")
        account = await self._identities.account_of(user.issuer, user.subject)
        is_linked = account is not None
        if account is None and rules.links_email:
            account = await self._with_email(user)
        if account is None and rules.creates_accounts:
            account = await self._created(user, rules, client_ip)
            is_linked = True
        if account is None:
            await self._refuse(None, user, client_ip, NOT_LINKED, "no account is linked to it")
        denial = refusal(account, client_ip)
        if denial is not None:
            await self._refuse(account, user, client_ip, denial.reason, denial.text)
        checked = CheckedFactor()
        if not rules.skips_code:
            checked = await self._check_code(account, user, client_ip, factor)
        # Link the identity only after the check of the code: a sign-in without a code must not
        # change the account.
        if not is_linked and not checked.needs_registration:
            await self._link_by_email(account, user, client_ip)
        await self._audit.add(self._entry(account, user, client_ip))
        self._metrics.sign_ins.labels("done").inc()
        fields = fields_of(hub_account(account))
        # The local password is not used, so it need not be changed.
        fields["need_password_change"] = False
        return VerifiedAccount(
            **fields,
            max_concurrent_logins=await self._accounts.max_concurrent_logins(account.id),
            need_code_registration=checked.needs_registration,
            code_proof=checked.proof,
        )

    async def redeem(self, caller: Caller, token_hash: str, expires_at: datetime) -> None:
        """Record the use of another site's signed token, which the Hub has verified.

        Raises
        ------
        InvalidRequest
            If the token has expired, or would be valid for too long.
        Conflict
            If the token was used before.
        """
        authorizer.require(caller, "account.verify")
        now = self._clock()
        if not now < expires_at <= now + timedelta(seconds=2 * MAX_SIGNED_TOKEN_SECONDS):
            raise InvalidRequest("the token has expired, or is valid for too long")
        if not await self._identities.redeem(token_hash, expires_at, now):
            raise Conflict("the token was used before")

    async def identities(self, caller: Caller, username: str) -> OwnIdentities:
        """Return the identities of a user who is signed in at the Hub."""
        return await self._identities_of(await self._account_at_hub(caller, username))

    async def confirm_link(
        self, caller: Caller, username: str, password: str, client_ip: str, factor: SecondFactor
    ) -> None:
        """Check the password of a user who is going to link an identity.

        Raises
        ------
        SignInRefused, SignInBlocked, Unavailable
            As in ``SignIns.verify``.
        """
        await self._account_at_hub(caller, username)
        await self._sign_ins.confirm_signed_in(
            username, password, client_ip, "user.link-identity", factor
        )

    async def link(
        self, caller: Caller, username: str, user: ExternalUser, client_ip: str
    ) -> OwnIdentities:
        """Link an identity to the account of a user who is signed in at the Hub.

        The user's password must have been checked (``SignIns.confirm_signed_in``).

        Raises
        ------
        AlreadyExists
            If the identity is already linked, or the user has another identity of the issuer.
        """
        account = await self._account_at_hub(caller, username)
        self._read_only.require_writable(account.role)
        await self._add(account, user, client_ip)
        return await self._identities_of(account)

    async def unlink(self, caller: Caller, username: str, identity_id: str, client_ip: str) -> None:
        """Remove an identity of a user who is signed in at the Hub.

        Raises
        ------
        Conflict
            If the user could then no longer sign in.
        """
        account = await self._account_at_hub(caller, username)
        self._read_only.require_writable(account.role)
        entry = self._audit.entry(
            _as_caller(account, client_ip),
            "user.unlink-identity",
            account.id,
            domain=account.domain,
            name=account.username,
        )
        await self._identities.remove_own(account.id, identity_id, entry)

    async def _identities_of(self, account: Account) -> OwnIdentities:
        has_password = await self._accounts.has_password(account.username)
        return OwnIdentities(await self._identities.of(account.id), has_password)

    async def _account_at_hub(self, caller: Caller, username: str) -> Account:
        authorizer.require(caller, "account.verify")
        account = await self._accounts.by_username(username)
        if account is None or refusal(account, None) is not None:
            raise NotFound(f"there is no active account {username}")
        return account

    async def _with_email(self, user: ExternalUser) -> Account | None:
        """Return the account to which an identity may be linked by its verified e-mail address.

        Only accounts with the role user are returned: an administrator must sign in first and then
        link the identity.
        """
        email = user.email.strip()
        address = email.lower()
        # ``lower`` turns the Kelvin sign into the letter k, which makes a different address.
        is_same = address.isascii() == email.isascii()
        if not user.is_email_verified or "@" not in address or not is_same:
            return None
        found = await self._accounts.by_sign_in_name(address)
        if found is None or found.account.role is not Role.USER:
            return None
        issuers = {one.issuer for one in await self._identities.of(found.account.id)}
        if user.issuer in issuers:
            # The account has another identity of the issuer, or a concurrent request linked this
            # one.
            return await self._identities.account_of(user.issuer, user.subject)
        return found.account

    async def _link_by_email(self, account: Account, user: ExternalUser, client_ip: str) -> None:
        self._read_only.require_writable(account.role)
        try:
            await self._add(account, user, client_ip)
        except AlreadyExists:
            # A concurrent request has linked this identity, or another identity of the issuer.
            found = await self._identities.account_of(user.issuer, user.subject)
            if found is None or found.id != account.id:
                await self._refuse(None, user, client_ip, NOT_LINKED, "no account is linked to it")

    async def _created(
        self, user: ExternalUser, rules: ProviderRules, client_ip: str
    ) -> Account | None:
        self._read_only.require_writable(Role.USER)
        try:
            username = names.check_username(user.username)
        except InvalidRequest as error:
            await self._refuse(None, user, client_ip, INVALID_NAME, error.message)
        if not user.is_email_verified:
            await self._refuse(
                None, user, client_ip, NO_EMAIL, "the provider has no verified e-mail address"
            )
        full_name = user.full_name[:MAX_FULL_NAME]
        spec = {
            "username": username,
            "email": user.email,
            "full_name": "" if text_problem(full_name) else full_name,
            "domain": rules.domain,
            "projects": rules.projects,
        }
        try:
            await self._users.create(_MANAGER, spec, identity=self._new_identity(user))
        except AlreadyExists as error:
            # Either a concurrent request has created the account, or the name or address belongs
            # to another account, which must not be linked.
            found = await self._identities.account_of(user.issuer, user.subject)
            if found is None:
                await self._refuse(None, user, client_ip, NAME_TAKEN, error.message)
            return found
        except InvalidRequest as error:
            await self._refuse(None, user, client_ip, NO_EMAIL, error.message)
        return await self._identities.account_of(user.issuer, user.subject)

    async def _check_code(
        self, account: Account, user: ExternalUser, client_ip: str, factor: SecondFactor
    ) -> CheckedFactor:
        try:
            checked = await self._one_time_codes.check(account, factor)
        except NotSignedIn as error:
            reason = str(error.details.get("reason", error.code))
            await self._audit.add(self._entry(account, user, client_ip, reason))
            self._metrics.sign_ins.labels("refused").inc()
            raise
        if checked.proof:
            await self._lockouts.reset_codes(account.id)
        return checked

    async def _add(self, account: Account, user: ExternalUser, client_ip: str) -> None:
        entry = self._audit.entry(
            _as_caller(account, client_ip),
            "user.link-identity",
            account.id,
            domain=account.domain,
            name=account.username,
            provider=user.provider,
        )
        await self._identities.add(account.id, self._new_identity(user), entry)

    def _new_identity(self, user: ExternalUser) -> Identity:
        key = str(uuid.uuid4())
        return Identity(key, user.provider, user.issuer, user.subject, self._clock())

    async def _refuse(
        self,
        account: Account | None,
        user: ExternalUser,
        client_ip: str,
        reason: str,
        text: str,
    ) -> NoReturn:
        await self._audit.add(self._entry(account, user, client_ip, reason))
        self._metrics.sign_ins.labels("refused").inc()
        raise SignInRefused(text, reason=reason)

    def _entry(
        self, account: Account | None, user: ExternalUser, client_ip: str, reason: str = ""
    ) -> AuditEntry:
        if account is None:
            caller = Caller(Role.USER, username="(not signed in)", client_ip=client_ip)
            target, domain = "", None
        else:
            caller = _as_caller(account, client_ip)
            target, domain = account.id, account.domain
        details = {"provider": user.provider}
        return self._audit.entry(
            caller,
            ACTION,
            target,
            domain=domain,
            outcome=SignInRefused.code if reason else "done",
            **(details | {"reason": reason} if reason else details),
        )


def _as_caller(account: Account, client_ip: str) -> Caller:
    return Caller(
        account.role,
        user_id=account.id,
        username=account.username,
        domain=account.domain,
        client_ip=client_ip,
    )
