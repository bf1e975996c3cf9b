"""Sign in with a password or the code of a browser, and provide account data to the Hub."""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass, field
from typing import NoReturn

from bai_services.core.accounts.one_time_codes import (
    CODE_NEEDED,
    REGISTRATION_NEEDED,
    SecondFactor,
)
from bai_services.core.accounts.passwords import MAX_LENGTH, check_password, is_expired
from bai_services.core.accounts.records import (
    HubAccount,
    HubRole,
    PendingSignOut,
    Revocation,
    VerifiedAccount,
)
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.audit import AuditEntry
from bai_services.core.counts import counted
from bai_services.core.errors import (
    BaiError,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInBlocked,
    SignInRefused,
)
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.callers import AccountStore, PasswordAccount
from bai_services.db.accounts.users import Account, UserStore

from ..audit import Audit
from ..context import ManagerContext
from ..hub.client import Hub
from ..metrics import Metrics
from . import authorizer
from .callers import Refusal, refusal
from .lockouts import Attempt, Lockouts, canonical, network_of
from .one_time_codes import CheckedFactor, OneTimeCodes
from .passwords import PasswordHashes
from .sign_in_codes import SignInCodes
from .sign_outs import TokenRevocations

MAX_NAME_CHARACTERS = 128
_WRONG_CODE = "the code is wrong, used or expired; run bai login again"
_WRONG_CREDENTIALS = "the name or the password is wrong"


NO_FACTOR = SecondFactor()


@dataclass(frozen=True, slots=True)
class _Accepted:
    """An account after the check of its password and, if needed, its one-time code."""

    account: Account
    password_hash: str | None = field(repr=False)
    factor: CheckedFactor


