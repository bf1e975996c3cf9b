"""The pages for a forgotten password: request a link, and set a new password with it.

The token is in the fragment of the URL (after ``#``), which browsers do not send to the server. The
page's script moves it into a field of the form, so it appears neither in request URLs nor in logs
or Referer headers. A virus scanner that only opens the link does not redeem the token.
"""

from __future__ import annotations

from http import HTTPStatus

from jupyterhub.handlers import BaseHandler

from bai_services.core import errors
from bai_services.i18n import catalogue

from .failures import rule_text
from .forms import FormPage

REQUEST_PAGE = "forgot-password"
RESET_PAGE = "reset-password"


class ForgotPasswordHandler(FormPage):
    """Sends a link to an e-mail address. The response never reveals whether an account exists."""

    async def get(self) -> None:
        self.remember_language()
        await self._show()

    async def post(self) -> None:
        email = self.field("email")
        translate = catalogue.translator_for(self)
        if not email:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show(error=translate("self_service.email_invalid"))
            return
        page = self.self_service.page_url(RESET_PAGE)
        body = {"email": email[:255], "page": page, **self.caller_fields()}
        try:
            await self.authenticator.client.post("/auth/password-reset", body)
        except errors.InvalidRequest:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show(email=email, error=translate("self_service.email_invalid"))
        except errors.BaiError as error:
            status, text = self.failure(error)
            self.set_status(status)
            await self._show(email=email, error=text)
        else:
            await self._show(email=email, is_sent=True)

    async def _show(self, email: str = "", error: str = "", is_sent: bool = False) -> None:
        await self.show(
            "forgot-password.html",
            action=self.hub_url(REQUEST_PAGE),
            cancel=self.hub_url("login"),
            email=email,
            error=error,
            is_sent=is_sent,
        )


class ResetPasswordHandler(FormPage):
    """Sets a new password with the token of a link."""

    async def get(self) -> None:
        self.remember_language()
        await self._show()

    async def post(self) -> None:
        new = self.field("new_password", strip=False)
        translate = catalogue.translator_for(self)
        if new != self.field("repeat_password", strip=False):
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show("repeat_password", translate("password.differs"))
            return
        body = {
            "token": self.field("token")[:255],
            "email": self.field("email")[:255],
            "new_password": new,
            **self.caller_fields(),
        }
        try:
            await self.authenticator.client.post("/auth/password-reset/redeem", body)
        except errors.BaiError as error:
            field = str(error.details.get("field", ""))
            status, text = self.failure(error)
            if field in ("token", "email"):
                text = translate(f"self_service.{field}_rejected")
            self.set_status(status)
            await self._show({"password": "new_password"}.get(field, field), text)
        else:
            self.redirect(self.hub_url("login", notice="password_reset"), status=303)

    async def _show(self, error_field: str = "", error: str = "") -> None:
        await self.show(
            "reset-password.html",
            action=self.hub_url(RESET_PAGE),
            request_page=self.hub_url(REQUEST_PAGE),
            cancel=self.hub_url("login"),
            token=self.field("token"),
            email=self.field("email"),
            rule=rule_text(catalogue.translator_for(self)),
            error_field=error_field,
            error=error,
        )


HANDLERS: list[tuple[str, type[BaseHandler]]] = [
    (f"/{REQUEST_PAGE}", ForgotPasswordHandler),
    (f"/{RESET_PAGE}", ResetPasswordHandler),
]
