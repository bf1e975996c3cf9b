"""One-time codes (TOTP, RFC 6238) as the second factor of sign-ins, and recovery codes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import math
import secrets
import uuid
from dataclasses import dataclass
from datetime import datetime

import segno
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from bai_services.core.accounts.one_time_codes import (
    DIGITS,
    RECOVERY_ALPHABET,
    RECOVERY_CODE_COUNT,
    RECOVERY_CODE_LENGTH,
    SECRET_BYTES,
    STEP_SECONDS,
    CodeRegistration,
    CodeRule,
    CodeRules,
    OneTimeCodeState,
    RecoveryCodes,
    RegisteredAtSignIn,
    SecondFactor,
    accepted_steps,
    canonical_code,
    code_needed,
    code_wrong,
    grouped,
    is_one_time_code,
    is_recovery_code,
)
from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import (
    AlreadyExists,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInBlocked,
    Unavailable,
)
from bai_services.db.accounts.callers import AccountStore
from bai_services.db.accounts.one_time_codes import Authenticator, OneTimeCodeStore
from bai_services.db.accounts.users import Account

from ..context import ManagerContext
from . import authorizer
from .lockouts import Lockouts

REGISTRATION_SECONDS = 600
# Maximum time from the code to the end of the sign-in. In between, the user may have to choose a
# new password, or to confirm the end of another sign-in.
PROOF_SECONDS = 600
_PROOF, _REGISTRATION = "code-proof", "code-registration"


@dataclass(frozen=True, slots=True)
class CheckedFactor:
    """The result of a check. ``proof`` is empty if no code was needed.

    ``needs_registration``: the user must register an authenticator to complete the sign-in.
    """

    proof: str = ""
    needs_registration: bool = False


class OneTimeCodes:
    """Registers authenticators and checks their codes.

    ``proof`` and ``registration`` are encrypted: the caller only passes them to later calls.
    """

    def __init__(
        self,
        context: ManagerContext,
        key: bytes,
        lockouts: Lockouts,
        rules: CodeRules,
        issuer: str,
    ) -> None:
        """``issuer`` is the name of this installation in the user's authenticator."""
        self._store = OneTimeCodeStore(context.database)
        self._accounts = AccountStore(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._lockouts = lockouts
        self._key = key
        # Use a separate key, so that a text that another part of the manager has encrypted is not a
        # valid proof.
        derived = hmac.new(key, b"one-time-codes", hashlib.sha256).digest()
        self._fernet = Fernet(base64.urlsafe_b64encode(derived))
        self._rules = rules
        self._issuer = issuer

    async def state(self, caller: Caller) -> OneTimeCodeState:
        user_id, rule = self._own(caller)
        found = await self._store.find(user_id)
        left = 0 if found is None else await self._store.recovery_codes_left(user_id)
        return OneTimeCodeState(
            rule=rule,
            has_password=await self._accounts.has_password(caller.username),
            is_registered=found is not None,
            registered_at=None if found is None else found.created_at,
            recovery_codes_left=left,
        )

    async def begin(self, caller: Caller) -> CodeRegistration:
        """Return a new secret; ``confirm`` stores it after a correct code.

        The caller's password must have been checked (``SignIns.confirm_signed_in``).

        Raises
        ------
        Forbidden
            If one-time codes are off in the caller's domain.
        AlreadyExists
            If the caller has an authenticator.
        """
        return await self._begin(await self._account_of(caller))

    async def begin_at_sign_in(self, caller: Caller, username: str) -> CodeRegistration:
        """Return a new secret for a user whose password the Hub has verified."""
        return await self._begin(await self._account_at_sign_in(caller, username))

    async def confirm(self, caller: Caller, registration: str, code: str) -> RecoveryCodes:
        """Store the authenticator of ``begin``; return the recovery codes.

        Raises
        ------
        InvalidRequest
            If the registration is invalid or expired, or the code is wrong.
        AlreadyExists
            If the caller has an authenticator.
        """
        account = await self._account_of(caller)
        _, recovery_codes = await self._confirm(account, caller.client_ip, registration, code)
        return RecoveryCodes(recovery_codes=recovery_codes)

    async def confirm_at_sign_in(
        self, caller: Caller, username: str, registration: str, code: str, client_ip: str
    ) -> RegisteredAtSignIn:
        account = await self._account_at_sign_in(caller, username)
        stored, recovery_codes = await self._confirm(account, client_ip, registration, code)
        return RegisteredAtSignIn(recovery_codes=recovery_codes, proof=self._proof_of(stored))

    async def remove(self, caller: Caller, code: str) -> None:
        """Remove the caller's authenticator; ``code`` is one of its codes, or a recovery code.

        Raises
        ------
        NotFound
            If the caller has no authenticator.
        InvalidRequest
            If the code is wrong.
        SignInBlocked
            If there were too many wrong codes.
        """
        found = await self._check_own(caller, code)
        entry = self._audit.entry(
            caller, "user.remove-authenticator", found.user_id, domain=caller.domain
        )
        await self._store.remove(found, entry)

    async def renew_recovery_codes(self, caller: Caller, code: str) -> RecoveryCodes:
        """Replace all recovery codes; raises the errors of ``remove``."""
        found = await self._check_own(caller, code)
        entry = self._audit.entry(
            caller, "user.renew-recovery-codes", found.user_id, domain=caller.domain
        )
        codes = _new_recovery_codes()
        hashes = [self._hash(found.user_id, one) for one in codes]
        await self._store.replace_recovery_codes(found, hashes, entry)
        return RecoveryCodes(recovery_codes=[grouped(one) for one in codes])

    async def check(self, account: Account, factor: SecondFactor) -> CheckedFactor:
        """Check the second factor of a sign-in, after the password or the external identity.

        Raises
        ------
        SignInRefused
            If a code is missing or wrong.
        SignInBlocked
            If there were too many wrong codes for this account, from any address.
        """
        rule = self._rules.of(account.domain)
        if rule is CodeRule.OFF:
            return CheckedFactor()
        found = await self._store.find(account.id)
        if found is None:
            return CheckedFactor(needs_registration=rule is CodeRule.REQUIRED)
        if factor.proof and self._is_proof(factor.proof, found):
            return CheckedFactor(factor.proof)
        if not factor.code:
            raise code_needed(account.username)
        if not await self._use(found, factor.code):
            raise code_wrong(account.username)
        return CheckedFactor(self._proof_of(found))

    async def _check_own(self, caller: Caller, code: str) -> Authenticator:
        user_id, _ = self._own(caller)
        found = await self._store.find(user_id)
        if found is None:
            raise NotFound("you have no authenticator")
        if not await self._use(found, code):
            raise InvalidRequest(
                "the code is wrong or was used already; wait for the next code", field="code"
            )
        await self._lockouts.reset_codes(user_id)
        return found

    async def _use(self, found: Authenticator, typed: str) -> bool:
        """Return whether a code is valid; it cannot be used again."""
        now = self._clock()
        # Count before the check: concurrent attempts must not exceed the limit.
        blocked_until = await self._lockouts.count_code(found.user_id, now)
        if blocked_until is not None:
            seconds = max(1, math.ceil((blocked_until - now).total_seconds()))
            raise SignInBlocked(
                f"too many wrong codes; try again in {seconds} s", retry_after_seconds=seconds
            )
        code = canonical_code(typed)
        if is_one_time_code(code):
            step = self._step_of(self._secret_of(found), code, now)
            return step is not None and await self._store.use_step(found, step)
        # The database compares keyed hashes, so its response time reveals nothing about the codes.
        return is_recovery_code(code) and await self._store.use_recovery_code(
            found, self._hash(found.user_id, code)
        )

    async def _begin(self, account: Account) -> CodeRegistration:
        if await self._store.find(account.id) is not None:
            raise AlreadyExists("you have already registered an authenticator")
        secret = secrets.token_bytes(SECRET_BYTES)
        uri = _totp(secret).get_provisioning_uri(account.username, self._issuer)
        text = base64.b32encode(secret).decode()
        registration = self._encrypt(
            _REGISTRATION,
            user=account.id,
            secret=text,
            password_changed_at=_iso(account.password_changed_at),
        )
        return CodeRegistration(
            secret=text, uri=uri, qr_svg=_qr_code(uri), registration=registration
        )

    async def _confirm(
        self, account: Account, client_ip: str, registration: str, typed: str
    ) -> tuple[Authenticator, list[str]]:
        content = self._decrypt(_REGISTRATION, registration, REGISTRATION_SECONDS)
        if (
            content is None
            or content["user"] != account.id
            or content["password_changed_at"] != _iso(account.password_changed_at)
        ):
            raise InvalidRequest(
                "the registration has expired; start it again", field="registration"
            )
        secret, now = base64.b32decode(content["secret"]), self._clock()
        code = canonical_code(typed)
        step = self._step_of(secret, code, now) if is_one_time_code(code) else None
        if step is None:
            raise InvalidRequest("the code is wrong; check the clock of your device", field="code")
        stored = Authenticator(
            user_id=account.id,
            registration_id=str(uuid.uuid4()),
            secret_encrypted=self._fernet.encrypt(content["secret"].encode()).decode(),
            created_at=now,
            last_step=step,
        )
        codes = _new_recovery_codes()
        hashes = [self._hash(account.id, one) for one in codes]
        user = Caller(
            account.role,
            user_id=account.id,
            username=account.username,
            domain=account.domain,
            client_ip=client_ip,
        )
        entry = self._audit.entry(
            user, "user.register-authenticator", account.id, domain=account.domain
        )
        await self._store.add(stored, hashes, account.password_changed_at, entry)
        return stored, [grouped(one) for one in codes]

    def _own(self, caller: Caller) -> tuple[str, CodeRule]:
        authorizer.require(caller, "user.change-own")
        if caller.user_id is None or caller.domain is None:
            raise Forbidden(f"{caller.role} is a system component, not a user")
        return caller.user_id, self._rules.of(caller.domain)

    async def _account_of(self, caller: Caller) -> Account:
        self._own(caller)
        account = await self._accounts.by_username(caller.username)
        if account is None:
            raise NotSignedIn("the account no longer exists")
        if self._rules.of(account.domain) is CodeRule.OFF:
            raise Forbidden("one-time codes are off in your domain")
        return account

    async def _account_at_sign_in(self, caller: Caller, username: str) -> Account:
        authorizer.require(caller, "account.verify")
        account = await self._accounts.by_username(username)
        if account is None:
            raise NotFound(f"there is no account {username}")
        if self._rules.of(account.domain) is not CodeRule.REQUIRED:
            raise Forbidden(f"one-time codes are not required in the domain of {username}")
        return account

    def _secret_of(self, found: Authenticator) -> bytes:
        try:
            return base64.b32decode(self._fernet.decrypt(found.secret_encrypted.encode()))
        except InvalidToken:
            raise Unavailable(
                "the authenticators were encrypted with a different key file; "
                "restore that file (BAI_KEY_FILE)"
            ) from None

    def _step_of(self, secret: bytes, code: str, now: datetime) -> int | None:
        """Return the time step of a code, None if the code is wrong."""
        totp, found = _totp(secret), None
        # Compare all steps: the response time must not reveal the user's clock.
        for step in accepted_steps(now.timestamp()):
            if hmac.compare_digest(totp.generate(step * STEP_SECONDS), code.encode()):
                found = step
        return found

    def _proof_of(self, found: Authenticator) -> str:
        return self._encrypt(_PROOF, user=found.user_id, registration=found.registration_id)

    def _is_proof(self, proof: str, found: Authenticator) -> bool:
        content = self._decrypt(_PROOF, proof, PROOF_SECONDS)
        return (
            content is not None
            and content["user"] == found.user_id
            and content["registration"] == found.registration_id
        )

    def _encrypt(self, purpose: str, **content: str) -> str:
        text = json.dumps({"purpose": purpose, **content})
        at = int(self._clock().timestamp())
        return self._fernet.encrypt_at_time(text.encode(), at).decode()

    def _decrypt(self, purpose: str, text: str, seconds: int) -> dict[str, str] | None:
        """Decrypt a text that ``_encrypt`` returned for the same purpose; None if invalid."""
        at = int(self._clock().timestamp())
        try:
            content: dict[str, str] = json.loads(
                self._fernet.decrypt_at_time(text.encode(), seconds, at)
            )
        except (InvalidToken, ValueError):
            return None
        return content if content["purpose"] == purpose else None

    def _hash(self, user_id: str, code: str) -> str:
        text = f"recovery-code:{user_id}:{code}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _qr_code(text: str) -> str:
    """Return a QR code as SVG, for a page or as the source of an image."""
    svg = io.BytesIO()
    # White background, so that the code is also readable on dark pages.
    segno.make(text, error="m", micro=False).save(
        svg, kind="svg", xmldecl=False, nl=False, light="#fff", omitsize=True
    )
    return svg.getvalue().decode()


def _totp(secret: bytes) -> TOTP:
    # Some authenticators support only SHA-1.
    return TOTP(secret, DIGITS, SHA1(), STEP_SECONDS)


def _new_recovery_codes() -> list[str]:
    return [
        "".join(secrets.choice(RECOVERY_ALPHABET) for _ in range(RECOVERY_CODE_LENGTH))
        for _ in range(RECOVERY_CODE_COUNT)
    ]


def _iso(time: datetime | None) -> str:
    return "" if time is None else time.isoformat()
