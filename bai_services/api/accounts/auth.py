"""`/auth/…`: sign-in by password and by one-time code, and account queries of the Hub."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import Field, SecretStr

from ..base import APIHandler, operation
from ..fields import Body, NameText, ShortText, Shown

# No password is longer; the limit bounds the cost of hashing.
Secret = Annotated[SecretStr, Field(max_length=4096)]


class Credentials(Body):
    name: ShortText
    password: Secret


class CredentialsAtHub(Credentials):
    client_ip: NameText = ""


class PasswordChange(Body):
    """``client_ip`` and ``keep_session`` are only accepted from the Hub."""

    name: ShortText
    old_password: Secret
    new_password: Secret
    client_ip: NameText = ""
    keep_session: ShortText = ""
    revoke_tokens: bool = False


class Challenge(Body):
    challenge: ShortText


class Redemption(Body):
    code: Annotated[str, Field(max_length=255)]
    verifier: Annotated[str, Field(min_length=43, max_length=128)]


class HubRole(Shown):
    name: str
    description: str
    scopes: list[str]


class Account(Shown):
    id: str
    username: str
    email: str
    role: str
    domain: str
    need_password_change: bool
    is_active: bool
    hub_groups: list[str]
    hub_roles: list[HubRole]


class VerifiedAccount(Account):
    """``max_concurrent_logins``: the number of browsers signed in at once; null for any number."""

    max_concurrent_logins: int | None


class HubTokenShown(Shown):
    token: str
    username: str


class OneTimeCode(Shown):
    code: str
    expires_at: datetime


class VerifyHandler(APIHandler):
    @operation(
        "Check a password for the Hub", tag="auth", body=CredentialsAtHub, returns=VerifiedAccount
    )
    async def post(self, body: CredentialsAtHub) -> Any:
        return await self.manager.accounts.sign_ins.verify(
            self.caller, body.name, body.password.get_secret_value(), body.client_ip
        )


class AccountHandler(APIHandler):
    @operation("Read an account for the Hub", tag="auth", returns=Account)
    async def get(self, username: str) -> Any:
        return await self.manager.accounts.sign_ins.account(self.caller, username)


class TokenHandler(APIHandler):
    @operation(
        "Get a Hub token by password",
        tag="auth",
        body=Credentials,
        returns=HubTokenShown,
        is_open=True,
    )
    async def post(self, body: Credentials) -> Any:
        address = await self.settings["sign_in"].person_ip(self)
        return await self.manager.accounts.sign_ins.token(
            body.name, body.password.get_secret_value(), address
        )

    @operation(
        "Revoke the Hub token that the request is sent with",
        tag="auth",
        status=HTTPStatus.NO_CONTENT,
    )
    async def delete(self) -> None:
        await self.settings["sign_in"].withdraw(self, self.caller)


class PasswordHandler(APIHandler):
    @operation(
        "Change one's own password",
        tag="auth",
        body=PasswordChange,
        status=HTTPStatus.NO_CONTENT,
        is_open=True,
    )
    async def post(self, body: PasswordChange) -> None:
        sign_in = self.settings["sign_in"]
        address = await sign_in.person_ip(self, body.client_ip)
        await self.manager.accounts.sign_ins.change_password(
            body.name,
            body.old_password.get_secret_value(),
            body.new_password.get_secret_value(),
            address,
            keep_session=body.keep_session if await sign_in.is_hub(self) else "",
            revokes_tokens=body.revoke_tokens,
        )


class CodeHandler(APIHandler):
    @operation(
        "Get a one-time code for the CLI, from a signed-in browser",
        tag="auth",
        body=Challenge,
        returns=OneTimeCode,
        is_open=True,
    )
    async def post(self, body: Challenge) -> Any:
        # A token must not be able to create a longer-lived successor of itself.
        caller = await self.settings["sign_in"].browser_caller(self)
        return self.manager.accounts.sign_ins.code(caller, body.challenge)


class RedeemHandler(APIHandler):
    @operation(
        "Get a Hub token for a one-time code",
        tag="auth",
        body=Redemption,
        returns=HubTokenShown,
        is_open=True,
    )
    async def post(self, body: Redemption) -> Any:
        address = await self.settings["sign_in"].person_ip(self)
        return await self.manager.accounts.sign_ins.redeem(body.code, body.verifier, address)


ROUTES = [
    ("/auth/verify", VerifyHandler),
    (r"/auth/accounts/(?P<username>[^/]+)", AccountHandler),
    ("/auth/token", TokenHandler),
    ("/auth/password", PasswordHandler),
    ("/auth/code", CodeHandler),
    ("/auth/code/redeem", RedeemHandler),
]
