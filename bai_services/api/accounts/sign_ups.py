"""`/auth/sign-up`, for the Hub's pages, and `/sign-up-invitations`."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from bai_services.core.accounts import sign_ups as records
from bai_services.core.listing import ListQuery, Page

from ..base import APIHandler, operation
from ..fields import Body, FullName, Line, NameText, ResponseModel, Secret, ShortText
from .password_resets import Language, PageUrl

Words = Annotated[list[ShortText], Field(max_length=100)]


class Rules(Body):
    """``domain``: domain of accounts without an invitation. ``email_domains``: empty for all."""

    domain: NameText
    needs_invitation: bool
    verifies_email: bool
    needs_approval: bool
    email_domains: Words = []


class SignUp(Body):
    """``page``: URL of the Hub's page for the link in the mail."""

    username: ShortText
    email: ShortText
    full_name: FullName = ""
    password: Secret
    invitation: ShortText = ""
    consents: Words = []
    rules: Rules
    page: PageUrl
    client_ip: NameText = ""
    language: Language = ""


class Verification(Body):
    """``token``: the token in the link of the mail. ``password``: the password of the sign-up."""

    token: ShortText
    password: Secret
    rules: Rules
    client_ip: NameText = ""
    language: Language = ""


class SignUpState(ResponseModel):
    """``next``: ``verify-email``, ``await-approval`` or ``sign-in``."""

    next: str


class NewInvitation(Body):
    domain: NameText = ""
    project: Annotated[str, Field(max_length=130)] = ""
    description: Line = ""
    max_uses: Annotated[int, Field(ge=1, le=records.MAX_INVITATION_USES)] = 1
    valid_days: Annotated[int, Field(ge=1, le=records.MAX_INVITATION_DAYS)] = 7


class SignUpInvitation(ResponseModel):
    """``project``: null for the project ``default`` of the domain."""

    id: str
    created_at: datetime
    created_by: str
    description: str
    domain: str
    project: str | None
    max_uses: int
    uses: int
    expires_at: datetime


class CreatedSignUpInvitation(SignUpInvitation):
    """``token``: no later response contains it. The link for the user is `HUB/sign-up#TOKEN`."""

    token: str


class SignUpHandler(APIHandler):
    @operation("Sign up (Hub only)", tag="auth", body=SignUp, returns=SignUpState)
    async def post(self, body: SignUp) -> dict[str, str]:
        form = records.SignUpForm(
            body.username,
            body.email,
            body.full_name,
            body.password.get_secret_value(),
            body.invitation,
            body.consents,
        )
        rules = records.SignUpRules(**body.rules.model_dump())
        step = await self.manager.accounts.sign_ups.sign_up(
            self.caller, form, rules, body.client_ip, body.language, body.page
        )
        return {"next": step}


class VerifyHandler(APIHandler):
    @operation(
        "Confirm the e-mail address of a sign-up (Hub only)",
        tag="auth",
        body=Verification,
        returns=SignUpState,
    )
    async def post(self, body: Verification) -> dict[str, str]:
        rules = records.SignUpRules(**body.rules.model_dump())
        step = await self.manager.accounts.sign_ups.verify(
            self.caller, body.token, body.password.get_secret_value(), rules, body.client_ip
        )
        return {"next": step}


class InvitationsHandler(APIHandler):
    @operation("List invitations to sign up", tag="users", returns=SignUpInvitation, is_list=True)
    async def get(self, query: ListQuery) -> Page[records.SignUpInvitation]:
        return await self.manager.accounts.sign_up_invitations.page(self.caller, query)

    @operation(
        "Create an invitation to sign up",
        tag="users",
        body=NewInvitation,
        returns=CreatedSignUpInvitation,
        status=HTTPStatus.CREATED,
    )
    async def post(self, body: NewInvitation) -> records.CreatedSignUpInvitation:
        return await self.manager.accounts.sign_up_invitations.create(
            self.caller, body.given_fields()
        )


class InvitationHandler(APIHandler):
    @operation("Read an invitation to sign up", tag="users", returns=SignUpInvitation)
    async def get(self, key: str) -> records.SignUpInvitation:
        return await self.manager.accounts.sign_up_invitations.get(self.caller, key)

    @operation("Delete an invitation to sign up", tag="users", status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str) -> None:
        await self.manager.accounts.sign_up_invitations.delete(self.caller, key)


ROUTES = [
    ("/auth/sign-up", SignUpHandler),
    ("/auth/sign-up/verify", VerifyHandler),
    ("/sign-up-invitations", InvitationsHandler),
    (r"/sign-up-invitations/(?P<key>[^/]+)", InvitationHandler),
]
