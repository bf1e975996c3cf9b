"""`/me/authenticator`: the caller's authenticator for one-time codes, and its registration.

Changes at this path are accepted from signed-in browsers only: a stolen token or keypair is not
sufficient to register or remove the caller's authenticator.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, SecretStr

from bai_services.core.accounts import one_time_codes as records
from bai_services.core.errors import InvalidRequest, SignInRefused

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, Secret

# A one-time code or a recovery code, possibly with spaces or hyphens.
Code = Annotated[SecretStr, Field(max_length=64)]
# Encrypted data that the manager itself has created.
Sealed = Annotated[SecretStr, Field(max_length=2048)]


class CodeBody(Body):
    """``code``: a one-time code of the authenticator, or a recovery code."""

    code: Code


class Begin(Body):
    """``password``: the account's password; empty if the account has none."""

    password: Secret = SecretStr("")


class Confirmation(Body):
    """``registration`` belongs to the new secret, ``code`` comes from the authenticator."""

    registration: Sealed
    code: Code


class ConfirmationAtHub(Confirmation):
    client_ip: NameText = ""


class OneTimeCodeState(ResponseModel):
    """``rule``: the rule of the user's domain (off, optional or required).

    ``has_password``: whether the registration of an authenticator needs the password.
    """

    rule: str
    has_password: bool
    is_registered: bool
    registered_at: datetime | None
    recovery_codes_left: int


class CodeRegistration(ResponseModel):
    """A new secret as text, URI and QR code (SVG). It is stored when the user confirms it."""

    secret: str
    uri: str
    qr_svg: str
    registration: str


class RecoveryCodes(ResponseModel):
    """No later response contains the codes."""

    recovery_codes: list[str]


class RegisteredAtSignIn(RecoveryCodes):
    """``proof`` replaces the one-time code in the rest of the sign-in."""

    proof: str


class AuthenticatorHandler(APIHandler):
    @operation("Read the state of your authenticator", tag="me", returns=OneTimeCodeState)
    async def get(self) -> records.OneTimeCodeState:
        return await self.manager.accounts.one_time_codes.state(self.caller)

    @operation(
        "Confirm the registration of an authenticator (signed-in browsers only)",
        tag="me",
        body=Confirmation,
        returns=RecoveryCodes,
        status=HTTPStatus.CREATED,
        is_open=True,
    )
    async def post(self, body: Confirmation) -> records.RecoveryCodes:
        caller = await self.settings["sign_in"].browser_caller(self)
        return await self.manager.accounts.one_time_codes.confirm(
            caller, body.registration.get_secret_value(), body.code.get_secret_value()
        )


class RegistrationHandler(APIHandler):
    @operation(
        "Begin the registration of an authenticator (signed-in browsers only)",
        tag="me",
        body=Begin,
        returns=CodeRegistration,
        is_open=True,
    )
    async def post(self, body: Begin) -> records.CodeRegistration:
        caller = await self.settings["sign_in"].browser_caller(self)
        accounts = self.manager.accounts
        try:
            await accounts.sign_ins.confirm_signed_in(
                caller.username,
                body.password.get_secret_value(),
                caller.client_ip,
                "user.register-authenticator",
            )
        except SignInRefused:
            # Not ``SignInRefused``: the browser would conclude that its user is signed out.
            raise InvalidRequest("the password is wrong", field="password") from None
        return await accounts.one_time_codes.begin(caller)


class RemovalHandler(APIHandler):
    @operation(
        "Remove your authenticator (signed-in browsers only)",
        tag="me",
        body=CodeBody,
        status=HTTPStatus.NO_CONTENT,
        is_open=True,
    )
    async def post(self, body: CodeBody) -> None:
        caller = await self.settings["sign_in"].browser_caller(self)
        await self.manager.accounts.one_time_codes.remove(caller, body.code.get_secret_value())


class RecoveryCodesHandler(APIHandler):
    @operation(
        "Replace your recovery codes (signed-in browsers only)",
        tag="me",
        body=CodeBody,
        returns=RecoveryCodes,
        is_open=True,
    )
    async def post(self, body: CodeBody) -> records.RecoveryCodes:
        caller = await self.settings["sign_in"].browser_caller(self)
        return await self.manager.accounts.one_time_codes.renew_recovery_codes(
            caller, body.code.get_secret_value()
        )


class RegistrationAtSignInHandler(APIHandler):
    @operation(
        "Begin the registration of an authenticator during a sign-in (Hub only)",
        tag="auth",
        returns=CodeRegistration,
    )
    async def post(self, username: str) -> records.CodeRegistration:
        return await self.manager.accounts.one_time_codes.begin_at_sign_in(self.caller, username)


class ConfirmationAtSignInHandler(APIHandler):
    @operation(
        "Confirm the registration of an authenticator during a sign-in (Hub only)",
        tag="auth",
        body=ConfirmationAtHub,
        returns=RegisteredAtSignIn,
        status=HTTPStatus.CREATED,
    )
    async def post(self, username: str, body: ConfirmationAtHub) -> records.RegisteredAtSignIn:
        return await self.manager.accounts.one_time_codes.confirm_at_sign_in(
            self.caller,
            username,
            body.registration.get_secret_value(),
            body.code.get_secret_value(),
            body.client_ip,
        )


class AuthenticatorOfUserHandler(APIHandler):
    @operation(
        "Remove the authenticator of another user", tag="users", status=HTTPStatus.NO_CONTENT
    )
    async def delete(self, key: str) -> None:
        await self.manager.accounts.users.remove_authenticator(self.caller, key)


ROUTES = [
    ("/me/authenticator", AuthenticatorHandler),
    ("/me/authenticator/registration", RegistrationHandler),
    ("/me/authenticator/removal", RemovalHandler),
    ("/me/authenticator/recovery-codes", RecoveryCodesHandler),
    (r"/auth/accounts/(?P<username>[^/]+)/authenticator", ConfirmationAtSignInHandler),
    (
        r"/auth/accounts/(?P<username>[^/]+)/authenticator/registration",
        RegistrationAtSignInHandler,
    ),
    (r"/users/(?P<key>[^/]+)/authenticator", AuthenticatorOfUserHandler),
]