class SignIns:
    """Checks passwords; issues Hub tokens to the CLI for a password or the code of a browser."""

    def __init__(
        self,
        context: ManagerContext,
        passwords: PasswordHashes,
        hub: Hub,
        revocations: TokenRevocations,
        metrics: Metrics,
        lockouts: Lockouts,
        one_time_codes: OneTimeCodes,
        *,
        token_seconds: int,
        max_password_age_days: int = 0,
    ) -> None:
        """``max_password_age_days``: 0 if passwords do not expire."""
        self._accounts = AccountStore(context.database)
        self.lockouts = lockouts
        self._one_time_codes = one_time_codes
        self._users = UserStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._read_only = context.read_only
        self.passwords = passwords
        self._hub = hub
        self._revocations = revocations
        self._sign_outs_due = context.sign_outs_due
        self._metrics = metrics
        self._token_seconds = token_seconds
        self._max_password_age_days = max_password_age_days
        self._codes = SignInCodes(context.clock)
        revocations.listen(self._codes.discard)

    async def verify(
        self,
        caller: Caller,
        name: str,
        password: str,
        client_ip: str,
        factor: SecondFactor = NO_FACTOR,
    ) -> VerifiedAccount:
        """Check a name and password that were sent to the Hub; return the account.

        Raises
        ------
        SignInRefused
            If the name or the password is wrong; the text is the same for both. With a correct
            password, the error has a reason: the account is not accepted, or its one-time code is
            missing or wrong.
        SignInBlocked
            If there were too many failures with that name (existing or not) or from that address,
            or if too many attempts from that address are in progress.
        Unavailable
            If too many attempts from all addresses are in progress.
        """
        authorizer.require(caller, "account.verify")
        accepted = await self._check_password(name, password, client_ip, "sign-in.hub", factor)
        account = accepted.account
        limit = await self._accounts.max_concurrent_logins(account.id)
        fields = fields_of(hub_account(account))
        fields["need_password_change"] = self._must_change_password(account)
        return VerifiedAccount(
            **fields,
            max_concurrent_logins=limit,
            need_code_registration=accepted.factor.needs_registration,
            code_proof=accepted.factor.proof,
        )

    async def confirm_password(
        self, name: str, password: str, client_ip: str, action: str, factor: SecondFactor
    ) -> Caller:
        """Return the user with this name and password; raises the errors of ``verify``.

        ``action`` is the action in the audit log.
        """
        found = await self._check_password(name, password, client_ip, action, factor)
        return _as_caller(found.account, client_ip)

    async def confirm_signed_in(
        self,
        username: str,
        password: str,
        client_ip: str,
        action: str,
        factor: SecondFactor = NO_FACTOR,
    ) -> None:
        """Check the password of a signed-in user before a change of how this user signs in.

        Otherwise, an attacker at an unattended browser could add another way to sign in. There is
        nothing to check if the account has no password.

        Raises
        ------
        SignInRefused, SignInBlocked, Unavailable
            As in ``verify``.
        """
        found = await self._accounts.by_sign_in_name(username)
        if found is None or found.password_hash is not None:
            await self._check_password(username, password, client_ip, action, factor)

    async def account(self, caller: Caller, username: str) -> HubAccount:
        """Return the account data that the Hub needs; raise ``NotFound`` for an unknown name."""
        authorizer.require(caller, "account.read")
        account = await self._accounts.by_username(username)
        if account is None:
            raise NotFound(f"there is no account {username}")
        return hub_account(account)

    async def create_token(
        self, name: str, password: str, client_ip: str, factor: SecondFactor = NO_FACTOR
    ) -> dict[str, str]:
        """Return a new Hub token for a name and password; raises the errors of ``verify``."""
        accepted = await self._check_password(name, password, client_ip, "sign-in.token", factor)
        account = accepted.account
        if self._must_change_password(account):
            raise SignInRefused(
                "change the password first, with bai password --user NAME or on the sign-in page",
                reason="need-password-change",
                need_password_change=True,
            )
        if accepted.factor.needs_registration:
            raise SignInRefused(
                "register an authenticator first, on the sign-in page", reason=REGISTRATION_NEEDED
            )
        token = await self._hub_token(account.username, "bai login")
        current = await self._accounts.by_username(account.username)
        # If the password has changed meanwhile, the change has revoked only the tokens that existed
        # at that time.
        if current is None or current.password_changed_at != account.password_changed_at:
            await self._hub.delete_token(token["token"])
            await self._refuse("sign-in.token", client_ip)
        return token

    async def revoke_token(self, caller: Caller, token: str) -> None:
        """Revoke the token that the caller signed in with."""
        authorizer.require(caller, "user.change-own")
        await self._hub.delete_token(token)
        entry = self._audit.entry(
            caller, "sign-out.token", caller.user_id or "", domain=caller.domain
        )
        await self._audit.add(entry)

    async def change_password(
        self,
        name: str,
        old: str,
        new: str,
        client_ip: str,
        *,
        factor: SecondFactor = NO_FACTOR,
        keep_session: str = "",
        revokes_tokens: bool = False,
    ) -> None:
        """Set a new password after checking the old one; the lockout of sign-ins applies.

        All browser sign-ins of the account end except ``keep_session`` (the Hub's id of the current
        browser session). With ``revokes_tokens``, ``keep_session`` ends too, and the API tokens are
        revoked.

        Raises
        ------
        InvalidRequest
            If the new password breaks the rules or equals the old one.
        SignInRefused, SignInBlocked
            As in ``verify``, and if the password has changed since the check.
        Unavailable
            As in ``verify``, and during read-only maintenance.
        """
        found = await self._check_password(name, old, client_ip, "sign-in.password", factor)
        account = found.account
        self._read_only.require_writable(account.role)
        if hmac.compare_digest(old.encode(), new.encode()):
            raise InvalidRequest(
                "the new password equals the old one",
                field="password",
                broken_rules=["must be new"],
            )
        check_password(new, account.username, account.email)
        caller = _as_caller(account, client_ip)
        entry = self._audit.entry(
            caller,
            "user.change-password",
            account.id,
            domain=account.domain,
            name=account.username,
        )
        hashed = await self.passwords.hash(new)
        kind: Revocation = "all" if revokes_tokens else "sign-ins"
        # If the password has changed since the check, for example by an administrator, keep it.
        if not await self._users.set_password(
            account.id, hashed, self._clock(), entry, kind, found.password_hash
        ):
            await self._refuse("sign-in.password", client_ip)
        due = PendingSignOut(account.id, account.username, kind)
        try:
            await self._revocations.revoke(due, keep_session)
        except BaiError:
            # The password has changed; the sign-out loop retries the revocations at the Hub.
            self._sign_outs_due()

    def _must_change_password(self, account: Account) -> bool:
        return account.need_password_change or is_expired(
            account.password_changed_at, self._max_password_age_days, self._clock()
        )

    def create_code(self, caller: Caller, challenge: str, token: str) -> dict[str, str]:
        """Return a code that lets the CLI sign in as the caller.

        The code becomes invalid when ``token``, the Hub token of the browser's sign-in, is revoked.
        """
        if caller.user_id is None:
            raise InvalidRequest("only users can sign in with a code")
        code, issued = self._codes.create(caller.username, challenge, token)
        return {"code": code, "expires_at": issued.expires_at.isoformat()}

    async def redeem_code(self, code: str, verifier: str, client_ip: str) -> dict[str, str]:
        """Return a Hub token for a code; the code is invalidated even if the redemption fails."""
        issued = self._codes.take(code, verifier)
        if issued is None:
            self._reject(_WRONG_CODE)
        account = await self._accounts.by_username(issued.username)
        if account is None:
            self._reject(_WRONG_CREDENTIALS)
        denial = refusal(account, client_ip)
        if denial is not None:
            await self._audit.add(self._denial_entry(account, client_ip, "sign-in.code", denial))
            self._reject(denial.text, reason=denial.reason)
        token = await self._hub_token(account.username, "bai login (browser)")
        # Check after the creation of the token, because a sign-out revokes only the tokens that
        # exist at that time.
        if await self._hub.user_of_token(issued.token) is None:
            await self._hub.delete_token(token["token"])
            self._reject(_WRONG_CODE)  # the user has signed out of that browser
        entry = self._audit.entry(
            _as_caller(account, client_ip), "sign-in.code", account.id, domain=account.domain
        )
        await self._audit.add(entry)
        self._metrics.sign_ins.labels("done").inc()
        return token

    async def _hub_token(self, username: str, note: str) -> dict[str, str]:
        await self._hub.ensure_user(username)
        token = await self._hub.create_token(username, note, self._token_seconds)
        return {"token": token.value, "username": username}

    async def _check_password(
        self, name: str, password: str, client_ip: str, action: str, factor: SecondFactor
    ) -> _Accepted:
        """Return the account and its current password hash; raises the errors of ``verify``."""
        typed_name = canonical(name)[: MAX_NAME_CHARACTERS + 1]
        now = self._clock()
        client = network_of(client_ip)
        # Before counting the attempt, check that the queue of password checks has a free place.
        # The place is released before the delay; ``verify_attempt`` reserves one again.
        with self.passwords.attempt(client):
            candidate = await self._find_account(typed_name, password)
            user_id = None if candidate is None else candidate.account.id
            attempt = await self.lockouts.begin(typed_name, user_id, client_ip, now)
        await self.lockouts.delay(attempt)
        # Verify the password of a blocked attempt too: a faster response would reveal that this
        # account has not signed in from this address. This is not necessary for an attempt that
        # would be rejected for every account.
        is_correct = not attempt.is_rejected_for_every_account and await self._is_correct_password(
            client, candidate, password
        )
        if is_correct and candidate is not None and attempt.is_accepted:
            return await self._accept(candidate, attempt, password, client_ip, action, factor)
        if attempt.blocked_until is not None:
            self._metrics.sign_ins.labels("blocked").inc()
            seconds = max(1, math.ceil((attempt.blocked_until - now).total_seconds()))
            minutes = counted(math.ceil(seconds / 60), "minutes")
            raise SignInBlocked(
                "too many failures with this name or from this address; try again in " + minutes,
                retry_after_seconds=seconds,
            )
        await self._refuse(action, client_ip)

    async def _refuse(self, action: str, client_ip: str) -> NoReturn:
        await self._audit.add(_failure_entry(self._audit, action, client_ip))
        self._reject(_WRONG_CREDENTIALS)

    async def _accept(
        self,
        candidate: PasswordAccount,
        attempt: Attempt,
        password: str,
        client_ip: str,
        action: str,
        factor: SecondFactor,
    ) -> _Accepted:
        account = candidate.account
        denial = refusal(account, client_ip)
        checked = CheckedFactor()
        if denial is None:
            checked = await self._check_factor(account, attempt, client_ip, action, factor)
            entry = self._audit.entry(
                _as_caller(account, client_ip), action, account.id, domain=account.domain
            )
        else:
            entry = self._denial_entry(account, client_ip, action, denial)
        # The address of a rejected account is not stored as known.
        has_old_password = not await self.lockouts.record_success(
            attempt,
            account.password_changed_at,
            self._clock(),
            entry,
            is_known=denial is None,
            has_code=bool(checked.proof),
        )
        if has_old_password:
            await self._refuse(action, client_ip)
        if denial is not None:
            self._reject(denial.text, reason=denial.reason)
        password_hash = await self._rehash_if_outdated(candidate, password)
        self._metrics.sign_ins.labels("done").inc()
        return _Accepted(account, password_hash, checked)

    async def _check_factor(
        self,
        account: Account,
        attempt: Attempt,
        client_ip: str,
        action: str,
        factor: SecondFactor,
    ) -> CheckedFactor:
        """Check the one-time code; a wrong code leaves the attempt counted as failed."""
        try:
            return await self._one_time_codes.check(account, factor)
        except NotSignedIn as error:
            reason = str(error.details.get("reason", error.code))
            if reason == CODE_NEEDED:
                await self.lockouts.withdraw(attempt)
            await self._audit.add(
                self._audit.entry(
                    _as_caller(account, client_ip),
                    action,
                    account.id,
                    domain=account.domain,
                    outcome=error.code,
                    reason=reason,
                )
            )
            blocked = isinstance(error, SignInBlocked)
            self._metrics.sign_ins.labels("blocked" if blocked else "refused").inc()
            raise

    async def _find_account(self, typed_name: str, password: str) -> PasswordAccount | None:
        is_plausible = (
            0 < len(typed_name) <= MAX_NAME_CHARACTERS
            and len(password) <= MAX_LENGTH
            and "\0" not in typed_name
        )
        candidate = await self._accounts.by_sign_in_name(typed_name) if is_plausible else None
        return None if candidate is None or candidate.account.status == "deleted" else candidate

    async def _is_correct_password(
        self, client: str, candidate: PasswordAccount | None, password: str
    ) -> bool:
        """Return whether the password is correct; takes the same time if there is no account."""
        password_hash = None if candidate is None else candidate.password_hash
        return await self.passwords.verify_attempt(client, password_hash, password[:MAX_LENGTH])

    def _denial_entry(
        self, account: Account, client_ip: str, action: str, denial: Refusal
    ) -> AuditEntry:
        return self._audit.entry(
            _as_caller(account, client_ip),
            action,
            account.id,
            domain=account.domain,
            outcome=SignInRefused.code,
            reason=denial.reason,
        )

    def _reject(self, text: str, **details: str) -> NoReturn:
        self._metrics.sign_ins.labels("refused").inc()
        raise SignInRefused(text, **details)

    async def _rehash_if_outdated(self, candidate: PasswordAccount, password: str) -> str | None:
        """Return the account's password hash; replace the hash if its parameters are outdated."""
        old = candidate.password_hash
        if old is None or not self.passwords.is_outdated(old):
            return old
        new = await self.passwords.hash(password)
        await self._users.rehash(candidate.account.id, old, new)
        return new


