"""Sign-in by password, and the account data that the Hub receives."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.accounts.passwords import MAX_LENGTH, check_password
from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import (
    BaiError,
    InvalidRequest,
    NotFound,
    SignInBlocked,
    SignInRefused,
)
from bai_services.db.accounts.callers import AccountStore, PasswordAccount
from bai_services.db.accounts.users import Account, Revocation, UserStore

from ..audit import Audit
from ..context import ManagerContext
from ..hub.client import Hub
from ..metrics import Metrics
from . import authorizer
from .callers import refusal
from .lockouts import Attempt, Lockouts, canonical
from .passwords import Passwords
from .sign_outs import TokenEndings

CODE_LIFE = timedelta(minutes=2)
CODES_AT_ONCE = 1000
MAX_NAME = 128
_WRONG = "the name or the password is wrong"


@dataclass(frozen=True, slots=True)
class _Code:
    username: str
    challenge: str
    expires_at: datetime


class SignIns:
    """Passwords, tokens for the CLI, and one-time codes of its browser sign-in."""

    def __init__(
        self,
        context: ManagerContext,
        passwords: Passwords,
        hub: Hub,
        endings: TokenEndings,
        metrics: Metrics,
        lockouts: Lockouts,
        *,
        token_seconds: int,
    ) -> None:
        self._accounts = AccountStore(context.database)
        self.lockouts = lockouts
        self._users = UserStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._passwords = passwords
        self._hub = hub
        self._endings = endings
        self._sign_outs_due = context.sign_outs_due
        self._metrics = metrics
        self._token_seconds = token_seconds
        # Lost with a restart, which is acceptable for a sign-in of two minutes.
        self._codes: dict[str, _Code] = {}
        endings.listen(self._forget_codes)

    async def verify(
        self, caller: Caller, name: str, password: str, client_ip: str
    ) -> dict[str, Any]:
        """Return the account whose password was sent to the Hub.

        Raises
        ------
        SignInRefused
            If name or password is wrong (one text for both), or, after the right password, with
            the reason why the account is refused.
        SignInBlocked
            After too many failures with that name, whether it exists or not.
        """
        authorizer.require(caller, "account.verify")
        account = await self._check(name, password, client_ip, "sign-in.hub")
        limit = await self._accounts.max_concurrent_logins(account.id)
        return {**hub_account(account), "max_concurrent_logins": limit}

    async def account(self, caller: Caller, username: str) -> dict[str, Any]:
        """Return the account data that the Hub needs."""
        authorizer.require(caller, "account.read")
        found = await self._accounts.by_username(username)
        if found is None:
            raise NotFound(f"there is no account {username}")
        return hub_account(found)

    async def token(self, name: str, password: str, client_ip: str) -> dict[str, str]:
        """Return a Hub token for a name and password; same rules as ``verify``."""
        account = await self._check(name, password, client_ip, "sign-in.token")
        if account.need_password_change:
            raise SignInRefused(
                "change the password first, with bai password --user NAME or on the sign-in page",
                reason="need-password-change",
                need_password_change=True,
            )
        return await self._hub_token(account.username, "bai login")

    async def withdraw(self, caller: Caller, token: str) -> None:
        """Revoke the token with which the caller signed in."""
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
        keep_session: str = "",
        revokes_tokens: bool = False,
    ) -> None:
        """Set a new password after checking the old one; same lockout as sign-in.

        It ends every browser sign-in of the account except ``keep_session`` (the Hub's id of the
        browser session in use), and with ``revokes_tokens`` its API tokens, too.

        Raises
        ------
        InvalidRequest
            If the new password breaks the rules or is the old one.
        """
        account = await self._check(name, old, client_ip, "sign-in.password")
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
        hashed = await self._passwords.hash(new)
        ending: Revocation = "all" if revokes_tokens else "sign-ins"
        await self._users.set_password(account.id, hashed, self._clock(), entry, ending)
        due = {"id": account.id, "username": account.username, "tokens_to_end": ending}
        try:
            await self._endings.end(due, keep_session)
        except BaiError:
            # The password has changed; what the Hub still has to do is retried until it answers.
            self._sign_outs_due()

    def _forget_codes(self, username: str) -> None:
        self._codes = {k: c for k, c in self._codes.items() if c.username != username}

    def code(self, caller: Caller, challenge: str) -> dict[str, str]:
        """Return a one-time code that lets the CLI with the ``challenge`` act as the caller.

        It is valid for two minutes and one use, and only with the verifier whose SHA-256 is the
        challenge (PKCE, S256).
        """
        if caller.user_id is None:
            raise InvalidRequest("only users can sign in with a code")
        now = self._clock()
        if len(challenge) != 43:
            raise InvalidRequest(
                "the challenge is not a SHA-256 in URL-safe base64", field="challenge"
            )
        self._codes = {k: c for k, c in self._codes.items() if c.expires_at > now}
        while len(self._codes) >= CODES_AT_ONCE:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(32)
        expires_at = now + CODE_LIFE
        self._codes[_hashed(code)] = _Code(caller.username, challenge, expires_at)
        return {"code": code, "expires_at": expires_at.isoformat()}

    async def redeem(self, code: str, verifier: str, client_ip: str) -> dict[str, str]:
        """Return a Hub token for a code; the code is used up even if something is wrong."""
        found = self._codes.pop(_hashed(code), None)
        is_right = (
            found is not None
            and found.expires_at > self._clock()
            and hmac.compare_digest(found.challenge, _hashed(verifier))
        )
        if found is None or not is_right:
            raise SignInRefused("the code is wrong, used or expired; run bai login again")
        account = await self._accounts.by_username(found.username)
        if account is None:
            raise SignInRefused(_WRONG)
        await self._refuse(account, client_ip, "sign-in.code")
        entry = self._audit.entry(
            _as_caller(account, client_ip), "sign-in.code", account.id, domain=account.domain
        )
        await self._audit.add(entry)
        return await self._hub_token(account.username, "bai login (browser)")

    async def _hub_token(self, username: str, note: str) -> dict[str, str]:
        await self._hub.ensure_user(username)
        token = await self._hub.create_token(username, note, self._token_seconds)
        return {"token": token.value, "username": username}

    async def _check(self, name: str, password: str, client_ip: str, action: str) -> Account:
        typed = canonical(name)[: MAX_NAME + 1]
        now = self._clock()
        found = await self._find(typed, password)
        user_id = None if found is None else found.account.id
        attempt = await self.lockouts.begin(typed, user_id, client_ip, now)
        # Checked even if the attempt is blocked anyway: response times must reveal nothing.
        is_right = await self._is_right(found, password)
        if is_right and found is not None and attempt.is_accepted:
            return await self._accept(found, attempt, password, client_ip, action)
        if attempt.blocked_until is not None:
            self._metrics.sign_ins.labels("blocked").inc()
            seconds = max(1, int((attempt.blocked_until - now).total_seconds()))
            raise SignInBlocked(
                f"too many failures with this name or from this address; try again in "
                f"{seconds // 60 + 1} minutes",
                retry_after_seconds=seconds,
            )
        self._metrics.sign_ins.labels("refused").inc()
        await self._audit.add(_refused_entry(self._audit, action, client_ip))
        raise SignInRefused(_WRONG)

    async def _accept(
        self, found: PasswordAccount, attempt: Attempt, password: str, client_ip: str, action: str
    ) -> Account:
        account = found.account
        entry = self._audit.entry(
            _as_caller(account, client_ip), action, account.id, domain=account.domain
        )
        await self.lockouts.succeeded(attempt, self._clock(), entry)
        await self._refuse(account, client_ip, action)
        await self._rehash_if_outdated(found, password)
        self._metrics.sign_ins.labels("done").inc()
        return account

    async def _find(self, typed: str, password: str) -> PasswordAccount | None:
        is_sane = 0 < len(typed) <= MAX_NAME and len(password) <= MAX_LENGTH and "\0" not in typed
        found = await self._accounts.by_sign_in_name(typed) if is_sane else None
        return None if found is None or found.account.status == "deleted" else found

    async def _is_right(self, found: PasswordAccount | None, password: str) -> bool:
        """Return whether the password is right; takes the same time if there is no account."""
        password_hash = None if found is None else found.password_hash
        return await self._passwords.verify(password_hash, password[:MAX_LENGTH])

    async def _refuse(self, account: Account, client_ip: str, action: str) -> None:
        found = refusal(account, client_ip)
        if found is None:
            return
        self._metrics.sign_ins.labels("refused").inc()
        caller = _as_caller(account, client_ip)
        await self._audit.add(
            self._audit.entry(
                caller,
                action,
                account.id,
                domain=account.domain,
                outcome=SignInRefused.code,
                reason=found.reason,
            )
        )
        raise SignInRefused(found.text, reason=found.reason)

    async def _rehash_if_outdated(self, found: PasswordAccount, password: str) -> None:
        old = found.password_hash
        if old is not None and self._passwords.is_outdated(old):
            new = await self._passwords.hash(password)
            await self._users.rehash(found.account.id, old, new)


def hub_account(account: Account) -> dict[str, Any]:
    """Return the account in the form that the Hub's authenticator takes."""
    domain = account.domain
    groups = [f"d-{domain}", *(f"p-{domain}-{name}" for _, name in account.projects)]
    return {
        "id": account.id,
        "username": account.username,
        "email": account.email,
        "role": account.role,
        "domain": domain,
        "need_password_change": account.need_password_change,
        "is_active": refusal(account, None) is None,
        "hub_groups": groups,
        "hub_roles": _hub_roles(account.role, domain),
    }


