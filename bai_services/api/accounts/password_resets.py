"""`/auth/password-reset`: links for forgotten passwords; only for the Hub's pages."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import StringConstraints

from ..base import APIHandler, operation
from ..fields import Body, NameText, ResponseModel, Secret, ShortText

# The URL of a page of the Hub; the manager adds a token.
PageUrl = Annotated[str, StringConstraints(max_length=255, pattern=r"^https?://[^\s?#]+$")]
Language = Annotated[str, StringConstraints(max_length=8, pattern=r"^[a-z-]*$")]


class ResetRequest(Body):
    """``page``: URL of the Hub's page for the new password."""

    email: ShortText
    page: PageUrl
    client_ip: NameText = ""
    language: Language = ""


class Reset(Body):
    """``token``: from the link in the mail."""

    token: ShortText
    email: ShortText
    new_password: Secret
    client_ip: NameText = ""
    language: Language = ""


class ResetAccount(ResponseModel):
    username: str


class RequestHandler(APIHandler):
    @operation(
        "Send a link for a forgotten password, if an account has the address (Hub only)",
        tag="auth",
        body=ResetRequest,
        status=HTTPStatus.NO_CONTENT,
    )
    async def post(self, body: ResetRequest) -> None:
        await self.manager.accounts.password_resets.request(
            self.caller, body.email, body.client_ip, body.language, body.page
        )


class ResetHandler(APIHandler):
    @operation(
        "Set a new password with the token of a link (Hub only)",
        tag="auth",
        body=Reset,
        returns=ResetAccount,
    )
    async def post(self, body: Reset) -> dict[str, str]:
        username = await self.manager.accounts.password_resets.redeem(
            self.caller,
            body.token,
            body.email,
            body.new_password.get_secret_value(),
            body.client_ip,
            body.language,
        )
        return {"username": username}


ROUTES = [
    ("/auth/password-reset", RequestHandler),
    ("/auth/password-reset/redeem", ResetHandler),
]