def hub_account(account: Account) -> HubAccount:
    """Return the account in the form that the Hub's authenticator expects."""
    domain = account.domain
    groups = [f"d-{domain}", *(f"p-{domain}-{name}" for _, name in account.projects)]
    return HubAccount(
        id=account.id,
        username=account.username,
        email=account.email,
        role=account.role,
        domain=domain,
        need_password_change=account.need_password_change,
        password_changed_at=account.password_changed_at,
        is_active=refusal(account, None) is None,
        hub_groups=groups,
        hub_roles=_hub_roles(account.role, domain),
    )


# Hub scopes of administrators. Except for "delete:servers" they are read-only, unlike those of the
# Hub's own role "admin". Accounts and sessions are changed through the manager, because only the
# manager compares the roles of caller and owner.
_SUPERADMIN_SCOPES = (
    *("admin-ui", "list:users", "read:users", "list:groups", "read:groups"),
    *("list:services", "read:services", "read:hub", "read:roles", "read:metrics"),
    # To stop servers that have no session. No comparison of roles is needed: no owner of a server
    # has a higher role than a superadmin.
    *("read:servers", "delete:servers"),
)
# No "read:servers": the options of a server contain its session's environment variables.
_DOMAIN_ADMIN_SCOPES = ("list:users", "read:users", "list:groups", "read:groups")


def _hub_roles(role: Role, domain: str) -> list[HubRole]:
    if role is Role.SUPERADMIN:
        text = "Administrator of all domains"
        return [HubRole("bai-superadmin", text, list(_SUPERADMIN_SCOPES))]
    if role is Role.ADMIN:
        filtered = (f"{scope}!group=d-{domain}" for scope in _DOMAIN_ADMIN_SCOPES)
        text = f"Administrator of domain {domain}"
        return [HubRole(f"bai-domain-admin-{domain}", text, ["admin-ui", *filtered])]
    return []


def _as_caller(account: Account, client_ip: str) -> Caller:
    return Caller(
        account.role,
        user_id=account.id,
        username=account.username,
        domain=account.domain,
        client_ip=client_ip,
    )


def _failure_entry(audit: Audit, action: str, client_ip: str) -> AuditEntry:
    # The audit entry omits the typed name, because users sometimes type their password into that
    # field.
    caller = Caller(Role.USER, username="(not signed in)", client_ip=client_ip)
    return audit.entry(caller, action, "", domain=None, outcome=SignInRefused.code)
