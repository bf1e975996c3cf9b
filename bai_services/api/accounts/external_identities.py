"""Sign-in with OpenID providers (Hub only), and the linked identities of users."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, SecretStr

from bai_services.core.accounts import external_identities as records
from bai_services.core.accounts import records as account_records
from bai_services.core.accounts.one_time_codes import SecondFactor

from ..base import APIHandler, operation
from ..fields import Body, Instant, NameText, ResponseModel, Secret, ShortText
from .auth import VerifiedAccount
from .one_time_codes import Code, Sealed

_Required = Annotated[ShortText, Field(min_length=1)]


class ExternalUser(Body):
    """Verified claims about a user; only ``issuer`` and ``subject`` are the user's identity."""

    provider: NameText
    issuer: _Required
    subject: _Required
    username: ShortText = ""
    email: ShortText = ""
    is_email_verified: bool = False
    full_name: ShortText = ""


class ProviderRules(Body):
    creates_accounts: bool = False
    domain: NameText = ""
    projects: Annotated[list[NameText], Field(max_length=100)] = []
    links_email: bool = False
    skips_code: bool = False


class ExternalSignIn(Body):
    """For ``code`` and ``code_proof``, see ``POST /auth/verify``."""

    user: ExternalUser
    rules: ProviderRules = ProviderRules()
    client_ip: NameText = ""
    code: Code = SecretStr("")
    code_proof: Sealed = SecretStr("")


class UsedToken(Body):
    """``token_hash``: SHA-256 of the token's issuer and id, as hexadecimal digits."""

    token_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    expires_at: Instant


class NewIdentity(Body):
    user: ExternalUser
    client_ip: NameText = ""


class Identity(ResponseModel):
    id: str
    provider: str
    issuer: str
    subject: str
    created_at: datetime


class Identities(ResponseModel):
    items: list[Identity]


class OwnIdentities(Identities):
    """``has_password``: whether a new link needs the user's password."""

    has_password: bool


class PasswordAgain(Body):
    """The password of a signed-in user, with a ``code`` if the account has an authenticator."""

    password: Secret
    client_ip: NameText = ""
    code: Code = SecretStr("")


class ExternalSignInHandler(APIHandler):
    @operation(
        "Find the account of an identity at an OpenID provider (Hub only)",
        tag="auth",
        body=ExternalSignIn,
        returns=VerifiedAccount,
    )
    async def post(self, body: ExternalSignIn) -> account_records.VerifiedAccount:
        return await self.manager.accounts.external_sign_ins.verify(
            self.caller,
            _user(body.user),
            records.ProviderRules(**dict(body.rules)),
            body.client_ip,
            SecondFactor(body.code.get_secret_value(), body.code_proof.get_secret_value()),
        )


class SignedTokenHandler(APIHandler):
    @operation(
        "Record the use of another site's signed token, which is valid once (Hub only)",
        tag="auth",
        body=UsedToken,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, body: UsedToken) -> None:
        await self.manager.accounts.external_sign_ins.redeem(
            self.caller, body.token_hash, body.expires_at
        )


class IdentitiesAtHubHandler(APIHandler):
    @operation(
        "List the identities of a signed-in user (Hub only)", tag="auth", returns=OwnIdentities
    )
    async def get(self, username: str) -> records.OwnIdentities:
        return await self.manager.accounts.external_sign_ins.identities(self.caller, username)

    @operation(
        "Link an identity to a signed-in user (Hub only)",
        tag="auth",
        body=NewIdentity,
        returns=OwnIdentities,
        status=HTTPStatus.CREATED,
    )
    async def post(self, username: str, body: NewIdentity) -> records.OwnIdentities:
        return await self.manager.accounts.external_sign_ins.link(
            self.caller, username, _user(body.user), body.client_ip
        )


class ConfirmationOfLinkHandler(APIHandler):
    @operation(
        "Check the password of a signed-in user who links an identity (Hub only)",
        tag="auth",
        body=PasswordAgain,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, username: str, body: PasswordAgain) -> None:
        await self.manager.accounts.external_sign_ins.confirm_link(
            self.caller,
            username,
            body.password.get_secret_value(),
            body.client_ip,
            SecondFactor(body.code.get_secret_value()),
        )


class IdentityAtHubHandler(APIHandler):
    @operation(
        "Unlink an identity of a signed-in user (Hub only)",
        tag="auth",
        status=HTTPStatus.NO_CONTENT,
        parameters={"client_ip": "address of the user"},
    )
    async def delete(self, username: str, identity: str) -> None:
        client_ip = self.get_query_argument("client_ip", "")[:64].replace("\0", "")
        await self.manager.accounts.external_sign_ins.unlink(
            self.caller, username, identity, client_ip
        )


class IdentitiesOfUserHandler(APIHandler):
    @operation("List the identities of a user at OpenID providers", tag="users", returns=Identities)
    async def get(self, key: str) -> records.Identities:
        return await self.manager.accounts.users.identities(self.caller, key)


class IdentityOfUserHandler(APIHandler):
    @operation("Unlink an identity of a user", tag="users", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, identity: str) -> None:
        await self.manager.accounts.users.remove_identity(self.caller, key, identity)


def _user(body: ExternalUser) -> records.ExternalUser:
    return records.ExternalUser(**dict(body))


ROUTES = [
    ("/auth/external", ExternalSignInHandler),
    ("/auth/signed-tokens", SignedTokenHandler),
    (r"/auth/accounts/(?P<username>[^/]+)/identities", IdentitiesAtHubHandler),
    (r"/auth/accounts/(?P<username>[^/]+)/identity-confirmation", ConfirmationOfLinkHandler),
    (r"/auth/accounts/(?P<username>[^/]+)/identities/(?P<identity>[^/]+)", IdentityAtHubHandler),
    (r"/users/(?P<key>[^/]+)/identities", IdentitiesOfUserHandler),
    (r"/users/(?P<key>[^/]+)/identities/(?P<identity>[^/]+)", IdentityOfUserHandler),
]
