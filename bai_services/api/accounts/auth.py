"""`/auth/…`: sign-in by password or one-time code, password changes, and account queries of the
Hub.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, SecretStr

from bai_services.core.accounts import records
from bai_services.core.accounts.one_time_codes import SecondFactor

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, Secret, ShortText
from .one_time_codes import Code, Sealed


class Credentials(Body):
    """``code``: one-time code or recovery code, for accounts with an authenticator."""

    name: ShortText
    password: Secret
    code: Code = SecretStr("")


class CredentialsAtHub(Credentials):
    """``code_proof``: the proof from an earlier response, which replaces the code."""

    client_ip: NameText = ""
    code_proof: Sealed = SecretStr("")


class PasswordChange(Body):
    """The old password authenticates the request.

    The change ends all browser sign-ins of the user, except the one with the Hub's session id
    ``keep_session``. With ``revoke_tokens``, this sign-in ends too, and the user's API tokens are
    revoked. Accounts with an authenticator also need a ``code``. Only the Hub may send
    ``client_ip``, ``keep_session`` and ``code_proof``; from other callers they are ignored.
    """

    name: ShortText
    old_password: Secret
    new_password: Secret
    code: Code = SecretStr("")
    code_proof: Sealed = SecretStr("")
    client_ip: NameText = ""
    keep_session: ShortText = ""
    revoke_tokens: bool = False


class Challenge(Body):
    """``challenge``: PKCE code challenge (RFC 7636, S256)."""

    challenge: ShortText


class Redemption(Body):
    """``verifier``: PKCE code verifier that belongs to the challenge of the code."""

    code: Annotated[str, Field(max_length=255)]
    verifier: Annotated[str, Field(min_length=43, max_length=128)]


class HubRole(ResponseModel):
    name: str
    description: str
    scopes: list[str]


class Account(ResponseModel):
    id: str
    username: str
    email: str
    role: str
    domain: str
    need_password_change: bool
    password_changed_at: datetime | None
    is_active: bool
    hub_groups: list[str]
    hub_roles: list[HubRole]


class VerifiedAccount(Account):
    """``max_concurrent_logins``: maximum number of signed-in browsers; null: no limit.

    ``need_code_registration``: the user must register an authenticator first. ``code_proof``
    replaces the one-time code in the rest of the sign-in.
    """

    max_concurrent_logins: int | None
    need_code_registration: bool
    code_proof: str


class HubToken(ResponseModel):
    token: str
    username: str


class OneTimeCode(ResponseModel):
    code: str
    expires_at: datetime


class VerifyHandler(APIHandler):
    @operation(
        "Verify a password (Hub only)", tag="auth", body=CredentialsAtHub, returns=VerifiedAccount
    )
    async def post(self, body: CredentialsAtHub) -> records.VerifiedAccount:
        return await self.manager.accounts.sign_ins.verify(
            self.caller,
            body.name,
            body.password.get_secret_value(),
            body.client_ip,
            factor_of(body.code, body.code_proof),
        )


class AccountHandler(APIHandler):
    @operation("Read an account (Hub only)", tag="auth", returns=Account)
    async def get(self, username: str) -> records.HubAccount:
        return await self.manager.accounts.sign_ins.account(self.caller, username)


class TokenHandler(APIHandler):
    @operation(
        "Create a Hub token with a password",
        tag="auth",
        body=Credentials,
        returns=HubToken,
        is_open=True,
    )
    async def post(self, body: Credentials) -> dict[str, str]:
        address = await self.settings["sign_in"].user_ip(self)
        return await self.manager.accounts.sign_ins.create_token(
            body.name, body.password.get_secret_value(), address, factor_of(body.code)
        )

    @operation(
        "Revoke the Hub token that authenticates the request",
        works_when_read_only=True,
        tag="auth",
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self) -> None:
        await self.settings["sign_in"].revoke_token(self, self.caller)


class PasswordHandler(APIHandler):
    @operation(
        "Change your own password",
        tag="auth",
        body=PasswordChange,
        status=HTTPStatus.NO_CONTENT,
        is_open=True,
    )
    async def post(self, body: PasswordChange) -> None:
        sign_in = self.settings["sign_in"]
        address = await sign_in.user_ip(self, body.client_ip)
        is_hub = await sign_in.is_hub(self)
        await self.manager.accounts.sign_ins.change_password(
            body.name,
            body.old_password.get_secret_value(),
            body.new_password.get_secret_value(),
            address,
            factor=factor_of(body.code, body.code_proof if is_hub else None),
            keep_session=body.keep_session if is_hub else "",
            revokes_tokens=body.revoke_tokens,
        )


class CodeHandler(APIHandler):
    @operation(
        "Create a one-time code for the CLI (signed-in browsers only)",
        tag="auth",
        body=Challenge,
        returns=OneTimeCode,
        is_open=True,
    )
    async def post(self, body: Challenge) -> dict[str, str]:
        # Tokens are not accepted: a token could create a new token that expires later.
        sign_in = self.settings["sign_in"]
        caller = await sign_in.browser_caller(self)
        token = sign_in.browser_token(self)
        return self.manager.accounts.sign_ins.create_code(caller, body.challenge, token)


class RedeemHandler(APIHandler):
    @operation(
        "Create a Hub token with a one-time code",
        tag="auth",
        body=Redemption,
        returns=HubToken,
        is_open=True,
    )
    async def post(self, body: Redemption) -> dict[str, str]:
        address = await self.settings["sign_in"].user_ip(self)
        return await self.manager.accounts.sign_ins.redeem_code(body.code, body.verifier, address)


def factor_of(code: SecretStr, proof: SecretStr | None = None) -> SecondFactor:
    return SecondFactor(code.get_secret_value(), "" if proof is None else proof.get_secret_value())


ROUTES = [
    ("/auth/verify", VerifyHandler),
    (r"/auth/accounts/(?P<username>[^/]+)", AccountHandler),
    ("/auth/token", TokenHandler),
    ("/auth/password", PasswordHandler),
    ("/auth/code", CodeHandler),
    ("/auth/code/redeem", RedeemHandler),
]