# Scopes of administrators in the Hub. Accounts and sessions are changed through the manager, which
# compares the roles of caller and owner; the filters of the Hub cannot do this. These scopes
# therefore do not allow creating a user, starting a server, issuing a token or opening another
# user's server, all of which the Hub's own role "admin" would allow.
_SUPERADMIN_SCOPES = (
    *("admin-ui", "list:users", "read:users", "list:groups", "read:groups"),
    *("list:services", "read:services", "read:hub", "read:roles", "read:metrics"),
    # No role is higher, so a superadmin may also stop servers that the manager does not know.
    *("read:servers", "delete:servers"),
)
# Without "read:servers", because a server's options contain the environment of its session.
_DOMAIN_ADMIN_SCOPES = ("list:users", "read:users", "list:groups", "read:groups")


def _hub_roles(role: Role, domain: str) -> list[dict[str, Any]]:
    if role is Role.SUPERADMIN:
        return [
            {
                "name": "bai-superadmin",
                "description": "Administrator of all domains",
                "scopes": list(_SUPERADMIN_SCOPES),
            }
        ]
    if role is Role.ADMIN:
        filtered = (f"{scope}!group=d-{domain}" for scope in _DOMAIN_ADMIN_SCOPES)
        return [
            {
                "name": f"bai-domain-admin-{domain}",
                "description": f"Administrator of domain {domain}",
                "scopes": ["admin-ui", *filtered],
            }
        ]
    return []


def _as_caller(account: Account, client_ip: str) -> Caller:
    return Caller(
        account.role,
        user_id=account.id,
        username=account.username,
        domain=account.domain,
        client_ip=client_ip,
    )


def _refused_entry(audit: Audit, action: str, client_ip: str) -> Any:
    # The account is unknown, and a mistyped name may be a password, so neither is stored.
    caller = Caller(Role.USER, username="(not signed in)", client_ip=client_ip)
    return audit.entry(caller, action, "", domain=None, outcome=SignInRefused.code)


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
