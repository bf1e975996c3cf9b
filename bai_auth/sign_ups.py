"""The pages for sign-up: the form, and the confirmation of the e-mail address.

The tokens of invitations and links are in the part of the URL after ``#``; see
``password_resets``.
"""

from __future__ import annotations

from http import HTTPStatus

from jupyterhub.handlers import BaseHandler

from bai_services.core import errors
from bai_services.core.display_text import text_problem
from bai_services.i18n import catalogue

from .failures import rule_text
from .forms import FormPage

SIGN_UP_PAGE = "sign-up"
VERIFY_PAGE = "verify-email"
# The fields that are filled in again after an error.
KEPT_FIELDS = ("email", "username", "full_name", "invitation")
MAX_FULL_NAME = 64
# Keys of the texts for problems of a field; for other fields, the manager's message is shown.
TEXTS = {
    "invitation": "sign_up.invitation_rejected",
    "username": "sign_up.username_invalid",
    "email": "self_service.email_invalid",
}
TAKEN = {"username": "sign_up.username_taken", "email": "sign_up.email_taken"}


class SignUpHandler(FormPage):
    """Creates an account, or sends a link to the e-mail address."""

    async def get(self) -> None:
        self.remember_language()
        await self._show()

    async def post(self) -> None:
        problem = self._form_problem()
        if problem is None:
            problem = await self._sign_up()
        if problem is not None:
            status, field, text = problem
            self.set_status(status)
            await self._show(field, text)

    def _form_problem(self) -> tuple[HTTPStatus, str, str] | None:
        """Validate the form; return status, field and message of a problem, if any."""
        translate = catalogue.translator_for(self)
        password = self.field("password", strip=False)
        full_name = self.field("full_name")
        if password != self.field("repeat_password", strip=False):
            return HTTPStatus.BAD_REQUEST, "repeat_password", translate("password.differs")
        if len(full_name) > MAX_FULL_NAME or text_problem(full_name):
            return HTTPStatus.BAD_REQUEST, "full_name", translate("sign_up.full_name_invalid")
        for document in self.self_service.documents:
            if self.field(document) != "yes":
                return HTTPStatus.BAD_REQUEST, document, translate("sign_up.consent_missing")
        return None

    async def _sign_up(self) -> tuple[HTTPStatus, str, str] | None:
        service = self.self_service
        body = {
            "username": self.field("username")[:255],
            "email": self.field("email")[:255],
            "full_name": self.field("full_name"),
            "password": self.field("password", strip=False),
            "invitation": self.field("invitation")[:255],
            "consents": list(service.documents),
            "rules": service.sign_up_rules(),
            "page": service.page_url(VERIFY_PAGE),
            **self.caller_fields(),
        }
        try:
            state = await self.authenticator.client.post("/auth/sign-up", body)
        except errors.BaiError as error:
            return self.problem(error)
        await self.finish_step(state["next"])
        return None

    def problem(self, error: errors.BaiError) -> tuple[HTTPStatus, str, str]:
        """Return status, field and message of an error of the manager."""
        translate = catalogue.translator_for(self)
        field = str(error.details.get("field", ""))
        if isinstance(error, errors.AlreadyExists) and field in TAKEN:
            return HTTPStatus.CONFLICT, field, translate(TAKEN[field])
        status, text = self.failure(error)
        if error.details.get("reason") == "email-domain":
            text = translate("sign_up.email_domain")
        elif isinstance(error, errors.InvalidRequest) and field in TEXTS:
            text = translate(TEXTS[field])
        return status, field, text

    async def finish_step(self, step: str) -> None:
        """Show what the user must do next."""
        if step == "sign-in":
            self.redirect(self.hub_url("login", notice="signed_up"), status=303)
            return
        text = {"verify-email": "sign_up.mail_sent", "await-approval": "sign_up.awaits_approval"}
        await self._show(done=catalogue.translator_for(self)(text[step]))

    async def _show(self, error_field: str = "", error: str = "", done: str = "") -> None:
        service = self.self_service
        await self.show(
            "sign-up.html",
            action=self.hub_url(SIGN_UP_PAGE),
            cancel=self.hub_url("login"),
            rule=rule_text(catalogue.translator_for(self)),
            needs_invitation=service.sign_up_needs_invitation,
            documents=service.documents,
            values={name: self.field(name) for name in KEPT_FIELDS},
            consents={name for name in service.documents if self.field(name) == "yes"},
            error_field=error_field,
            error=error,
            done=done,
        )


class VerifyEmailHandler(SignUpHandler):
    """Creates the account of a sign-up; the user must enter the password of the sign-up."""

    async def post(self) -> None:
        body = {
            "token": self.field("token")[:255],
            "password": self.field("password", strip=False),
            "rules": self.self_service.sign_up_rules(),
            **self.caller_fields(),
        }
        try:
            state = await self.authenticator.client.post("/auth/sign-up/verify", body)
        except errors.BaiError as error:
            status, field, text = self.problem(error)
            if isinstance(error, errors.InvalidRequest) and field in ("token", "password"):
                key = {"token": "sign_up.token_rejected", "password": "sign_up.password_rejected"}
                text = catalogue.translator_for(self)(key[field])
            self.set_status(status)
            await self._show(field or "other", text)
        else:
            await self.finish_step(state["next"])

    async def _show(self, error_field: str = "", error: str = "", done: str = "") -> None:
        await self.show(
            "verify-email.html",
            action=self.hub_url(VERIFY_PAGE),
            sign_up_page=self.hub_url(SIGN_UP_PAGE),
            cancel=self.hub_url("login"),
            token=self.field("token"),
            error_field=error_field,
            error=error,
            done=done,
        )


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    (f"/{SIGN_UP_PAGE}", SignUpHandler),
    (f"/{VERIFY_PAGE}", VerifyEmailHandler),
]
